package rdmacheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// firmware finds identical boards with different firmware.
func (v view) firmware() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	boards := map[string][]rdma.Adapter{}
	known := 0
	for _, a := range v.Stack.Value.Adapters {
		if a.BoardID != "" && a.Firmware != "" && !a.IsVF() {
			boards[a.BoardID] = append(boards[a.BoardID], a)
			known++
		}
	}
	if known == 0 {
		return checklist.NA("no adapter shows its board and firmware")
	}
	var findings []host.Finding
	for _, board := range slices.Sorted(maps.Keys(boards)) {
		same := boards[board]
		if !slices.ContainsFunc(same, func(a rdma.Adapter) bool { return a.Firmware != same[0].Firmware }) {
			continue
		}
		var texts []string
		for _, a := range same {
			texts = append(texts, title(a)+" "+a.Firmware)
		}
		findings = append(findings, host.Finding{
			Status: host.Warn, Seen: fmt.Sprintf("boards %s have different firmware: %s", board, strings.Join(texts, ", ")),
			Effect: "identical adapters may behave differently, also in how many virtual functions they offer",
			Remedy: "bring them to one version with the vendor's tool: mstflint -d ADDRESS query, then mstflint -d ADDRESS -i IMAGE burn",
		})
	}
	return checklist.OrPass(findings, "%s with the firmware of identical boards", host.Numbered(known, "adapter"))
}
