package check

import (
	"gpustack/host"
	"gpustack/host/checklist"
)

// secureBoot reports whether Secure Boot and kernel lockdown are active, and never fails. Neither
// prevents passthrough: the distribution's modules are signed, and neither VFIO nor driver_override
// is restricted (kernel_lockdown(7)).
func (v view) secureBoot() []host.Finding {
	const harmless = ": VFIO and signed modules work as usual"
	if !v.SecureBoot.Seen() {
		if !host.IsAbsent(v.SecureBoot.Err) {
			return unread(v.SecureBoot)
		}
		return checklist.NA("the firmware does not show a Secure Boot setting")
	}
	state := "off"
	if v.SecureBoot.Value {
		state = "on"
	}
	if v.Lockdown.Seen() {
		state += ", lockdown " + v.Lockdown.Value
	}
	return checklist.Pass("%s%s", state, harmless)
}
