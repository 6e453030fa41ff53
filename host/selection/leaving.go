package selection

import (
	"fmt"
	"path"
	"strings"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// label returns a name that operators recognize, such as "NIC eno1 (mlx5_core)", from a function's
// network interfaces or disks, or else its address.
func (n Node) label(root host.Root, a pci.Address) string {
	d := n.Devices.At(a)
	names, err := root.ReadDir(path.Join(machine.DevicesDir, a.String(), "net"))
	if err != nil || len(names) == 0 {
		names = disks(root, a)
	}
	if len(names) == 0 {
		return d.Label()
	}
	label := d.Kind() + " " + strings.Join(names, " ")
	if d.Driver != nil {
		label += " (" + *d.Driver + ")"
	}
	return label
}

// disks returns the names of the disks below a function. Errors are ignored because the names are
// only used in messages.
func disks(root host.Root, a pci.Address) (names []string) {
	const blockDir = "/sys/class/block"
	all, err := root.ReadDir(blockDir)
	if err != nil {
		return nil
	}
	dir, err := root.OpenDir(blockDir)
	if err != nil {
		return nil
	}
	defer dir.Close() //nolint:errcheck // only read from
	for _, name := range all {
		target, err := dir.Readlink(name)
		partition, existsErr := root.Exists(path.Join(blockDir, name, "partition"))
		if err == nil && existsErr == nil && !partition && strings.Contains(target, "/"+a.String()+"/") {
			names = append(names, name)
		}
	}
	return names
}

// Leaving returns warnings about functions that the host loses because --allow lifts their
// refusal, unless they are recorded already.
func (n Node) Leaving(root host.Root, lifted []*gate.Refusal) (warnings []string) {
	reasons := map[pci.Address][]string{}
	var leaving []pci.Address
	for _, r := range lifted {
		if !n.IsNew(r.Address) {
			continue
		}
		if reasons[r.Address] == nil {
			leaving = append(leaving, r.Address)
		}
		reasons[r.Address] = append(reasons[r.Address], r.Reason)
	}
	for _, a := range leaving {
		warnings = append(warnings, fmt.Sprintf("%s: the %s leaves the host at the next boot (allowed; otherwise refused: %s)",
			a, n.label(root, a), strings.Join(reasons[a], "; ")))
	}
	return warnings
}
