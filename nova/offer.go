package nova

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/pci"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// Offered is what the configuration files of nova-compute offer of a machine's functions. It
// answers for every command what nova.conf offers of some functions, and which driver has each.
type Offered struct {
	Files     []string           // the name of each nova-compute's files, see [Side.Name]; none: the machine runs no nova-compute
	Functions []devspec.Reported // with the first device_spec that matches each
	Lacking   []devspec.Reported // specs of one address that no function matches, without a function
	aliases   []Named
	sides     []Side // of each nova-compute
	devices   []pci.Device
}

// NewOffered returns what the sides that run nova-compute offer of devices.
func NewOffered(r Release, sides []Side, devices []pci.Device) Offered {
	o := Offered{devices: devices}
	for _, s := range sides {
		if !s.Role.Computes() {
			continue
		}
		o.Files = append(o.Files, s.Name())
		s = s.Compute()
		names, _ := s.named(r) // malformed ones are reported where aliases are checked
		o.aliases, o.sides = append(o.aliases, names...), append(o.sides, s)
		lines := devspec.Lines(s.Files, r.SpecNames())
		h := devspec.NewHardware(devices, s.Interfaces)
		for i := range devices {
			if found, ok := h.First(lines, &devices[i]); ok {
				o.Functions = append(o.Functions, found)
			}
		}
		for _, l := range lines {
			for _, spec := range l.Specs {
				if len(devices) > 0 && h.Lacks(spec) {
					o.Lacking = append(o.Lacking, devspec.Reported{Line: l, Spec: spec})
				}
			}
		}
	}
	return o
}

// ReadOffered returns what the nova-computes of the machine below root offer of its devices, by the
// installed release, or by the newest where that is unknown. A machine without files of Nova offers
// nothing. recorded is as for [Observe]. planned are changes of the files that count as made.
func ReadOffered(root host.Root, devices []pci.Device, recorded Recorded, planned edit.Changes) (Offered, error) {
	sides, _, err := ReadServices(root, "", "", recorded)
	if errors.Is(err, ErrUnset) {
		return Offered{}, nil
	}
	interfaces, interfacesErr := devspec.Interfaces(root)
	if err := errors.Join(err, interfacesErr); err != nil {
		return Offered{}, err
	}
	for i := range sides {
		sides[i].Interfaces = interfaces
		for _, c := range planned {
			k := slices.IndexFunc(sides[i].Files, func(f conf.Source) bool { return f.Name == c.Name })
			switch {
			case k < 0:
			case c.After == nil:
				sides[i].Files = slices.Delete(slices.Clone(sides[i].Files), k, k+1)
			default:
				if sides[i].Files[k].File, err = parseConf(c.Name, c.After.Content); err != nil {
					return Offered{}, err
				}
			}
		}
	}
	r, _, err := Release(0).OrInstalled(root)
	if err != nil {
		r = Newest
	}
	return NewOffered(r, sides, devices), nil
}

// Lacks returns those of functions that no nova-compute offers. Without a nova-compute, none is
// lacking.
func (o Offered) Lacks(functions []pci.Address) (lacking []pci.Address) {
	if len(o.Files) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(functions), func(a pci.Address) bool { return len(o.Of([]pci.Address{a})) > 0 })
}

// Of returns what is offered of functions.
func (o Offered) Of(functions []pci.Address) []devspec.Reported {
	return slices.DeleteFunc(slices.Clone(o.Functions), func(f devspec.Reported) bool { return !slices.Contains(functions, f.Device.Address) })
}

// OfHost returns the GPUs, and those of the selected functions, that are offered although a driver
// of the host has them. Other devices are among them only if a device_spec matches whatever there
// is, or the host needs them and the spec is not for ports. Virtual functions that it does not need
// are not: libvirt unbinds those of network adapters from such a driver, and those of vGPUs work
// with it.
func (o Offered) OfHost(selected, needed []pci.Address) []devspec.Reported {
	return slices.DeleteFunc(slices.Clone(o.Functions), func(f devspec.Reported) bool {
		isNeeded := slices.Contains(needed, f.Device.Address) && !f.Spec.IsOfPorts() && !f.Device.IsBridge()
		isMeant := f.Device.IsGPU() || slices.Contains(selected, f.Device.Address) || f.Spec.IsOpen() && !f.Device.IsBridge()
		return f.Device.DriverName() == "" || pci.LeavesAlone(f.Device.DriverName()) || !isNeeded && (f.Device.SRIOV.PF != nil || !isMeant)
	})
}

// ReadyGPUs returns the GPUs that are offered and bound for guests, without virtual functions.
func (o Offered) ReadyGPUs() []devspec.Reported {
	return slices.DeleteFunc(slices.Clone(o.Functions), func(f devspec.Reported) bool {
		return f.Device.SRIOV.PF != nil || !f.Device.IsGPU() || !pci.LeavesAlone(f.Device.DriverName())
	})
}

// ByLine returns functions of Offered by the device_spec line that offers them, in the order of the
// lines.
func ByLine(functions []devspec.Reported) (lines [][]devspec.Reported) {
	for _, f := range functions {
		i := slices.IndexFunc(lines, func(l []devspec.Reported) bool { return l[0].Line.Where() == f.Line.Where() })
		if i < 0 {
			i, lines = len(lines), append(lines, nil)
		}
		lines[i] = append(lines[i], f)
	}
	return lines
}

// Configure returns the nova configure that offers what is prepared on a machine. A GPU of an unknown
// model has no name: then each product without an alias is named, that one by its id.
func (o Offered) Configure(m ComputeNode) host.Command {
	derives := Configure(Compute)
	names, isUnknown := derives, false
	isForGuests := Host{Devices: m.Devices, Given: m.Given, Containers: m.Containers}.gpus()
	var seen []string
	for i := range m.Devices {
		d := &m.Devices[i]
		if !slices.Contains(m.Given, d.Address) || !isForGuests(d) ||
			slices.ContainsFunc(o.aliases, func(n Named) bool { return n.selects(*d.VendorID, *d.ProductID) }) {
			continue
		}
		name := cmp.Or(AliasName(d), d.ProductID.String())
		if alias := fmt.Sprintf("%s=%s:%s", name, d.VendorID, d.ProductID); !slices.Contains(seen, alias) {
			seen, names = append(seen, alias), names.Flag("alias", alias)
		}
		isUnknown = isUnknown || AliasName(d) == ""
	}
	if isUnknown {
		return names
	}
	return derives
}

// Withdraw returns how functions that one line offers are no longer offered: by the tool that
// generates the file, by nova configure, which writes specs by address while functions of the
// product remain recorded for guests, or by hand, where it cannot tell that the line is its own or
// where it refuses the files.
func (o Offered) Withdraw(functions []devspec.Reported, recorded []pci.Address) host.Text {
	file, spec := functions[0].Line.File, functions[0].Spec
	configure := Configure(Compute)
	isRefused := false // by nova configure: a tool generates a file of that nova-compute
	for _, s := range o.sides {
		isOf := slices.ContainsFunc(s.Files, func(f conf.Source) bool { return f.Name == file })
		for _, f := range s.Files {
			owner, where := conf.Owner(f.Name, f.File.Bytes())
			if owner != "" && f.Name == file {
				return host.Textf("remove the device_spec where %s generates the file: %s", owner, where)
			}
			isRefused = isRefused || isOf && owner != ""
		}
	}
	isOfProduct := !spec.Faulty && !spec.IsOfPorts() && spec.Vendor != devspec.Anything && spec.Product != devspec.Anything
	onLine := func(f devspec.Reported) bool { return f.Line.Where() == functions[0].Line.Where() }
	remain := slices.ContainsFunc(o.devices, func(d pci.Device) bool {
		isSame := d.VendorID != nil && d.ProductID != nil && spec.MatchesIDs(d.VendorID.String(), d.ProductID.String())
		return slices.Contains(recorded, d.Address) && (isSame || slices.ContainsFunc(o.Of([]pci.Address{d.Address}), onLine)) &&
			!slices.ContainsFunc(functions, func(w devspec.Reported) bool { return w.Device.Address == d.Address })
	})
	switch {
	case !isOfProduct, remain && !IsOwn(spec):
		return host.Plain("remove the functions from the device_spec")
	case isRefused:
		return host.Plain("remove the device_spec")
	case remain:
		return host.Textf("run %s, which writes device specs by address", configure)
	}
	remove := configure
	for _, a := range o.aliases {
		if a.HasIDs && spec.MatchesIDs(a.VendorID.String(), a.ProductID.String()) {
			remove = remove.Flag("remove-alias", a.Name)
		}
	}
	if !remove.HasFlag("remove-alias") {
		return host.Plain("remove the device_spec")
	}
	return host.Textf("run %s", remove)
}
