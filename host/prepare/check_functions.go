package prepare

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// identities looks whether each recorded function is where and what it was.
func (v view) identities() []host.Finding {
	if f := v.heldAgainstRecord(); f != nil {
		return f
	}
	var findings []host.Finding
	for _, f := range v.Contract.Value.Functions {
		if !v.lost(f.Address) {
			findings = append(findings, v.identity(f)...)
		}
	}
	if findings == nil {
		return pass("%s where and what they were", plural(len(v.Contract.Value.Functions), "function"))
	}
	return findings
}

// heldAgainstRecord says why functions cannot be held against what is recorded.
func (v view) heldAgainstRecord() []host.Finding {
	switch {
	case v.phase == unseen:
		return na("what is recorded is not known")
	case v.phase == unprepared:
		return na("nothing is recorded")
	case !v.Devices.seen():
		return v.Devices.blind()
	}
	return nil
}

// identity says what is another one about a function than is recorded.
func (v view) identity(f Function) []host.Finding {
	n := Node{Devices: v.Devices.Value}
	another := "gpustack host prepare --remove " + f.Address.String() + " returns it to the host; --device selects what is there instead"
	finding := host.Finding{
		Status: host.Fail, File: fileOf(f.Address, ""),
		Effect: "Nova would offer another function to guests, or none",
		Remedy: another,
	}
	d := n.device(f.Address)
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
	case differs(d.SubsystemVendorID, f.SubsystemVendorID) || differs(d.SubsystemID, f.SubsystemID):
		finding.Seen = fmt.Sprintf("%s is on another board: %s:%s, and %s:%s was recorded", f.Address,
			orUnknown(d.SubsystemVendorID), orUnknown(d.SubsystemID), orUnknown(f.SubsystemVendorID), orUnknown(f.SubsystemID))
	case !slices.Equal(f.Path, n.path(d)):
		finding.Seen = fmt.Sprintf("%s is in another slot: below %s, and %s was recorded", f.Address, orRoot(n.path(d)), orRoot(f.Path))
	case f.SysfsPath != "" && v.Paths[f.Address] != "" && v.Paths[f.Address] != f.SysfsPath:
		finding.Seen = fmt.Sprintf("%s is at %s, and %s was recorded", f.Address, v.Paths[f.Address], f.SysfsPath)
		finding.Effect = "at the next boot, the initramfs leaves it to the host"
		finding.Remedy = "gpustack host prepare, if it is the same device: it records the path"
	default:
		return nil
	}
	if n.isAt(f) && finding.Remedy == another {
		finding.Effect = "guests get this device: " + f.Driver + " binds it by its ids"
		finding.Remedy = "gpustack host prepare, if it is meant for guests: it records what is there now; else gpustack host prepare --remove " + f.Address.String()
	}
	return one(finding)
}

// findMoved looks for a recorded function that is not at its address: it is the one
// function that is the same, at an address that is not recorded.
func (v view) findMoved(f Function) {
	same := func(d *pci.Device) bool {
		return d != nil && d.IsVendor(f.VendorID) && d.ProductID != nil && *d.ProductID == f.ProductID &&
			!differs(d.SubsystemVendorID, f.SubsystemVendorID) && !differs(d.SubsystemID, f.SubsystemID)
	}
	if same(v.device(f.Address)) {
		return
	}
	var found []pci.Address
	for i := range v.Devices.Value {
		if d := &v.Devices.Value[i]; same(d) && d.Address.Function == f.Address.Function && v.recorded(d.Address) == nil {
			found = append(found, d.Address)
		}
	}
	if len(found) == 1 {
		v.moved[f.Address] = found[0]
	}
}

// differs tells whether two ids that are known are not the same.
func differs(a, b *pci.ID) bool {
	return a != nil && b != nil && *a != *b
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

// drivers looks whether each recorded function is held by its driver.
func (v view) drivers() []host.Finding {
	if f := v.heldAgainstRecord(); f != nil {
		return f
	}
	var findings []host.Finding
	held, waits := 0, 0
	for _, f := range v.Contract.Value.Functions {
		d := v.device(f.Address)
		if d == nil || v.unsettled[f.Address] {
			continue
		}
		file := fileOf(f.Address, "driver")
		switch {
		case d.DriverUnread():
			findings = append(findings, host.Finding{Status: host.NA, File: file, Seen: f.Address.String() + ": its driver cannot be read"})
		case sameDriver(text(d.Driver), f.Driver):
			held++
		case mayBeBorrowed(f, *d) && d.IOMMUGroup != nil && v.Open.Value[*d.IOMMUGroup]:
			held++
		case mayBeBorrowed(f, *d) && !v.Open.seen():
			findings = append(findings, host.Finding{
				Status: host.NA, File: file,
				Seen: fmt.Sprintf("%s is held by %s instead of %s, as while a guest has it; whether one has cannot be seen: %v", f.Address, *d.Driver, f.Driver, host.Cause(v.Open.Err)),
			})
		case v.phase == pending:
			waits++
		default:
			findings = append(findings, drift(f, *d, file))
		}
	}
	switch {
	case findings != nil:
		return findings
	case waits > 0:
		return na("%s to be taken at the next boot", plural(waits, "function"))
	case held == 0:
		return na("no recorded function is what and where it was")
	}
	f := pass("%s held as recorded", plural(held, "function"))
	if lines := v.Claims.Value; len(lines) > 0 {
		f[0].Effect = "the kernel's log says: " + strings.Join(slices.Compact(lines), "; ")
	}
	return f
}

func drift(f Function, d pci.Device, file string) host.Finding {
	finding := host.Finding{
		Status: host.Fail, File: file, Seen: fmt.Sprintf("%s is held by %s instead of %s", f.Address, text(d.Driver), f.Driver),
		Effect: "its group cannot be given to a guest",
		Remedy: "gpustack host bind takes it now, unless the host is meant to have it; what took it is in the kernel's log: journalctl -k -g " + f.Address.String(),
	}
	switch {
	case d.Driver == nil:
		finding.Seen = fmt.Sprintf("%s is held by no driver, and is to be by %s", f.Address, f.Driver)
		finding.Effect = "no guest can have it"
	case pci.LeavesAlone(*d.Driver):
		finding.Effect = "a guest may have it, and what holds it is not what was planned"
	}
	if isConsole(&d) && !f.BootVGA {
		finding.Seen += "; since it was recorded, it has become the console"
		finding.Remedy = "make another display the first in the firmware's setup, or assign it to guests: gpustack host prepare --allow " + f.Address.String()
	}
	return finding
}
