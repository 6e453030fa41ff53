package check

import (
	"cmp"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// functions checks whether each recorded function is still the same device at the same address, on
// the same board in the same slot.
func (v view) functions() []host.Finding {
	if f := v.notComparable(); f != nil {
		return f
	}
	var findings []host.Finding
	for _, f := range v.Contract.Value.Functions {
		if !v.isLost(f.Address) && !v.goesWith(f) {
			findings = append(findings, v.identity(f)...)
		}
	}
	return checklist.OrPass(findings, "%s unchanged, at the recorded addresses", host.Numbered(len(v.Contract.Value.Functions), "function"))
}

// goesWith reports whether a function, as an audio function does, has changed together with the
// selected one of its card: the remedy of that one is for both.
func (v view) goesWith(f machine.Function) bool {
	selected := v.Contract.Value.Selected
	return !slices.Contains(selected, f.Address) && slices.ContainsFunc(selected, func(a pci.Address) bool {
		return a.Card() == f.Address.Card() && v.unsettled[a] && !v.isLost(a)
	})
}

// identity returns a finding for each property in which a function differs from its record.
func (v view) identity(f machine.Function) []host.Finding {
	remove := host.NewCommand("host prepare").Flag("remove", f.Address.String())
	if !slices.Contains(v.Contract.Value.Selected, f.Address) { // it goes with those because of which it is recorded
		if command, accepted := v.without(f.Address); accepted {
			remove = command
		}
	}
	d := v.Devices.Value.At(f.Address)
	another := host.Textf("%s removes it from the record", remove)
	if d != nil {
		another = host.Textf("%s; --device selects the function that is there now", another)
	}
	finding := host.Finding{
		Status: host.Fail, File: machine.AttributeFile(f.Address, ""),
		Effect: "Nova would offer a different function to guests, or none",
		Remedy: another,
	}
	was := f.VendorID.String() + ":" + f.ProductID.String()
	switch differs := f.Identity().Compare(v.Devices.Value.Identity(f.Address)); {
	case differs == pci.Missing || differs == pci.OtherProduct:
		finding.Seen = fmt.Sprintf("%s is gone (%s)", f.Address, was)
		if d != nil {
			finding.Seen = fmt.Sprintf("%s is a different function: %s:%s; recorded was %s", f.Address, d.VendorID, d.ProductID, was)
		}
		if moved, ok := v.moved[f.Address]; ok {
			finding.Seen = fmt.Sprintf("%s (%s) was renumbered and is now at %s", f.Address, was, moved)
			finding.Remedy = host.Textf("%s; the same in Nova's device_spec, if it names addresses",
				host.NewCommand("host prepare").Flag("remove", f.Address.String()).Flag("device", moved.String()))
		}
	case differs == pci.IDsUnread:
		return checklist.NA("%s: vendor and product id cannot be read", f.Address)
	case differs == pci.OtherBoard:
		finding.Seen = fmt.Sprintf("%s is on a different board: %s:%s; recorded was %s:%s", f.Address,
			orUnknown(d.SubsystemVendorID), orUnknown(d.SubsystemID), orUnknown(f.SubsystemVendorID), orUnknown(f.SubsystemID))
	case differs == pci.OtherSlot:
		finding.Seen = fmt.Sprintf("%s is in a different slot: below %s; recorded was %s", f.Address, orRoot(v.Devices.Value.Path(d)), orRoot(f.Path))
	case f.SysfsPath != "" && v.Paths[f.Address] != "" && v.Paths[f.Address] != f.SysfsPath:
		finding.Seen = fmt.Sprintf("%s is at %s; recorded was %s", f.Address, v.Paths[f.Address], f.SysfsPath)
		finding.Effect = "at the next boot, it remains with the host"
		finding.Remedy = host.Textf("if it is the same device, %s records the new path", host.NewCommand("host prepare"))
	default:
		return nil
	}
	if f.IsAt(v.Devices.Value) && finding.Remedy.String() == another.String() {
		finding.Effect = "guests get this device: " + f.Driver + " binds it by its ids"
		finding.Remedy = host.Textf("if it is meant for guests, %s records it; otherwise %s",
			host.NewCommand("host prepare"), remove)
	}
	return []host.Finding{finding}
}

func orUnknown(id *pci.ID) string {
	if id == nil {
		return "????"
	}
	return id.String()
}

func orRoot(path []pci.Address) string {
	return cmp.Or(pci.Joined(path, " "), "the root bus")
}
