package views

import (
	"strconv"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova/flavor"
)

// printFit prints how the sizes of a flavor were derived, and the guests of each host.
func printFit(u *term.UI, f flavor.Fit) {
	u.Printf("\neach device: %d vCPUs and %s of RAM, the smallest share of all hosts; in each NUMA node %s and %s remain with the host\n\n",
		f.VCPUs, flavor.Size(f.RAM, flavor.MiB), host.Numbered(f.Reserve.Cores, "core"), flavor.Size(f.Reserve.Memory, flavor.MiB))
	rows := rowsOf(f.Hosts, func(h flavor.FitHost) []string {
		ram := flavor.Size(h.RAM, flavor.MiB)
		if h.HugePages {
			ram += " (huge pages)"
		}
		return []string{h.Host, strconv.Itoa(h.Devices), strconv.Itoa(h.Guests), strconv.Itoa(h.Within), strconv.Itoa(h.VCPUs), ram}
	})
	u.Table([]string{"HOST", "DEVICES", "GUESTS", "IN ONE NODE", "VCPUS EACH", "RAM EACH"}, rows)
}
