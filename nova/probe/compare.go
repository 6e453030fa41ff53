package probe

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host/pci"
)

// Wanted is how many devices of each product a guest should have.
type Wanted map[ID]int

// Verdict says whether a guest has the devices that it should have.
type Verdict string

// The three verdicts.
const (
	Pass    Verdict = "pass"
	Fail    Verdict = "fail"
	Unknown Verdict = "unknown" // the guest did not say enough
)

// Result is a report compared with the wanted devices.
type Result struct {
	Verdict    Verdict
	Seen       map[ID]int    // devices of each wanted product
	Others     map[ID]int    // of all other products
	Unassigned []pci.Address // wanted devices with a memory region that has no address
	Reasons    []string      // why the verdict is not pass, a sentence each
	Remedy     string        // what to do about Unassigned, or ""
}

// unassignedRemedy follows from how a guest's firmware finds room for large regions: OVMF derives
// its range from the guest's physical address bits (EDK II, OvmfPkg/Library/PlatformInitLib).
const unassignedRemedy = "the guest's firmware or kernel has no room for all memory regions: use an image with hw_machine_type=q35 and " +
	"hw_firmware_type=uefi, and hw_maxphysaddr_mode=passthrough where Nova supports it"

// Compare compares a report with the wanted devices. Only wanted products count: a guest may have
// other functions, of its virtual hardware and of devices that share a product's card.
func Compare(wanted Wanted, r Report) Result {
	result := Result{Verdict: Pass, Seen: map[ID]int{}, Others: map[ID]int{}, Unassigned: []pci.Address{}, Reasons: []string{}}
	for id := range wanted {
		result.Seen[id] = 0
	}
	if r.Unread {
		result.Verdict = Unknown
		result.Reasons = append(result.Reasons, "the guest has no /sys, where Linux shows PCI devices")
		return result
	}
	var unread, unassigned []string
	for _, d := range r.Devices {
		if _, counts := wanted[d.ID]; !counts {
			result.Others[d.ID]++
			continue
		}
		result.Seen[d.ID]++
		switch {
		case d.Unread:
			unread = append(unread, d.Address.String())
		case !d.Assigned:
			result.Unassigned = append(result.Unassigned, d.Address)
			unassigned = append(unassigned, d.Address.String())
		}
	}
	if unread != nil {
		result.Verdict = Unknown
		result.Reasons = append(result.Reasons, "the guest's kernel does not show the memory regions of "+strings.Join(unread, ", "))
	}
	for _, id := range sorted(wanted) {
		if seen := result.Seen[id]; seen != wanted[id] {
			result.Verdict = Fail
			result.Reasons = append(result.Reasons, fmt.Sprintf("%s: %d wanted, %d seen", id, wanted[id], seen))
		}
	}
	if result.Verdict == Fail {
		if others := result.relatives(); others != "" {
			result.Reasons = append(result.Reasons, "other functions of the same vendor: "+others)
		}
	}
	if unassigned != nil {
		result.Verdict = Fail
		result.Reasons = append(result.Reasons, "no addresses for a memory region of "+strings.Join(unassigned, ", "))
		result.Remedy = unassignedRemedy
	}
	return result
}

// relatives lists what else the guest has of the vendors of wanted products.
func (r Result) relatives() string {
	var all []string
	for _, id := range sorted(r.Others) {
		for wanted := range r.Seen {
			if wanted.Vendor == id.Vendor {
				all = append(all, fmt.Sprintf("%d × %s", r.Others[id], id))
				break
			}
		}
	}
	return strings.Join(all, ", ")
}

// GPUs returns how many GPUs of NVIDIA a guest should have, by the class that its functions have:
// an alias may also request NVSwitches, or the audio functions of GPUs.
func GPUs(wanted Wanted, r Report) (n int) {
	for id, count := range wanted {
		if slices.ContainsFunc(r.Devices, func(d Device) bool { return d.ID == id && d.isNVIDIAGPU() }) {
			n += count
		}
	}
	return n
}

func (d Device) isNVIDIAGPU() bool {
	is := pci.Device{VendorID: &d.ID.Vendor, ProductID: &d.ID.Product, Class: d.Class}
	return is.IsNVIDIAGPU()
}

func sorted(m map[ID]int) []ID {
	return slices.SortedFunc(maps.Keys(m), func(a, b ID) int {
		return cmp.Or(cmp.Compare(a.Vendor, b.Vendor), cmp.Compare(a.Product, b.Product))
	})
}
