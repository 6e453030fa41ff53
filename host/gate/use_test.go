package gate_test

import (
	"fmt"
	"testing"

	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// TestUsersOfReplaced: a recorded GPU loses its users by what was planned then, but not the one that
// has taken its place.
func TestUsersOfReplaced(t *testing.T) {
	class, vendor, driver, product, at := pci.Controller3D, pci.NVIDIA, "nouveau", pci.ID(0x11b4), pci.Address{Bus: 1}
	uses := machine.Uses{Holders: []guard.Holder{{Address: at, File: "/dev/dri/renderD129", PID: 7, Command: "blender"}}}
	for recorded, want := range map[pci.ID]string{product: "[]", 0x1eb1: "[0000:01:00.0: is in use: blender (pid 7) has /dev/dri/renderD129 open]"} {
		h := gate.Host{Devices: pci.Devices{{Address: at, Class: &class, VendorID: &vendor, ProductID: &product, Driver: &driver}},
			Recorded: &machine.Contract{Functions: []machine.Function{{Address: at, VendorID: vendor, ProductID: recorded}}}}
		answer := h.Decide(gate.Selection{Selected: []pci.Address{at}, All: []pci.Address{at}, Kind: gate.AtBoot}, uses, nil)
		hosttest.EqualIn(t, fmt.Sprintf("recorded %s", recorded), want, fmt.Sprint(answer.Refused))
	}
}

// TestUsers: a GPU that a process has open needs --allow, unless the process only watches GPUs, or
// may only use it by a node which serves all GPUs and a GPU remains, or reads a clock. What is bound
// to vfio-pci has left: a guest that has it is no refusal.
func TestUsers(t *testing.T) {
	class, vendor, nvidia, vfio := pci.Controller3D, pci.NVIDIA, "nvidia", machine.VFIO
	var devices pci.Devices
	for bus := range uint8(9) {
		devices = append(devices, pci.Device{Address: pci.Address{Bus: bus + 1}, Class: &class, VendorID: &vendor, Driver: &nvidia})
	}
	devices[8].Driver = &vfio
	all := []pci.Address{}
	for _, d := range devices {
		all = append(all, d.Address)
	}
	uses := machine.Uses{Guests: guest.Report{Holders: []guest.Holder{{PID: 9, Command: "qemu-system-x86", Functions: []pci.Address{{Bus: 9}}}}, Guests: []guest.Guest{}}}
	hold := func(bus uint8, pid int, command string, shared bool) {
		uses.Holders = append(uses.Holders, guard.Holder{Address: pci.Address{Bus: bus}, File: "/dev/nvidia1", PID: pid, Command: command, Shared: shared})
	}
	hold(1, 7, "python3", true)
	hold(2, 7, "python3", true)
	hold(2, 8, "python3", false)
	hold(3, 0, "vtcon1", false)
	hold(4, 10, "nvidia-persiste", false)
	hold(5, 10, "nvidia-persiste", false)
	hold(6, 11, "nv-hostengine", false)
	hold(7, 12, "dcgm-exporter", false)
	hold(8, 13, "nv-fabricmanage", false)
	uses.Holders = append(uses.Holders, guard.Holder{Address: pci.Address{Bus: 4}, File: "/dev/ptp0", PID: 14, Command: "chronyd"})
	if held := gate.HeldOf(machine.Uses{Holders: uses.Holders[len(uses.Holders)-1:]}, all...); len(held) > 0 {
		t.Errorf("now: %v", held[0])
	}
	const shared = ", through which it may use any GPU of the nvidia driver"
	for _, test := range []struct {
		name, want, notes string
		all               []pci.Address
	}{
		{"all GPUs", "[0000:01:00.0: is in use: python3 (pid 7) has /dev/nvidia1 open" + shared +
			" 0000:02:00.0: is in use: python3 (pid 7) has /dev/nvidia1 open" + shared + "]",
			"chronyd dcgm-exporter nv-fabricmanage nv-hostengine nvidia-persiste", all},
		{"a GPU of the board stays", "[0000:02:00.0: is in use: python3 (pid 8) has /dev/nvidia1 open 0000:08:00.0: is in use: nv-fabricmanage (pid 13) has /dev/nvidia1 open]",
			"chronyd dcgm-exporter nv-hostengine nvidia-persiste", all[1:]},
	} {
		s := gate.Selection{Selected: test.all, All: test.all, Kind: gate.AtBoot}
		answer := gate.Host{Devices: devices}.Decide(s, uses, nil)
		notes := ""
		if test.all[len(test.all)-1] == all[8] && answer.Notes[0] != "0000:09:00.0 has left the host already: assigned to guest qemu-system-x86 (pid 9)" {
			t.Errorf("%s: %q", test.name, answer.Notes)
		}
		for _, n := range answer.Notes[1:] {
			name := ""
			fmt.Sscan(n, &name)
			notes += " " + name
		}
		if got := fmt.Sprint(answer.Refused); got != test.want || notes != " "+test.notes {
			t.Errorf("%s: %s, notes:%s", test.name, got, notes)
		}
		s.Allowed = gate.Allowed{Functions: test.all}
		if answer := (gate.Host{Devices: devices}).Decide(s, uses, nil); len(answer.Refused) != 0 {
			t.Errorf("%s, allowed: %v", test.name, answer.Refused)
		}
	}
}
