package check

import (
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// reset checks whether the kernel can reset each GPU for guests.
func (v view) reset() []host.Finding {
	if !v.Devices.Seen() {
		return unread(v.Devices)
	}
	// Since Linux 5.15 reset_method names the methods of functions that can be reset; older kernels
	// only have the file reset for such functions.
	tells := slices.ContainsFunc(v.Devices.Value, func(d pci.Device) bool { return d.ResetMethods != nil })
	for _, i := range v.Inspected {
		tells = tells || i.Resets
	}
	var findings []host.Finding
	var methods []string
	gpus := 0
	for _, d := range v.Guests {
		if !d.IsGPU() {
			continue // is reset together with its GPU
		}
		gpus++
		if len(d.ResetMethods) > 0 || d.ResetMethods == nil && v.Inspected[d.Address].Resets {
			methods = append(methods, without(d.ResetMethods, methods)...)
			continue
		}
		findings = append(findings, host.Finding{
			Status: host.Warn, File: machine.AttributeFile(d.Address, "reset_method"), Seen: d.Address.String() + " has no reset method that the kernel supports",
			Effect: "when its guest stops, the card may keep its state, or be unusable until the host is power-cycled",
			Remedy: host.Plain("test whether a second guest gets a working card; if not, leave it out of Nova's device_spec"),
		})
	}
	switch {
	case gpus == 0:
		return checklist.NA("no GPU is selected for guests")
	case !tells:
		return checklist.NA("not shown by this kernel")
	case findings != nil:
		return findings
	case methods == nil:
		return checklist.Pass("each of %s can be reset", host.Numbered(gpus, "GPU"))
	}
	return checklist.Pass("each of %s can be reset: %s", host.Numbered(gpus, "GPU"), strings.Join(methods, ", "))
}
