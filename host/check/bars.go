package check

import (
	"fmt"
	"math/bits"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// window is the size of the address range in which a UEFI guest's firmware places memory above 4
// GiB, unless QEMU passes the range of the processor's addresses (EDK II, OvmfPkg/OvmfPkg.dec,
// PcdPciMmio64Size).
const window = 32 << 30

// bars finds memory regions that have no address on the host, and those that are too large for
// guests with default settings, with a pass. The latter are reported with a pass: nothing is wrong
// with this host and nothing on it can change them, and a permanent warning would hide others.
func (v view) bars() []host.Finding {
	if !v.Devices.Seen() {
		return unread(v.Devices)
	}
	var findings []host.Finding
	seen, large := false, 0
	var largest uint64
	for _, d := range v.Guests {
		i := v.Inspected[d.Address]
		seen = seen || i.BARs != nil
		var wide uint64
		for _, b := range i.BARs {
			if b.Unplaced {
				of := ""
				if b.Size > 0 {
					of = " (" + size(b.Size) + ")"
				}
				findings = append(findings, host.Finding{
					Status: host.Fail, File: machine.AttributeFile(d.Address, "resource"),
					Seen:   fmt.Sprintf("%s: the host has no address space for region %d%s", d.Address, b.Number, of),
					Effect: "neither the host nor a guest can use it",
					Remedy: host.Plain("turn on memory above 4 GiB in the firmware's setup (Above 4G Decoding, Large BAR); newer firmware may help"),
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
		return checklist.NA("the kernel shows no memory regions of functions for guests")
	case large == 0:
		return checklist.Pass("all regions have address space; the largest above 4 GiB has %s", size(largest))
	}
	f := checklist.Pass("all regions have address space; %s with more than %s above 4 GiB, up to %s in one region",
		host.Numbered(large, "function"), size(window), size(largest))[0]
	f.Effect = fmt.Sprintf("by default a UEFI guest has %s there for all its functions and does not see functions that do not fit", size(window))
	f.Remedy = host.Plain("for UEFI guests, set hw:maxphysaddr_mode=passthrough in the flavor (Nova 2024.1 and later)")
	return []host.Finding{f}
}

// size returns a power of two with a binary unit, such as "32 GiB".
func size(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	if n == 0 {
		return "0 bytes"
	}
	unit := (bits.Len64(n) - 1) / 10
	return fmt.Sprintf("%d %s", n>>(10*unit), units[unit])
}
