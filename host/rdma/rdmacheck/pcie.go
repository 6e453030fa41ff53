package rdmacheck

import (
	"fmt"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// pcie finds adapters whose PCIe link has fewer lanes or a lower speed than they support.
func (v view) pcie() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	var findings []host.Finding
	seen := 0
	for _, a := range v.Stack.Value.Adapters {
		if a.Address == nil {
			continue
		}
		l, ok := v.Links[*a.Address]
		if !ok {
			continue
		}
		if l.Err != nil {
			findings = append(findings, checklist.Unread(functionFile(*a.Address, ""), l.Err)...)
			continue
		}
		width, widest, slot, ok := l.Lanes()
		speed, fastest, err := numbers(l.Speed, l.MaxSpeed)
		if !ok || err != nil || speed == 0 {
			continue // the kernel shows none, as in a virtual machine ("Unknown")
		}
		seen++
		if width < widest {
			findings = append(findings, slowLink(a, "current_link_width", "x"+l.Width, "x"+l.MaxWidth, "x"+l.SlotWidth, slot > 0 && slot <= width))
		}
		if speed < fastest {
			limit, err := number(l.SlotSpeed)
			findings = append(findings, slowLink(a, "current_link_speed", l.Speed, l.MaxSpeed, l.SlotSpeed, err == nil && limit > 0 && limit <= speed))
		}
	}
	if findings == nil && seen == 0 {
		return checklist.NA("the kernel shows no PCIe link of an adapter")
	}
	return checklist.OrPass(findings, "%s with all lanes at full speed", host.Numbered(seen, "PCIe link"))
}

// slowLink returns the finding of a link that is below what its adapter supports. bySlot is whether
// the slot allows no more.
func slowLink(a rdma.Adapter, file, now, most, slot string, bySlot bool) host.Finding {
	f := host.Finding{
		Status: host.Warn, File: functionFile(*a.Address, file),
		Seen:   fmt.Sprintf("%s: the PCIe link runs at %s, the adapter supports %s", title(a), now, most),
		Effect: "the adapter cannot reach its rate", Remedy: host.Text("seat the adapter and its riser again, then: lspci -vv -s " + a.Title()),
	}
	if bySlot {
		f.Seen += ", the slot allows " + slot
		f.Remedy = "move the adapter to a faster slot, or change the slot's speed or bifurcation in the firmware's setup"
	}
	return f
}

func numbers(now, most string) (current, limit float64, err error) {
	current, err = number(now)
	if err == nil {
		limit, err = number(most)
	}
	return current, limit, err
}

// number parses the first word: of "16.0 GT/s PCIe", 16.
func number(text string) (float64, error) {
	word, _, _ := strings.Cut(text, " ")
	return strconv.ParseFloat(word, 64)
}
