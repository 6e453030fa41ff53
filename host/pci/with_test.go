package pci_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/pci"
)

// TestWith: for each function, With returns those of others that Expand adds to it.
func TestWith(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	display, bridge, vf := pci.Class(0x0302), pci.PCIBridge, pci.RoleVF
	found := 0
	for round := range 500 {
		var devices pci.Devices
		var others []pci.Address
		for i := range uint8(24) {
			d := pci.Device{Address: pci.Address{Slot: i / 6, Function: i % 6}, Class: &display}
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
