package novacheck

import (
	"cmp"
	"slices"

	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/devspec"
)

// Counts is what was checked.
type Counts struct {
	Files   int // that were read, each once
	Aliases int // different names
	// Devices are the functions that the device specs of the compute nodes offer to guests, or
	// without a compute node those of the aliases' products, in the order of hosts and addresses. It
	// is nil if no hardware is known: there is neither an inventory nor a machine with PCI functions.
	Devices []Function
}

// Function is a function of a host.
type Function struct {
	Host    string // empty for this machine
	Address pci.Address
}

// Count returns what [Run] checks.
func Count(r nova.Release, sides []nova.Side, hosts []nova.Host) Counts {
	c := newChecker(r, sides, hosts)
	var files []string
	for _, s := range c.sides {
		for _, f := range s.Files {
			if !slices.Contains(files, f.Name) {
				files = append(files, f.Name)
			}
		}
		c.readAliases(s)
		c.computes = c.computes || s.Role.Computes()
	}
	counts := Counts{Files: len(files), Aliases: len(c.aliases)}
	devices := []Function{}
	add := func(h nova.Host, d *pci.Device) {
		if f := (Function{h.Name, d.Address}); !slices.Contains(devices, f) {
			devices = append(devices, f)
		}
	}
	known := false
	for _, s := range c.sides {
		if !s.Role.Computes() {
			continue
		}
		lines := devspec.Lines(s.Compute().Files, r.SpecNames())
		machines, _ := c.machines(s)
		for _, m := range machines {
			known = true
			h := devspec.NewHardware(m.Devices, s.Interfaces)
			for i := range h.Devices {
				if _, ok := h.First(lines, &h.Devices[i]); ok {
					add(m, &h.Devices[i])
				}
			}
		}
	}
	for _, h := range c.hosts {
		known = true
		for i := range h.Devices {
			if d := &h.Devices[i]; !c.computes && c.isAsked(d) {
				add(h, d)
			}
		}
	}
	if known {
		slices.SortFunc(devices, func(a, b Function) int {
			return cmp.Or(cmp.Compare(a.Host, b.Host), a.Address.Compare(b.Address))
		})
		counts.Devices = devices
	}
	return counts
}

// isAsked reports whether an alias selects a device.
func (c *checker) isAsked(d *pci.Device) bool {
	for _, at := range c.aliases {
		if slices.ContainsFunc(at, func(a aliasAt) bool {
			return nova.IsProduct(a.object, d) && (d.DeviceType == nil || nova.TakesType(a.object, string(*d.DeviceType)))
		}) {
			return true
		}
	}
	return false
}
