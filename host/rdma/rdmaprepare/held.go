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
	w.ask(gate.Leaves(w.Devices, record(before), record(after))...)
}

func (w *wanting) ask(leaving ...gate.Leaving) {
	lifted, err := w.gate().Leave(w.Uses, w.allowed(), leaving...)
	w.lift(lifted)
	if err != nil {
		w.fail(err)
	}
}

// lift adds what --allow lifts to the warnings and to the record.
func (w *wanting) lift(lifted []*gate.Refusal) {
	for _, r := range lifted {
		w.Warnings = append(w.Warnings, fmt.Sprintf("%s %s: allowed", r.Address, r.Reason))
	}
	w.Lifted = append(w.Lifted, gate.Lifts(lifted)...)
}

// allowed returns what --allow lifts, now and by earlier commands.
func (w *wanting) allowed() gate.Allowed {
	return gate.Allowed{Functions: w.Allow}.And(w.Allowed)
}
