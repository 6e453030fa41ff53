package rdmaprepare_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
	"gpustack/host/steps"
)

// hca is an adapter of the test's machine.
type hca struct {
	address, driver, name, guid, mac, layer string
	total, vfs                              int // sriov_totalvfs, sriov_numvfs; -1 for no capability
	group                                   int
	vfDriver                                string
}

// Adapters of ConnectX-6: one on InfiniBand and one on Ethernet.
func infiniband() hca {
	return hca{"0000:0c:00.0", "mlx5_core", "mlx5_0", "0c42:a103:0021:6e70", "", rdma.LinkInfiniBand, 16, 0, 20, "vfio-pci"}
}

func ethernet() hca {
	return hca{"0000:0d:00.0", "mlx5_core", "mlx5_1", "b859:9f03:0000:1234", "b8:59:9f:00:12:34", rdma.LinkEthernet, 8, 0, 21, "vfio-pci"}
}

// machineOf returns a machine with these adapters, as a txtar archive. more begins with commands.
func machineOf(adapters []hca, commands, files string) string {
	c, f := &strings.Builder{}, &strings.Builder{}
	c.WriteString(commands)
	file := func(name, text string) { fmt.Fprintf(f, "-- %s --\n%s\n", name, text) }
	function := func(dir, address, ids, driver string, group int) {
		at := dir + "/" + address
		fmt.Fprintf(c, "symlink sys/bus/pci/devices/%s -> ../../../%s\n", address, strings.TrimPrefix(at, "sys/"))
		vendor, product, _ := strings.Cut(ids, ":")
		file(at+"/class", "0x020700")
		file(at+"/vendor", "0x"+vendor)
		file(at+"/device", "0x"+product)
		if driver != "" {
			fmt.Fprintf(c, "symlink %s/driver -> ../../../../bus/pci/drivers/%s\n", at, driver)
		}
		fmt.Fprintf(c, "symlink %s/iommu_group -> ../../../../kernel/iommu_groups/%d\n", at, group)
		file(fmt.Sprintf("sys/kernel/iommu_groups/%d/type", group), "identity")
	}
	for _, a := range adapters {
		bus := "sys/devices/pci0000:00/0000:00:01.0"
		at := bus + "/" + a.address
		function(bus, a.address, "15b3:101b", a.driver, a.group)
		if a.total >= 0 {
			for name, value := range map[string]int{"totalvfs": a.total, "numvfs": a.vfs, "offset": 2, "stride": 1} {
				file(at+"/sriov_"+name, fmt.Sprint(value))
			}
			file(at+"/sriov_vf_device", "101c")
		}
		for n := range a.vfs {
			vf, _ := pci.ParseAddress(a.address)
			vf.Function += uint8(2 + n)
			function(bus, vf.String(), "15b3:101c", a.vfDriver, a.group+50+n)
			if netdev := fmt.Sprintf("v%s%d", a.address[5:7], n); a.vfDriver == "mlx5_core" { // it is down
				fmt.Fprintf(c, "symlink sys/class/net/%s -> ../../%s/%s/net/%s\n", netdev, strings.TrimPrefix(bus, "sys/"), vf, netdev)
				file(fmt.Sprintf("%s/%s/net/%s/flags", bus, vf, netdev), "0x1002")
			}
			fmt.Fprintf(c, "symlink %s/virtfn%d -> ../%s\nsymlink %s/%s/physfn -> ../%s\n", at, n, vf, bus, vf, a.address)
		}
		if a.name != "" {
			ib := at + "/infiniband/" + a.name
			fmt.Fprintf(c, "symlink sys/class/infiniband/%s -> ../../%s\n", a.name, strings.TrimPrefix(ib, "sys/"))
			file(ib+"/node_guid", a.guid)
			file(ib+"/node_type", "1: CA")
			file(ib+"/ports/1/link_layer", a.layer)
			file(ib+"/ports/1/state", "4: ACTIVE")
		}
		if a.mac != "" {
			netdev := "eth" + a.name[len(a.name)-1:]
			fmt.Fprintf(c, "symlink sys/class/net/%s -> ../../%s/net/%s\n", netdev, strings.TrimPrefix(at, "sys/"), netdev)
			file(at+"/net/"+netdev+"/address", a.mac)
			file(at+"/net/"+netdev+"/ifindex", "3")
			fmt.Fprintf(c, "symlink %s/net/%s/device -> ../../../%s\n", at, netdev, a.address)
		}
	}
	modules := ""
	for _, m := range []string{"vfio-pci", "ib_uverbs", "rdma_ucm", "ib_umad", "ib_ipoib", "mlx5_core"} {
		modules += "kernel/" + m + ".ko:\n"
	}
	file("usr/lib/systemd/systemd", "")
	file("usr/bin/gpustack", "")
	file("lib/modules/6.1.0-28-amd64/modules.dep", strings.TrimSuffix(modules, "\n"))
	if !strings.Contains(files, "-- proc/mounts --") {
		file("proc/mounts", "tmpfs / tmpfs rw 0 0")
	}
	return c.String() + f.String() + files
}

// plan observes and plans, and returns the error as text.
func plan(t *testing.T, root host.Root, o rdmaprepare.Options) (rdmaprepare.Plan, string) {
	t.Helper()
	m, err := rdmaprepare.Observe(root, machine.ObserveRecord(root, nil, true), o)
	if err != nil {
		return rdmaprepare.Plan{}, err.Error()
	}
	w, err := rdmaprepare.NewWant(m, o)
	if err != nil {
		return rdmaprepare.Plan{}, err.Error()
	}
	p, err := rdmaprepare.NewPlan(m, w)
	if err != nil {
		return p, err.Error()
	}
	return p, ""
}

func address(s string) pci.Address {
	a, err := pci.ParseAddress(s)
	if err != nil {
		panic(err)
	}
	return a
}

func TestPlan(t *testing.T) {
	root := hosttest.Lay(t, machineOf([]hca{infiniband(), ethernet()}, "", ""))
	p, text := plan(t, root, rdmaprepare.Options{Add: []pci.Address{address("0c:00.0"), address("0d:00.0")}, VFs: 8})
	if text != "" {
		t.Fatal(text)
	}
	ib, eth := p.Record.Adapters[0], p.Record.Adapters[1]
	vf := ib.VFs[7]
	got := fmt.Sprintln(len(ib.VFs), vf.Address, vf.ProductID, vf.Driver, vf.NodeGUID, vf.PortGUID, vf.MAC, ib.LinkLayer, ib.Use, ib.Path)
	hosttest.Equal(t, "8 0000:0c:01.1 101c vfio-pci 0e:42:a1:07:01:21:6e:70 0e:42:a1:07:02:21:6e:70  InfiniBand guests [0000:00:01.0]\n", got)
	vf = eth.VFs[1]
	hosttest.Equal(t, "0000:0d:00.3 ba:01:9f:00:12:34 true Ethernet\n", fmt.Sprintln(vf.Address, vf.MAC, vf.NodeGUID == nil, eth.LinkLayer))
	var names []string
	for _, c := range p.Files.Pending() {
		names = append(names, c.Name)
	}
	if want := []string{rdmaprepare.LoadFile, "/etc/systemd/system/gpustack-boot.service", "/etc/systemd/system/multi-user.target.d/gpustack-boot.conf", rdma.RecordFile}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	if want := "# Written by gpustack rdma prepare. \"gpustack undo\" reverts it.\nib_uverbs\nrdma_ucm\nib_umad\nib_ipoib\nvfio-pci\n"; string(p.Files[1].After.Content) != want {
		t.Errorf("%s", p.Files[1].After.Content)
	}
	if line, want := rdmaprepare.Partitions(ib), "NAME=0x8001, ipoib: 0x0e42a1000221"; !strings.HasPrefix(line, want) || !strings.HasSuffix(line, "0x0e42a1070221"+"6e70=full;") {
		t.Errorf("%s", line)
	}

	apply(t, root, p)
	if p, text = plan(t, root, rdmaprepare.Options{Add: []pci.Address{address("0c:00.0")}, VFs: 8}); text != "" || len(p.Files.Pending()) > 0 {
		t.Errorf("again: %s, %v", text, p.Files.Pending())
	}
	if p, text = plan(t, root, rdmaprepare.Options{}); text != "" || len(p.Files.Pending()) > 0 {
		t.Errorf("without a selection: %s, %v", text, p.Files.Pending())
	}
	if p, text = plan(t, root, rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2, Use: rdma.ForContainers}); text != "" || len(p.Record.Adapters) != 2 {
		t.Errorf("another number: %s, %v", text, p.Record)
	}
	if a := p.Record.At(address("0d:00.0")); len(a.VFs) != 2 || a.VFs[0].Driver != "mlx5_core" {
		t.Errorf("another number: %v", a)
	}
	if p, text = plan(t, root, rdmaprepare.Options{Remove: []pci.Address{address("0d:00.0")}}); text != "" || len(p.Record.Adapters) != 1 {
		t.Errorf("remove: %s, %v", text, p.Record)
	}
	if _, text = plan(t, root, rdmaprepare.Options{Remove: []pci.Address{address("0e:00.0")}}); text != "0000:0e:00.0: is not recorded" {
		t.Errorf("remove: %s", text)
	}
	p, text = plan(t, root, rdmaprepare.Options{None: true})
	if text != "" {
		t.Fatal(text)
	}
	for _, c := range p.Files {
		if c.After != nil {
			t.Errorf("none: %s remains", c.Name)
		}
	}
	if p, text = plan(t, root, rdmaprepare.Options{Netns: rdma.NetnsExclusive}); text != "" || !strings.Contains(string(p.Files[0].After.Content), "\noptions ib_core netns_mode=0\n") {
		t.Errorf("exclusive: %s, %v", text, p.Files[0].After)
	}
}

func apply(t *testing.T, root host.Root, p rdmaprepare.Plan) {
	t.Helper()
	hosttest.NoError(t, p.Files.Apply(t.Context(), root))
}

func TestRefusals(t *testing.T) {
	ib, eth := infiniband(), ethernet()
	guid, err := rdma.ParseGUID("0200:0000:0000:0001")
	hosttest.NoError(t, err)
	with := func(a hca, change func(*hca)) hca { change(&a); return a }
	both := []hca{ib, eth}
	vfs := func(n int) rdmaprepare.Options {
		return rdmaprepare.Options{Add: []pci.Address{address(ib.address)}, VFs: n}
	}
	roce := func(n int) rdmaprepare.Options {
		return rdmaprepare.Options{Add: []pci.Address{address(eth.address)}, VFs: n}
	}
	whole := rdmaprepare.Options{Add: []pci.Address{address(ib.address)}, Whole: true}
	allowed := whole
	allowed.Allow = allowed.Add
	const down = "-- sys/devices/pci0000:00/0000:00:01.0/0000:0d:00.0/net/eth1/flags --\n0x1002\n"
	const route = "-- proc/net/route --\nIface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\neth1 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n"
	for _, test := range []struct {
		name            string
		adapters        []hca
		commands, files string
		options         rdmaprepare.Options
		want            string // "" for a plan
	}{
		{"no such function", both, "", "", rdmaprepare.Options{Add: []pci.Address{address("99:00.0")}, VFs: 1}, "0000:99:00.0: there is no such PCI function"},
		{"no RDMA device", []hca{with(ib, func(a *hca) { a.name, a.driver = "", "igb" })}, "", "", vfs(1), "0000:0c:00.0: has no RDMA device"},
		{"too many VFs", both, "", "", vfs(17), "0000:0c:00.0: 17 VFs are more than its firmware allows (sriov_totalvfs is 16)"},
		{"no VFs in the firmware", []hca{with(ib, func(a *hca) { a.total = 0 })}, "", "", vfs(1), "0000:0c:00.0: 1 VFs are more than its firmware allows (sriov_totalvfs is 0)"},
		{"no capability", []hca{with(ib, func(a *hca) { a.total = -1 })}, "", "", vfs(1), "0000:0c:00.0: its firmware shows no SR-IOV capability, so it can have no VFs"},
		{"all errors at once", both, "", "", rdmaprepare.Options{Add: []pci.Address{address(ib.address), address(eth.address), address("99:00.0")}, VFs: 100},
			"0000:0c:00.0: 100 VFs are more than its firmware allows (sriov_totalvfs is 16)\n0000:0d:00.0: 100 VFs are more than its firmware allows (sriov_totalvfs is 8)\n" +
				"0000:99:00.0: there is no such PCI function"},
		{"a GUID of another form", []hca{with(ib, func(a *hca) { a.guid = "0c42:a101:0021:6e70" })}, "", "", vfs(2),
			"0000:0c:00.0: GUID 0c:42:a1:01:00:21:6e:70: has neither 03:00 nor ff:fe as its fourth and fifth byte, so GUIDs derived from it may not be unique"},
		{"a base for it", []hca{with(ib, func(a *hca) { a.guid = "0c42:a101:0021:6e70" })}, "", "",
			rdmaprepare.Options{Add: []pci.Address{address(ib.address)}, VFs: 2, GUIDBase: &guid}, ""},
		{"one base for two", []hca{ib, with(ib, func(a *hca) { a.address, a.name = "0000:0e:00.0", "mlx5_4" })}, "", "",
			rdmaprepare.Options{Add: []pci.Address{address(ib.address), address("0e:00.0")}, VFs: 2, GUIDBase: &guid},
			"VF 0 of 0000:0e:00.0: node GUID 02:00:00:00:01:00:00:01 is that of VF 0 of 0000:0c:00.0 already\n" +
				"VF 0 of 0000:0e:00.0: port GUID 02:00:00:00:02:00:00:01 is that of VF 0 of 0000:0c:00.0 already"},
		{"a base that leads to the GUID of a port", both, "",
			"-- sys/devices/pci0000:00/0000:00:01.0/0000:0c:00.0/infiniband/mlx5_0/ports/1/gids/0 --\nfe80:0000:0000:0000:0200:0000:0200:0001\n",
			rdmaprepare.Options{Add: []pci.Address{address(ib.address)}, VFs: 2, GUIDBase: &guid},
			"VF 0 of 0000:0c:00.0: port GUID 02:00:00:00:02:00:00:01 is that of 0000:0c:00.0 already"},
		{"a VF", []hca{with(ib, func(a *hca) { a.vfs = 2 })}, "", "", rdmaprepare.Options{Add: []pci.Address{address("0c:00.3")}, VFs: 1}, "0000:0c:00.3: is a VF"},
		{"VFs that nobody uses", []hca{with(ib, func(a *hca) { a.vfs = 2 })}, "", "", vfs(4), ""},
		{"a VF in use", []hca{with(ib, func(a *hca) { a.vfs = 2 })}, "symlink sys/class/infiniband_verbs/uverbs3 -> ../../devices/pci0000:00/0000:00:01.0/0000:0c:00.3/infiniband_verbs/uverbs3\n" +
			"mkdir sys/devices/pci0000:00/0000:00:01.0/0000:0c:00.3/infiniband_verbs/uverbs3\nsymlink proc/7/fd/3 -> /dev/infiniband/uverbs3\n", "-- proc/7/comm --\nrping\n", vfs(4),
			"VF 0000:0c:00.3 of 0000:0c:00.0 is in use: rping (pid 7) has /dev/infiniband/uverbs3 open"},
		{"an adapter with a route", both, "", route, roce(2), ""},
		{"a whole adapter with a route", both, "", route, rdmaprepare.Options{Add: []pci.Address{address(eth.address)}, Whole: true},
			"0000:0d:00.0: has a network interface in use: eth1 is up"},
		{"the same, allowed", both, "", route, rdmaprepare.Options{Add: []pci.Address{address(eth.address)}, Whole: true, Allow: []pci.Address{address(eth.address)}}, ""},
		{"the same, for containers", both, "", route, rdmaprepare.Options{Add: []pci.Address{address(eth.address)}, Whole: true, Use: rdma.ForContainers}, ""},
		{"a whole adapter whose second port has a route", []hca{ib, with(eth, func(a *hca) { a.address = "0000:0c:00.1" })}, "", route, whole,
			"0000:0c:00.0: has a network interface in use: no interface is shown here: it may be in another network namespace, or have a driver of DPDK; " +
				"the host keeps 0000:0c:00.1 of the same card, and a guest can reset or reflash the whole card"},
		{"the same, allowed", []hca{ib, with(eth, func(a *hca) { a.address = "0000:0c:00.1" })}, "", route, allowed, ""},
		{"a whole adapter that shares its group", []hca{ib, with(eth, func(a *hca) { a.group = 20 })}, "", "", allowed,
			"0000:0d:00.0: shares IOMMU group 20 with 0000:0c:00.0, so a guest can have 0000:0c:00.0 only together with it: 'gpustack rdma prepare --device 0000:0c:00.0 --device 0000:0d:00.0 --whole' accepts both"},
		{"a whole adapter whose port is active", both, "", down, rdmaprepare.Options{Add: []pci.Address{address(eth.address)}, Whole: true}, "0000:0d:00.0: has the active port 1 of mlx5_1"},
		{"a whole adapter whose ports are down", both, "", down + "-- sys/devices/pci0000:00/0000:00:01.0/0000:0d:00.0/infiniband/mlx5_1/ports/1/state --\n1: DOWN\n",
			rdmaprepare.Options{Add: []pci.Address{address(eth.address)}, Whole: true}, ""},
		{"an unknown function to allow", both, "", "", rdmaprepare.Options{Allow: []pci.Address{address("99:00.0")}}, "--allow: 0000:99:00.0: there is no such PCI function"},
		{"mlx4", []hca{with(ib, func(a *hca) { a.driver = "mlx4_core" })}, "", "", vfs(2),
			"0000:0c:00.0: mlx4_core makes VFs when it is loaded, by its parameters num_vfs and probe_vf: sriov_numvfs cannot be written with it"},
		{"a record that cannot be read", both, "", "-- var/lib/gpustack/rdma.json --\n" +
			`{"schema":1,"kind":"rdma record","files":[],"allowed":[],"adapters":[{"address":"0000:0c:00.0","vendor_id":"15b3","product_id":"101b",` +
			"\"bridges\":[],\"driver\":\"x\",\"link_layer\":\"\",\"for\":\"fun\",\"whole\":false,\"vfs\":[]}]}\n", vfs(2),
			"/var/lib/gpustack/rdma.json: malformed: adapter 0000:0c:00.0 is for \"fun\"\nmalformed: adapter 0000:0c:00.0 needs either VFs or whole"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, machineOf(test.adapters, test.commands, test.files))
			before := tree(t, root)
			p, got := plan(t, root, test.options)
			hosttest.Equal(t, test.want, got)
			if test.want == "" && test.options.VFs > 0 && len(p.Files.Pending()) == 0 {
				t.Error("no plan")
			}
			hosttest.EqualIn(t, "planning changed files", before, tree(t, root))
		})
	}
}

// TestLeaving: what exists is what leaves. VFs that carry what the host needs prevent every change
// that removes or rebinds them, the RDMA device of a bond prevents VFs, and what manages NVSwitches
// is no guest's.
func TestLeaving(t *testing.T) {
	const devices = "sys/devices/pci0000:00/0000:00:01.0/"
	eth := ethernet()
	second := eth
	second.address, second.mac, second.name, second.group = "0000:0d:00.1", "b8:59:9f:00:12:35", "mlx5_2", 22
	withVFs := eth
	forGuests := eth
	forGuests.vfs = 2
	withVFs.vfs, withVFs.vfDriver = 2, "mlx5_core"
	pf, vf, other := address(eth.address), address("0d:00.2"), address(second.address)
	recordedAs := func(use rdma.Use, number int, driver string, allowed ...pci.Address) string {
		p := rdma.Prepared{Address: pf, VendorID: 0x15b3, ProductID: 0x101b, Path: []pci.Address{address("00:01.0")}, Driver: "mlx5_core", LinkLayer: rdma.LinkEthernet, Use: use}
		for n := range number {
			v := rdma.PreparedVF{Index: n, Address: vf, ProductID: 0x101c, Driver: driver, MAC: fmt.Sprintf("ba:%02x:9f:00:12:34", n)}
			v.Address.Function += uint8(n)
			p.VFs = append(p.VFs, v)
		}
		text, err := rdma.Record{Schema: 1, Adapters: []rdma.Prepared{p}, Files: []rdma.File{}, Allowed: allowed}.Text()
		hosttest.NoError(t, err)
		return "-- var/lib/gpustack/rdma.json --\n" + string(text)
	}
	recorded := func(use rdma.Use, allowed ...pci.Address) string { return recordedAs(use, 2, "mlx5_core", allowed...) }
	netdev := func(address, name string) string {
		return fmt.Sprintf("symlink sys/class/net/%s -> ../../devices/pci0000:00/0000:00:01.0/%s/net/%[1]s\nsymlink %[3]s%[2]s/net/%[1]s/device -> ../../../%[2]s\n", name, address, devices)
	}
	route := func(name string) string {
		return "-- proc/net/route --\nIface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n" + name + " 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n"
	}
	onVF := netdev("0000:0d:00.2", "eth9")
	vfFiles := "-- " + devices + "0000:0d:00.2/net/eth9/ifindex --\n9\n" + route("eth9")
	const refused = "0000:0d:00.0: its VF 0000:0d:00.2 has a network interface in use: eth9 is up"
	const boots = "0000:0d:00.0: its VF 0000:0d:00.2 may be the interface that the host boots with: root=/dev/nfs on the kernel command line"
	bonded := func(files string) string {
		return "-- sys/class/net/bond0/bonding/slaves --\neth1 eth2\n-- sys/class/net/bond0/ifindex --\n8\n" + files
	}
	below := func(master string) (links string) {
		for i, a := range []string{eth.address, second.address} {
			links += fmt.Sprintf("symlink %s%s/net/eth%d/master -> ../../../../../../class/net/%s\n", devices, a, i+1, master)
		}
		return links
	}
	above := func(master string) string {
		return below(master) + fmt.Sprintf("symlink sys/class/net/%s/lower_eth1 -> ../eth1\nsymlink sys/class/net/%[1]s/lower_eth2 -> ../eth2\n", master)
	}
	slave := second
	slave.name, slave.mac = "", ""
	bound := eth
	bound.name, bound.mac, bound.driver = "", "", "vfio-pci"
	foreign := slave
	foreign.driver = "igb"
	driven := func(a hca) hca {
		a.driver = "bnxt_en"
		return a
	}
	ofSlave := netdev(slave.address, "eth2")
	ofBond := ofSlave + below("bond0")
	slaveFiles := "-- " + devices + slave.address + "/net/eth2/address --\nb8:59:9f:00:12:34\n-- " + devices + slave.address + "/net/eth2/bonding_slave/perm_hwaddr --\n" + second.mac + "\n"
	uverbs := "symlink sys/class/infiniband_verbs/uverbs1 -> ../../devices/pci0000:00/0000:00:01.0/0000:0d:00.0/infiniband_verbs/uverbs1\n" +
		"mkdir " + devices + "0000:0d:00.0/infiniband_verbs/uverbs1\nsymlink proc/7/fd/3 -> /dev/infiniband/uverbs1\n"
	const used = "0000:0d:00.1: VFs remove the RDMA device mlx5_1 of its bond bond0"
	one := []pci.Address{pf}
	manager := "base64 " + devices + "0000:0d:00.0/vpd\n"
	board := "symlink sys/bus/pci/devices/0000:17:00.0 -> ../../../devices/pci0000:17/0000:17:00.0\n"
	boardFiles := "-- sys/devices/pci0000:17/0000:17:00.0/class --\n0x030200\n-- sys/devices/pci0000:17/0000:17:00.0/vendor --\n0x10de\n-- sys/devices/pci0000:17/0000:17:00.0/device --\n0x2901\n" +
		"-- " + devices + "0000:0d:00.0/class --\n0x020700\n-- " + devices + "0000:0d:00.0/vpd --\nkA8AVjAMU01ETD1TV19NTkd4\n"
	for _, test := range []struct {
		name            string
		adapters        []hca
		commands, files string
		options         rdmaprepare.Options
		want            string
	}{
		{"VFs with a route, removed", []hca{withVFs}, onVF, vfFiles + booted(eth.address) + recorded(rdma.ForContainers), rdmaprepare.Options{Remove: one}, refused},
		{"the same, allowed", []hca{withVFs}, onVF, vfFiles + booted(eth.address) + recorded(rdma.ForContainers), rdmaprepare.Options{Remove: one, Allow: one}, ""},
		{"the same, allowed for the VF", []hca{withVFs}, onVF, vfFiles + booted(eth.address) + recorded(rdma.ForContainers), rdmaprepare.Options{Remove: one,
			Allow: []pci.Address{vf}}, ""},
		{"the same, allowed before", []hca{withVFs}, onVF, vfFiles + booted(eth.address) + recorded(rdma.ForContainers, pf), rdmaprepare.Options{Remove: one}, ""},
		{"VFs with a route, none", []hca{withVFs}, onVF, vfFiles + booted(eth.address) + recorded(rdma.ForContainers), rdmaprepare.Options{None: true}, refused},
		{"VFs with a route, for guests", []hca{withVFs}, onVF, vfFiles + recorded(rdma.ForContainers), rdmaprepare.Options{Add: one, VFs: 2, Use: rdma.ForGuests}, refused},
		{"VFs with a route, another number", []hca{withVFs}, onVF, vfFiles + recorded(rdma.ForContainers), rdmaprepare.Options{Add: one, VFs: 4}, refused},
		{"VFs of others with a route, as many, removed", []hca{withVFs}, onVF, vfFiles + recorded(rdma.ForContainers), rdmaprepare.Options{Remove: one}, ""},
		{"VFs with a route whose record is lost", []hca{withVFs}, onVF, vfFiles + booted(eth.address), rdmaprepare.Options{Add: one, VFs: 2,
			Use: rdma.ForContainers}, ""},
		{"VFs of others with a route, removed", []hca{withVFs}, onVF, vfFiles + recordedAs(rdma.ForContainers, 4, "mlx5_core"), rdmaprepare.Options{Remove: one}, ""},
		{"VFs of others with a route, none", []hca{withVFs}, onVF, vfFiles + recordedAs(rdma.ForContainers, 4, "mlx5_core"), rdmaprepare.Options{None: true}, ""},
		{"VFs that this boot has made, removed", []hca{withVFs}, onVF, vfFiles + booted(eth.address) + recordedAs(rdma.ForGuests, 2, "vfio-pci"),
			rdmaprepare.Options{Remove: one}, refused},
		{"VFs of others with a route, another number", []hca{withVFs}, onVF, vfFiles + recordedAs(rdma.ForContainers, 4, "mlx5_core"), rdmaprepare.Options{Add: one, VFs: 5}, refused},
		{"VFs of others with a route, as many", []hca{withVFs}, onVF, vfFiles, rdmaprepare.Options{Add: one, VFs: 2, Use: rdma.ForContainers}, refused},
		{"the same, allowed", []hca{withVFs}, onVF, vfFiles, rdmaprepare.Options{Add: one, VFs: 2, Use: rdma.ForContainers, Allow: one}, ""},
		{"VFs of others, as many, that the host may boot over", []hca{withVFs}, "", "-- proc/cmdline --\nroot=/dev/nfs\n", rdmaprepare.Options{Add: one, VFs: 2, Use: rdma.ForContainers, Allow: one},
			boots + "\n" + strings.Replace(boots, "00.2", "00.3", 1)},
		{"idle VFs, as many", []hca{withVFs}, "", "", rdmaprepare.Options{Add: one, VFs: 2, Use: rdma.ForContainers}, ""},
		{"VFs of guests whose record is lost", []hca{forGuests}, "", "-- proc/cmdline --\nroot=/dev/nfs\n", rdmaprepare.Options{Add: one, VFs: 2, Use: rdma.ForGuests}, ""},
		{"bound for guests, not recorded", []hca{bound}, "", "", rdmaprepare.Options{Add: one, VFs: 2}, "0000:0d:00.0: has no RDMA device: it is bound to vfio-pci"},
		{"idle VFs, removed", []hca{withVFs}, "", recorded(rdma.ForContainers), rdmaprepare.Options{Remove: one}, ""},
		{"VFs of an adapter with a route", []hca{eth}, "", route("eth1"), rdmaprepare.Options{Add: one, VFs: 2}, ""},
		{"a bond whose RDMA device is in use", []hca{eth, slave}, ofBond + uverbs, bonded(slaveFiles + "-- proc/7/comm --\nrping\n"),
			rdmaprepare.Options{Add: []pci.Address{other}, VFs: 2}, used},
		{"a team whose RDMA device is in use", []hca{eth, slave}, ofSlave + uverbs + above("team0"), slaveFiles + "-- sys/class/net/team0/ifindex --\n8\n-- proc/7/comm --\nrping\n",
			rdmaprepare.Options{Add: []pci.Address{other}, VFs: 2}, strings.Replace(used, "bond0", "team0", 1)},
		{"a bridge", []hca{eth, slave}, ofSlave + uverbs + above("br0"), slaveFiles + "-- sys/class/net/br0/bridge/bridge_id --\n8000\n-- proc/7/comm --\nrping\n",
			rdmaprepare.Options{Add: []pci.Address{pf}, VFs: 2}, ""},
		{"Open vSwitch", []hca{eth, slave}, ofSlave + uverbs + above("ovs-system"),
			slaveFiles + "-- sys/class/net/ovs-system/ifindex --\n8\n-- proc/7/comm --\nrping\n",
			rdmaprepare.Options{Add: []pci.Address{pf}, VFs: 2}, ""},
		{"a VRF", []hca{eth, slave}, ofSlave + uverbs + above("vrf0"), slaveFiles + "-- sys/class/net/vrf0/flags --\n0x4c1\n-- proc/7/comm --\nrping\n",
			rdmaprepare.Options{Add: []pci.Address{other}, VFs: 2}, "0000:0d:00.1: has no RDMA device: its driver is mlx5_core"},
		{"the same, allowed", []hca{eth, slave}, ofBond + uverbs, bonded(slaveFiles + "-- proc/7/comm --\nrping\n"),
			rdmaprepare.Options{Add: []pci.Address{other}, VFs: 2, Allow: []pci.Address{other}}, ""},
		{"a bond whose slaves have devices of their own, one in use", []hca{eth, second}, ofBond + uverbs,
			bonded(slaveFiles + "-- proc/7/comm --\nrping\n"), rdmaprepare.Options{Add: []pci.Address{other}, VFs: 2}, ""},
		{"a bond with a slave of another driver", []hca{eth, foreign}, ofBond + uverbs, bonded(slaveFiles + "-- proc/7/comm --\nrping\n"),
			rdmaprepare.Options{Add: []pci.Address{pf}, VFs: 2}, ""},
		{"a bond of another driver", []hca{driven(eth), driven(slave)}, ofBond + uverbs, bonded(slaveFiles + "-- proc/7/comm --\nrping\n"),
			rdmaprepare.Options{Add: []pci.Address{pf}, VFs: 2}, ""},
		{"a bond without a use of RDMA", []hca{eth, slave}, ofBond, bonded(slaveFiles), rdmaprepare.Options{Add: []pci.Address{pf}, VFs: 2}, "0000:0d:00.0: VFs remove the RDMA device mlx5_1 of its bond bond0"},
		{"VFs of two ports at the same addresses", []hca{eth, second}, "", "", rdmaprepare.Options{Add: []pci.Address{pf, other}, VFs: 4},
			"VF 0 of 0000:0d:00.1: its address 0000:0d:00.3 is that of VF 1 of 0000:0d:00.0"},
		{"no RDMA device and no bond", []hca{eth, slave}, ofSlave, slaveFiles, rdmaprepare.Options{Add: []pci.Address{other}, VFs: 2},
			"0000:0d:00.1: has no RDMA device: its driver is mlx5_core"},
		{"VFs of a whole adapter", []hca{withVFs}, "", "", rdmaprepare.Options{Add: one, Whole: true, Allow: one}, "0000:0d:00.0: has virtual functions enabled (2)"},
		{"the same, with a route", []hca{withVFs}, onVF, vfFiles, rdmaprepare.Options{Add: one, Whole: true},
			refused + "\n0000:0d:00.0: has a network interface in use: eth1 is up\n0000:0d:00.0: has virtual functions enabled (2)"},
		{"the same, for containers", []hca{withVFs}, "", "", rdmaprepare.Options{Add: one, Whole: true, Use: rdma.ForContainers}, ""},
		{"a manager of NVSwitches", []hca{eth}, manager + board, boardFiles, rdmaprepare.Options{Add: one, Whole: true, Allow: one},
			"0000:0d:00.0: manages the NVSwitches of this machine, and NVIDIA's fabric manager needs it"},
		{"the same, for containers", []hca{eth}, manager + board, boardFiles, rdmaprepare.Options{Add: one, Whole: true, Use: rdma.ForContainers},
			"0000:0d:00.0: manages the NVSwitches of this machine, and NVIDIA's fabric manager needs it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, machineOf(test.adapters, test.commands, test.files))
			if _, got := plan(t, root, test.options); got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}

	// An undo is asked as the command is: it returns nothing that is not there, and takes the VFs.
	root := hosttest.Lay(t, machineOf([]hca{withVFs}, onVF, vfFiles+booted(eth.address)+recorded(rdma.ForContainers)))
	c, err := edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile)
	hosttest.NoError(t, err)
	if _, err := gate.Permit(root, edit.Changes{c}, steps.Made, gate.Allowed{}); err == nil || err.Error() != refused {
		t.Error(err)
	}
	lifted, err := gate.Permit(root, edit.Changes{c}, steps.Made, gate.Allowed{Functions: []pci.Address{vf}})
	if err != nil || len(lifted) != 1 || lifted[0].Address != vf {
		t.Errorf("%v, %v, want %v", lifted, err, vf)
	}
}

// TestLAG: a function whose port the RDMA device of another one serves is refused by what it lacks,
// and by the function to name.
func TestLAG(t *testing.T) {
	t.Parallel()
	text := hosttest.Read(t, "../../../integration/testdata/shapes/roce-lag.txtar")
	second := rdmaprepare.Options{Add: []pci.Address{{Bus: 0x3b, Function: 1}}, Whole: true, Use: rdma.ForContainers}
	root := hosttest.Lay(t, text)
	m, err := rdmaprepare.Observe(root, machine.ObserveRecord(root, nil, true), second)
	hosttest.NoError(t, err)
	_, err = rdmaprepare.NewWant(m, second)
	const want = "0000:3b:00.1: has no RDMA device of its own: mlx5_bond_0 of 0000:3b:00.0 serves its port"
	if err == nil || err.Error() != want || host.HintOf(err).String() != "name 0000:3b:00.0" {
		t.Errorf("%v, %q", err, host.HintOf(err))
	}
}

// booted returns the result of a boot that has made VFs of an adapter.
func booted(at string) string {
	return fmt.Sprintf("-- run/gpustack/boot.json --\n"+`{"schema":1,"boot_id":"","version":"","started":"2026-11-01T12:00:00Z","ended":null,"steps":[`+
		`{"id":"vfs %s","kind":"vfs","address":%[1]q,"needs":[],"status":"done","error":"","seconds":1,"before":{"num_vfs":0,"made":[2]}}]}`+"\n", at)
}

// tree returns the names below a root.
func tree(t *testing.T, root host.Root) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root.Path("/"), func(name string, _ os.DirEntry, err error) error {
		names = append(names, name)
		return err
	})
	hosttest.NoError(t, err)
	return names
}

// TestPermit: a change of the record that takes VFs away is refused while one is in use, whether it
// is made or undone; one that leaves them is not.
func TestPermit(t *testing.T) {
	used := infiniband()
	used.vfs = 2
	root := hosttest.Lay(t, machineOf([]hca{used, ethernet()}, "symlink sys/class/infiniband_verbs/uverbs3 -> ../../devices/pci0000:00/0000:00:01.0/0000:0c:00.3/infiniband_verbs/uverbs3\n"+
		"mkdir sys/devices/pci0000:00/0000:00:01.0/0000:0c:00.3/infiniband_verbs/uverbs3\nsymlink proc/7/fd/3 -> /dev/infiniband/uverbs3\n",
		"-- proc/7/comm --\nrping\n"+booted(used.address)))
	record := func(adapters ...rdma.Prepared) *edit.File {
		text, err := rdma.Record{Schema: 1, Adapters: adapters}.Text()
		hosttest.NoError(t, err)
		return &edit.File{Content: text}
	}
	ib := rdma.Prepared{Address: address("0c:00.0"), Use: rdma.ForGuests, VFs: []rdma.PreparedVF{{Address: address("0c:00.2"), Driver: "vfio-pci"}, {Index: 1, Address: address("0c:00.3"), Driver: "vfio-pci"}}}
	eth := rdma.Prepared{Address: address("0d:00.0"), Use: rdma.ForGuests, VFs: []rdma.PreparedVF{{Address: address("0d:00.2")}}}
	fewer := ib
	fewer.VFs = fewer.VFs[:1]
	for _, test := range []struct {
		name          string
		before, after *edit.File
		refused       bool
	}{
		{"removed", record(ib), nil, true},
		{"of several", record(ib, eth), record(eth), true},
		{"fewer", record(ib), record(fewer), true},
		{"another adapter", record(ib, eth), record(ib), false},
		{"new", nil, record(ib), false},
	} {
		_, err := gate.Permit(root, edit.Changes{{Name: "/etc/x"}, {Name: rdma.RecordFile, Before: test.before, After: test.after}}, steps.Made, gate.Allowed{})
		if want := "VF 0000:0c:00.3 of 0000:0c:00.0 is in use: rping (pid 7) has /dev/infiniband/uverbs3 open"; test.refused && (err == nil || err.Error() != want) || !test.refused && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := gate.Permit(root, edit.Changes{{Name: rdma.RecordFile, Before: &edit.File{Content: []byte("{")}}}, steps.Made, gate.Allowed{}); err == nil {
		t.Error("a malformed record is permitted")
	}
}

// TestContainers: no function that is recorded for containers is planned for guests, and none is
// lost, whether the record is changed or the change undone.
func TestContainers(t *testing.T) {
	adapter := infiniband()
	root := hosttest.Lay(t, machineOf([]hca{adapter}, "", ""))
	pf := []pci.Address{address(adapter.address)}
	vfs := func(n int, use rdma.Use) rdmaprepare.Options { return rdmaprepare.Options{Add: pf, VFs: n, Use: use} }
	record := func(addresses ...string) *machine.Containers {
		c := &machine.Containers{}
		for _, a := range addresses {
			c.Functions = append(c.Functions, machine.ContainerFunction{Address: address(a), VendorID: 0x15b3, ProductID: 0x101b, Path: []pci.Address{}, HCA: true})
		}
		return c
	}
	write := func(containers *machine.Containers) edit.Change {
		t.Helper()
		text, err := machine.RecordText(nil, containers)
		hosttest.NoError(t, err)
		c, err := edit.Put(root, machine.ContractFile, text, 0o600, false)
		if err == nil {
			err = edit.Changes{c}.Apply(t.Context(), root)
		}
		hosttest.NoError(t, err)
		return c
	}
	p, text := plan(t, root, vfs(2, rdma.ForContainers))
	if text != "" {
		t.Fatal(text)
	}
	apply(t, root, p)
	write(record("0c:00.0", "0c:00.3"))
	const gone = "0000:0c:00.3: is for containers, and a VF of 0000:0c:00.0 that would not be made any more"
	for name, test := range map[string]struct {
		options rdmaprepare.Options
		want    string
	}{
		"as recorded": {rdmaprepare.Options{}, ""},
		"more VFs":    {vfs(4, rdma.ForContainers), ""},
		"fewer VFs":   {vfs(1, rdma.ForContainers), gone},
		"removed":     {rdmaprepare.Options{Remove: pf}, gone},
		"none":        {rdmaprepare.Options{None: true}, gone},
		"whole":       {rdmaprepare.Options{Add: pf, Whole: true, Use: rdma.ForContainers}, gone},
		"for guests":  {vfs(2, rdma.ForGuests), "0000:0c:00.0: is for containers\n0000:0c:00.3: is for containers"},
	} {
		if _, got := plan(t, root, test.options); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}

	file := func(a ...rdma.Prepared) *edit.File {
		text, err := rdma.Record{Schema: 1, Adapters: a}.Text()
		hosttest.NoError(t, err)
		return &edit.File{Content: text}
	}
	for name, test := range map[string]struct {
		change edit.Change
		want   string
	}{
		"the VFs go":         {edit.Change{Name: rdma.RecordFile, Before: file(p.Record.Adapters...)}, gone},
		"the VFs stay":       {edit.Change{Name: rdma.RecordFile, Before: file(p.Record.Adapters...), After: file(p.Record.Adapters...)}, ""},
		"another file":       {edit.Change{Name: "/etc/x"}, ""},
		"no container":       {edit.Change{Name: machine.ContractFile}, ""},
		"a malformed record": {edit.Change{Name: rdma.RecordFile, Before: &edit.File{Content: []byte("{")}}, "/var/lib/gpustack/rdma.json: "},
	} {
		got := ""
		if _, err := gate.Permit(root, edit.Changes{test.change}, steps.Made, gate.Allowed{}); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	// The adapter was given to guests since, and the undo would return it to containers.
	again := write(record("0c:00.0"))
	again.Before = write(record()).After
	if p, text = plan(t, root, vfs(2, rdma.ForGuests)); text != "" {
		t.Fatal(text)
	}
	apply(t, root, p)
	if _, err := gate.Permit(root, edit.Changes{again}, steps.Made, gate.Allowed{}); err == nil || err.Error() != "0000:0c:00.0: is for containers" {
		t.Error(err)
	}
}
