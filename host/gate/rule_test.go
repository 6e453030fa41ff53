package gate_test

import (
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// TestRules: which function leaves by itself, needs --allow or never leaves, when all GPUs of NVIDIA
// are selected. Each function that reviews found leaving on a warning, or without a word, is a case.
func TestRules(t *testing.T) {
	const (
		leaves = ""
		asks   = "--allow"
		never  = "never"
	)
	up := func(name, master string) guard.Links {
		return guard.Links{Interfaces: []guard.Interface{{Name: name, Up: true, Master: master != "", MasterName: master}}}
	}
	type function struct {
		address, class, vendor, driver string // vendor "" for NVIDIA
		want                           string
	}
	gpu := function{"0000:84:00.0", "0300", "", "nvidia", leaves}
	nic := func(want string) function { return function{"0000:86:00.0", "0200", "15b3", "mlx5_core", want} }
	nvme := func(want string) function { return function{"0000:87:00.0", "0108", "144d", "nvme", want} }
	of := func(f function, change func(*guard.Needs, pci.Address)) func(*guard.Needs) {
		return func(n *guard.Needs) { change(n, hosttest.Address(t, f.address)) }
	}
	for name, test := range map[string]struct {
		functions []function
		needs     func(*guard.Needs) // nil for an idle machine
		switches  bool               // --nvswitch guest
	}{
		"a card with all that Turing has": {functions: []function{gpu, {"0000:84:00.1", "0403", "", "snd_hda_intel", leaves}, {"0000:84:00.2", "0c03", "", "xhci_hcd", leaves},
			{"0000:84:00.3", "0c80", "", "nvidia-gpu", leaves}}},
		"a keyboard at the card's USB": {functions: []function{gpu, {"0000:84:00.2", "0c03", "", "xhci_hcd", asks}},
			needs: func(n *guard.Needs) { n.Below[hosttest.Address(t, "0000:84:00.2")] = "USB device 1-1 (keyboard)" }},
		"an accelerator": {functions: []function{{"0000:84:00.0", "1200", "", "habanalabs", leaves}}},
		"an accelerator with a network interface": {functions: []function{{"0000:84:00.0", "1200", "", "habanalabs", asks}},
			needs: func(n *guard.Needs) { n.Below[hosttest.Address(t, "0000:84:00.0")] = "interface eth5" }},
		"an APU": {functions: []function{{"0000:84:00.0", "0300", "1002", "amdgpu", asks}, {"0000:84:00.1", "0403", "1002", "snd_hda_intel", asks},
			{"0000:84:00.2", "1080", "1002", "ccp", asks}, {"0000:84:00.3", "0c03", "1002", "xhci_hcd", asks}}},
		"another vendor's audio in the slot": {functions: []function{gpu, {"0000:84:00.1", "0403", "8086", "snd_hda_intel", asks}}},
		"the audio of a GPU that stays":      {functions: []function{gpu, {"0000:84:00.3", "0300", "1002", "amdgpu", asks}, {"0000:84:00.4", "0403", "1002", "snd_hda_intel", asks}}},
		"a GPU that is not selected":         {functions: []function{gpu, {"0000:85:00.0", "0300", "1002", "amdgpu", asks}}},
		"an idle NIC":                        {functions: []function{gpu, nic(asks)}},
		"an idle disk":                       {functions: []function{gpu, nvme(asks)}},
		"a serial port":                      {functions: []function{gpu, {"0000:86:00.0", "0700", "8086", "serial", asks}}},
		"CXL memory":                         {functions: []function{gpu, {"0000:86:00.0", "0502", "8086", "cxl_pci", asks}}},
		"an NVSwitch":                        {functions: []function{gpu, {"0000:86:00.0", "0680", "", "nvidia-nvswitch", asks}}},
		"an NVSwitch, for guests":            {functions: []function{gpu, {"0000:86:00.0", "0680", "", "nvidia-nvswitch", leaves}}, switches: true},
		"bound to vfio-pci":                  {functions: []function{gpu, {"0000:86:00.0", "0200", "15b3", "vfio-pci", asks}}},
		"a card bound to vfio-pci":           {functions: []function{{"0000:84:00.0", "0300", "", "vfio-pci", leaves}, {"0000:84:00.1", "0403", "", "vfio-pci", leaves}}},
		"a mounted disk": {functions: []function{gpu, nvme(never)}, needs: of(nvme(""), func(n *guard.Needs, a pci.Address) {
			n.Claims[a] = []guard.Claimant{{Address: a, Disk: "/dev/nvme1n1", What: "/dev/nvme1n1p1 is mounted at /srv"}}
		})},
		"the disk of root":                {functions: []function{gpu, nvme(never)}, needs: of(nvme(""), func(n *guard.Needs, a pci.Address) { n.Root.Needs[a] = "/dev/nvme0n1p1, mounted at /" })},
		"a disk, and a root that is lost": {functions: []function{gpu, nvme(never)}, needs: func(n *guard.Needs) { n.Root.Lost = "/dev/bcache0, mounted at /" }},
		"an NIC that is up, and a root that is lost": {functions: []function{gpu, nic(never)}, needs: of(nic(""), func(n *guard.Needs, a pci.Address) {
			n.Root.Lost, n.Links[a] = "bcachefs, mounted at /", up("eth1", "")
		})},
		"an NIC that is down, and a root that is lost": {functions: []function{gpu, nic(asks)}, needs: func(n *guard.Needs) { n.Root.Lost = "bcachefs, mounted at /" }},
		"an NIC, and a boot over the network":          {functions: []function{gpu, nic(never)}, needs: func(n *guard.Needs) { n.Root.Network = "ip=dhcp on the kernel command line" }},
		"a disk with a network below it, and such a boot": {functions: []function{gpu, {"0000:87:00.0", "0c03", "1912", "xhci_hcd", never}},
			needs: func(n *guard.Needs) {
				n.Root.Network, n.Links[hosttest.Address(t, "0000:87:00.0")] = "iBFT", up("eth7", "")
			}},
		"a USB disk, and a root that is lost": {functions: []function{gpu, {"0000:87:00.0", "0c03", "1912", "xhci_hcd", never}},
			needs: func(n *guard.Needs) {
				n.Root.Lost, n.Disks[hosttest.Address(t, "0000:87:00.0")] = "ZFS", []string{"sdb"}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			var devices pci.Devices
			group, above := 7, pci.Address{Bus: 0x80}
			for _, f := range test.functions {
				class, err := pci.ParseClass(f.class + "00")
				hosttest.NoError(t, err)
				vendor := pci.NVIDIA
				if f.vendor != "" {
					if vendor, err = pci.ParseID("0x" + f.vendor); err != nil {
						t.Fatal(err)
					}
				}
				devices = append(devices, pci.Device{Address: hosttest.Address(t, f.address), Class: &class, VendorID: &vendor, Driver: &f.driver,
					IOMMUGroup: &group, Parent: &above})
			}
			h := gate.Host{Devices: devices, Needs: guard.Needs{Root: guard.Root{Needs: map[pci.Address]string{}}, Claims: map[pci.Address][]guard.Claimant{},
				Links: map[pci.Address]guard.Links{}, Below: map[pci.Address]string{}, Disks: map[pci.Address][]string{}}}
			if test.needs != nil {
				test.needs(&h.Needs)
			}
			s := gate.Selection{Kind: gate.AtBoot}
			for i := range devices {
				if s.All = append(s.All, devices[i].Address); devices[i].IsNVIDIAGPU() {
					s.Selected = append(s.Selected, devices[i].Address)
				}
			}
			leaving := s.Leaving(devices)
			for i, f := range test.functions {
				d, l := &devices[i], leaving[i]
				l.Guests = test.switches
				got := leaves
				if refused := h.Ask(gate.Allowed{}, l).Refused; len(refused) > 0 {
					got = never
					if len(h.Ask(gate.Allowed{Functions: []pci.Address{d.Address}}, l).Refused) == 0 {
						got = asks
					}
					if _, allow := refused[0].Refusal(); (allow != "") != (got == asks) {
						t.Errorf("%s: the refusal names %q", f.address, allow)
					}
				}
				if isNeeded := slices.Contains(h.Needed(), d.Address); isNeeded != (f.want == never) || isNeeded && !slices.Contains(h.Used(), d.Address) {
					t.Errorf("%s: needed: %t", f.address, isNeeded)
				}
				if got != f.want {
					t.Errorf("%s: %q, want %q: %v", f.address, got, f.want, h.Ask(gate.Allowed{}, l).Err())
				}
			}
		})
	}
}

// TestWords: a refusal that --allow lifts says what the function is, which interface is up, and which
// functions of its card remain.
func TestWords(t *testing.T) {
	class, vendor, name, group := pci.Class(0x0200), pci.ID(0x15b3), "mlx5_core", 56
	a, b := hosttest.Address(t, "0000:c3:00.0"), hosttest.Address(t, "0000:c3:00.1")
	h := gate.Host{Devices: pci.Devices{{Address: a, Class: &class, VendorID: &vendor, Driver: &name, IOMMUGroup: &group}, {Address: b, Class: &class, VendorID: &vendor, Driver: &name}}}
	h.Needs.Links = map[pci.Address]guard.Links{a: {Interfaces: []guard.Interface{{Name: "eth4", Up: true}}}}
	refused := h.Ask(gate.Allowed{}, gate.Leaving{Address: a, Kind: gate.AtBoot, Apart: true}).Refused
	const want = "0000:c3:00.0: shares IOMMU group 56 with a selected device but is not part of it: NIC eth4 (mlx5_core); eth4 is up; " +
		"the host keeps 0000:c3:00.1 of the same card, and a guest can reset or reflash the whole card"
	if len(refused) != 1 || refused[0].Error() != want {
		t.Errorf("%v", refused)
	}
	if code, _ := refused[0].Refusal(); code != host.CodeGroup || !strings.HasPrefix(want, a.String()) {
		t.Error(code)
	}
}

// TestGPUPrograms: each name is one that the kernel can show: comm has at most 15 bytes (proc(5)).
func TestGPUPrograms(t *testing.T) {
	for _, name := range gate.GPUPrograms() {
		if len(name) > 15 {
			t.Errorf("%s has %d bytes", name, len(name))
		}
	}
}

// TestPartSelected: a function of a card that is selected stands for its GPU, as a second display
// function does, and a GPU's VF for itself.
func TestPartSelected(t *testing.T) {
	for _, class := range []pci.Class{0x0403, 0x0380} {
		testPartSelected(t, class)
	}
}

func testPartSelected(t *testing.T, class pci.Class) {
	display, vendor, amd, pf := pci.Class(0x0300), pci.NVIDIA, pci.ID(0x1002), hosttest.Address(t, "0000:85:00.0")
	gpu, part, vf := hosttest.Address(t, "0000:84:00.0"), hosttest.Address(t, "0000:84:00.1"), hosttest.Address(t, "0000:85:02.0")
	devices := pci.Devices{{Address: gpu, Class: &display, VendorID: &vendor}, {Address: part, Class: &class, VendorID: &vendor},
		{Address: pf, Class: &display, VendorID: &amd}, {Address: vf, Class: &display, VendorID: &amd, SRIOV: pci.SRIOV{PF: &pf}}}
	s := gate.Selection{Selected: []pci.Address{part, vf}, All: []pci.Address{gpu, part, vf}, Kind: gate.AtBoot}
	if err := (gate.Host{Devices: devices}).Ask(gate.Allowed{}, s.Leaving(devices)...).Err(); err != nil {
		t.Error(err)
	}
	record := machine.Contract{Selected: s.Selected}
	for _, a := range s.All {
		record.Functions = append(record.Functions, machine.Function{Address: a})
	}
	if of := gate.Leaves(devices, nil, gate.Records{}, gate.Records{Guests: &record}); !slices.EqualFunc(of, s.Leaving(devices), func(a,
		b gate.Leaving) bool {
		return a == b
	}) {
		t.Errorf("the record says %+v", of)
	}
}
