package selection_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/host/iommu"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// idle is the report of a machine without guests, of which everything was read.
var idle = machine.Uses{Running: true, Guests: guest.Report{Holders: []guest.Holder{}, Guests: []guest.Guest{}}}

// TestStates: of each function, whether a guest has it or can get it, and if not why.
func TestStates(t *testing.T) {
	const (
		uuid  = "6f3e8a52-0d0c-4c3e-9d3b-2f8d0b9a7c11"
		gpu   = "01:00.0 0300 10de 10 "
		audio = "01:00.1 0403 10de 10 "
		nic   = "c3:00.0 0200 8086 10 ixgbe"
		more  = "c4:00.0 0200 8086 10 ixgbe"
		hca   = "c3:00.0 0207 15b3 10 mlx5_core"
	)
	guestHas := func(functions ...string) machine.Uses {
		id := uuid
		h := guest.Holder{PID: 42, Command: "qemu-system-x86", UUID: &id, Functions: []pci.Address{}}
		for _, f := range functions {
			a := hosttest.Address(t, f)
			h.Functions = append(h.Functions, a)
		}
		return machine.Uses{Guests: guest.Report{Holders: []guest.Holder{h}, Guests: []guest.Guest{}}}
	}
	unread := func(detail string) machine.Uses {
		denied := strings.HasSuffix(detail, "permission denied")
		return machine.Uses{Guests: guest.Report{Sources: []guest.Source{{Name: "processes", State: guest.Unreadable, Detail: detail, Denied: denied}}}}
	}
	for _, test := range []struct {
		name      string
		functions []string // address, class, vendor, group, driver, and files
		off       bool     // the IOMMU
		uses      machine.Uses
		want      string // by function
	}{
		{"a card of the host's", []string{gpu + "nouveau", audio + "snd_hda_intel"}, false, idle, "host, host"},
		{"a card without drivers", []string{gpu + "-", audio + "-"}, false, idle, "host, host"},
		{"the IOMMU is off", []string{"01:00.0 0300 10de - nouveau"}, true, idle, "host"},
		{"the console", []string{gpu + "nouveau boot_vga=1"}, false, idle, "host (console)"},
		{"the management controller's console", []string{"09:00.0 0300 1a03 8 ast"}, false, idle, "host (console)"},
		{"prepared", []string{gpu + "vfio-pci", audio + "vfio-pci"}, false, idle, "guest-ready, guest-ready"},
		{"prepared for pci-stub", []string{gpu + "pci-stub", audio + "pci-stub"}, false, idle, "guest-ready, guest-ready"},
		{"a guest has it", []string{gpu + "vfio-pci", audio + "vfio-pci"}, false, guestHas("01:00.0", "01:00.1"), "in use by " + uuid + ", in use by " + uuid},
		{"another guest has another", []string{gpu + "vfio-pci"}, false, guestHas("02:00.0"), "guest-ready"},
		{"use may not be seen", []string{gpu + "vfio-pci"}, false, unread("/proc/1/fd: permission denied"), "on vfio-pci; in use? permission denied"},
		{"use is not seen", []string{gpu + "vfio-pci"}, false, unread("/proc: no such file"), "on vfio-pci; in use? not visible here"},
		{"use counts for vfio-pci only", []string{gpu + "nouveau"}, false, unread("no"), "host"},
		{"half a card", []string{gpu + "vfio-pci", audio + "snd_hda_intel"}, false, idle, "blocked: shares group 10 with audio 0000:01:00.1 (snd_hda_intel), host"},
		{"an RDMA adapter in its group", []string{gpu + "nvidia", hca}, false, idle, "blocked: shares group 10 with NIC 0000:c3:00.0 (mlx5_core), host"},
		{"a NIC in its group", []string{gpu + "nvidia", nic}, false, idle, "blocked: shares group 10 with NIC 0000:c3:00.0 (ixgbe), host"},
		{"two NICs in its group, and a bridge", []string{"00:01.0 0604 8086 10 pcieport", gpu + "vfio-pci", nic, more}, false, idle,
			"-, blocked: shares group 10 with NIC 0000:c3:00.0 (ixgbe) and 1 more, host, host"},
		{"a NIC without a driver, once prepared", []string{gpu + "vfio-pci", "c3:00.0 0200 15b3 10 -"}, false, idle, "guest-ready, host"},
		{"a NIC without a driver, before", []string{gpu + "nvidia", "c3:00.0 0200 15b3 10 -"}, false, idle, "blocked: shares group 10 with NIC 0000:c3:00.0, host"},
		{"a NIC that goes along", []string{gpu + "vfio-pci", "c3:00.0 0200 15b3 10 vfio-pci"}, false, idle, "guest-ready, guest-ready"},
		{"a member whose driver cannot be read", []string{gpu + "vfio-pci", "01:00.1 0403 10de 10 ?"}, false, idle,
			"unknown: 0000:01:00.1: its driver cannot be read, unknown: its driver cannot be read"},
		{"two GPUs of one group", []string{gpu + "nvidia", "02:00.0 0302 10de 10 nvidia"}, false, idle, "host, host"},
		{"an AMD accelerator beside a NIC", []string{"01:00.0 1200 1002 10 amdgpu", nic}, false, idle,
			"blocked: shares group 10 with NIC 0000:c3:00.0 (ixgbe), host"},
		{"an NVSwitch", []string{"00:01.0 0604 8086 1 pcieport", "00:01.0/05:00.0 0680 10de 11 nvidia-nvswitch"}, false, idle, "-, host"},
		{"bound to vfio-pci, and no IOMMU", []string{"01:00.0 0300 10de - vfio-pci"}, true, idle, "blocked: has no IOMMU group"},
		{"bound to vfio-pci, groups not seen", []string{"01:00.0 0300 10de - vfio-pci"}, false, idle, "unknown: its IOMMU group is not shown"},
		{"virtual functions", []string{gpu + "nvidia sriov_totalvfs=16 sriov_numvfs=4"}, false, idle, "blocked: has virtual functions enabled (4)"},
		{"ids that cannot be read", []string{gpu + "nvidia device=?", audio + "snd_hda_intel"}, false, idle, "unknown: vendor and product id cannot be read, host"},
		{"an AMD GPU that does not go along", []string{gpu + "nvidia", "02:00.0 0300 1002 10 amdgpu"}, false, idle,
			"blocked: shares group 10 with GPU 0000:02:00.0 (amdgpu), blocked: shares group 10 with GPU 0000:01:00.0 (nvidia)"},
		{"a console in the GPU's group", []string{gpu + "nvidia", "09:00.0 0300 1a03 10 ast"}, false, idle,
			"blocked: shares group 10 with console 0000:09:00.0 (ast), host (console)"},
		{"a console that is a GPU of its own", []string{gpu + "nvidia", "02:00.0 0300 10de 10 nvidia boot_vga=1"}, false, idle,
			"blocked: shares group 10 with GPU 0000:02:00.0 (nvidia), host (console)"},
		{"a NIC's virtual functions", []string{"c3:00.0 0200 15b3 10 mlx5_core sriov_totalvfs=16 sriov_numvfs=4"}, false, idle, "host"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var links, files strings.Builder
			links.WriteString("mkdir sys/kernel/iommu_groups\nmkdir sys/class/iommu\n")
			for _, f := range test.functions {
				field := strings.Fields(f)
				path := strings.Split(field[0], "/")
				at := "sys/devices/pci0000:00"
				for _, a := range path {
					at += "/0000:" + a
				}
				address := path[len(path)-1]
				fmt.Fprintf(&links, "symlink sys/bus/pci/devices/0000:%s -> ../../../../%s\n", address, at)
				if field[3] != "-" {
					fmt.Fprintf(&links, "symlink %s/iommu_group -> ../../../kernel/iommu_groups/%s\nmkdir sys/class/iommu/dmar0\n", at, field[3])
				}
				switch field[4] {
				case "-":
				case "?":
					fmt.Fprintf(&files, "-- %s/driver --\n", at)
				default:
					fmt.Fprintf(&links, "symlink %s/driver -> ../../../bus/pci/drivers/%s\n", at, field[4])
				}
				fmt.Fprintf(&files, "-- %s/class --\n0x%s00\n-- %s/vendor --\n0x%s\n-- %s/device --\n0x1234\n", at, field[1], at, field[2], at)
				for _, more := range field[5:] {
					name, value, _ := strings.Cut(more, "=")
					fmt.Fprintf(&files, "-- %s/%s --\n%s\n", at, name, value)
				}
			}
			devices := hosttest.Devices(t, hosttest.Lay(t, links.String()+files.String()))
			var on host.Bool
			if test.off {
				on = host.No
			}
			states := selection.Node{Host: gate.Host{Devices: devices}}.States(iommu.Groups(devices), on, test.uses)
			var got []string
			for i, d := range devices {
				s := "-"
				if states[i] != nil {
					s = states[i].String()
				}
				if d.IsBridge() != (s == "-") {
					t.Errorf("%s: %s", d.Address, s)
				}
				got = append(got, s)
			}
			hosttest.Equal(t, test.want, strings.Join(got, ", "))
		})
	}
}

// TestStatesOfChanged: functions that have moved to other addresses since they were recorded have
// states as if they were not recorded.
func TestStatesOfChanged(t *testing.T) {
	address := func(s string) pci.Address {
		return hosttest.Address(t, s)
	}
	for _, now := range []string{"0000:05:00.0", "0000:01:00.1"} {
		nvidia, quadro, display := pci.ID(0x10de), pci.ID(0x11b4), pci.Class(0x0300)
		devices := pci.Devices{{Address: address(now), VendorID: &nvidia, ProductID: &quadro, Class: &display}}
		recorded := address("0000:01:00.0")
		node := selection.Node{Host: gate.Host{Devices: devices, Recorded: &machine.Contract{
			Selected:  []pci.Address{recorded},
			Functions: []machine.Function{{Address: recorded, VendorID: nvidia, ProductID: quadro, By: machine.ByIDs}},
		}}}
		if s := node.States(nil, host.No, idle)[0]; s == nil || s.String() != "host" {
			t.Errorf("%s: %v", now, s)
		}
	}
}
