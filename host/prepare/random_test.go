package prepare_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/selection"
)

// random is a machine of disks, stacks, network cards and GPUs in groups, with what must not leave it.
type random struct {
	devices pci.Devices
	needs   guard.Needs
	held    map[pci.Address]bool // by a program
	uses    machine.Uses
}

// drawMachine draws a machine: each of its cards has an IOMMU group of its own, or that of the card
// before it.
func drawMachine(r *rand.Rand) random {
	type function struct {
		class          pci.Class
		vendor         pci.ID
		driver, device string
	}
	audio := function{0x0403, 0x10de, "snd_hda_intel", ""}
	cards := [][]function{
		{{0x0300, 0x10de, "nvidia", ""}, audio, {0x0c03, 0x10de, "xhci_hcd", ""}, {0x0c80, 0x10de, "nvidia-gpu", ""}},
		{{0x0300, 0x10de, "nvidia", ""}, audio}, {{0x0302, 0x10de, "nvidia", ""}}, {{0x0300, 0x10de, "nvidia", ""}, {0x0403, 0x8086, "snd_hda_intel", ""}},
		{{0x0300, 0x1002, "amdgpu", ""}, {0x0403, 0x1002, "snd_hda_intel", ""}, {0x1080, 0x1002, "ccp", ""}, {0x0c03, 0x1002, "xhci_hcd", ""}},
		{{0x0680, 0x10de, "nvidia-nvswitch", ""}}, {{0x0604, 0x8086, "pcieport", ""}}, {{0x0700, 0x8086, "serial", ""}},
		{{0x0108, 0x144d, "nvme", "disk"}}, {{0x0106, 0x8086, "ahci", "disk"}}, {{0x0108, 0x144d, "nvme", "disk"}},
		{{0x0200, 0x15b3, "mlx5_core", "net"}, {0x0200, 0x15b3, "mlx5_core", "net"}}, {{0x0207, 0x15b3, "mlx5_core", "net"}},
		{{0x0c03, 0x8086, "xhci_hcd", "disk"}}, {{0x0c03, 0x8086, "xhci_hcd", "net"}},
	}
	m := random{held: map[pci.Address]bool{}, needs: guard.Needs{Root: guard.Root{Needs: map[pci.Address]string{}}, Claims: map[pci.Address][]guard.Claimant{},
		Disks: map[pci.Address][]string{}, Links: map[pci.Address]guard.Links{}, Below: map[pci.Address]string{}}}
	group, grouped, console := 0, r.IntN(6) > 0, false
	var disks []pci.Address
	for bus := range uint8(3 + r.IntN(6)) {
		card := cards[r.IntN(len(cards))]
		if bus == 0 { // most machines have a GPU
			card = cards[r.IntN(4)]
		}
		if r.IntN(3) > 0 {
			group++
		}
		bound := r.IntN(8)
		for i, f := range card {
			product, number, role := pci.ID(0x1000+r.IntN(2)), group, pci.RoleNone
			d := pci.Device{Address: pci.Address{Bus: bus + 1, Function: uint8(i)}, Class: &f.class, VendorID: &f.vendor, ProductID: &product, Driver: &f.driver,
				SRIOV: pci.SRIOV{Role: &role}, Parent: &pci.Address{Bus: 0x80}}
			d.Candidate = d.IsNVIDIAGPU()
			if grouped {
				d.IOMMUGroup = &number
			}
			switch {
			case bound == 0:
				d.Driver = new("vfio-pci")
			case bound == 1:
				d.Driver = nil
			case f.device == "disk":
				m.needs.Disks[d.Address] = []string{fmt.Sprintf("disk%d", bus)}
				disks = append(disks, d.Address)
			case f.device == "net" && r.IntN(6) == 0:
				m.needs.Links[d.Address] = guard.Links{Hidden: true}
			case f.device == "net":
				up := r.IntN(2) == 0
				m.needs.Links[d.Address] = guard.Links{Interfaces: []guard.Interface{{Name: fmt.Sprintf("eth%d", bus), Up: up, Master: up && r.IntN(2) == 0, MasterName: "bond0"}}}
			case d.IsDisplay() && !console && r.IntN(6) == 0:
				console, d.BootVGA = true, host.Yes
			case i > 0 && r.IntN(8) == 0:
				m.needs.Below[d.Address] = "USB device 1-1 (keyboard)"
			}
			if d.Driver != nil && bound > 1 && r.IntN(10) == 0 {
				command := []string{"python3", "nv-hostengine"}[r.IntN(2)]
				m.held[d.Address] = command == "python3"
				m.uses.Holders = append(m.uses.Holders, guard.Holder{Address: d.Address, File: "/dev/x", PID: 7, Command: command})
			}
			m.devices = append(m.devices, d)
		}
	}
	r.Shuffle(len(disks), func(i, j int) { disks[i], disks[j] = disks[j], disks[i] })
	switch kind := r.IntN(8); kind {
	case 0:
		m.needs.Root.Lost = "ZFS: / is on rpool/ROOT"
	case 1:
		m.needs.Root.Network = "/ is on nfs 192.0.2.1:/export"
	default: // in memory, on one disk, or on a stack of several
		for _, a := range disks[:min(len(disks), kind-2)] {
			m.needs.Root.Needs[a] = "/dev/md0, mounted at /"
		}
	}
	for _, a := range disks {
		if r.IntN(3) == 0 {
			m.needs.Claims[a] = []guard.Claimant{{Address: a, Disk: "/dev/disk", What: "/dev/disk1 is mounted at /srv"}}
		}
	}
	return m
}

// isNever reports whether nothing may let a function leave the machine.
func (m random) isNever(d *pci.Device) bool {
	a := d.Address
	links := m.needs.Links[a]
	switch {
	case pci.LeavesAlone(d.DriverName()):
		return false
	case m.needs.Root.Needs[a] != "" || m.needs.Claims[a] != nil:
		return true
	case m.needs.Root.Lost != "":
		return *d.Class>>8 == 0x01 || m.needs.Disks[a] != nil || links.Hidden || slices.ContainsFunc(links.Interfaces, func(i guard.Interface) bool { return i.Up })
	case m.needs.Root.Network != "":
		return *d.Class>>8 == 0x02 || links.Interfaces != nil
	}
	return false
}

// TestRandomMachines: nothing that the root file system is made of and nothing claimed is ever in a
// plan; without --allow nothing is but GPUs that no program holds, the rest of their cards, and
// switches; and each command that a refusal prints is accepted on the same machine.
func TestRandomMachines(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel", More: inMemory + withSystemd}.Archive())
	observed := prepare.Observe(root, observe(root), selection.Options{})
	plans, allowed, refused, ways := 0, 0, 0, 0
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := drawMachine(r)
		o := observed
		o.Devices.Value, o.Needs.Value, o.InUse.Value = m.devices, m.needs, m.uses
		o.Mediated.Value, o.Places = map[pci.Address]int{}, map[pci.Address]machine.Look[string]{}
		for _, d := range m.devices {
			o.Places[d.Address] = machine.Look[string]{Value: "/sys/devices/pci0000:80/" + d.Address.String()}
		}
		try := func(opts selection.Options) error {
			allow := opts.Allow
			opts.Allow = nil
			s, _ := selection.NewNode(o.Machine).Choose(opts)
			for _, a := range allow { // --allow of a function that stays is an error
				if slices.Contains(s.All, a) {
					opts.Allow = append(opts.Allow, a)
				}
			}
			want, err := prepare.NewWant(o, opts)
			if err != nil {
				return err
			}
			p, err := prepare.NewPlan(o, want)
			if err != nil {
				return err
			}
			plans++
			for _, f := range p.Functions {
				d := m.devices.At(f.Address)
				gpu := m.devices.GPUOf(d)
				lets := slices.Contains(opts.Allow, f.Address)
				early := f.By != machine.ByService
				switch {
				case m.isNever(d):
					t.Errorf("seed %d: %s leaves, which never may", seed, d.Label())
				case early && gpu == nil && !d.IsNVSwitch():
					t.Errorf("seed %d: %s is bound in the initramfs", seed, d.Label())
				case pci.LeavesAlone(d.DriverName()) || lets:
				case gpu == nil && !d.IsNVSwitch(), m.held[f.Address], d.IsConsole(), m.needs.Below[f.Address] != "":
					t.Errorf("seed %d: %s leaves without --allow", seed, d.Label())
				}
			}
			return nil
		}
		all := selection.Options{}
		for _, d := range m.devices {
			if !d.IsBridge() {
				all.Allow = append(all.Allow, d.Address)
			}
		}
		one := selection.Options{}
		if d := m.devices[r.IntN(len(m.devices))]; !d.IsBridge() {
			one.Add = hosttest.Selectors(t, d.Address.String())
		}
		switches := selection.Options{NVSwitch: machine.SwitchesToGuest}
		for _, opts := range []selection.Options{{}, all, one, {Add: one.Add, Allow: all.Allow}, {Vendors: []pci.ID{0x1002}}, switches} {
			err := try(opts)
			if err == nil && opts.Allow != nil {
				allowed++
			}
			var r *selection.Refused
			if !errors.As(err, &r) {
				continue
			}
			refused++
			if len(r.Ways) > 2 {
				t.Errorf("seed %d: %d commands", seed, len(r.Ways))
			}
			for _, w := range r.Ways {
				if ways++; w.Options.None {
					continue
				}
				if err := try(w.Options); err != nil {
					t.Errorf("seed %d: %s is refused: %v\nafter: %v", seed, w.Purpose, err, r)
				}
			}
		}
		if t.Failed() {
			var lines []string
			for i := range m.devices {
				d := &m.devices[i]
				lines = append(lines, fmt.Sprintf("%s group %s never %v", d.Label(), fmt.Sprint(d.IOMMUGroup), m.isNever(d)))
			}
			t.Fatalf("%s\n%+v", strings.Join(lines, "\n"), m.needs)
		}
	}
	if plans < 500 || allowed < 200 || refused < 500 || ways < 300 {
		t.Errorf("%d plans, %d with --allow, %d refusals with %d commands", plans, allowed, refused, ways)
	}
}
