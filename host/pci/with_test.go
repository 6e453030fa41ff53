package pci_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestWith: for each function, With returns those of others that Expand adds to it.
func TestWith(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	display, bridge, vf, nvidia := pci.Class(0x0302), pci.PCIBridge, pci.RoleVF, pci.NVIDIA
	found := 0
	for round := range 500 {
		var devices pci.Devices
		var others []pci.Address
		for i := range uint8(24) {
			class := []pci.Class{display, display, 0x0403, 0x0c03, 0x0200}[random.IntN(5)]
			d := pci.Device{Address: pci.Address{Slot: i / 6, Function: i % 6}, Class: &class, VendorID: &nvidia}
			if random.IntN(3) > 0 {
				group := random.IntN(8)
				d.IOMMUGroup = &group
			}
			switch random.IntN(8) {
			case 0:
				d.Class = &bridge
			case 1:
				d.SRIOV.Role = &vf
			}
			if random.IntN(3) == 0 {
				others = append(others, d.Address)
			}
			if random.IntN(10) > 0 { // others are gone
				devices = append(devices, d)
			}
		}
		random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		with := devices.With(others)
		for _, d := range devices {
			var want []int
			all := devices.Expand([]pci.Address{d.Address})
			for i, a := range others {
				if slices.Contains(all, a) {
					want = append(want, i)
				}
			}
			found += len(want)
			if diff := cmp.Diff(want, append([]int(nil), with(d.Address)...)); diff != "" {
				t.Fatal(fmt.Sprintf("round %d, %s (-Expand +With):\n", round, d.Address), diff)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d functions were found", found)
	}
}

// TestCards: what is assigned with a function: the rest of a GPU's card by slot, vendor and class,
// the members of the groups, and while the IOMMU is off the slot.
func TestCards(t *testing.T) {
	const turing = "0000:01:00.0 0300 10de:1e04 1\n0000:01:00.1 0403 10de:10f7 1\n0000:01:00.2 0c03 10de:1ad6 1\n0000:01:00.3 0c80 10de:1ad7 1\n"
	const apu = "0000:04:00.0 0300 1002:164e 4\n0000:04:00.1 0403 1002:1640 5\n0000:04:00.2 1080 1002:1649 6\n0000:04:00.3 0c03 1002:15b6 7\n"
	// Phoenix and Strix Halo as their users list them (github.com/isc30/ryzen-gpu-passthrough-proxmox, issues 77 and 139).
	const phoenix = "0000:c5:00.0 0300 1002:1900 4\n0000:c5:00.1 0403 1002:1640 5\n0000:c5:00.2 1080 1022:15c7 6\n0000:c5:00.3 0c03 1022:15b9 7\n" +
		"0000:c5:00.5 0480 1022:15e2 8\n0000:c5:00.6 0403 1022:15e3 9\n"
	const strixHalo = "0000:c5:00.0 0380 1002:1586 4\n0000:c5:00.1 0403 1002:1640 5\n0000:c5:00.2 1080 1022:17e0 6\n0000:c5:00.4 0c03 1022:1587 7\n"
	const twoPorts = "0000:03:00.0 0200 15b3:1017 2\n0000:03:00.1 0200 15b3:1017 3\n"
	ungrouped := func(table string) string {
		return regexp.MustCompile(`(?m) \d$`).ReplaceAllString(table, " -")
	}
	for _, test := range []struct {
		name, table, selected string
		vf                    bool   // the second function is a VF of the first
		want, companions      string // what is selected with it, and which of all are companions
	}{
		{"a card of two functions", "0000:01:00.0 0300 10de:11b4 1\n0000:01:00.1 0403 10de:0e0a 1\n", "01:00.0", false, "01:00.0 01:00.1", "01:00.1"},
		{"its audio function", "0000:01:00.0 0300 10de:11b4 1\n0000:01:00.1 0403 10de:0e0a 2\n", "01:00.1", false, "01:00.0 01:00.1", "01:00.1"},
		{"the four functions of Turing", turing, "01:00.0", false, "01:00.0 01:00.1 01:00.2 01:00.3", "01:00.1 01:00.2 01:00.3"},
		{"an APU", apu, "04:00.0", false, "04:00.0 04:00.1", "04:00.1"},
		{"the USB controller of an APU", apu, "04:00.3", false, "04:00.3", "04:00.1"},
		{"an APU beside the board's audio", phoenix, "c5:00.0", false, "c5:00.0 c5:00.1", "c5:00.1"},
		{"an APU without VGA", strixHalo, "c5:00.0", false, "c5:00.0 c5:00.1", "c5:00.1"},
		{"an APU without VGA, the IOMMU off", ungrouped(strixHalo), "c5:00.0", false, "c5:00.0 c5:00.1", "c5:00.1"},
		{"an APU, the IOMMU off", ungrouped(apu), "04:00.0", false, "04:00.0 04:00.1", "04:00.1"},
		{"the USB controller of an APU, the IOMMU off", ungrouped(apu), "04:00.3", false, "04:00.2 04:00.3", "04:00.1"},
		{"a second display function", "0000:01:00.0 0300 1002:7341 1\n0000:01:00.1 0380 1002:7342 2\n", "01:00.0", false, "01:00.0 01:00.1", "01:00.1"},
		{"the second display function itself", "0000:01:00.0 0300 1002:7341 1\n0000:01:00.1 0380 1002:7342 2\n", "01:00.1", false, "01:00.0 01:00.1", "01:00.1"},
		{"a second accelerator, of a group of its own", "0000:01:00.0 0300 1002:7341 1\n0000:01:00.1 1200 1002:7342 2\n", "01:00.0", false, "01:00.0", ""},
		{"another vendor's function in the slot", "0000:01:00.0 0300 10de:11b4 1\n0000:01:00.1 0403 8086:0e0a 2\n", "01:00.0", false, "01:00.0", ""},
		{"audio of a board, without a GPU", "0000:00:1f.0 0601 8086:0001 1\n0000:00:1f.3 0403 8086:0002 1\n", "00:1f.3", false, "00:1f.0 00:1f.3", ""},
		{"one port of two, with groups of their own", twoPorts, "03:00.1", false, "03:00.1", ""},
		{"the same, the IOMMU off", ungrouped(twoPorts), "03:00.1", false, "03:00.0 03:00.1", ""},
		{"a card, the IOMMU off", ungrouped(turing), "01:00.0", false, "01:00.0 01:00.1 01:00.2 01:00.3", "01:00.1 01:00.2 01:00.3"},
		{"two cards of one group", "0000:01:00.0 0300 10de:11b4 1\n0000:02:00.0 0300 10de:11b4 1\n0000:02:00.1 0403 10de:0e0a 2\n", "01:00.0", false, "01:00.0 02:00.0", "02:00.1"},
		{"a VF", twoPorts, "03:00.1", true, "03:00.1", ""},
		{"the function of a VF, the IOMMU off", ungrouped(twoPorts), "03:00.0", true, "03:00.0", ""},
		{"a bridge in the group", "0000:00:01.0 0604 8086:0001 1\n0000:01:00.0 0300 10de:11b4 1\n", "01:00.0", false, "01:00.0", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			devices := pci.Devices(functions(t, test.table))
			if role := pci.RoleVF; test.vf {
				devices[1].SRIOV = pci.SRIOV{Role: &role, PF: &devices[0].Address}
			}
			var all []pci.Device
			for _, a := range devices.Expand([]pci.Address{hosttest.Address(t, "0000:"+test.selected)}) {
				all = append(all, *devices.At(a))
			}
			companions := matching(devices, devices.IsCompanion)
			if got := addresses(all); got != test.want || addresses(companions) != test.companions {
				t.Errorf("%s, want %s; companions %s, want %s", got, test.want, addresses(companions), test.companions)
			}
		})
	}
}
