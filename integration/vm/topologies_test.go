package vm

import (
	"regexp"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

var classes = regexp.MustCompile(`class=(0x....)..`)

// A check is one of those that a machine's boot serves.
type check struct {
	name string
	run  func(m machine)
}

// TestTopologies boots each machine once and holds what gpustack says and does in it
// against its kernel.
func TestTopologies(t *testing.T) {
	t.Parallel() // a machine keeps one processor busy
	for _, test := range []struct {
		topology string
		enabled  bool   // the IOMMU
		card     string // a K4200, where one is played
		group    string // all that is in the card's group
		checks   []check
	}{
		{
			topology: "intel", enabled: true, card: "01:00.0", group: "01:00.0 01:00.1",
			checks: []check{
				{"a card without a driver", binds("01:00.0", "01:00.1")},
				{"a card at work", binds("02:00.0", "02:00.1")},
				{"a card in use", cardInUse},
				{"a stuck unbind", stuckUnbind},
				{"killed at any moment", killedAtAnyMoment},
				{"groups are the kernel's", groupsAreTheKernels},
			},
		},
		{
			topology: "amd", enabled: true, card: "01:00.0", group: "01:00.0 01:00.1",
			checks: []check{{"AMD's own function", amdsOwnFunction}, {"a card at work", binds("02:00.0", "02:00.1")}},
		},
		{
			topology: "no IOMMU", card: "01:00.0",
			checks: []check{{"nothing can be given", refuses("IOMMU", "--device", "0000:01:00.0")}},
		},
		{
			topology: "IOMMU off", card: "01:00.0",
			checks: []check{{"nothing can be given", refuses("IOMMU", "--device", "0000:01:00.0")}},
		},
		{
			topology: "conventional bridge", enabled: true, card: "02:01.0", group: "01:00.0 02:01.0 02:01.1 02:02.0 02:03.0 02:03.1",
			checks: []check{
				{"a foreign card", refuses("0000:02:02.0: shares IOMMU group", "--device", "0000:02:01.0")},
				{"the default route", routeIsGuarded},
			},
		},
		{
			topology: "root complex", enabled: true, card: "00:05.0", group: "00:05.0 00:05.1",
			checks: []check{{"a card at work", binds("00:06.0", "00:06.1")}, {"a single function", binds("00:07.0")}},
		},
		{
			topology: "no ACS", enabled: true, card: "01:00.0", group: "00:03.0 00:03.1 01:00.0 01:00.1 02:00.0 02:00.1",
			checks: []check{
				{"one of two cards", refuses("0000:02:00.0: shares IOMMU group", "--device", "0000:01:00.0")},
				{"both cards", binds("01:00.0", "01:00.1", "02:00.0", "02:00.1")},
			},
		},
		{
			topology: "switch", enabled: true, card: "03:00.0", group: "02:00.0 03:00.0 03:00.1",
			checks: []check{{"one of two cards", binds("03:00.0", "03:00.1")}},
		},
		{
			topology: "boot VGA", enabled: true, card: "01:00.0", group: "01:00.0 01:00.1",
			checks: []check{
				{"the card is the console", cardIsTheConsole},
				{"the console is guarded", refuses("0000:01:00.0: is the console (boot_vga)", "--device", "0000:01:00.0")},
			},
		},
		{
			topology: "SR-IOV", enabled: true,
			checks: []check{{"virtual functions", virtualFunctions}, {"steps of the boot", stepsOfTheBoot}},
		},
	} {
		t.Run(test.topology, func(t *testing.T) {
			topology := named(t, test.topology)
			m := small(t, topology)
			m.scanIsTheKernels()
			scan := m.scan()
			if s := scan.System.IOMMU; s.Enabled != host.BoolOf(test.enabled) || (s.Groups > 0) != test.enabled {
				t.Errorf("IOMMU: %s, %d groups", s.Enabled, s.Groups)
			}
			if want := map[string]string{intel: "intel", amd: "amd"}[topology.CPU]; scan.System.CPUVendor != want || scan.System.Kernel != linux.Release {
				t.Errorf("CPU %s, kernel %s", scan.System.CPUVendor, scan.System.Kernel)
			}
			// The cards of NVIDIA are what is listed without being asked for.
			if test.card != "" {
				if d := scan.device(t, test.card); !d.Candidate || word(d.AliasHint) != "K4200" {
					t.Errorf("%+v", d)
				}
				hosttest.EqualIn(t, "group of the card", test.group, scan.groupOf(test.card))
			} else if len(scan.Devices) != 0 {
				t.Errorf("no card is played, listed are %+v", scan.Devices)
			}
			for _, c := range test.checks {
				t.Run(c.name, func(t *testing.T) { c.run(machine{m.Machine, t}) })
			}
		})
	}
}

func named(t *testing.T, name string) Topology {
	t.Helper()
	for _, topology := range topologies {
		if topology.Name == name {
			return topology
		}
	}
	t.Fatalf("no topology %s", name)
	return Topology{}
}

// amdsOwnFunction: AMD's IOMMU is a PCI function itself, and in no group.
func amdsOwnFunction(m machine) {
	if d := m.scan("--class", "0806").Devices; len(d) != 1 || d[0].IOMMUGroup != nil {
		m.t.Errorf("%+v", d)
	}
}

// cardIsTheConsole: where there is no other display, the card is what shows the
// firmware's words.
func cardIsTheConsole(m machine) {
	hosttest.EqualIn(m.t, "boot_vga", host.Yes, m.scan().device(m.t, "01:00.0").BootVGA)
}

// virtualFunctions: they come while the machine runs, and are told from others.
func virtualFunctions(m machine) {
	const pf = "02:00.0"
	if d := m.scan("--all").device(m.t, pf); word(d.DeviceType) != "type-PF" || word(d.SRIOV.NumVFs) != "0" {
		m.t.Errorf("before: %s, %s VFs", word(d.DeviceType), word(d.SRIOV.NumVFs))
	}
	m.run("sh", "-c", "echo 2 >/sys/bus/pci/devices/0000:"+pf+"/sriov_numvfs")
	m.scanIsTheKernels()
	vfs := 0
	for _, d := range m.scan("--all").Devices {
		if word(d.DeviceType) == "type-VF" && word(d.SRIOV.PF) == "0000:"+pf {
			vfs++
			if got := m.scan("--all").groupOf(d.Address.String()[len("0000:"):]); got != d.Address.String()[len("0000:"):] {
				m.t.Errorf("%s is in a group with %s", d.Address, got)
			}
		}
	}
	hosttest.EqualIn(m.t, "virtual functions", 2, vfs)
}
