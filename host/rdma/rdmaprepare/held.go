package rdmaprepare

import (
	"fmt"

	"gpustack/host/gate"
	"gpustack/host/rdma"
)

// leave asks the gate for what leaves the host by a change of the record of an adapter; nil is
// none. What it refuses is an error, and what --allow lifts is a warning and goes into the record.
func (w *wanting) leave(before, after *rdma.Prepared) {
	record := func(p *rdma.Prepared) gate.Records {
		if p == nil {
			return gate.Records{}
		}
		return gate.Records{RDMA: &rdma.Record{Adapters: []rdma.Prepared{*p}}}
	}
	lifted, err := w.gate().Leave(w.Uses, w.allowed(), gate.Leaves(w.Devices, w.Made, record(before), record(after))...)
	for _, r := range lifted {
		w.Warnings = append(w.Warnings, fmt.Sprintf("%s %s: allowed", r.Address, r.Reason))
	}
	if after != nil && lifted != nil { // a VF stands for its adapter
		w.lifted = append(w.lifted, after.Address)
	}
	if err != nil {
		w.fail(err)
	}
}

// allowed returns the functions that --allow names, now and by earlier commands.
func (w *wanting) allowed() gate.Allowed {
	return gate.Allowed{Functions: w.Allow}.And(w.Allowed)
}
