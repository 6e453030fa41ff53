package rdmacheck_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/memlock"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmacheck"
	"gpustack/host/steps"
)

func ptr[T any](v T) *T { return &v }

func guid(t *testing.T, s string) *rdma.GUID {
	t.Helper()
	g, err := rdma.ParseGUID(s)
	hosttest.NoError(t, err)
	return &g
}

var (
	boot     = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	prepared = boot.Add(-time.Hour)
	started  = boot.Add(time.Minute)
)

// healthy returns a machine whose checks all pass: an InfiniBand adapter with two VFs for guests,
// and identical RoCE adapters.
func healthy(t *testing.T) rdmacheck.Observed {
	t.Helper()
	function := func(s string, product pci.ID, driver string) pci.Device {
		return pci.Device{
			Address: hosttest.Address(t, s), VendorID: ptr(pci.ID(0x15b3)), ProductID: &product, Driver: &driver,
			SRIOV: pci.SRIOV{Role: ptr(pci.RoleNone)},
		}
	}
	devices := pci.Devices{
		function("0c:00.0", 0x101b, "mlx5_core"), function("0c:00.1", 0x101c, "vfio-pci"), function("0c:00.2", 0x101c, "vfio-pci"),
		function("4b:00.0", 0x1017, "mlx5_core"), function("4b:00.1", 0x1017, "mlx5_core"),
	}
	pf := devices[0].Address
	devices[0].SRIOV = pci.SRIOV{Role: ptr(pci.RolePF), TotalVFs: ptr(8), NumVFs: ptr(2)}
	for i := range 2 {
		devices[1+i].SRIOV = pci.SRIOV{Role: ptr(pci.RoleVF), PF: &pf}
	}
	node := func(name string, minor int, mode rdma.Mode) *rdma.Node {
		return &rdma.Node{Name: name, Major: 231, Minor: minor, ABI: ptr(1), File: &rdma.NodeFile{Major: 231, Minor: minor, Mode: mode}}
	}
	nodeGUIDs := []*rdma.GUID{guid(t, "02:02:c9:00:00:21:6e:70"), guid(t, "02:02:c9:01:00:21:6e:70")}
	portGUIDs := []*rdma.GUID{guid(t, "02:02:c9:00:01:21:6e:70"), guid(t, "02:02:c9:01:01:21:6e:70")}
	adapter := func(i int, name string, p rdma.Port) rdma.Adapter {
		p.Number, p.State, p.PhysState, p.Netdevs = 1, "ACTIVE", "LinkUp", []string{"eth" + name[5:]}
		return rdma.Adapter{
			Address: &devices[i].Address, Function: &devices[i], Name: name, Driver: "mlx5_core", NodeType: "CA", Netdevs: p.Netdevs,
			BoardID: "MT_0000000008", Firmware: "20.31.1014", NodeGUID: guid(t, "00:02:c9:03:00:21:6e:70"), Ports: []rdma.Port{p},
			Verbs: node("uverbs"+name[5:], 192+i, 0o666),
		}
	}
	roce := rdma.Port{
		LinkLayer: rdma.LinkEthernet, LID: ptr(0), SMLID: ptr(0), MaxMTU: ptr(4096), ActiveMTU: ptr(1024), Rate: "100 Gb/sec (4X EDR)",
		GIDs: []rdma.GID{
			{Index: 0, GID: netip.MustParseAddr("fe80::1"), Type: "RoCE v2", Netdev: "eth1"},
			{Index: 1, GID: netip.MustParseAddr("::ffff:192.168.77.1"), Type: "RoCE v2", Netdev: "eth1"},
		},
	}
	ib := adapter(0, "mlx5_0", rdma.Port{
		LinkLayer: rdma.LinkInfiniBand, LID: ptr(7), SMLID: ptr(1), Rate: "200 Gb/sec (4X HDR)", PKeys: []uint16{0xffff, 0x8001},
		IPoIB: []rdma.IPoIB{{Name: "ib0", Mode: "datagram", PKey: ptr(uint16(0xffff)), MTU: ptr(2044)}},
		UMAD:  node("umad0", 0, 0o600), ISSM: node("issm0", 64, 0o600),
	})
	ib.VFs = []rdma.VF{
		{Index: 0, Address: devices[1].Address, NodeGUID: nodeGUIDs[0], PortGUID: portGUIDs[0], Policy: "Follow", Driver: "vfio-pci"},
		{Index: 1, Address: devices[2].Address, NodeGUID: nodeGUIDs[1], PortGUID: portGUIDs[1], Policy: "Follow", Driver: "vfio-pci"},
	}
	record := &rdma.Record{Schema: 1, Adapters: []rdma.Prepared{{
		Address: pf, VendorID: 0x15b3, ProductID: 0x101b, Driver: "mlx5_core", LinkLayer: rdma.LinkInfiniBand, Use: rdma.ForGuests,
		VFs: []rdma.PreparedVF{
			{Index: 0, Address: devices[1].Address, ProductID: 0x101c, Driver: "vfio-pci", NodeGUID: nodeGUIDs[0], PortGUID: portGUIDs[0]},
			{Index: 1, Address: devices[2].Address, ProductID: 0x101c, Driver: "vfio-pci", NodeGUID: nodeGUIDs[1], PortGUID: portGUIDs[1]},
		},
	}}, Files: []rdma.File{{Name: "/etc/modules-load.d/gpustack-rdma.conf", Hash: "h"}}}
	var results []steps.StepResult
	for _, s := range steps.Of(gate.Records{RDMA: record}) {
		results = append(results, steps.StepResult{ID: s.ID, Kind: s.Kind, Address: s.Address, Needs: s.Needs, Status: steps.Done})
	}
	link := pci.PCIeLink{Width: "16", MaxWidth: "16", Speed: "16.0 GT/s PCIe", MaxSpeed: "16.0 GT/s PCIe", SlotWidth: "16", SlotSpeed: "16.0 GT/s PCIe"}
	return rdmacheck.Observed{
		Devices: devices,
		Stack: machine.Look[rdma.Stack]{Value: rdma.Stack{
			Adapters: []rdma.Adapter{ib, adapter(3, "mlx5_1", roce), adapter(4, "mlx5_2", roce)},
			Netns:    ptr(rdma.NetnsShared), VerbsABI: ptr(6), CM: &rdma.Node{Name: "rdma_cm", Major: 10, Minor: 124, File: &rdma.NodeFile{Major: 10, Minor: 124, Mode: 0o666}},
		}},
		Modules:   machine.Look[rdmacheck.Modules]{Value: rdmacheck.Modules{"ib_uverbs": true, "rdma_ucm": true, "ib_umad": true, "ib_ipoib": true, "ib_iser": true}},
		Arguments: machine.Look[[]string]{Value: []string{"quiet", "intel_iommu=on"}},
		Links:     map[pci.Address]pci.PCIeLink{pf: link, devices[3].Address: link, devices[4].Address: link},
		Verbs: rdma.Verbs{
			Drivers: []string{"mlx5"},
			Folders: []rdma.VerbsFolder{{
				Dir: "/usr/lib64", Library: "/usr/lib64/libibverbs.so.1", Private: 34,
				Providers: []rdma.Provider{{File: "/usr/lib64/libibverbs/libmlx5-rdmav34.so", Name: "mlx5", Private: 34}},
			}},
		},
		Limits: memlock.Limits{
			Units:   []memlock.UnitLimit{{Unit: "docker.service", Limit: &memlock.Setting{Bytes: memlock.Unlimited}}},
			Domains: []memlock.UserLimit{{Domain: "*", Setting: memlock.Setting{Bytes: memlock.Unlimited}}},
		},
		Record: machine.Look[*rdma.Record]{Value: record, File: rdma.RecordFile},
		Result: machine.Look[*steps.Result]{Value: &steps.Result{Started: started, Ended: ptr(started), Steps: results}},
		Files:  []machine.Look[string]{{Value: "h"}},
		Booted: machine.Look[time.Time]{Value: boot}, Prepared: &prepared,
	}
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	findings, verdict, err := rdmacheck.Verify(healthy(t))
	if err != nil || verdict != checklist.Ready {
		t.Errorf("%s, %v", verdict, err)
	}
	for _, f := range findings {
		if f.Status != host.Pass && f.Check != "gpudirect" {
			t.Errorf("%+v", f)
		}
	}
}

// A machine for which a check has something to say.
type unhealthy struct {
	check  string
	status host.Status
	seen   string // a part of it
	change func(m *rdmacheck.Observed)
}

func adapters(m *rdmacheck.Observed) []rdma.Adapter { return m.Stack.Value.Adapters }

func port(m *rdmacheck.Observed, i int) *rdma.Port { return &adapters(m)[i].Ports[0] }

// soft makes the first adapter one of rxe.
func soft(m *rdmacheck.Observed) {
	a := &adapters(m)[0]
	a.Address, a.Function, a.Driver, a.Name, a.Parent = nil, nil, "", "rxe0", "eth9"
	m.Verbs.Drivers = append(m.Verbs.Drivers, "rxe")
}

// vf adds the RDMA device of a virtual function that is bound to its host driver.
func vf(t *testing.T, m *rdmacheck.Observed, policy string, g string) {
	t.Helper()
	d := &m.Devices[1]
	adapters(m)[0].VFs[0].Policy = policy
	p := rdma.Port{Number: 1, State: "DOWN", PhysState: "Polling", LinkLayer: rdma.LinkInfiniBand}
	m.Stack.Value.Adapters = append(m.Stack.Value.Adapters, rdma.Adapter{
		Address: &d.Address, Function: d, Name: "mlx5_3", Driver: "mlx5_core", NodeType: "CA", NodeGUID: guid(t, g), Ports: []rdma.Port{p},
	})
}

func state(i int, state, physical string) func(*rdmacheck.Observed) {
	return func(m *rdmacheck.Observed) { p := port(m, i); p.State, p.PhysState = state, physical }
}

func cases(t *testing.T) []unhealthy {
	t.Helper()
	step := func(i int, status steps.Status, text string) func(*rdmacheck.Observed) {
		return func(m *rdmacheck.Observed) {
			s := &m.Result.Value.Steps[i]
			s.Status, s.Error = status, text
		}
	}
	return []unhealthy{
		{"adapters", host.Fail, "0000:4b:00.0 is bound to mlx5_core, but there is no RDMA device of it", func(m *rdmacheck.Observed) { adapters(m)[1].Name = "" }},
		{"adapters", host.NA, "neither /sys/class/infiniband nor /proc/modules is shown", func(m *rdmacheck.Observed) { // an archive
			m.Stack = machine.Saw("/sys/class/infiniband", rdma.Stack{Adapters: adapters(m)[1:2]}, nil)
			adapters(m)[0].Name = ""
			m.Modules = machine.Saw("/proc/modules", rdmacheck.Modules(nil), fs.ErrNotExist)
		}},
		{"adapters", host.Fail, "mlx5_0 of 0000:0c:00.0 is in another network namespace", func(m *rdmacheck.Observed) { // a container
			m.Stack.Value.Adapters, m.Record.Value = adapters(m)[:1], nil
			adapters(m)[0].Name, adapters(m)[0].Elsewhere = "", "mlx5_0"
		}},
		{"modules", host.Fail, "ib_uverbs is not loaded", func(m *rdmacheck.Observed) { delete(m.Modules.Value, "ib_uverbs"); m.Stack.Value.VerbsABI = nil }},
		{"modules", host.Pass, "loaded", func(m *rdmacheck.Observed) { delete(m.Modules.Value, "ib_uverbs") }}, // built in
		{"modules", host.Fail, "rdma_ucm is not loaded", func(m *rdmacheck.Observed) { delete(m.Modules.Value, "rdma_ucm"); m.Stack.Value.CM = nil }},
		{"modules", host.Warn, "ib_umad is not loaded", func(m *rdmacheck.Observed) { delete(m.Modules.Value, "ib_umad"); port(m, 0).UMAD = nil }},
		{"modules", host.Pass, "ib_uverbs and rdma_ucm are loaded", func(m *rdmacheck.Observed) {
			delete(m.Modules.Value, "ib_umad")
			m.Stack.Value.Adapters = adapters(m)[1:] // Ethernet needs none
			m.Record.Value = nil
		}},
		{"modules", host.Pass, "ib_umad are loaded", func(m *rdmacheck.Observed) { m.Stack.Value.Adapters = adapters(m)[1:] }},
		{"modules", host.Fail, "ib_ipoib is not loaded", func(m *rdmacheck.Observed) { delete(m.Modules.Value, "ib_ipoib"); port(m, 0).IPoIB = []rdma.IPoIB{} }},
		{"modules", host.NA, "/proc/modules is missing", func(m *rdmacheck.Observed) {
			m.Modules = machine.Saw("/proc/modules", rdmacheck.Modules(nil), fs.ErrNotExist)
		}},
		{"providers", host.NA, "libibverbs is not installed", func(m *rdmacheck.Observed) { m.Verbs.Folders = nil }},
		{"providers", host.Fail, `no file in /etc/libibverbs.d has the line "driver mlx5"`, func(m *rdmacheck.Observed) { m.Verbs.Drivers = nil }},
		{"providers", host.NA, "permission denied", func(m *rdmacheck.Observed) { m.Verbs.Err = fs.ErrPermission }},
		{"providers", host.Fail, "/usr/lib64/libibverbs has no librxe-rdmav34.so", soft},
		{"providers", host.Fail, "/usr/lib64/libibverbs.so.1 has private ABI 65, which /usr/lib64/libibverbs/libmlx5-rdmav34.so does not fit",
			func(m *rdmacheck.Observed) { m.Verbs.Folders[0].Private = 65 }},
		{"providers", host.NA, "/usr/lib64/libibverbs.so.1 shows no private ABI", func(m *rdmacheck.Observed) { m.Verbs.Folders[0].Private = 0 }},
		{"providers", host.Pass, "no adapter on the host needs a library that is known", func(m *rdmacheck.Observed) { // of a subfunction
			a := &adapters(m)[0]
			a.Address, a.Function, a.Driver = nil, nil, ""
			m.Stack.Value.Adapters = adapters(m)[:1]
		}},
		{"ports", host.Fail, "INIT (LinkUp) with SM LID 0: no subnet manager has configured it", func(m *rdmacheck.Observed) { // before Linux 2.6.37
			state(0, "INIT", "LinkUp")(m)
			port(m, 0).LinkLayer, port(m, 0).SMLID = "", ptr(0)
		}},
		{"providers", host.Fail, "several releases of rdma-core, with private ABIs 34 in /usr/lib64/libibverbs.so.1, 65 in /opt/lib/libmlx5-rdmav65.so",
			func(m *rdmacheck.Observed) {
				m.Verbs.Folders = append(m.Verbs.Folders,
					rdma.VerbsFolder{Dir: "/opt/lib", Providers: []rdma.Provider{{File: "/opt/lib/libmlx5-rdmav65.so", Name: "mlx5", Private: 65}}})
			}},
		{"providers", host.Pass, "for mlx5", func(m *rdmacheck.Observed) {
			adapters(m)[0].Verbs.ABI = ptr(2)
			m.Verbs.Folders[0].Private = 65
			m.Verbs.Folders[0].Providers[0].Private = 65
		}},
		{"nodes", host.Fail, "0000:4b:00.0 (mlx5_1) has no uverbs device", func(m *rdmacheck.Observed) { adapters(m)[1].Verbs = nil }},
		{"providers", host.Fail, "its library for mlx5 does not accept version 2 of the driver's interface",
			func(m *rdmacheck.Observed) { adapters(m)[0].Verbs.ABI = ptr(2) }},
		{"nodes", host.Fail, "/dev/infiniband/uverbs0 is missing", func(m *rdmacheck.Observed) { adapters(m)[0].Verbs.File = nil }},
		{"nodes", host.Fail, "/dev/infiniband/uverbs0 has the numbers 231:193, but the kernel's are 231:192",
			func(m *rdmacheck.Observed) { adapters(m)[0].Verbs.File.Minor++ }},
		{"nodes", host.Warn, "/dev/infiniband/uverbs0 has mode 0600 instead of 0666", func(m *rdmacheck.Observed) { adapters(m)[0].Verbs.File.Mode = 0o600 }},
		{"nodes", host.Fail, "/dev/infiniband/rdma_cm is missing", func(m *rdmacheck.Observed) { m.Stack.Value.CM.File = nil }},
		{"nodes", host.Warn, "/dev/infiniband/rdma_cm has mode 0660", func(m *rdmacheck.Observed) { m.Stack.Value.CM.File.Mode = 0o660 }},
		{"nodes", host.Fail, "/dev/infiniband/umad0 is missing", func(m *rdmacheck.Observed) { port(m, 0).UMAD.File = nil }},
		{"nodes", host.Warn, "/dev/infiniband/issm0 has mode 0666: all users can manage the fabric",
			func(m *rdmacheck.Observed) { port(m, 0).ISSM.File.Mode = 0o666 }},
		{"pcie", host.Warn, "has 8 lanes; the card supports 16, the slot 16", func(m *rdmacheck.Observed) { link(m, func(l *pci.PCIeLink) { l.Width = "8" }) }},
		{"pcie", host.Pass, "2 PCIe links with all lanes of card and slot", func(m *rdmacheck.Observed) {
			link(m,
				func(l *pci.PCIeLink) { l.MaxWidth = "63" })
		}},
		{"pcie", host.Pass, "2 PCIe links with all lanes of card and slot", func(m *rdmacheck.Observed) {
			link(m, func(l *pci.PCIeLink) { l.Width, l.MaxWidth = "63", "63" })
		}},
		{"ports", host.Fail, "DOWN (Polling): no partner", state(0, "DOWN", "Polling")},
		{"ports", host.Fail, "DOWN (Disabled): the port is disabled", state(0, "DOWN", "Disabled")},
		{"ports", host.Fail, "INIT (LinkUp) with SM LID 0: no subnet manager",
			func(m *rdmacheck.Observed) { state(0, "INIT", "LinkUp")(m); port(m, 0).SMLID = ptr(0) }},
		{"ports", host.Fail, "INIT (LinkUp): the subnet manager has not activated it", state(0, "INIT", "LinkUp")},
		{"ports", host.Fail, "ARMED (LinkUp): the subnet manager stopped", state(0, "ARMED", "LinkUp")},
		{"ports", host.Fail, "DOWN (Disabled): the network interface has no link or is down", func(m *rdmacheck.Observed) { // no port of the machine is active
			m.Stack.Value.Adapters = adapters(m)[1:]
			state(0, "DOWN", "Disabled")(m)
			state(1, "DOWN", "Disabled")(m)
		}},
		{"ports", host.Warn, "0000:4b:00.0 (mlx5_1) port 1 and 0000:4b:00.1 (mlx5_2) port 1 are DOWN (Disabled): nothing is connected, or they are switched off; another port of the " +
			"machine is ACTIVE", func(m *rdmacheck.Observed) {
			state(1, "DOWN", "Disabled")(m) // and so is the other port of the card
			state(2, "DOWN", "Disabled")(m)
		}},
		{"ports", host.Fail, "0000:4b:00.0 (mlx5_1) port 1 is DOWN (Disabled): the network interface has no link", func(m *rdmacheck.Observed) {
			state(0, "INIT", "LinkUp")(m)
			state(1, "DOWN", "Disabled")(m)
			state(2, "DOWN", "Disabled")(m)
		}},
		{"ports", host.Fail, "0000:4b:00.0 (mlx5_1) port 1 is DOWN (Disabled): the network interface has no link", func(m *rdmacheck.Observed) {
			adapters(m)[0].Function.NVSwitchManager = host.Yes // ACTIVE, and for no program
			state(1, "DOWN", "Disabled")(m)
			state(2, "DOWN", "Disabled")(m)
		}},
		{"ports", host.Warn, "DOWN (Disabled): nothing is connected, or it is switched off; another port of the machine is ACTIVE", state(1, "DOWN", "Disabled")},
		{"ports", host.Fail, "mlx5_1) port 1 is DOWN (Polling): the network interface has no link", func(m *rdmacheck.Observed) {
			state(1, "DOWN", "Polling")(m)
			containers(m, 1)
		}},
		{"gids", host.Pass, "1 port with a RoCE v2 GID", func(m *rdmacheck.Observed) { state(1, "DOWN", "Disabled")(m); adapters(m)[1].Ports[0].GIDs = nil }},
		{"gids", host.NA, "adapters in mode switchdev have no GIDs", func(m *rdmacheck.Observed) {
			for i := 1; i < 3; i++ {
				adapters(m)[i].Switchdev, adapters(m)[i].Ports[0].GIDs = true, nil
			}
		}},
		{"adapters", host.Pass, "2 RDMA devices; mlx5_1 serves the port of 0000:4b:00.1 too", func(m *rdmacheck.Observed) {
			adapters(m)[2].Name, adapters(m)[2].Ports, adapters(m)[2].Lag = "", nil, "mlx5_1"
		}},
		{"rdma_cm", host.Pass, "3 ports with an interface for rdma_cm", func(m *rdmacheck.Observed) {
			m.Addresses = map[string][]netip.Addr{"ib0": {netip.MustParseAddr("10.0.0.1")}}
		}},
		{"rdma_cm", host.Warn, "0000:0c:00.0 (mlx5_0) port 1 is ready for verbs, not for rdma_cm: the port has no IPoIB interface", func(m *rdmacheck.Observed) {
			adapters(m)[0].Ports[0].IPoIB = nil
		}},
		{"rdma_cm", host.Warn, "not for rdma_cm: the port has no IP address", func(m *rdmacheck.Observed) { m.Addresses = map[string][]netip.Addr{} }},
		{"rdma_cm", host.Warn, "not for rdma_cm: the port has its IPoIB interface down: ib0", ipoibDown},
		{"rdma_cm", host.Warn, "not for rdma_cm: the port has its IPoIB interface down: ib0", func(m *rdmacheck.Observed) {
			ipoibDown(m)
			containers(m, 0)
		}},
		{"ports", host.NA, "the state is not shown", state(1, "", "")},
		{"ports", host.Fail, "0000:0c:00.1 (mlx5_3) port 1 is DOWN (Polling): this virtual function has no GUID",
			func(m *rdmacheck.Observed) { vf(t, m, "Follow", "00:00:00:00:00:00:00:00") }},
		{"ports", host.Fail, "the policy of this virtual function is Down", func(m *rdmacheck.Observed) { vf(t, m, "Down", "02:02:c9:00:00:21:6e:70") }},
		{"rate", host.Warn, "0000:4b:00.1 (mlx5_2) port 1 is slower than a port of an identical adapter: 40 Gb/sec (4X QDR)",
			func(m *rdmacheck.Observed) { port(m, 2).Rate = "40 Gb/sec (4X QDR)" }},
		{"rate", host.Warn, "2.5 Gb/sec (1X SDR); 0000:4b:00.0", func(m *rdmacheck.Observed) { port(m, 2).Rate = "2.5 Gb/sec (1X SDR)" }},
		{"rate", host.NA, "not a rate", func(m *rdmacheck.Observed) { port(m, 2).Rate = "fast" }},
		{"gids", host.Fail, "has no RoCE v2 GID", func(m *rdmacheck.Observed) { port(m, 1).GIDs = []rdma.GID{{Type: "IB/RoCE v1"}} }},
		{"gids", host.Warn, "has only link-local RoCE v2 GIDs", func(m *rdmacheck.Observed) { port(m, 1).GIDs = port(m, 1).GIDs[:1] }},
		{"gids", host.NA, "GID table cannot be read", func(m *rdmacheck.Observed) {
			port(m, 1).GIDs = nil
			port(m, 1).GIDsErr = fmt.Errorf("/sys/class/infiniband/mlx5_1/ports/1/gids: %w", rdma.ErrGIDs)
		}},
		{"ipoib", host.Pass, "ib0 connected", func(m *rdmacheck.Observed) { port(m, 0).IPoIB[0].Mode = "connected" }},
		{"ipoib", host.Pass, "ib0 datagram P_Key 0xffff, ib0.8001 datagram P_Key 0x8001 child of ib0", func(m *rdmacheck.Observed) {
			port(m, 0).IPoIB = append(port(m, 0).IPoIB, rdma.IPoIB{Name: "ib0.8001", Mode: "datagram", PKey: ptr(uint16(0x8001)), Parent: "ib0"})
		}},
		{"ipoib", host.Warn, "ib0 has P_Key 0x8002, which is not in the table", func(m *rdmacheck.Observed) { port(m, 0).IPoIB[0].PKey = ptr(uint16(0x8002)) }},
		{"ipoib", host.Warn, "limited member of P_Key 0xffff", func(m *rdmacheck.Observed) { port(m, 0).PKeys = []uint16{0x7fff} }},
		{"netns", host.Fail, "network namespaces are shared, recorded is exclusive", func(m *rdmacheck.Observed) { m.Record.Value.Netns = rdma.NetnsExclusive }},
		{"netns", host.Pass, "exclusive", func(m *rdmacheck.Observed) { m.Stack.Value.Netns = ptr(rdma.NetnsExclusive) }},
		{"netns", host.NA, "netns_mode is not shown", func(m *rdmacheck.Observed) { m.Stack.Value.Netns = nil }},
		{"memlock", host.Warn, "docker.service may lock 8 MiB", func(m *rdmacheck.Observed) { m.Limits.Units[0].Limit.Bytes = 8 << 20 }},
		{"memlock", host.Warn, "docker.service sets no LimitMEMLOCK", func(m *rdmacheck.Observed) { m.Limits.Units[0].Limit = nil }},
		{"memlock", host.Warn, "processes of * may lock 64 KiB", func(m *rdmacheck.Observed) { m.Limits.Domains[0].Bytes = 64 << 10 }},
		{"memlock", host.Warn, "users have no memlock limit of their own", func(m *rdmacheck.Observed) { m.Limits.Domains = nil }},
		{"memlock", host.NA, "no adapter that processes", func(m *rdmacheck.Observed) {
			for i := range adapters(m) {
				adapters(m)[i].Verbs = nil
			}
		}},
		{"storage", host.Pass, "loaded: ib_iser", func(*rdmacheck.Observed) {}},
		{"acs", host.Warn, "pcie_acs_override=downstream", func(m *rdmacheck.Observed) {
			m.Arguments.Value = append(m.Arguments.Value, "pcie_acs_override=downstream")
		}},
		{"acs", host.NA, "permission denied", func(m *rdmacheck.Observed) { m.Arguments.Err = fs.ErrPermission }},
		{"functions", host.Fail, "0000:0c:00.0 is missing", func(m *rdmacheck.Observed) { m.Devices = m.Devices[1:] }},
		{"functions", host.Fail, "0000:0c:00.0 is 15b3:1017, recorded is 15b3:101b", func(m *rdmacheck.Observed) { m.Devices[0].ProductID = ptr(pci.ID(0x1017)) }},
		{"functions", host.Fail, "0000:0c:00.0 is in another slot: the bridges above it are [0000:4b:00.0], recorded are []", func(m *rdmacheck.Observed) {
			m.Devices[0].Parent = &m.Devices[3].Address
		}},
		{"functions", host.Fail, "0000:0c:00.0 is on another board", func(m *rdmacheck.Observed) {
			m.Devices[0].SubsystemID, m.Record.Value.Adapters[0].SubsystemID = ptr(pci.ID(1)), ptr(pci.ID(2))
		}},
		{"functions", host.Fail, "bound to vfio-pci, recorded is its host driver mlx5_core", func(m *rdmacheck.Observed) { m.Devices[0].Driver = ptr("vfio-pci") }},
		{"functions", host.Fail, "bound to mlx5_core instead of vfio-pci", func(m *rdmacheck.Observed) { m.Record.Value.Adapters[0].Whole = true }},
		{"vfs", host.Fail, "has 1 virtual function, recorded are 2", func(m *rdmacheck.Observed) { m.Devices[0].SRIOV.NumVFs = ptr(1) }},
		{"vfs", host.Fail, "2 VFs are more than its firmware allows (sriov_totalvfs is 1)",
			func(m *rdmacheck.Observed) { m.Devices[0].SRIOV = pci.SRIOV{TotalVFs: ptr(1), NumVFs: ptr(0)} }},
		{"vfs", host.Fail, "its firmware shows no SR-IOV capability", func(m *rdmacheck.Observed) {
			m.Prepared, m.Devices[0].SRIOV = ptr(boot.Add(time.Hour)),
				pci.SRIOV{}
		}},
		{"vfs", host.Fail, "0000:0c:00.1 is bound to mlx5_core instead of vfio-pci", func(m *rdmacheck.Observed) { m.Devices[1].Driver = ptr("mlx5_core") }},
		{"vfs", host.Pass, "2 virtual functions", func(m *rdmacheck.Observed) { m.Devices[1].Driver = ptr("mlx5_vfio_pci") }}, // by libvirt, for a guest
		{"vfs", host.Fail, "has product id 1018, recorded is 101c", func(m *rdmacheck.Observed) { m.Devices[1].ProductID = ptr(pci.ID(0x1018)) }},
		{"vfs", host.Fail, "virtual function 1 of 0000:0c:00.0 is not at 0000:0c:00.2", func(m *rdmacheck.Observed) { m.Devices = slices.Delete(m.Devices, 2, 3) }},
		{"identity", host.Fail, "no node GUID, recorded is 02:02:c9:00:00:21:6e:70", func(m *rdmacheck.Observed) { adapters(m)[0].VFs[0].NodeGUID = &rdma.GUID{} }},
		{"identity", host.Fail, "port GUID 02:02:c9:01:01:21:6e:70, recorded is 02:02:c9:00:01:21:6e:70",
			func(m *rdmacheck.Observed) { adapters(m)[0].VFs[0].PortGUID = adapters(m)[0].VFs[1].PortGUID }},
		{"identity", host.Fail, "policy Down", func(m *rdmacheck.Observed) { adapters(m)[0].VFs[0].Policy = "Down" }},
		{"identity", host.Pass, "GUIDs or MAC addresses of 2 virtual functions",
			func(m *rdmacheck.Observed) { adapters(m)[0].VFs[0].NodeGUID, adapters(m)[0].VFs[0].PortGUID = nil, nil }},
		{"identity", host.Pass, "GUIDs or MAC addresses of 1 virtual function as recorded", func(m *rdmacheck.Observed) { // the other has none
			f := &m.Record.Value.Adapters[0].VFs[0]
			f.MAC, f.NodeGUID, f.PortGUID = "", nil, nil
		}},
		{"identity", host.Pass, "GUIDs or MAC addresses of 1 virtual function as recorded",
			func(m *rdmacheck.Observed) { adapters(m)[0].VFs = adapters(m)[0].VFs[1:] }},
		{"identity", host.NA, "no file shows the GUIDs or MAC addresses of 1 virtual function", func(m *rdmacheck.Observed) {
			adapters(m)[0].VFs[0].NodeGUID, adapters(m)[0].VFs[0].PortGUID = nil, nil
			step(1, steps.Failed, "x")(m)
		}},
		{"identity", host.NA, "MAC addresses of 1 virtual function", func(m *rdmacheck.Observed) { // one has no step
			for i := range m.Record.Value.Adapters[0].VFs {
				f := &m.Record.Value.Adapters[0].VFs[i]
				f.MAC, f.NodeGUID, f.PortGUID = "02:00:00:00:00:01", nil, nil
			}
			m.Result.Value.Steps = m.Result.Value.Steps[:2]
		}},
		{"files", host.Fail, "gpustack-rdma.conf is missing", func(m *rdmacheck.Observed) { m.Files[0].Value = "" }},
		{"files", host.Warn, "was changed by another program", func(m *rdmacheck.Observed) { m.Files[0].Value = "other" }},
		{"boot", host.Fail, "step vfs 0000:0c:00.0 failed: cannot write 2", step(0, steps.Failed, "cannot write 2")},
		{"boot", host.NA, "step identity 0000:0c:00.1 was skipped", step(1, steps.Skipped, "")},
		{"boot", host.Fail, "step identity 0000:0c:00.1 is running", func(m *rdmacheck.Observed) { step(1, steps.Running, "")(m); m.Result.Value.Ended = nil }},
		{"boot", host.Warn, "has not ended", func(m *rdmacheck.Observed) { m.Result.Value.Ended = nil }},
		{"boot", host.Fail, "gpustack-boot.service has not run since this boot", func(m *rdmacheck.Observed) { m.Result.Value = nil }},
		{"boot", host.Fail, "booted with gpustack=off", func(m *rdmacheck.Observed) { m.Arguments.Value = append(m.Arguments.Value, "gpustack=off") }},
		{"boot", host.Fail, "/usr/sbin/gpustack, which gpustack-boot.service starts, does not exist",
			func(m *rdmacheck.Observed) {
				m.Boot = steps.State{Wanted: steps.OfAdapters(m.Record.Value), Program: "/usr/sbin/gpustack"}
			}},
		{"boot", host.NA, "permission denied", func(m *rdmacheck.Observed) { m.Result.Err = fs.ErrPermission }},
		{"boot", host.Fail, "what was recorded at 2026-11-01T13:00:00Z takes effect at the next boot",
			func(m *rdmacheck.Observed) { m.Prepared = ptr(boot.Add(time.Hour)) }},
		{"vfs", host.NA, "2 virtual functions take effect at the next boot",
			func(m *rdmacheck.Observed) { m.Prepared = ptr(boot.Add(time.Hour)); m.Devices[0].SRIOV.NumVFs = ptr(0) }},
	}
}

// ipoibDown sets the IPoIB interface down.
func ipoibDown(m *rdmacheck.Observed) {
	a := &adapters(m)[0]
	a.Netdevs = []string{"ib0"}
	a.Ports[0].Netdevs = a.Netdevs
	a.Ports[0].IPoIB[0].Up = host.No
}

// containers records an adapter for containers.
func containers(m *rdmacheck.Observed, adapter int) {
	m.Containers.Value = &machine.Containers{Functions: []machine.ContainerFunction{{Address: *adapters(m)[adapter].Address, HCA: true}}}
}

func link(m *rdmacheck.Observed, change func(*pci.PCIeLink)) {
	a := m.Devices[0].Address
	l := m.Links[a]
	change(&l)
	m.Links[a] = l
}

func TestFindings(t *testing.T) {
	t.Parallel()
	for _, test := range cases(t) {
		m := healthy(t)
		test.change(&m)
		findings, _, err := rdmacheck.Verify(m)
		if err != nil {
			t.Errorf("%s: %v", test.seen, err)
		}
		i := slices.IndexFunc(findings, func(f host.Finding) bool { return f.Check == test.check && strings.Contains(f.Seen, test.seen) })
		if i < 0 || findings[i].Status != test.status {
			t.Errorf("%s: want %s %q, got %+v", test.check, test.status, test.seen, slices.DeleteFunc(findings, func(f host.Finding) bool { return f.Check != test.check }))
			continue
		}
		if f := findings[i]; (f.Status == host.Fail || f.Status == host.Warn) && (f.Effect == "" || len(f.Remedy) == 0) {
			t.Errorf("%s: without effect or remedy: %+v", test.seen, f)
		}
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	noModules := healthy(t)
	noModules.Modules = machine.Saw("/proc/modules", rdmacheck.Modules(nil), fs.ErrNotExist)
	if _, verdict, err := rdmacheck.Verify(noModules); err != nil || verdict != checklist.Unknown {
		t.Errorf("modules cannot be read: %s, %v", verdict, err)
	}
	for want, change := range map[checklist.Verdict]func(*rdmacheck.Observed){
		checklist.NotReady:      state(0, "DOWN", "Polling"),
		checklist.Drifted:       func(m *rdmacheck.Observed) { m.Devices[0].SRIOV.NumVFs = ptr(1) },
		checklist.PendingReboot: func(m *rdmacheck.Observed) { m.Prepared = ptr(boot.Add(time.Hour)) },
		checklist.Unknown:       func(m *rdmacheck.Observed) { m.Record.Err = fs.ErrPermission },
		checklist.Ready:         func(m *rdmacheck.Observed) { m.Limits.Domains = nil }, // a warning
	} {
		m := healthy(t)
		change(&m)
		if _, verdict, err := rdmacheck.Verify(m); err != nil || verdict != want {
			t.Errorf("%s, %v, want %s", verdict, err, want)
		}
	}
	if _, _, err := rdmacheck.Verify(rdmacheck.Observed{}); !errors.Is(err, rdmacheck.ErrNoDevice) {
		t.Error(err)
	}
	gone := healthy(t)
	gone.Stack.Value.Adapters, gone.Devices = nil, pci.Devices{}
	if findings, verdict, err := rdmacheck.Verify(gone); err != nil || verdict != checklist.Drifted || !host.Failed(findings) {
		t.Errorf("a recorded adapter that is gone: %s, %v", verdict, err)
	}
}

// TestMessages compares the messages that findings quote with the table of docs/rdma.md.
func TestMessages(t *testing.T) {
	t.Parallel()
	quoted := regexp.MustCompile(`"([^"]+)"`)
	found := map[string]bool{}
	for _, test := range cases(t) {
		m := healthy(t)
		test.change(&m)
		findings, _, _ := rdmacheck.Verify(m)
		for _, f := range findings {
			for _, match := range quoted.FindAllStringSubmatch(f.Effect, -1) {
				found[match[1]] = true
			}
		}
	}
	text := hosttest.Read(t, "../../../docs/rdma.md")
	_, table, _ := strings.Cut(text, "| message | cause | cure |\n")
	documented := map[string]bool{}
	for line := range strings.Lines(table) {
		cell, ok := strings.CutPrefix(line, "| `")
		if strings.HasPrefix(line, "|---") {
			continue
		}
		if !ok {
			break
		}
		message, _, _ := strings.Cut(cell, "` |")
		documented[message] = true
	}
	// The message names the library of a driver and of a release.
	library := regexp.MustCompile(`lib[a-z0-9]+-rdmav\d+`)
	general := map[string]bool{}
	for message := range found {
		general[library.ReplaceAllString(message, "librxe-rdmav34")] = true
	}
	hosttest.EqualIn(t, "messages (-docs/rdma.md +findings)", documented, general)
}

// TestUsesUnknown: a use of a recorded function is a failure before its boot. Where it cannot be
// determined which guests use it, the check does not apply.
func TestUsesUnknown(t *testing.T) {
	t.Parallel()
	unknown := host.WithCode(host.WithHint(errors.New("0000:0c:00.1: cannot determine which guests use it"), "its own hint"), host.CodeGuestsUnknown, "")
	unread := fmt.Errorf("%w: 0001.json: not a journal entry", gate.ErrAllowUnread)
	for _, test := range []struct {
		name string
		errs []error
		want []host.Status
	}{
		{"a use", []error{errors.New("0000:0c:00.1: is used")}, []host.Status{host.Fail}},
		{"unknown guests", []error{unknown}, []host.Status{host.NA}},
		{"an unread journal", []error{errors.New("0000:0c:00.1: is used"), unread}, []host.Status{host.Fail, host.NA}},
		{"both", []error{unknown, errors.New("0000:0c:00.1: is used")}, []host.Status{host.NA, host.Fail}},
	} {
		m := healthy(t)
		m.Used.Value = test.errs
		findings, _, err := rdmacheck.Verify(m)
		hosttest.NoError(t, err)
		var got []host.Status
		for _, f := range findings {
			if f.Check == "functions" {
				got = append(got, f.Status)
				if f.Status == host.NA && f.Seen != unread.Error() && (f.Seen != unknown.Error() || f.Remedy.String() != "its own hint") {
					t.Errorf("%s: %+v", test.name, f)
				}
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestGIDsUnread: what may not be read has another remedy than what the driver cannot report.
func TestGIDsUnread(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]host.Text{unix.EIO: host.Plain("dmesg names errors of the adapter's driver"), unix.EACCES: host.AsRoot()} {
		m := healthy(t)
		port(&m, 1).GIDs, port(&m, 1).GIDsErr = nil, fmt.Errorf("/x: %w: %w", rdma.ErrGIDs, err)
		findings, _, failure := rdmacheck.Verify(m)
		hosttest.NoError(t, failure)
		findings = slices.DeleteFunc(findings, func(f host.Finding) bool { return f.Check != "gids" })
		if len(findings) != 1 || findings[0].Status != host.NA || findings[0].Remedy.String() != want.String() {
			t.Errorf("%v: %+v", err, findings)
		}
	}
}
