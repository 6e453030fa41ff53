package rdma_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/rdma"
)

// TestReach: which ports of machines of real shapes others can connect to by an IP address, and
// why not to the others. Every interface has one address, which names it.
func TestReach(t *testing.T) {
	t.Parallel()
	const no = "manages the NVSwitches of this machine: it belongs to NVIDIA's Fabric Manager"
	for shape, want := range map[string][]string{
		"roce-lag": {"mlx5_bond_0 bond0"},
		"ipoib-bond": {"mlx5_0 bond0", "mlx5_1 has only a backup of a bond, whose address is at another port: ib1 of bond0", "mlx5_2 ib2",
			"mlx5_3 is not ACTIVE: its state is DOWN (Polling)"},
		"switchdev": {"rocep59s0f0 has no IP address, and rdma_cm needs one", "mlx5_2 enp59s0f0s88"},
		"efa":       {"rdmap0s6 has no connection manager: its link layer is Unspecified", "rdmap0s7 has no connection manager: its link layer is Unspecified"},
		"hgx-b200": {"mlx5_0 has no IPoIB interface, and rdma_cm needs an IP address", "mlx5_1 has no IPoIB interface, and rdma_cm needs an IP address",
			"mlx5_8 " + no, "mlx5_9 " + no},
		"irdma": {"rocep23s0f0 ens1f0", "iwp23s0f1 ens1f1"},
	} {
		s := readShape(t, shape)
		addresses := func(netdev string) ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil }
		var got []string
		for _, a := range s.Adapters {
			for _, p := range a.Ports {
				found, err := a.Reach(p, addresses)
				switch {
				case err != nil:
					got = append(got, a.Name+" "+err.Error())
				default:
					got = append(got, a.Name+" "+found[0].Netdev)
				}
				if found, err := a.Reach(p, nil); err == nil && p.IsInfiniBand() && found != nil {
					t.Errorf("%s: %s: addresses of a tree: %v", shape, a.Name, found)
				}
			}
		}
		hosttest.EqualIn(t, shape, want, got)
	}
}

// TestShapes: what is read of real shapes beyond the ports: the RDMA device of a bond, interfaces
// of the switch, of a subfunction, and MTUs.
func TestShapes(t *testing.T) {
	t.Parallel()
	lag := readShape(t, "roce-lag").Adapters
	if lag[0].Lag != "" || lag[1].Lag != "mlx5_bond_0" || *lag[0].Ports[0].ActiveMTU != 1024 || *lag[0].Ports[0].MaxMTU != 4096 || *lag[0].HWVersion != 0 ||
		*lag[0].Ports[0].LMC != 0 || len(lag[0].Warnings)+len(lag[1].Warnings) > 0 {
		t.Errorf("RoCE LAG: %+v", lag)
	}
	if s := readShape(t, "roce-lag"); len(s.Warnings) > 0 { // bonding_masters is no interface
		t.Errorf("RoCE LAG: %q", s.Warnings)
	}
	pf, sf := readShape(t, "switchdev").Adapters[0], readShape(t, "switchdev").Adapters[1]
	if diff := cmp.Diff([]string{"enp59s0f0np0"}, pf.Netdevs); diff != "" || !pf.Switchdev {
		t.Errorf("switchdev (-want +got): %s %t", diff, pf.Switchdev)
	}
	hosttest.EqualIn(t, "representors", []string{"enp59s0f0_0", "enp59s0f0_1", "enp59s0f0npf0sf88"}, pf.Representors)
	if diff := cmp.Diff([]string{"enp59s0f0s88"}, sf.Netdevs); diff != "" || sf.Address != nil {
		t.Errorf("subfunction (-want +got): %s %v", diff, sf.Address)
	}
	for shape, want := range map[string]int{"bluefield": 2048, "bnxt-re": 4096, "irdma": 4096} {
		p := readShape(t, shape).Adapters[0].Ports[0]
		if _, _, _, needs, wasted := p.WastedMTU(); *p.ActiveMTU != want || wasted != (shape == "bluefield") || wasted && needs != 4200 {
			t.Errorf("%s: active MTU %d, %t", shape, *p.ActiveMTU, wasted)
		}
	}
	if p := readShape(t, "mlnx-ofed").Adapters[0].Ports[0]; p.ActiveMTU != nil || p.MaxMTU != nil {
		t.Errorf("InfiniBand: %+v", p)
	}
	efa := readShape(t, "efa").Adapters[0]
	if p := efa.Ports[0]; p.IsInfiniBand() || p.GUID != nil || *p.LMC != 1 || efa.HWVersion != nil {
		t.Errorf("EFA: %+v", efa)
	}
}

// TestMasters: functions of one bond or team share an RDMA device where one of them has none, and
// only a bond moves the addresses of its IPoIB interfaces. A bridge, Open vSwitch and a VRF have
// slaves too, whose functions share nothing.
func TestMasters(t *testing.T) {
	t.Parallel()
	const below = "symlink sys/devices/virtual/net/bond0/lower_ens1f0np0 -> ../ens1f0np0\nsymlink sys/devices/virtual/net/bond0/lower_ens1f1np1 -> ../ens1f1np1\n"
	for _, test := range []struct{ master, flags, more, lag string }{
		{"bond0", "0x1403", "", "mlx5_bond_0"},
		{"team0", "0x1003", "", "mlx5_bond_0"},
		{"ovs-system", "0x1002", "", ""},
		{"br0", "0x1003", "-- sys/devices/virtual/net/br0/bridge/bridge_id --\n8000\n", ""},
		{"vrf0", "0x4c1", "", ""},
	} {
		tree := below + shape(t, "roce-lag")
		if test.master != "bond0" {
			tree = strings.Replace(tree, "-- sys/devices/virtual/net/bond0/bonding/slaves --\nens1f0np0 ens1f1np1\n", "", 1)
			tree = strings.Replace(tree, "-- sys/devices/virtual/net/bond0/bonding/mode --\n802.3ad 4\n", "", 1)
		}
		tree = strings.Replace(tree, "/flags --\n0x1403\n", "/flags --\n"+test.flags+"\n", 1)
		root := hosttest.Lay(t, strings.ReplaceAll(tree, "/bond0", "/"+test.master)+test.more)
		a := read(t, root, rdma.Options{}).Adapters[1]
		bond, err := rdma.ReadBond(root, *a.Address)
		if a.Lag != test.lag || err != nil || (bond != nil) != (test.lag != "") || len(a.Warnings) > 0 {
			t.Errorf("%s: RDMA device %q, want %q; %+v, %v, %q", test.master, a.Lag, test.lag, bond, err, a.Warnings)
		}
	}
	tree := strings.Replace(shape(t, "ipoib-bond"), "symlink lib ", "symlink sys/class/net/vrf0 -> ../../devices/virtual/net/vrf0\n"+
		"symlink sys/devices/virtual/net/vrf0/lower_ib2 -> ../ib2\nsymlink sys/devices/virtual/net/vrf0/lower_ib3 -> ../ib3\n"+
		"symlink sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/net/ib2/master -> ../../../../../virtual/net/vrf0\nsymlink lib ", 1)
	a := read(t, hosttest.Lay(t, tree+"-- sys/devices/virtual/net/vrf0/ifindex --\n9\n-- sys/devices/virtual/net/vrf0/flags --\n0x4c1\n"+
		"-- sys/devices/virtual/net/vrf0/address --\n02:00:00:00:00:01\n"), rdma.Options{GIDs: true}).Adapters[2]
	addresses := func(string) ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil }
	if found, err := a.Reach(a.Ports[0], addresses); err != nil || found[0].Netdev != "ib2" || a.Ports[0].IPoIB[0].Bond != "" {
		t.Errorf("VRF: %v, %v, %+v", found, err, a.Ports[0].IPoIB)
	}
}

// TestBondDown: nothing reaches a port through a bond that is down, whose slaves may be up.
func TestBondDown(t *testing.T) {
	t.Parallel()
	tree := strings.Replace(shape(t, "ipoib-bond"), "bond0/flags --\n0x1403\n", "bond0/flags --\n0x1402\n", 1)
	a := read(t, hosttest.Lay(t, tree), rdma.Options{GIDs: true}).Adapters[0]
	addresses := func(string) ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil }
	found, err := a.Reach(a.Ports[0], addresses)
	if !errors.Is(err, rdma.ErrIPoIBDown) || !strings.HasSuffix(err.Error(), ": bond0") || host.HintOf(err).String() != "ip link set bond0 up" {
		t.Errorf("%v, %v", found, err)
	}
}

// TestHWVersion: drivers print the revision in hexadecimal, some with 0x.
func TestHWVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"b0": 0xb0, "10": 0x10, "0": 0, "0x14e4": 0x14e4, "A1": 0xa1, "unknown": -1} {
		root := hosttest.Lay(t, hosttest.Fabric([]hosttest.HCA{{Address: "0000:0c:00.0", Device: "mlx5_0"}},
			"-- sys/devices/pci0000:0c/0000:0c:00.0/infiniband/mlx5_0/hw_rev --\n"+text+"\n"))
		a := read(t, root, rdma.Options{}).Adapters[0]
		got := -1
		if a.HWVersion != nil {
			got = *a.HWVersion
		}
		if got != want || len(a.Warnings) > 0 {
			t.Errorf("%s: %d, want %d; %q", text, got, want, a.Warnings)
		}
	}
}

func readShape(t *testing.T, name string) rdma.Stack {
	t.Helper()
	return read(t, hosttest.Lay(t, shape(t, name)), rdma.Options{GIDs: true})
}

// shape returns the tree of a machine of a real shape.
func shape(t *testing.T, name string) string {
	t.Helper()
	return hosttest.Read(t, "../../integration/testdata/shapes/"+name+".txtar")
}
