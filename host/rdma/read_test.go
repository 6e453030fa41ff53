package rdma_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

func read(t *testing.T, root host.Root, opts rdma.Options) rdma.Stack {
	t.Helper()
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil && !strings.Contains(err.Error(), pci.ErrNoPCI.Error()) {
		t.Fatal(err)
	}
	s, err := rdma.Read(root, devices, opts)
	hosttest.NoError(t, err)
	return s
}

// TestReadRxe reads a real software adapter: an empty firmware version, GIDs of RoCE v2, unused
// GIDs whose type cannot be read, nodes with their permissions.
func TestReadRxe(t *testing.T) {
	t.Parallel()
	s := read(t, hosttest.RDMA(t, "../../integration/testdata/rdma/debian12-rxe.txtar"), rdma.Options{GIDs: true})
	if len(s.Adapters) != 1 || len(s.Warnings) > 0 || len(s.Adapters[0].Warnings) > 0 {
		t.Fatalf("%+v", s)
	}
	a := s.Adapters[0]
	p := a.Ports[0]
	got := []any{
		a.Address, a.Name, a.Parent, a.Firmware, a.NodeType, a.NodeGUID.String(), a.Verbs.Name, a.Verbs.File.String(), *a.Verbs.ABI,
		p.State, p.PhysState, p.LinkLayer, *p.LID, *p.SMLID, *p.CapMask, p.Rate, p.PKeys, p.UMAD.File.String(), p.ISSM.Minor, p.GUID,
		p.GIDs[0].GID.String(), p.GIDs[1].GID.String(), p.GIDs[1].Type, p.GIDs[1].Netdev, len(p.GIDs), *s.Netns, *s.VerbsABI, s.CM.File.String(),
	}
	want := []any{
		(*pci.Address)(nil), "rxe0", "eth9", "", "CA", "00:00:00:ff:fe:00:00:0a", "uverbs0", "c 231:192 666", 2,
		"ACTIVE", "LinkUp", "Ethernet", 0, 0, uint32(0x10000), "10 Gb/sec (1X FDR10)", []uint16{0xffff}, "c 231:0 600", 64, (*rdma.GUID)(nil),
		"fe80::ff:fe00:a", "::ffff:192.168.77.1", "RoCE v2", "eth9", 2, rdma.NetnsShared, 6, "c 10:124 666",
	}
	hosttest.Equal(t, want, got)
}

// TestRead reads adapters that are PCI functions.
func TestRead(t *testing.T) {
	t.Parallel()
	pf := hosttest.HCA{Address: "0000:0c:00.0", Device: "mlx5_0", Total: 8, VFs: []string{"0000:0c:00.1", "0000:0c:00.2"}}
	vf := hosttest.HCA{Address: "0000:0c:00.1", Device: "ibp12s0v0", Product: "101c", PF: "0000:0c:00.0", NodeGUID: "0000:0000:0000:0000",
		State: "1: DOWN", Physical: "2: Polling", Index: 1}
	bare := hosttest.HCA{Address: "0000:0c:00.2", Driver: "vfio-pci", Product: "101c", PF: "0000:0c:00.0"}
	two := hosttest.HCA{Address: "0000:81:00.0", Device: "mlx4_0", Driver: "mlx4_core", Product: "1003", Class: "0280", Ports: 2, Index: 2}
	lone := hosttest.HCA{Address: "0000:82:00.0", Product: "1017"}
	ofed := "-- sys/devices/pci0000:0c/0000:0c:00.0/sriov/1/node --\n11:22:33:44:77:66:77:90\n" +
		"-- sys/devices/pci0000:0c/0000:0c:00.0/sriov/1/port --\n11:22:33:44:77:66:77:91\n-- sys/devices/pci0000:0c/0000:0c:00.0/sriov/1/policy --\nFollow\n"
	child := "-- sys/class/net/ib0/type --\n32\n-- sys/class/net/ib0/ifindex --\n3\n-- sys/class/net/ib0/mode --\ndatagram\n-- sys/class/net/ib0/mtu --\n2044\n" +
		"-- sys/class/net/ib0/pkey --\n0xffff\n-- sys/class/net/ib0.8001/type --\n32\n-- sys/class/net/ib0.8001/ifindex --\n4\n" +
		"-- sys/class/net/ib0.8001/parent --\nib0\n-- sys/class/net/ib0.8001/pkey --\n0x8001\n-- sys/class/net/bonding_masters --\n\n"
	root := hosttest.Lay(t, "symlink sys/class/net/ib0/device -> ../../../devices/pci0000:0c/0000:0c:00.0\n"+
		hosttest.Fabric([]hosttest.HCA{pf, vf, bare, two, lone}, ofed+child))
	s := read(t, root, rdma.Options{})
	var names []string
	for _, a := range s.Adapters {
		names = append(names, a.Title()+" "+a.Name+" "+a.Driver)
		if len(a.Warnings) > 0 {
			t.Errorf("%s: %q", a.Title(), a.Warnings)
		}
	}
	if diff := cmp.Diff([]string{"0000:0c:00.0 mlx5_0 mlx5_core", "0000:0c:00.1 ibp12s0v0 mlx5_core", "0000:81:00.0 mlx4_0 mlx4_core",
		"0000:82:00.0  mlx5_core"}, names); diff != "" {
		t.Fatalf("adapters (-want +got):\n%s", diff)
	}
	a := s.Adapters[0]
	hosttest.EqualIn(t, "interfaces", []string{"ib0", "ib0.8001"}, a.Netdevs)
	if p := a.Ports[0]; p.GUID.String() != "0c:42:a1:03:00:0c:00:00" || p.GIDs != nil || len(p.IPoIB) != 2 || *p.IPoIB[1].PKey != 0x8001 || p.IPoIB[1].Parent != "ib0" {
		t.Errorf("%+v", p)
	}
	if len(a.VFs) != 2 || !a.VFs[0].NodeGUID.IsZero() || a.VFs[0].Name != "ibp12s0v0" || a.VFs[1].Driver != "vfio-pci" ||
		a.VFs[1].NodeGUID.String() != "11:22:33:44:77:66:77:90" || a.VFs[1].PortGUID.String() != "11:22:33:44:77:66:77:91" || a.VFs[1].Policy != "Follow" {
		t.Errorf("%+v", a.VFs)
	}
	if four := s.Adapters[2]; len(four.Ports) != 2 || four.Ports[0].UMAD.Name != "umad4" || four.Ports[1].UMAD.Name != "umad5" || four.Verbs.Name != "uverbs2" {
		t.Errorf("%+v", four)
	}
	if lone := s.Adapters[3]; len(lone.Ports) != 0 || lone.Verbs != nil {
		t.Errorf("%+v", lone)
	}
}

// TestReadNoGIDs: a port without GIDs has an empty list, also if its table cannot be read.
func TestReadNoGIDs(t *testing.T) {
	t.Parallel()
	for _, h := range []hosttest.HCA{
		{Address: "0000:0c:00.0", Device: "mlx5_0", LinkLayer: "Ethernet"},
		{Address: "0000:0c:00.0", Device: "mlx5_0", LinkLayer: "Ethernet", GIDs: []string{"malformed RoCE v2 eth0"}},
	} {
		a := read(t, hosttest.Lay(t, hosttest.Fabric([]hosttest.HCA{h}, "")), rdma.Options{GIDs: true}).Adapters[0]
		if gids := a.Ports[0].GIDs; gids == nil || len(gids) > 0 {
			t.Errorf("%#v", gids)
		}
	}
}

// TestReadWhole lists an adapter that is assigned to guests as a whole: it has no RDMA device, and
// its driver is vfio-pci.
func TestReadWhole(t *testing.T) {
	t.Parallel()
	root := hosttest.Lay(t, hosttest.Fabric([]hosttest.HCA{{Address: "0000:0c:00.0", Driver: "vfio-pci"}, {Address: "0000:4b:00.0", Driver: "vfio-pci"}}, ""))
	whole := hosttest.Address(t, "0000:0c:00.0")
	s := read(t, root, rdma.Options{Whole: []pci.Address{whole}})
	if len(s.Adapters) != 1 || s.Adapters[0].Title() != "0000:0c:00.0" || s.Adapters[0].Driver != "vfio-pci" || s.Adapters[0].NUMANode == nil {
		t.Errorf("%+v", s.Adapters)
	}
}

// TestReadSoftware: up to Linux 5.15, the folder of rxe is below the function of its network
// interface, whose driver has nothing to do with it.
func TestReadSoftware(t *testing.T) {
	t.Parallel()
	root := hosttest.Lay(t, hosttest.Fabric([]hosttest.HCA{{Address: "0000:03:00.0", Driver: "e1000", Device: "rxe0", LinkLayer: "Ethernet"}},
		"-- sys/devices/pci0000:03/0000:03:00.0/infiniband/rxe0/parent --\neth0\n"))
	s := read(t, root, rdma.Options{})
	if len(s.Adapters) != 1 || s.Adapters[0].Address != nil || s.Adapters[0].Parent != "eth0" || s.Adapters[0].Driver != "" {
		t.Errorf("%+v", s.Adapters)
	}
}

// TestReadFailures: absent, unreadable and malformed are three answers.
func TestReadFailures(t *testing.T) {
	t.Parallel()
	const port = "sys/devices/pci0000:0c/0000:0c:00.0/infiniband/mlx5_0/ports/1/"
	for _, test := range []struct {
		name string
		mend func(root host.Root) error
		want string // in the adapter's warnings, "" for none
	}{
		{"no GID table", func(r host.Root) error { return os.RemoveAll(r.Path(port + "gids")) }, "GID table cannot be read: no such file"},
		{"GID is a folder", func(r host.Root) error {
			os.Remove(r.Path(port + "gids/0"))
			return os.Mkdir(r.Path(port+"gids/0"), 0o755)
		}, "gids/0: GID table cannot be read: is a directory"},
		{"malformed GID", func(r host.Root) error { return os.WriteFile(r.Path(port+"gids/0"), []byte("fe80\n"), 0o600) }, `not a GID: "fe80"`},
		{"no rate", func(r host.Root) error { return os.Remove(r.Path(port + "rate")) }, ""},
		{"malformed LID", func(r host.Root) error { return os.WriteFile(r.Path(port+"lid"), []byte("first\n"), 0o600) }, `lid: not a number: "first"`},
		{"malformed key", func(r host.Root) error { return os.WriteFile(r.Path(port+"pkeys/1"), []byte("0x12345\n"), 0o600) }, `not a partition key: "0x12345"`},
		{"empty link layer", func(r host.Root) error { return os.WriteFile(r.Path(port+"link_layer"), []byte("\n"), 0o600) }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := hosttest.Lay(t, hosttest.Fabric([]hosttest.HCA{{Address: "0000:0c:00.0", Device: "mlx5_0"}}, ""))
			hosttest.NoError(t, test.mend(root))
			got := strings.Join(read(t, root, rdma.Options{GIDs: true}).Adapters[0].Warnings, "\n")
			if !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("warnings %q, want %q", got, test.want)
			}
		})
	}
	t.Run("no list of devices", func(t *testing.T) {
		t.Parallel()
		root := hosttest.Lay(t, "-- sys/class/infiniband --\na file\n")
		if _, err := rdma.Read(root, nil, rdma.Options{}); err == nil || !strings.Contains(err.Error(), "/sys/class/infiniband: not a directory") {
			t.Errorf("%v", err)
		}
	})
}

// TestScan: a tree without PCI functions may have software devices, one without both is an error,
// and an address without an adapter is named as what it is.
func TestScan(t *testing.T) {
	t.Parallel()
	devices, s, err := rdma.Scan(hosttest.RDMA(t, "../../integration/testdata/rdma/debian12-rxe.txtar"), rdma.Options{})
	if err != nil || len(devices) != 0 || len(s.Adapters) != 1 {
		t.Errorf("%v, %+v, %v", devices, s, err)
	}
	if _, _, err := rdma.Scan(hosttest.Lay(t, "mkdir sys/class\n"), rdma.Options{}); !errors.Is(err, pci.ErrNoPCI) {
		t.Error(err)
	}
	root := hosttest.Lay(t, hosttest.Fabric([]hosttest.HCA{{Address: "0000:0c:00.0", Device: "mlx5_0"}, {Address: "0000:4b:00.0", Driver: "vfio-pci"}}, ""))
	if devices, s, err = rdma.Scan(root, rdma.Options{}); err != nil || len(devices) != 2 || len(s.Adapters) != 1 {
		t.Fatalf("%v, %+v, %v", devices, s, err)
	}
	for text, want := range map[string]string{
		"0000:4b:00.0": "0000:4b:00.0: not an RDMA adapter: it has no RDMA device and is bound to vfio-pci",
		"0000:99:00.0": "0000:99:00.0: no such PCI function",
	} {
		a := hosttest.Address(t, text)
		if err := rdma.NotAdapter(a, devices); err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

// TestReadNamespaces: an adapter whose RDMA device is in another network namespace is there, with
// its nodes; a device without uverbs beside one that has it belongs to a part.
func TestReadNamespaces(t *testing.T) {
	t.Parallel()
	const smi = "sys/devices/pci0000:0c/0000:0c:00.0/infiniband/smi1"
	adapters := []hosttest.HCA{{Address: "0000:0c:00.0", Device: "tsmi_0"},
		{Address: "0000:0c:00.1", Device: "mlx5_2", Index: 1, PF: "0000:0c:00.0", Elsewhere: true},
		{Address: "0000:3b:00.0", Driver: "ice", Device: "irdma0", Index: 2, Elsewhere: true}}
	tree := "symlink sys/class/infiniband/smi1 -> ../../../" + smi + "\n" + hosttest.Fabric(adapters, "-- "+smi+"/node_type --\n1: CA\n")
	for name, test := range map[string]struct {
		tree string
		want []string
	}{
		"exclusive": {strings.Replace(tree, "netns_mode --\nY", "netns_mode --\nN", 1),
			[]string{"0000:0c:00.0 tsmi_0  uverbs0 [smi1]", "0000:0c:00.1  mlx5_2 uverbs1 []", "0000:3b:00.0  irdma0 uverbs2 []"}},
		// Every device is shown there: a node without one is about to vanish.
		"shared": {tree, []string{"0000:0c:00.0 tsmi_0  uverbs0 [smi1]", "0000:0c:00.1   - []"}},
	} {
		s := read(t, hosttest.Lay(t, test.tree), rdma.Options{})
		var got []string
		for _, a := range s.Adapters {
			verbs := "-"
			if a.Verbs != nil {
				verbs = a.Verbs.Name
			}
			got = append(got, fmt.Sprintf("%s %s %s %s %v", a.Title(), a.Name, a.Elsewhere, verbs, a.Parts))
		}
		hosttest.EqualIn(t, name, test.want, got)
		if away := s.Adapters[1]; name == "exclusive" {
			if len(away.Ports) != 1 || away.Ports[0].UMAD == nil || away.Ports[0].UMAD.Name != "umad2" {
				t.Errorf("%+v", away.Ports)
			}
			if err := rdma.NoDevice(&away, nil); err.Error() != "has its RDMA device in another network namespace: mlx5_2" {
				t.Error(err)
			}
		}
	}
}
