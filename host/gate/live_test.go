package gate_test

import (
	"testing"

	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// TestHeld: a guest, a process and an interface in another network namespace are uses; a function
// with its interface, or bound to vfio-pci without a guest, is free.
func TestHeld(t *testing.T) {
	class := pci.Class(0x0200)
	host, vfio := "mlx5_core", machine.VFIO
	at := func(n uint8) pci.Address { return pci.Address{Bus: n + 1} }
	devices := pci.Devices{}
	for n := range uint8(4) {
		devices = append(devices, pci.Device{Address: at(n), Class: &class, Driver: &host})
	}
	devices[3].Driver = &vfio
	root := hosttest.Lay(t, "-- sys/bus/pci/devices/0000:01:00.0/net/eth0/mtu --\n1500\n")
	uses := machine.Uses{Holders: []guard.Holder{{Address: at(1), PID: 7, Command: "ib_write_bw"}}}
	held, err := gate.HeldOf(root, devices, uses, at(0), at(1), at(2), at(3))
	if err != nil {
		t.Fatal(err)
	}
	var got []pci.Address
	for _, h := range held {
		got = append(got, h.Address)
		if h.Hint() == "" || h.By == "" {
			t.Errorf("%v: no use or hint", h)
		}
	}
	if len(got) != 2 || got[0] != at(1) || got[1] != at(2) {
		t.Errorf("%v, want the function of the process and the one without its interface", got)
	}
	if held[1].Hint() != "end the container that has it, or unbind it from mlx5_core" {
		t.Error(held[1].Hint())
	}
}
