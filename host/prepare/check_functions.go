package prepare

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/initramfs"
	"gpustack/host/iommu"
	"gpustack/host/pci"
)

// preparable says what host prepare would refuse.
func (v view) preparable() []host.Finding {
	switch {
	case v.phase == unseen:
		return na("what is recorded is not known")
	case v.phase != unprepared:
		return na("is prepared")
	case !v.Devices.seen():
		return v.Devices.blind()
	}
	var findings []host.Finding
	for _, err := range v.Refused {
		f := host.Finding{Status: host.Fail, Seen: err.Error(), Effect: "gpustack host prepare refuses", Remedy: "gpustack host prepare --dry-run says the same, with a hint"}
		var refusal *Refusal
		switch {
		case errors.As(err, &refusal):
			if d := v.device(refusal.Address); isConsole(d) {
				continue // said by the check of that
			}
			f.File = fileOf(refusal.Address, "")
			f.Remedy = "--device selects other functions"
			if !refusal.Absolute {
				f.Remedy = "--device selects other functions, or these too; --allow ADDRESS lifts one refusal"
			}
		case errors.Is(err, ErrNoDevice):
			f.File = devicesDir
			f.Effect = "gpustack host prepare does not know what to select"
			f.Remedy = "--device or --vendor selects other functions: gpustack host scan --all"
		case errors.Is(err, ErrNoBootLoader), errors.Is(err, ErrNoKernel), errors.Is(err, initramfs.ErrNoMaker), errors.Is(err, ErrCPU) && v.CPUVendor == "unknown":
			// A tree that is not whole is no machine that lacks it.
			f.Status, f.Effect, f.Remedy = host.NA, "", ""
		}
		findings = append(findings, f)
	}
	if findings == nil {
		return pass("gpustack host prepare selects %s", listAddresses(v.forGuests()))
	}
	return findings
}

func isConsole(d *pci.Device) bool {
	return d != nil && d.BootVGA != nil && *d.BootVGA
}

func listAddresses(devices []pci.Device) string {
	var words []string
	for _, d := range devices {
		words = append(words, d.Address.String())
	}
	return strings.Join(words, " ")
}

// withoutFramebuffer are the arguments that keep the kernel from using the firmware's
// framebuffer (Linux, Documentation/admin-guide/kernel-parameters.txt,
// initcall_blacklist; drivers/firmware/sysfb.c; Documentation/fb/modedb.rst).
var withoutFramebuffer = []string{"initcall_blacklist=sysfb_init", "video=efifb:off", "video=vesafb:off", "video=simplefb:off"}

// console looks whether a GPU for guests is the one that the firmware's console is on.
func (v view) console() []host.Finding {
	if !v.Devices.seen() {
		return v.Devices.blind()
	}
	for _, d := range v.forGuests() {
		f := host.Finding{File: fileOf(d.Address, "boot_vga"), Seen: d.Address.String() + " is the console of the firmware"}
		switch {
		case !isConsole(&d):
			continue
		case v.phase == unprepared:
			f.Status = host.Fail
			f.Effect = "gpustack host prepare refuses it: the host would be without a console"
			f.Remedy = "make another display the first in the firmware's setup; --allow " + d.Address.String() + " lifts the refusal"
		case slices.ContainsFunc(v.Running.Value, func(arg string) bool { return slices.Contains(withoutFramebuffer, arg) }):
			return pass("%s, and the kernel leaves its framebuffer alone", f.Seen)
		default:
			f.Status = host.Warn
			f.Effect = "the kernel's framebuffer may hold its memory: then a guest with it does not start (can't reserve BAR)"
			f.Remedy = "make another display the first in the firmware's setup, or add initcall_blacklist=sysfb_init to the kernel's arguments"
		}
		return one(f)
	}
	return pass("no function for guests is the console of the firmware")
}

// bus looks for cards that have fallen off it.
func (v view) bus() []host.Finding {
	if !v.Devices.seen() {
		return v.Devices.blind()
	}
	var findings []host.Finding
	answer := 0
	functions := v.forGuests()
	for _, d := range functions {
		if v.lost(d.Address) {
			findings = append(findings, host.Finding{
				Status: host.Fail, File: fileOf(d.Address, "config"), Seen: d.Address.String() + " does not answer: all of its registers read ffff",
				Effect: "a guest with it fails, or takes the host with it",
				Remedy: "take it out of Nova's device_spec, and switch the host off and on; a mere reboot may not reset the card",
			})
		} else if v.Inspected[d.Address].Answers != nil {
			answer++
		}
	}
	switch {
	case findings != nil:
		return findings
	case len(functions) == 0:
		return na("there is no function for guests")
	case answer < len(functions):
		return na("the kernel shows the configuration of %d of %s", answer, plural(len(functions), "function"))
	}
	return pass("%s answer", plural(answer, "function"))
}

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
	finding := host.Finding{
		Status: host.Fail, File: fileOf(f.Address, ""),
		Effect: "Nova would give another function to guests, or none",
		Remedy: "gpustack host prepare --remove " + f.Address.String() + " lets it go; --device selects what is there instead",
	}
	d := v.device(f.Address)
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
	case !slices.Equal(f.Path, Node{Devices: v.Devices.Value}.path(d)):
		finding.Seen = fmt.Sprintf("%s is in another slot: below %s, and %s was recorded", f.Address, orRoot(Node{Devices: v.Devices.Value}.path(d)), orRoot(f.Path))
	default:
		return nil
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
	return pass("%s held as recorded", plural(held, "function"))
}

func drift(f Function, d pci.Device, file string) host.Finding {
	finding := host.Finding{
		Status: host.Fail, File: file, Seen: fmt.Sprintf("%s is held by %s instead of %s", f.Address, text(d.Driver), f.Driver),
		Effect: "its group cannot be given to a guest",
		Remedy: "boot anew, unless the host is meant to have it; what took it is in the kernel's log: journalctl -k -g " + f.Address.String(),
	}
	switch {
	case d.Driver == nil:
		finding.Seen = fmt.Sprintf("%s is held by no driver, and is to be by %s", f.Address, f.Driver)
		finding.Effect = "no guest can have it"
	case pci.LeavesAlone(*d.Driver):
		finding.Effect = "a guest may have it, and what holds it is not what was planned"
	}
	return finding
}

// groups looks whether each group of recorded functions has the members that it had,
// and could be given to a guest. A group that is wholly pci-stub's has no node of
// VFIO's: its members are judged, as of every group.
func (v view) groups() []host.Finding {
	if f := v.heldAgainstRecord(); f != nil {
		if functions := v.forGuests(); v.phase == unprepared && len(functions) > 0 {
			return na("nothing is recorded; now they are held by %s", holders(functions))
		}
		return f
	}
	if !v.isOn() {
		return na("the IOMMU is not on, or not seen")
	}
	byNumber := map[int]iommu.Group{}
	for _, g := range iommu.Groups(v.Devices.Value) {
		byNumber[g.Number] = g
	}
	var findings []host.Finding
	done := map[int]bool{}
	parted := map[pci.Address]bool{} // said to have left their group
	waits := false
	for _, f := range v.Contract.Value.Functions {
		d := v.device(f.Address)
		if d == nil || v.unsettled[f.Address] {
			continue
		}
		if d.IOMMUGroup == nil {
			parted[f.Address] = true
			findings = append(findings, host.Finding{
				Status: host.Fail, File: fileOf(f.Address, "iommu_group"), Seen: f.Address.String() + " is in no IOMMU group",
				Effect: "it cannot be given to a guest", Remedy: "the kernel's log tells why: journalctl -k -g 'DMAR|AMD-Vi|SMMU'",
			})
			continue
		}
		if number := *d.IOMMUGroup; !done[number] {
			done[number] = true
			found, wait := v.group(f, byNumber[number], parted)
			findings = append(findings, found...)
			waits = waits || wait
		}
	}
	switch {
	case findings != nil:
		return findings
	case len(done) == 0:
		return na("no recorded function is what and where it was")
	case waits:
		return na("%s with functions that are to be taken at the next boot", plural(len(done), "group"))
	}
	return pass("%s that could be given to guests, with the members recorded", plural(len(done), "group"))
}

// group judges the group of a recorded function. What blocks it and is to be taken at
// the next boot, or is found by another check, is not counted.
func (v view) group(f Function, g iommu.Group, parted map[pci.Address]bool) (findings []host.Finding, waits bool) {
	finding := host.Finding{
		Status: host.Fail, File: fmt.Sprintf("%s/%d/devices", groupsDir, g.Number),
		Effect: fmt.Sprintf("group %d cannot be given to guests as was planned", g.Number),
		Remedy: "another slot, kernel or firmware makes other groups; gpustack host prepare plans for what is there now",
	}
	var come []pci.Address
	if f.Group != nil {
		for _, a := range g.Members {
			if !slices.Contains(f.Members, a) && !v.hasMovedTo(a) {
				come = append(come, a)
			}
		}
		for _, a := range f.Members {
			if said := v.unsettled[a] || parted[a] || parted[f.Address]; !said && !slices.Contains(g.Members, a) {
				parted[a] = true
				finding.Seen = fmt.Sprintf("group %d no longer has %s", g.Number, a)
				findings = append(findings, finding)
			}
		}
		for _, a := range come {
			finding.Seen = fmt.Sprintf("group %d has %s too, which was not in it", g.Number, a)
			findings = append(findings, finding)
		}
	}
	for _, b := range g.Blockers {
		recorded := v.recorded(b.Address) != nil
		switch {
		case recorded:
			waits = waits || v.phase == pending
		case !slices.Contains(come, b.Address):
			finding.Seen = fmt.Sprintf("group %d has %s, %s", g.Number, b.Address, b.Reason)
			finding.Remedy = "move one of the cards to another slot, or let both go to guests: gpustack host prepare --device " + b.Address.String()
			findings = append(findings, finding)
		}
	}
	return findings, waits
}

// holders names the drivers of functions.
func holders(functions []pci.Device) string {
	var names []string
	for _, d := range functions {
		name := text(d.Driver)
		if d.Driver == nil {
			name = "no driver"
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// resets looks whether the kernel can reset each GPU for guests by itself.
func (v view) resets() []host.Finding {
	if !v.Devices.seen() {
		return v.Devices.blind()
	}
	// Kernels tell since 5.15, of functions that they can reset; older ones have a
	// file reset for those.
	tells := slices.ContainsFunc(v.Devices.Value, func(d pci.Device) bool { return d.ResetMethods != nil })
	for _, i := range v.Inspected {
		tells = tells || i.Resets
	}
	var findings []host.Finding
	var methods []string
	gpus := 0
	for _, d := range v.forGuests() {
		if !d.IsDisplay() {
			continue // goes the way of its GPU
		}
		gpus++
		if len(d.ResetMethods) > 0 || d.ResetMethods == nil && v.Inspected[d.Address].Resets {
			methods = addIDs(methods, strings.Join(d.ResetMethods, ","))
			continue
		}
		findings = append(findings, host.Finding{
			Status: host.Warn, File: fileOf(d.Address, "reset_method"), Seen: d.Address.String() + " has no way to be reset that the kernel knows",
			Effect: "when its guest stops, the card may stay as it was, or dead until the host is switched off",
			Remedy: "see whether a second guest gets a working card; if not, keep it out of Nova's device_spec",
		})
	}
	switch {
	case gpus == 0:
		return na("there is no GPU for guests")
	case !tells:
		return na("this kernel does not tell")
	case findings != nil:
		return findings
	case methods == nil:
		return pass("each of %s can be reset", plural(gpus, "GPU"))
	}
	return pass("each of %s can be reset: %s", plural(gpus, "GPU"), strings.Join(methods, ", "))
}

// window is where a UEFI guest's firmware puts memory above 4 GiB, unless it is told how
// far the processor's addresses reach (EDK II, OvmfPkg/OvmfPkg.dec,
// PcdPciMmio64Size).
const window = 32 << 30

// bars looks for regions that found no place on the host, and for those that are too
// large for guests as they are by default. The latter is said with a pass: nothing is
// wrong with this host, nothing here could mend it, and a warning that never goes hides
// others.
func (v view) bars() []host.Finding {
	if !v.Devices.seen() {
		return v.Devices.blind()
	}
	var findings []host.Finding
	seen, large := false, 0
	var largest uint64
	for _, d := range v.forGuests() {
		i := v.Inspected[d.Address]
		seen = seen || i.BARs != nil
		var wide uint64
		for _, b := range i.BARs {
			if b.Unplaced {
				findings = append(findings, host.Finding{
					Status: host.Fail, File: fileOf(d.Address, "resource"), Seen: fmt.Sprintf("%s: the host has no place for region %d, %s", d.Address, b.Number, size(b.Size)),
					Effect: "neither host nor guest can use it",
					Remedy: "switch on memory above 4 GiB in the firmware's setup: Above 4G Decoding, Large BAR; a newer firmware may place more",
				})
			}
			if b.Wide && b.Prefetchable {
				wide += b.Size
				largest = max(largest, b.Size)
			}
		}
		if wide > window {
			large++
		}
	}
	switch {
	case findings != nil:
		return findings
	case !seen:
		return na("the kernel shows no regions of functions for guests")
	case large == 0:
		return pass("all have a place; the largest above 4 GiB is of %s", size(largest))
	}
	f := pass("all have a place; %s with more than %s above 4 GiB, up to %s in one region", plural(large, "function"), size(window), size(largest))[0]
	f.Effect = fmt.Sprintf("by default a UEFI guest has %s there for all of its functions, and does not see those that do not fit", size(window))
	f.Remedy = "for UEFI guests let the flavor pass the processor's address size on: hw:maxphysaddr_mode=passthrough, from Nova 2023.1 on"
	return one(f)
}

// size writes a power of two as people do.
func size(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	if n == 0 {
		return "0 bytes"
	}
	unit := (bits.Len64(n) - 1) / 10
	return fmt.Sprintf("%d %s", n>>(10*unit), units[unit])
}
