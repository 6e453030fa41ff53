package check

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// bus finds functions that no longer respond.
func (v view) bus() []host.Finding {
	if !v.Devices.Seen() {
		return unread(v.Devices)
	}
	var findings []host.Finding
	answer := 0
	functions := v.Guests
	for _, d := range functions {
		if v.isLost(d.Address) {
			findings = append(findings, host.Finding{
				Status: host.Fail, File: machine.AttributeFile(d.Address, "config"), Seen: d.Address.String() + " does not respond: all registers read ffff",
				Effect: "a guest with it fails and may crash the host",
				Remedy: host.Plain("remove it from Nova's device_spec and power-cycle the host; a reboot may not reset the card"),
			})
		} else if v.Inspected[d.Address].Answers.Known() {
			answer++
		}
	}
	switch {
	case findings != nil:
		return findings
	case len(functions) == 0:
		return checklist.NA("no function is selected for guests")
	case answer < len(functions):
		return checklist.NA("the kernel shows the PCI configuration of %d of %s", answer, host.Numbered(len(functions), "function"))
	}
	return checklist.Pass("%s respond", host.Numbered(answer, "function"))
}
