package prepare_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/host/iommu"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/selection"
)

// anyMachine returns the functions of a machine that hardly exists, but could.
func anyMachine(r *rand.Rand) []pci.Device {
	var devices []pci.Device
	igb := "pci:v00008086d00001533sv00000000sd00000000bc02sc00i00" // that each kernel has a module for
	console := false
	grouped := r.IntN(4) > 0
	for bus := range uint8(2 + r.IntN(4)) {
		group := r.IntN(3)
		for function := range uint8(1 + r.IntN(2)) {
			kind := []struct {
				class          pci.Class
				vendor         pci.ID
				driver, device string
			}{
				{0x0300, 0x10de, "nouveau", "display"}, {0x0302, 0x10de, "nvidia", "3D"}, {0x0300, 0x1002, "amdgpu", "display"},
				{0x1200, 0x1002, "amdgpu", "accelerator"}, {0x0300, 0x1a03, "ast", "display"}, {0x0200, 0x15b3, "mlx5_core", "NIC"},
				{0x0403, 0x10de, "snd_hda_intel", "audio"}, {0x0604, 0x8086, "pcieport", "bridge"},
			}[r.IntN(8)]
			product, role := pci.ID(0x1000+r.IntN(2)), pci.RoleNone
			d := pci.Device{
				Address: pci.Address{Bus: bus, Function: function}, Class: &kind.class, VendorID: &kind.vendor, ProductID: &product,
				SRIOV: pci.SRIOV{Role: &role},
			}
			if r.IntN(16) == 0 {
				d.ProductID = nil
			}
			d.Candidate = d.IsNVIDIAGPU()
			if grouped && r.IntN(8) > 0 {
				d.IOMMUGroup = &group
			}
			switch r.IntN(5) {
			case 0: // until a kernel binds it
				d.Modalias = &igb
			case 1:
				vfio := "vfio-pci"
				d.Driver = &vfio
			default:
				d.Driver = &kind.driver
			}
			if d.IsDisplay() && !console && r.IntN(4) == 0 {
				console, d.BootVGA = true, host.Yes
			}
			if vfs := 2; !d.IsBridge() && r.IntN(8) == 0 {
				role, d.SRIOV.NumVFs = pci.RolePF, &vfs
			}
			devices = append(devices, d)
		}
	}
	return devices
}

// TestStatesAgree: host prepare accepts the GPUs of a vendor that can be prepared by their states,
// and refuses each other one that the host has.
func TestStatesAgree(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel"}.Archive())
	m := observe(root)
	refusals := func(addresses []pci.Address) (reasons []string) {
		var opts selection.Options
		for _, a := range addresses {
			opts.Add = append(opts.Add, hosttest.Selectors(t, a.String())...)
		}
		_, err := prepare.NewWant(prepare.Observe(root, m, opts), opts)
		var refused *selection.Refused
		if errors.As(err, &refused) {
			for _, err := range refused.Errors {
				if separation := (*gate.Separation)(nil); !errors.As(err, &separation) {
					reasons = append(reasons, err.Error())
				}
			}
		} else {
			hosttest.NoError(t, err)
		}
		return reasons
	}
	accepted, refused := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 0))
		m.Devices.Value, m.Mediated.Value = anyMachine(r), map[pci.Address]int{}
		for _, d := range m.Devices.Value {
			if d.IsGPU() && r.IntN(8) == 0 {
				m.Mediated.Value[d.Address] = 1
			}
		}
		var err error
		if m.Needs.Value, err = guard.Observe(root, m.Devices.Value); err != nil {
			t.Fatal(err)
		}
		states := selection.NewNode(m).States(iommu.Groups(m.Devices.Value), host.Unknown,
			machine.Uses{Guests: guest.Report{Holders: []guest.Holder{}, Guests: []guest.Guest{}}})
		for _, vendor := range []pci.ID{0x10de, 0x1002} {
			var good []pci.Address
			for i, d := range m.Devices.Value {
				switch {
				case !d.IsGPU() || !d.IsVendor(vendor):
				case states[i].Preparable():
					good = append(good, d.Address)
				case states[i].Name == selection.OfHost || states[i].Name == selection.Blocked && (d.Driver == nil || *d.Driver != "vfio-pci"):
					refused++
					if refusals([]pci.Address{d.Address}) == nil {
						t.Errorf("seed %d: %s is accepted\n%s", seed, d.Address, drawn(m.Devices.Value, states))
					}
				}
			}
			if good == nil {
				continue
			}
			accepted++
			if reasons := refusals(good); reasons != nil {
				t.Errorf("seed %d: %s\n%s", seed, strings.Join(reasons, "\n"), drawn(m.Devices.Value, states))
			}
		}
		if t.Failed() {
			return
		}
	}
	if accepted < 100 || refused < 100 {
		t.Errorf("%d selections accepted, %d refused", accepted, refused)
	}
}

func drawn(devices []pci.Device, states []*selection.State) string {
	var lines []string
	for i, d := range devices {
		state, group := "-", "-"
		if states[i] != nil {
			state = states[i].String()
		}
		if d.IOMMUGroup != nil {
			group = fmt.Sprint(*d.IOMMUGroup)
		}
		lines = append(lines, fmt.Sprintf("%s vendor %s group %s: %s", d.Label(), d.VendorID, group, state))
	}
	return strings.Join(slices.Clip(lines), "\n")
}
