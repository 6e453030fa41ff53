package prepare

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

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
		if !d.IsGPU() {
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
