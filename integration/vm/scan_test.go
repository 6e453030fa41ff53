package vm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/iommu"
	"gpustack/host/pci"
)

// A view is what can be said of functions and groups: a line for each, of the kernel's
// own words.
type view struct {
	Functions, Groups []string
}

// kernelView asks sysfs by a shell. Groups are listed by the kernel's own folder of
// them, where gpustack goes by the functions.
func (m machine) kernelView() (v view) {
	m.t.Helper()
	const script = `
value() { v=; [ ! -e "$1" ] || read -r v <"$1"; echo "$v"; }
target() { [ ! -e "$1" ] || basename "$(readlink "$1")"; }
for d in /sys/bus/pci/devices/*; do
	set -- "$(value $d/vendor)" "$(value $d/device)" "$(value $d/class)"
	echo "$(basename $d) ${1#0x}:${2#0x} class=$3 driver=$(target $d/driver) group=$(target $d/iommu_group)" \
		"boot_vga=$(value $d/boot_vga) vfs=$(value $d/sriov_numvfs)/$(value $d/sriov_totalvfs) pf=$(target $d/physfn)"
done
for g in /sys/kernel/iommu_groups/*; do
	[ ! -d "$g" ] || echo "group $(basename $g): $(echo $(ls $g/devices))"
done
`
	for line := range strings.Lines(m.run("sh", "-c", script)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "group ") {
			v.Groups = append(v.Groups, line)
		} else {
			v.Functions = append(v.Functions, line)
		}
	}
	slices.Sort(v.Groups)
	return v
}

// A scanned is what host scan -o json prints, as far as it is looked at here.
type scanned struct {
	System struct {
		Kernel    string `json:"kernel"`
		CPUVendor string `json:"cpu_vendor"`
		IOMMU     iommu.State
	}
	Devices  []pci.Device
	Groups   []iommu.Group
	Warnings []string
}

func (m machine) scan(args ...string) (s scanned) {
	m.t.Helper()
	out := m.run(append([]string{"gpustack", "host", "scan", "-o", "json"}, args...)...)
	hosttest.NoError(m.t, json.Unmarshal([]byte(out), &s))
	return s
}

// view words a scan as kernelView does.
func (s scanned) view() (v view) {
	for _, d := range s.Devices {
		boot := map[host.Bool]string{host.Unknown: "", host.No: "0", host.Yes: "1"}[d.BootVGA]
		v.Functions = append(v.Functions, fmt.Sprintf("%s %s:%s class=0x%s00 driver=%s group=%s boot_vga=%s vfs=%s/%s pf=%s",
			d.Address, word(d.VendorID), word(d.ProductID), word(d.Class), word(d.Driver), word(d.IOMMUGroup), boot, word(d.SRIOV.NumVFs), word(d.SRIOV.TotalVFs), word(d.SRIOV.PF)))
	}
	for _, g := range s.Groups {
		var members []string
		for _, a := range g.Members {
			members = append(members, a.String())
		}
		v.Groups = append(v.Groups, fmt.Sprintf("group %d: %s", g.Number, strings.Join(members, " ")))
	}
	slices.Sort(v.Groups)
	return v
}

func word[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

// scanIsTheKernels compares the scan with the kernel's view while that does not change: a driver
// may still be at work on a function, as nvme is, which leaves a virtual function after it has
// not become ready.
func (m machine) scanIsTheKernels() {
	m.t.Helper()
	const tries = 20
	kernel, scan := m.kernelView(), m.scan("--all")
	for try := 1; ; try++ {
		after := m.kernelView()
		if cmp.Equal(kernel, after) {
			break
		}
		if try == tries {
			m.t.Fatalf("the kernel's view still changes (-before +after):\n%s", cmp.Diff(kernel, after))
		}
		kernel, scan = after, m.scan("--all")
	}
	// The last two digits of a class say how a function is programmed. No scan tells.
	for i := range kernel.Functions {
		kernel.Functions[i] = classes.ReplaceAllString(kernel.Functions[i], "class=${1}00")
	}
	hosttest.EqualIn(m.t, "kernel and scan", kernel, scan.view())
	if len(scan.Warnings) > 0 {
		m.t.Errorf("warnings: %q", scan.Warnings)
	}
}

// groupOf returns the members of the group of a function, but for the domain, which is
// 0000.
func (s scanned) groupOf(address string) string {
	for _, g := range s.Groups {
		var members []string
		for _, a := range g.Members {
			members = append(members, strings.TrimPrefix(a.String(), "0000:"))
		}
		if slices.Contains(members, address) {
			return strings.Join(members, " ")
		}
	}
	return ""
}

func (s scanned) device(t *testing.T, address string) pci.Device {
	t.Helper()
	for _, d := range s.Devices {
		if d.Address.String() == "0000:"+address {
			return d
		}
	}
	t.Fatalf("%s is not among the functions scanned", address)
	return pci.Device{}
}
