package check

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// functions looks whether each recorded function is where and what it was.
func (v view) functions() []host.Finding {
	if f := v.notComparable(); f != nil {
		return f
	}
	var findings []host.Finding
	for _, f := range v.Contract.Value.Functions {
		if !v.isLost(f.Address) {
			findings = append(findings, v.identity(f)...)
		}
	}
	if findings == nil {
		return pass("%s where and what they were", plural(len(v.Contract.Value.Functions), "function"))
	}
	return findings
}

// identity says what is another one about a function than is recorded.
func (v view) identity(f machine.Function) []host.Finding {
	another := "gpustack host prepare --remove " + f.Address.String() + " returns it to the host; --device selects what is there instead"
	finding := host.Finding{
		Status: host.Fail, File: machine.AttributeFile(f.Address, ""),
		Effect: "Nova would offer another function to guests, or none",
		Remedy: another,
	}
	d := v.Devices.Value.At(f.Address)
	was := f.VendorID.String() + ":" + f.ProductID.String()
	switch {
	case d == nil || d.VendorID != nil && d.ProductID != nil && (*d.VendorID != f.VendorID || *d.ProductID != f.ProductID):
		finding.Seen = fmt.Sprintf("%s is gone (%s)", f.Address, was)
		if d != nil {
			finding.Seen = fmt.Sprintf("%s is another function: %s:%s, and %s was recorded", f.Address, d.VendorID, d.ProductID, was)
		}
		if moved, ok := v.moved[f.Address]; ok {
			finding.Seen = fmt.Sprintf("%s (%s) is renumbered: it is %s now", f.Address, was, moved)
			finding.Remedy = "gpustack host prepare --remove " + f.Address.String() + " --device " + moved.String() + "; the same in Nova's device_spec, if it names addresses"
		}
	case d.VendorID == nil || d.ProductID == nil:
		return na("%s: its ids could not be read", f.Address)
	case machine.Differs(d.SubsystemVendorID, f.SubsystemVendorID) || machine.Differs(d.SubsystemID, f.SubsystemID):
		finding.Seen = fmt.Sprintf("%s is on another board: %s:%s, and %s:%s was recorded", f.Address,
			orUnknown(d.SubsystemVendorID), orUnknown(d.SubsystemID), orUnknown(f.SubsystemVendorID), orUnknown(f.SubsystemID))
	case !slices.Equal(f.Path, v.Devices.Value.Path(d)):
		finding.Seen = fmt.Sprintf("%s is in another slot: below %s, and %s was recorded", f.Address, orRoot(v.Devices.Value.Path(d)), orRoot(f.Path))
	case f.SysfsPath != "" && v.Paths[f.Address] != "" && v.Paths[f.Address] != f.SysfsPath:
		finding.Seen = fmt.Sprintf("%s is at %s, and %s was recorded", f.Address, v.Paths[f.Address], f.SysfsPath)
		finding.Effect = "at the next boot, the initramfs leaves it to the host"
		finding.Remedy = "gpustack host prepare, if it is the same device: it records the path"
	default:
		return nil
	}
	if f.IsAt(v.Devices.Value) && finding.Remedy == another {
		finding.Effect = "guests get this device: " + f.Driver + " binds it by its ids"
		finding.Remedy = "gpustack host prepare, if it is meant for guests: it records what is there now; else gpustack host prepare --remove " + f.Address.String()
	}
	return one(finding)
}

func orUnknown(id *pci.ID) string {
	if id == nil {
		return "????"
	}
	return id.String()
}

func orRoot(path []pci.Address) string {
	var words []string
	for _, a := range path {
		words = append(words, a.String())
	}
	if words == nil {
		return "the root bus"
	}
	return strings.Join(words, " ")
}
