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

// Names are the names of network interfaces, or else of disks, that operators recognize functions
// by.
type Names map[pci.Address][]string

// ReadNames reads the names of functions. Errors are ignored because names are only used in
// messages.
func ReadNames(root host.Root, devices pci.Devices) Names {
	names := disks(root)
	for i := range devices {
		a := devices[i].Address
		if interfaces, err := root.ReadDir(path.Join(machine.DevicesDir, a.String(), "net")); err == nil && len(interfaces) > 0 {
			names[a] = interfaces
		}
	}
	return names
}

// label returns a name that operators recognize, such as "NIC eno1 (mlx5_core)", from a function's
// network interfaces or disks, or else its address.
func (n Node) label(of Names, a pci.Address) string {
	d, names := n.Devices.At(a), of[a]
	if len(names) == 0 {
		return d.Label()
	}
	label := d.Kind() + " " + strings.Join(names, " ")
	if d.Driver != nil {
		label += " (" + *d.Driver + ")"
	}
	return label
}

// disks returns the names of disks by the functions above them.
func disks(root host.Root) Names {
	const blockDir = "/sys/class/block"
	names := Names{}
	all, err := root.ReadDir(blockDir)
	if err != nil {
		return names
	}
	dir, err := root.OpenDir(blockDir)
	if err != nil {
		return names
	}
	defer dir.Close() //nolint:errcheck // only read from
	for _, name := range all {
		target, err := dir.Readlink(name)
		partition, existsErr := root.Exists(path.Join(blockDir, name, "partition"))
		if err != nil || existsErr != nil || partition {
			continue
		}
		for part := range strings.SplitSeq(path.Dir(target), "/") {
			if a, err := pci.ParseAddress(part); err == nil && part == a.String() {
				names[a] = append(names[a], name)
			}
		}
	}
	return names
}

// Leaving returns warnings about functions that the host loses because --allow lifts their
// refusal, unless they are recorded already.
func (n Node) Leaving(names Names, lifted []*gate.Refusal) (warnings []string) {
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
			a, n.label(names, a), strings.Join(reasons[a], "; ")))
	}
	return warnings
}
