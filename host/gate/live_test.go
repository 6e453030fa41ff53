package gate_test

import (
	"testing"

	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// TestHeld: a guest and a process are uses, each with a hint; a function without them is free.
func TestHeld(t *testing.T) {
	at := func(n uint8) pci.Address { return pci.Address{Bus: n + 1} }
	uses := machine.Uses{
		Holders: []guard.Holder{{Address: at(1), PID: 7, Command: "ib_write_bw"}},
		Guests:  guest.Report{Holders: []guest.Holder{{PID: 9, Command: "qemu-system-x86", Functions: []pci.Address{at(2)}}}},
	}
	held := gate.HeldOf(uses, at(0), at(1), at(2))
	if len(held) != 2 || held[0].Address != at(1) || held[1].Address != at(2) {
		t.Fatalf("%v, want the functions of the process and of the guest", held)
	}
	for _, h := range held {
		if h.Hint() == "" || h.By == "" {
			t.Errorf("%v: no use or hint", h)
		}
	}
}
