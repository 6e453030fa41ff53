package gate_test

import (
	"fmt"
	"testing"

	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// TestInUse: host prepare refuses a function that a process has open, but none that a process may
// only use by a node which serves all GPUs.
func TestInUse(t *testing.T) {
	one, two, three := pci.Address{Bus: 1}, pci.Address{Bus: 2}, pci.Address{Bus: 3}
	uses := machine.Uses{Holders: []guard.Holder{
		{Address: one, File: "/dev/nvidia-uvm", PID: 7, Command: "python3", Shared: true},
		{Address: two, File: "/dev/nvidia-uvm", PID: 7, Command: "python3", Shared: true},
		{Address: two, File: "/dev/nvidia1", PID: 8, Command: "python3"},
		{Address: three, File: "/dev/fb0", Command: "vtcon1"},
	}}
	refusals, lifted := gate.Host{}.InUse(uses, gate.Selection{All: []pci.Address{one, two, three}})
	if want := "[0000:02:00.0: is in use: python3 (pid 8) has /dev/nvidia1 open]"; fmt.Sprint(refusals) != want || len(lifted) > 0 {
		t.Errorf("%v, %v", refusals, lifted)
	}
}
