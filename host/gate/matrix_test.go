package gate_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/container/containerprepare"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
	"gpustack/host/selection"
	"gpustack/host/startup"
)

const (
	no    = gate.Refused
	lifts = gate.Liftable
	free  = gate.Unaffected
)

// matrix is what each use means for each way in which a function leaves the host, in the order of
// [gate.Kinds]: at boot, now, removed, making VFs, returned, role.
var matrix = map[gate.Use][6]gate.Verdict{
	gate.Use(guard.UseMount):               {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseMountNamespace):      {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseSwap):                {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseHolder):              {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UsePool):                {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseTarget):              {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseResume):              {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseTable):               {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseSignature):           {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseDefaultRoute):        {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseSession):             {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseAddress):             {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseConfigured):          {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseConfigurationUnread): {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseUpperLink):           {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseNetworkNamespace):    {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseXDP):                 {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseNetconsole):          {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseKdump):               {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UsePTP):                 {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseConsole):             {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseManagementConsole):   {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseRDMAFileSystem):      {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseRDMADisk):            {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseRDMAProtocol):        {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseSubnetManager):       {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseRDMAUnread):          {lifts, lifts, lifts, free, free, free},
	gate.Use(guard.UseRDMAProcess):         {lifts, free, free, free, free, free},
	gate.Use(host.CodeInUse):               {lifts, no, no, free, no, free},
	gate.Use(host.CodeGuestsUnknown):       {free, no, no, free, no, free},
	gate.Use(host.CodeVirtualFunctions):    {no, no, free, free, free, free},
	gate.Use(host.CodeMediated):            {no, no, free, free, free, free},
	gate.Use(host.CodeGroup):               {lifts, lifts, free, free, free, free},
	gate.Use(host.CodeNVSwitch):            {no, no, free, free, free, no},
	gate.Use(host.CodeBondedRDMA):          {free, free, free, lifts, free, free},
	gate.Use(host.CodeRole):                {no, no, no, no, free, no},
}

// TestMatrix: each use has a row, and each kind a column.
func TestMatrix(t *testing.T) {
	for _, use := range gate.Uses() {
		row, ok := matrix[use]
		if !ok {
			t.Errorf("%s has no row", use)
		}
		if len(row) != len(gate.Kinds()) {
			t.Fatalf("%d columns for %v", len(row), gate.Kinds())
		}
		for i, kind := range gate.Kinds() {
			if v, known := gate.Rule(use, kind); !known || v != row[i] {
				t.Errorf("%s, %s: %v, want %v", use, kind, v, row[i])
			}
		}
	}
	for _, use := range guard.Uses() {
		if !slices.Contains(gate.Uses(), gate.Use(use)) {
			t.Errorf("%s has no rule", use)
		}
	}
	if len(matrix) != len(gate.Uses()) {
		t.Errorf("%d rows for %v", len(matrix), gate.Uses())
	}
	if v, known := gate.Rule("later", gate.Now); known || v != gate.Refused {
		t.Errorf("a use without a rule: %v", v)
	}
}

// The machine of the paths: the adapter 0c:00.0, whose VFs, if any, are recorded for containers.
const (
	devices = "sys/devices/pci0000:00/"
	pf, vf  = "0000:0c:00.0", "0000:0c:00.2"
)

func address(t *testing.T, s string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// archive returns the machine with a use of a function.
func archive(t *testing.T, vfs bool, links, files, mounts string) string {
	t.Helper()
	c, f := &strings.Builder{}, &strings.Builder{}
	function := func(at, product string, group int) {
		fmt.Fprintf(c, "symlink sys/bus/pci/devices/%s -> ../../../devices/pci0000:00/%[1]s\nsymlink %s%[1]s/driver -> ../../../bus/pci/drivers/mlx5_core\n"+
			"symlink %[2]s%[1]s/iommu_group -> ../../../kernel/iommu_groups/%[3]d\n", at, devices, group)
		for name, text := range map[string]string{"class": "0x020000", "vendor": "0x15b3", "device": product, "driver_override": "(null)"} {
			fmt.Fprintf(f, "-- %s%s/%s --\n%s\n", devices, at, name, text)
		}
		fmt.Fprintf(f, "-- sys/kernel/iommu_groups/%d/type --\nidentity\n", group)
	}
	function(pf, "0x101b", 40)
	at := devices + pf
	n := 0
	if vfs {
		n = 2
	}
	for name, value := range map[string]int{"totalvfs": 8, "numvfs": n, "offset": 2, "stride": 1, "drivers_autoprobe": 1} {
		fmt.Fprintf(f, "-- %s/sriov_%s --\n%d\n", at, name, value)
	}
	for i := range n {
		a := fmt.Sprintf("0000:0c:00.%d", 2+i)
		function(a, "0x101c", 41+i)
		fmt.Fprintf(f, "-- %s%s/net/eth%d/mtu --\n1500\n", devices, a, 2+i)
		fmt.Fprintf(c, "symlink %s/virtfn%d -> ../%s\nsymlink %s%[3]s/physfn -> ../%[5]s\n", at, i, a, devices, pf)
	}
	fmt.Fprintf(c, "symlink sys/class/infiniband/mlx5_0 -> ../../devices/pci0000:00/%s/infiniband/mlx5_0\n"+
		"symlink sys/class/infiniband_verbs/uverbs0 -> ../../devices/pci0000:00/%[1]s/infiniband_verbs/uverbs0\n"+
		"symlink sys/class/net/eth1 -> ../../devices/pci0000:00/%[1]s/net/eth1\nmkdir sys/bus/pci/drivers/mlx5_core\n"+
		"symlink proc/1/ns/pid -> pid:[4026531836]\nmkdir proc/1/fd\nmkdir proc/1/map_files\n", pf)
	for name, text := range map[string]string{"infiniband/mlx5_0/node_type": "1: CA", "infiniband/mlx5_0/ports/1/link_layer": "Ethernet", "infiniband/mlx5_0/node_guid": "0c42:a103:0000:0000",
		"infiniband_verbs/uverbs0/ibdev": "mlx5_0", "infiniband_verbs/uverbs0/dev": "231:192", "net/eth1/address": "b8:59:9f:00:12:34", "net/eth1/ifindex": "3"} {
		fmt.Fprintf(f, "-- %s/%s --\n%s\n", at, name, text)
	}
	f.WriteString("-- proc/1/stat --\n1 (systemd) S 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n" +
		"-- proc/1/comm --\nsystemd\n-- proc/1/cmdline --\n/sbin/init\n-- proc/1/cgroup --\n0::/init.scope\n-- proc/cmdline --\nquiet\n-- proc/sys/kernel/random/boot_id --\nb1\n")
	if vfs {
		fmt.Fprintf(f, "-- var/lib/gpustack/rdma.json --\n%s-- run/gpustack/boot.json --\n"+
			`{"schema":1,"boot_id":"b1","version":"test","started":"2026-11-01T12:00:00Z","ended":null,"steps":[{"id":"vfs %s","kind":"vfs","address":%[2]q,"needs":[],"status":"done","error":"","seconds":1,`+
			`"before":{"num_vfs":0,"autoprobe":true,"eswitch":"","made":[2],"each":[]}}]}`+"\n", recordText(t, recorded(t)), pf)
	}
	text := hosttest.Running(c.String()+links, f.String()+files)
	return strings.Replace(text, "-- proc/mounts --\n", "-- proc/mounts --\n"+mounts, 1)
}

func recorded(t *testing.T) *rdma.Record {
	t.Helper()
	p := rdma.Prepared{Address: address(t, pf), VendorID: 0x15b3, ProductID: 0x101b, Path: []pci.Address{}, Driver: "mlx5_core", LinkLayer: rdma.LinkEthernet, Use: rdma.ForContainers}
	for i := range 2 {
		p.VFs = append(p.VFs, rdma.PreparedVF{Index: i, Address: address(t, fmt.Sprintf("0000:0c:00.%d", 2+i)), ProductID: 0x101c, Driver: "mlx5_core"})
	}
	return &rdma.Record{Schema: host.Schema, Kind: rdma.RecordKind, Adapters: []rdma.Prepared{p}, Files: []rdma.File{}}
}

func recordText(t *testing.T, r *rdma.Record) string {
	t.Helper()
	text, err := r.Text()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Uses that stand for another one: a mount that --allow does not lift, and uses of what belongs to
// a function, a subfunction and a vDPA device.
const (
	rootDisk    gate.Use = "root_disk"
	subfunction gate.Use = "subfunction"
	vdpa        gate.Use = "vdpa"
)

// rowOf returns the row of a use in the matrix.
func rowOf(use gate.Use) [6]gate.Verdict {
	switch use {
	case rootDisk:
		row := matrix[gate.Use(guard.UseMount)]
		for i, v := range row {
			if v == lifts {
				row[i] = no
			}
		}
		return row
	case subfunction:
		return matrix[gate.Use(guard.UseUpperLink)]
	case vdpa:
		return matrix[gate.Use(host.CodeInUse)]
	}
	return matrix[use]
}

// used is a use of the function at an address, as files show it.
var used = map[gate.Use]func(a string) (links, files, mounts string){
	rootDisk:                 func(a string) (string, string, string) { return disk(a, "/") },
	gate.Use(guard.UseMount): func(a string) (string, string, string) { return disk(a, "/data") },
	gate.Use(guard.UseDefaultRoute): func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/class/net/eth9 -> ../../devices/pci0000:00/%s/net/eth9\n", a),
			fmt.Sprintf("-- %s%s/net/eth9/ifindex --\n9\n-- %[1]s%[2]s/net/eth9/address --\nb8:59:9f:00:12:39\n", devices, a) +
				"-- proc/net/route --\nIface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\neth9 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n", ""
	},
	gate.Use(host.CodeVirtualFunctions): func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/bus/pci/devices/0000:0c:00.5 -> ../../../devices/pci0000:00/0000:0c:00.5\nsymlink %s0000:0c:00.5/physfn -> ../%s\n", devices, a),
			"-- " + devices + "0000:0c:00.5/class --\n0x020000\n", ""
	},
	gate.Use(host.CodeMediated): func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/bus/mdev/devices/u1 -> ../../../devices/pci0000:00/%s/u1\nmkdir %s%[1]s/u1\n", a, devices), "", ""
	},
	gate.Use(guard.UseConfigured): func(a string) (string, string, string) {
		return network(a, "-- etc/network/interfaces --\nauto eth9\niface eth9 inet dhcp\n")
	},
	gate.Use(guard.UseUpperLink): func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/class/net/eth9 -> ../../devices/pci0000:00/%s/net/eth9\nsymlink %s%[1]s/net/eth9/master -> ../../../../virtual/net/ovs-system\n", a, devices),
			fmt.Sprintf("-- %s%s/net/eth9/ifindex --\n9\n-- %[1]s%[2]s/net/eth9/address --\nb8:59:9f:00:12:39\n", devices, a), ""
	},
	gate.Use(guard.UseHolder): func(a string) (string, string, string) {
		links, files, _ := disk(a, "")
		return links + "symlink sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0\nsymlink " + devices + a + "/nvme/nvme0/nvme0n1/holders/dm-0 -> ../../../../../../virtual/block/dm-0\n",
			files + "-- sys/devices/virtual/block/dm-0/dm/name --\nnova-disk\n-- sys/devices/virtual/block/dm-0/dm/uuid --\nLVM-x\n-- sys/devices/virtual/block/dm-0/dev --\n253:0\n", ""
	},
	gate.Use(guard.UseMountNamespace): func(a string) (string, string, string) {
		links, files, _ := disk(a, "")
		return links + "symlink proc/self -> 1\nsymlink proc/1/ns/mnt -> mnt:[1]\nsymlink proc/70/ns/mnt -> mnt:[7]\nmkdir proc/70/fd\nmkdir proc/70/map_files\n",
			files + process(70, "nginx") + "-- proc/70/mountinfo --\n1 0 259:0 / /data rw - xfs /dev/x rw\n", ""
	},
	gate.Use(guard.UseSwap): func(a string) (string, string, string) {
		return unmounted(a, "-- proc/swaps --\nFilename\n/dev/nvme0n1 partition 1 0 -2\n")
	},
	gate.Use(guard.UsePool): func(a string) (string, string, string) {
		return unmounted(a, "-- run/udev/data/b259:0 --\nE:ID_FS_TYPE=zfs_member\n-- proc/spl/kstat/zfs/tank/state --\nONLINE\n")
	},
	gate.Use(guard.UseTarget): func(a string) (string, string, string) {
		return unmounted(a, "-- sys/kernel/config/target/core/iblock_0/disk/udev_path --\n/dev/nvme0n1\n-- sys/kernel/config/target/core/iblock_0/disk/enable --\n1\n")
	},
	gate.Use(guard.UseResume): func(a string) (string, string, string) {
		return unmounted(a, "-- proc/cmdline --\nresume=/dev/nvme0n1\n")
	},
	gate.Use(guard.UseTable): func(a string) (string, string, string) {
		return unmounted(a, "-- etc/fstab --\n/dev/nvme0n1 /srv ext4 noauto 0 0\n")
	},
	gate.Use(guard.UseSignature): func(a string) (string, string, string) {
		return unmounted(a, "-- run/udev/data/b259:0 --\nE:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n")
	},
	gate.Use(guard.UseNetconsole): func(a string) (string, string, string) {
		return network(a, "-- sys/kernel/config/netconsole/a/enabled --\n1\n-- sys/kernel/config/netconsole/a/dev_name --\neth9\n")
	},
	gate.Use(guard.UseKdump): func(a string) (string, string, string) {
		return network(a, "-- etc/sysconfig/kdump --\nKDUMP_NETCONFIG=\"eth9:dhcp\"\n")
	},
	gate.Use(guard.UseRDMAFileSystem): func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/class/infiniband/mlx5_9 -> ../../devices/pci0000:00/%s/infiniband/mlx5_9\n", a),
			fmt.Sprintf("-- %s%s/infiniband/mlx5_9/node_type --\n1: CA\n", devices, a), "storage:/x /data nfs4 rw,proto=rdma 0 0\n"
	},
	gate.Use(guard.UsePTP): func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/class/ptp/ptp9 -> ../../devices/pci0000:00/%s/ptp/ptp9\nsymlink proc/7/fd/3 -> /dev/ptp9\nmkdir proc/7/map_files\n", a),
			fmt.Sprintf("-- %s%s/ptp/ptp9/clock_name --\nmlx5_ptp\n", devices, a) + process(7, "ptp4l"), ""
	},
	subfunction: func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/class/net/eth9 -> ../../devices/pci0000:00/%s/mlx5_core.sf.4/net/eth9\n"+
				"symlink %s%[1]s/mlx5_core.sf.4/net/eth9/master -> ../../../../../virtual/net/ovs-system\n", a, devices),
			fmt.Sprintf("-- %s%s/mlx5_core.sf.4/net/eth9/ifindex --\n9\n", devices, a), ""
	},
	vdpa: func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/bus/vdpa/devices/vdpa0 -> ../../../devices/pci0000:00/%s/vdpa0\nmkdir %s%[1]s/vdpa0/vhost-vdpa-0\n"+
				"symlink proc/7/fd/3 -> /dev/vhost-vdpa-0\nmkdir proc/7/map_files\n", a, devices),
			process(7, "qemu-system-x86"), ""
	},
	gate.Use(host.CodeInUse): func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/class/infiniband_verbs/uverbs9 -> ../../devices/pci0000:00/%s/infiniband_verbs/uverbs9\n", a) +
				"symlink proc/7/fd/3 -> /dev/infiniband/uverbs9\nmkdir proc/7/map_files\n", fmt.Sprintf("-- %s%s/infiniband_verbs/uverbs9/abi_version --\n1\n", devices, a) +
				process(7, "rping"), ""
	},
}

// process is a process of the machine.
func process(pid int, name string) string {
	return fmt.Sprintf("-- proc/%[1]d/comm --\n%[2]s\n-- proc/%[1]d/cmdline --\n%[2]s\n-- proc/%[1]d/cgroup --\n0::/\n"+
		"-- proc/%[1]d/stat --\n%[1]d (%[2]s) S 1 7 7 0 -1 4194560 %[3]s\n", pid, name, strings.TrimSpace(strings.Repeat("0 ", 43)))
}

// unmounted is a disk that is not mounted.
func unmounted(a, more string) (links, files, mounts string) {
	links, files, _ = disk(a, "")
	return links, files + more, ""
}

// network is an interface of the machine.
func network(a, more string) (links, files, mounts string) {
	return fmt.Sprintf("symlink sys/class/net/eth9 -> ../../devices/pci0000:00/%s/net/eth9\n", a),
		fmt.Sprintf("-- %s%s/net/eth9/ifindex --\n9\n-- %[1]s%[2]s/net/eth9/address --\nb8:59:9f:00:12:39\n", devices, a) + more, ""
}

func disk(a, place string) (links, files, mounts string) {
	return fmt.Sprintf("symlink sys/class/block/nvme0n1 -> ../../devices/pci0000:00/%s/nvme/nvme0/nvme0n1\n", a),
		fmt.Sprintf("-- %s%s/nvme/nvme0/nvme0n1/size --\n8\n-- %[1]s%[2]s/nvme/nvme0/nvme0n1/dev --\n259:0\n", devices, a), "/dev/nvme0n1 " + place + " ext4 rw 0 0\n"
}

// path is a way of taking a function from the host: what asks the gate in its place.
type path struct {
	name string
	kind gate.Kind
	vfs  bool // it takes a VF that exists, else the adapter, which has none
	ask  func(t *testing.T, root host.Root, allow []pci.Address) error
}

func paths() []path {
	named := func(t *testing.T, allow []pci.Address) selection.Options {
		x, err := pci.ParseSelector(pf)
		if err != nil {
			t.Fatal(err)
		}
		return selection.Options{Add: []pci.Selector{x}, Allow: allow}
	}
	ofAdapter := func(o func(a pci.Address) rdmaprepare.Options) func(*testing.T, host.Root, []pci.Address) error {
		return func(t *testing.T, root host.Root, allow []pci.Address) error {
			options := o(address(t, pf))
			options.Allow = allow
			m, err := rdmaprepare.Observe(root, machine.Observe(root, machine.Record, machine.Options{}), guard.Running{}, options)
			if err != nil {
				t.Fatal(err)
			}
			_, err = rdmaprepare.NewWant(m, options)
			return err
		}
	}
	permit := func(plan func(*testing.T, host.Root) (edit.Change, error)) func(*testing.T, host.Root, []pci.Address) error {
		return func(t *testing.T, root host.Root, allow []pci.Address) error {
			c, err := plan(t, root)
			if err != nil {
				t.Fatal(err)
			}
			_, err = gate.Permit(root, edit.Plan{c}, gate.Allowed{Functions: allow})
			return err
		}
	}
	return []path{
		{"host prepare", gate.AtBoot, false, func(t *testing.T, root host.Root, allow []pci.Address) error {
			_, err := prepare.NewWant(prepare.Observe(root, machine.Observe(root, machine.Boot|machine.Needs, machine.Options{}), named(t, allow)), named(t, allow))
			return err
		}},
		{"host bind", gate.Now, false, func(t *testing.T, root host.Root, allow []pci.Address) error {
			m := machine.Observe(root, machine.RunningKernel|machine.Needs, machine.Options{})
			uses, err := machine.ObserveUses(root, m.Devices.Value, false)
			if err != nil {
				t.Fatal(err)
			}
			_, err = bind.NewPlan(root, m, named(t, allow), uses, bind.Mode{Live: true})
			return err
		}},
		{"host bind, carried out, undone and recovered", gate.Now, false, func(t *testing.T, root host.Root, allow []pci.Address) error {
			_, _, err := gate.Drivers(root, allow, nil)([]driver.Change{{Address: address(t, pf), Before: driver.State{Driver: "mlx5_core"}, After: driver.State{Driver: machine.VFIO}}})
			return err
		}},
		{"undo of host bind", gate.Now, false, func(t *testing.T, root host.Root, allow []pci.Address) error {
			m := machine.Observe(root, machine.RunningKernel|machine.Needs, machine.Options{})
			uses, err := machine.ObserveUses(root, m.Devices.Value, false)
			if err != nil {
				t.Fatal(err)
			}
			p := driver.Plan{Changes: []driver.Change{{Address: address(t, pf), Before: driver.State{Driver: "mlx5_core"}, After: driver.State{Driver: machine.VFIO}}}}
			_, err = bind.Refuse(m, p, uses, true)
			return errors.Join(err, bind.Needed(m, p, allow))
		}},
		{"rdma prepare --whole", gate.AtBoot, false, ofAdapter(func(a pci.Address) rdmaprepare.Options {
			return rdmaprepare.Options{Add: []pci.Address{a}, Whole: true}
		})},
		{"rdma prepare --whole --for containers", gate.Role, false, ofAdapter(func(a pci.Address) rdmaprepare.Options {
			return rdmaprepare.Options{Add: []pci.Address{a}, Whole: true, Use: rdma.ForContainers}
		})},
		{"rdma prepare --vfs", gate.Making, false, ofAdapter(func(a pci.Address) rdmaprepare.Options { return rdmaprepare.Options{Add: []pci.Address{a}, VFs: 4} })},
		{"rdma prepare --vfs, another number", gate.Removed, true, ofAdapter(func(a pci.Address) rdmaprepare.Options { return rdmaprepare.Options{Add: []pci.Address{a}, VFs: 4} })},
		{"rdma prepare --for guests", gate.Removed, true, ofAdapter(func(a pci.Address) rdmaprepare.Options {
			return rdmaprepare.Options{Add: []pci.Address{a}, VFs: 2, Use: rdma.ForGuests}
		})},
		{"rdma prepare --remove", gate.Removed, true, ofAdapter(func(a pci.Address) rdmaprepare.Options { return rdmaprepare.Options{Remove: []pci.Address{a}} })},
		{"rdma prepare --none", gate.Removed, true, ofAdapter(func(pci.Address) rdmaprepare.Options { return rdmaprepare.Options{None: true} })},
		{"container prepare --hca", gate.Role, false, func(t *testing.T, root host.Root, _ []pci.Address) error {
			m, err := containerprepare.Observe(root, machine.Observe(root, machine.Record, machine.Options{}))
			if err != nil {
				t.Fatal(err)
			}
			_, err = containerprepare.NewWant(m, containerprepare.Options{HCAs: []pci.Address{address(t, pf)}})
			return err
		}},
		{"undo that adds to the record of host prepare", gate.AtBoot, false, permit(func(t *testing.T, root host.Root) (edit.Change, error) {
			text, err := machine.RecordText(&machine.Contract{Lifted: []host.Lift{}, Driver: machine.VFIO, Selected: []pci.Address{address(t, pf)}, Functions: []machine.Function{
				{Address: address(t, pf), VendorID: 0x15b3, ProductID: 0x101b, Driver: machine.VFIO, By: machine.ByAddress}}}, nil)
			if err != nil {
				return edit.Change{}, err
			}
			return edit.Put(root, machine.ContractFile, text, 0o600, false)
		})},
		{"undo that removes a record of VFs", gate.Removed, true, permit(func(_ *testing.T, root host.Root) (edit.Change, error) {
			return edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile)
		})},
		{"undo that adds a record of VFs", gate.Making, false, permit(func(t *testing.T, root host.Root) (edit.Change, error) {
			return edit.Put(root, rdma.RecordFile, []byte(recordText(t, recorded(t))), 0o600, false)
		})},
		{"gpustack boot, whole adapter", gate.Now, false, bootWhole},
		{"gpustack boot --revert", gate.Removed, true, func(_ *testing.T, root host.Root, allow []pci.Address) error {
			_, err := startup.Permit(startup.Machine{Root: root, Kernel: func(time.Duration) driver.Requester { return nil }, Allowed: gate.Allowed{Functions: allow}}, nil)
			return err
		}},
	}
}

// bootWhole returns the error of the step that unbinds a whole adapter which is recorded for
// guests, nil if the step gets as far as the kernel.
func bootWhole(t *testing.T, root host.Root, allow []pci.Address) error {
	r := recorded(t)
	r.Adapters[0].Whole, r.Adapters[0].Use, r.Adapters[0].VFs, r.Allowed = true, rdma.ForGuests, []rdma.PreparedVF{}, []host.Lift{}
	c, err := edit.Put(root, rdma.RecordFile, []byte(recordText(t, r)), 0o600, false)
	if err == nil {
		err = edit.Plan{c}.Apply(t.Context(), root)
	}
	if err != nil {
		t.Fatal(err)
	}
	var asked requests
	result, err := startup.Run(t.Context(), startup.Machine{Root: root, Kernel: func(time.Duration) driver.Requester { return &asked }, Appear: time.Second,
		Allowed: gate.Allowed{Functions: allow}})
	switch {
	case len(result.Steps) != 1 || !errors.Is(err, startup.ErrSteps):
		t.Fatalf("%+v, %v", result, err)
	case asked > 0:
		return nil
	}
	return errors.New(result.Steps[0].Error)
}

// requests counts requests to the kernel, which fail.
type requests int

var errNoKernel = errors.New("no kernel")

func (r *requests) Write(driver.Write) error { *r++; return errNoKernel }
func (r *requests) Request(driver.Request) (driver.Answer, error) {
	*r++
	return driver.Answer{}, errNoKernel
}
func (r *requests) Load(context.Context, string) error { *r++; return errNoKernel }

// TestPaths: each path refuses each use, or --allow lifts it, or the use does not matter, as the
// matrix says of its kind; and without a use each path takes the function.
func TestPaths(t *testing.T) {
	for _, p := range paths() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			at := pf
			if p.vfs {
				at = vf
			}
			allow := []pci.Address{address(t, at)}
			if err := p.ask(t, hosttest.Lay(t, archive(t, p.vfs, "", "", "")), nil); err != nil {
				t.Errorf("idle: %v", err)
			}
			for use, files := range used {
				links, text, mounts := files(at)
				root := hosttest.Lay(t, archive(t, p.vfs, links, text, mounts))
				want := rowOf(use)[slices.Index(gate.Kinds(), p.kind)]
				got := free
				if p.ask(t, root, nil) != nil {
					got = no
					if p.ask(t, root, allow) == nil {
						got = lifts
					}
				}
				if got != want {
					t.Errorf("%s: %v, want %v: %v; allowed: %v", use, got, want, p.ask(t, root, nil), p.ask(t, root, allow))
				}
			}
		})
	}
}

// elsewhere names the tests of uses that neither [used] nor TestLeave has.
var elsewhere = map[gate.Use]string{
	gate.Use(host.CodeGroup):      "TestVariations of host/prepare",
	gate.Use(host.CodeBondedRDMA): "TestLeaving of host/rdma/rdmaprepare",
	gate.Use(host.CodeRole):       "TestContainers of host/rdma/rdmaprepare",
}

// TestLeave: the uses that a tree does not hold.
func TestLeave(t *testing.T) {
	a := pci.Address{Bus: 1}
	class, name := pci.Class(0x0207), "mlx5_core"
	type state struct {
		host gate.Host
		uses machine.Uses
	}
	states := map[gate.Use]state{
		gate.Use(host.CodeGuestsUnknown): {uses: machine.Uses{Running: true, Guests: guest.Report{Sources: []guest.Source{{Name: "processes", State: guest.Unreadable, Detail: "permission denied"}}}}},
		gate.Use(host.CodeNVSwitch):      {},
	}
	for _, use := range guard.Uses() {
		if used[gate.Use(use)] == nil {
			states[gate.Use(use)] = state{host: gate.Host{Needs: []guard.Need{{Address: a, Code: host.CodeNetwork, Use: use, Reason: "is used"}}}}
		}
	}
	for _, use := range gate.Uses() {
		if _, ok := states[use]; !ok && used[use] == nil && elsewhere[use] == "" {
			t.Errorf("%s: no test has it", use)
		}
	}
	for use, test := range states {
		test.host.Devices = pci.Devices{{Address: a, Class: &class, Driver: &name}}
		if use == gate.Use(host.CodeNVSwitch) {
			test.host.Devices[0].NVSwitchManager = host.Yes
		}
		if use != gate.Use(host.CodeGuestsUnknown) {
			test.uses = machine.Uses{Guests: guest.Report{Holders: []guest.Holder{}, Guests: []guest.Guest{}}}
		}
		root := hosttest.Lay(t, "-- etc/hostname --\nx\n")
		test.host.Bonds, test.host.Away = gate.ReadBonds(root, a), gate.ReadAway(root, test.host.Devices, a)
		for i, kind := range gate.Kinds() {
			got := free
			if _, err := test.host.Leave(test.uses, gate.Allowed{}, gate.Leaving{Address: a, Kind: kind}); err != nil {
				got = no
				if lifted, err := test.host.Leave(test.uses, gate.Allowed{Functions: []pci.Address{a}}, gate.Leaving{Address: a, Kind: kind}); err == nil && len(lifted) == 1 {
					got = lifts
				}
			}
			if got != matrix[use][i] {
				t.Errorf("%s, %s: %v, want %v", use, kind, got, matrix[use][i])
			}
		}
	}
}

// TestAskers: each function that asks the gate belongs to a path of TestPaths, or is tested where
// it is. A new one needs its path there.
func TestAskers(t *testing.T) {
	known := map[string]string{
		"host/prepare.refusals":               "host prepare",
		"host/prepare.lifts":                  "host prepare",
		"host/bind.NewPlan":                   "host bind",
		"host/bind.search":                    "host bind",
		"host/bind.refuse":                    "undo of host bind",
		"host/bind.Needed":                    "undo of host bind",
		"host/rdma/rdmaprepare.leave":         "rdma prepare --remove",
		"host/rdma/rdmaprepare.ask":           "rdma prepare --remove",
		"host/rdma/rdmaprepare.whole":         "rdma prepare --whole",
		"host/container/containerprepare.hca": "container prepare --hca",
		"host/startup.ask":                    "gpustack boot --revert",
		"host/startup.Permit":                 "gpustack boot --revert",
		"host/check.leaving":                  "TestPending of host/check",
		"host/check.refusals":                 "host prepare",
		"host/rdma/rdmacheck.backOut":         "TestUsedRemedy of host/rdma/rdmacheck",
		"host/rdma/rdmaprepare.takes":         "rdma prepare --remove",
		"host/rdma/rdmacheck.readUsed":        "script rdma_check of cmd/gpustack",
		"host/selection.refusedOf":            "TestStates of host/selection",
		"host/selection.Joining":              "host prepare",
		"host/selection.Without":              "TestPendingUses of host/check",
		"operate/node.files":                  "undo that removes a record of VFs",
		"operate/node.binder":                 "host bind, carried out, undone and recovered",
		"host/rdma/rdmaprepare.lift":          "rdma prepare --remove",
		"operate/node.findHolders":            "rdma scan shows it",
	}
	asks := []string{"Permit", "Drivers", "Leave", "Leaves", "Ask", "AskAtBoot", "Refusals", "Shared", "InUse", "HeldOf", "Users", "Virtualized", "OfSwitches", "AdapterUses", "Lifts"}
	found := map[string]bool{}
	for _, top := range []string{"host", "operate", "cmd"} {
		err := filepath.WalkDir("../../"+top, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "../../host/gate/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				return err
			}
			imports := slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
				return strings.Contains(i.Path.Value, "gpustack/host/gate") || strings.Contains(i.Path.Value, "gpustack/host/selection")
			}) || file.Name.Name == "selection"
			for _, d := range file.Decls {
				of, ok := d.(*ast.FuncDecl)
				if !ok || !imports {
					continue
				}
				ast.Inspect(of, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					if s, ok := call.Fun.(*ast.SelectorExpr); ok && slices.Contains(asks, s.Sel.Name) {
						if x, ok := s.X.(*ast.Ident); !ok || !slices.Contains([]string{"machine", "prepare", "startup", "guest", "nova", "observed"}, x.Name) {
							found[strings.TrimPrefix(filepath.Dir(name), "../../")+"."+of.Name.Name] = true
						}
					}
					return true
				})
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range found {
		if known[name] == "" {
			t.Errorf("%s asks the gate, and is no path of the matrix", name)
		}
	}
	for name := range known {
		if !found[name] {
			t.Errorf("%s does not ask the gate any more", name)
		}
	}
}

// TestHint: no hint names a command that the gate would refuse.
func TestHint(t *testing.T) {
	a, b := address(t, pf), address(t, vf)
	role := pci.RoleVF
	h := gate.Host{Devices: pci.Devices{{Address: a}, {Address: b, SRIOV: pci.SRIOV{Role: &role, PF: &a}}}}
	hint := func(err error) string {
		var h interface{ Hint() string }
		if !errors.As(err, &h) {
			return ""
		}
		return h.Hint()
	}
	p := &recorded(t).Adapters[0]
	h.Away = gate.ReadAway(hosttest.Lay(t, "-- etc/hostname --\nx\n"), h.Devices, b)
	route := []guard.Need{{Address: b, Code: host.CodeNetwork, Use: guard.UseDefaultRoute, Reason: "carries the default route, through eth9"}}
	blind := func(denied bool) machine.Uses {
		source := guest.Source{Name: "processes", State: guest.Unreadable, Detail: "/proc/1/ns: no", Denied: denied}
		return machine.Uses{Running: true, Guests: guest.Report{Sources: []guest.Source{source}}}
	}
	for _, test := range []struct {
		name, remove, want string // remove is that of the command, want that of VFs
		needs              []guard.Need
		uses               machine.Uses
	}{
		{name: "idle", remove: "gpustack rdma prepare --remove " + pf, want: "once no guest has one, write 0 to the function's sriov_numvfs"},
		{name: "a route", want: "end this use first: its VF " + vf + " carries the default route, through eth9", needs: route},
		{name: "a process", want: "end this use first: VF " + vf + " of " + pf + " is in use: rping (pid 7) has /dev/infiniband/uverbs9 open",
			uses: machine.Uses{Holders: []guard.Holder{{Address: b, File: "/dev/infiniband/uverbs9", PID: 7, Command: "rping"}}}},
		{name: "guests are unknown", uses: blind(false),
			want: "run gpustack in the host's namespaces, with all processes visible; 'gpustack host guests' shows what cannot be read"},
		{name: "guests may not be seen", uses: blind(true), want: host.AsRoot().String() + "; 'gpustack host guests' shows what cannot be read"},
	} {
		h.Needs = test.needs
		if got, want := hint(h.OfAdapter(test.uses, a, p)), cmp.Or(test.remove, test.want); got != want {
			t.Errorf("%s: %s, want %s", test.name, got, want)
		}
		ofVFs := func(pf pci.Address) string { return h.UseOfVFs(test.uses, pf) }
		refusals := h.Shared(gate.Selection{All: []pci.Address{a}, Kind: gate.AtBoot}, ofVFs)
		if len(refusals) != 1 || hint(refusals[0]) != test.want {
			t.Errorf("%s: %v, want %s", test.name, refusals, test.want)
		}
	}
}

// TestClaim: the disks of a function that leaves now are held until it is unbound. One that the
// kernel refuses prevents that, and the others are released.
func TestClaim(t *testing.T) {
	links, files, _ := disk(pf, "/")
	links += "symlink sys/class/block/nvme0n1p1 -> ../../devices/pci0000:00/" + pf + "/nvme/nvme0/nvme0n1/nvme0n1p1\nsymlink sys/class/block/nvme1n1 -> ../../devices/pci0000:00/" + pf + "/nvme/nvme1/nvme1n1\n"
	files += "-- " + devices + pf + "/nvme/nvme0/nvme0n1/nvme0n1p1/partition --\n1\n-- " + devices + pf + "/nvme/nvme1/nvme1n1/size --\n8\n"
	root := hosttest.Lay(t, archive(t, false, links, files, ""))
	var log []string
	refuse := ""
	ask := gate.Drivers(root, nil, func(disk string) (func() error, error) {
		if disk == refuse {
			return nil, guard.ErrClaimed
		}
		log = append(log, "claim "+disk)
		return func() error { log = append(log, "release "+disk); return nil }, nil
	})
	change := []driver.Change{{Address: address(t, pf), Before: driver.State{Driver: "nvme"}, After: driver.State{Driver: machine.VFIO}}}
	_, release, err := ask(change)
	if err != nil || !slices.Equal(log, []string{"claim /dev/nvme0n1", "claim /dev/nvme1n1"}) {
		t.Errorf("%q, %v", log, err)
	}
	if err := release(); err != nil || len(log) != 4 {
		t.Errorf("%q, %v", log, err)
	}
	// --allow lifts content that nothing uses: the kernel is asked all the same. A mount has claimed
	// the disk, so the kernel is not asked where --allow lifts that.
	for use, want := range map[guard.Use]int{guard.UseSignature: 1, guard.UseTable: 1, guard.UseMount: 0, guard.UseSwap: 0} {
		links, files, mounts := used[gate.Use(use)](pf)
		claims := 0
		_, _, err := gate.Drivers(hosttest.Lay(t, archive(t, false, links, files, mounts)), []pci.Address{address(t, pf)}, func(string) (func() error, error) {
			claims++
			return func() error { return nil }, nil
		})(change)
		if err != nil || claims != want {
			t.Errorf("%s is lifted: %d disks claimed, want %d: %v", use, claims, want, err)
		}
	}
	log, refuse = nil, "/dev/nvme1n1"
	if _, _, err := ask(change); !errors.Is(err, guard.ErrClaimed) || !slices.Equal(log, []string{"claim /dev/nvme0n1", "release /dev/nvme0n1"}) {
		t.Errorf("%q, %v", log, err)
	}
}

// TestUnbound: what the host needs is asked only if a change takes a function from the host.
func TestUnbound(t *testing.T) {
	const unreadable = "too few\n"
	for _, test := range []struct {
		name       string
		now, after driver.Name // "" for none
		any        bool
		function   string
		want       string // "" for no refusal
	}{
		{"leaves the host", "mlx5_core", machine.VFIO, false, pf, "/proc/mounts"},
		{"has the driver", machine.VFIO, machine.VFIO, false, pf, ""},
		{"has no driver", "", machine.VFIO, false, pf, ""},
		{"changes drivers of the host", "mlx5_core", "other", false, pf, ""},
		{"returns", machine.VFIO, "mlx5_core", false, pf, ""},
		{"returns to any driver", machine.VFIO, "", true, pf, ""},
		{"is gone", "", machine.VFIO, false, "0000:99:00.0", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := archive(t, false, "", "", unreadable)
			link := "symlink " + devices + pf + "/driver -> ../../../bus/pci/drivers/"
			if test.now == "" {
				tree = strings.Replace(tree, link+"mlx5_core\n", "", 1)
			}
			tree = strings.Replace(tree, link+"mlx5_core\n", link+string(test.now)+"\nmkdir sys/bus/pci/drivers/"+string(test.now)+"\n", 1)
			tree = strings.Replace(tree, "mkdir sys/bus/pci/drivers/mlx5_core\nmkdir", "mkdir", 1)
			lifted, release, err := gate.Drivers(hosttest.Lay(t, tree), nil, func(disk string) (func() error, error) {
				t.Errorf("claims %s", disk)
				return nil, guard.ErrClaimed
			})([]driver.Change{{Address: address(t, test.function), After: driver.State{Driver: test.after}, Any: test.any}})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if err := release(); err != nil || len(lifted) > 0 {
				t.Errorf("lifted %v, %v", lifted, err)
			}
		})
	}
}

// TestClaimMultipath: of a multipath NVMe disk the paths are hidden and have no node, so the disk
// above them is claimed. A mount of its partition prevents that its controller leaves.
func TestClaimMultipath(t *testing.T) {
	const subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0"
	controller := devices + pf + "/nvme/nvme0"
	links := ""
	for link, target := range map[string]string{
		"sys/class/block/nvme0c0n1": controller + "/nvme0c0n1", "sys/class/block/nvme0n1": subsystem + "/nvme0n1", "sys/class/block/nvme0n1p1": subsystem + "/nvme0n1/nvme0n1p1",
		"sys/class/nvme/nvme0": controller, "sys/class/nvme-subsystem/nvme-subsys0": subsystem,
	} {
		links += "symlink " + link + " -> ../../" + strings.TrimPrefix(target, "sys/") + "\n"
	}
	links += "symlink " + subsystem + "/nvme0 -> ../../../" + strings.TrimPrefix(controller, "sys/devices/") + "\n"
	files := "-- " + controller + "/nvme0c0n1/hidden --\n1\n-- " + subsystem + "/nvme0n1/hidden --\n0\n-- " + subsystem + "/nvme0n1/dev --\n259:0\n-- " +
		subsystem + "/nvme0n1/nvme0n1p1/dev --\n259:1\n-- " + subsystem + "/nvme0n1/nvme0n1p1/partition --\n1\n"
	change := []driver.Change{{Address: address(t, pf), Before: driver.State{Driver: "nvme"}, After: driver.State{Driver: machine.VFIO}}}
	var claimed []string
	claim := func(disk string) (func() error, error) {
		claimed = append(claimed, disk)
		return func() error { return nil }, nil
	}
	if _, _, err := gate.Drivers(hosttest.Lay(t, archive(t, false, links, files, "")), nil, claim)(change); err != nil || !slices.Equal(claimed, []string{"/dev/nvme0n1"}) {
		t.Errorf("idle: %q, %v", claimed, err)
	}
	claimed = nil
	_, _, err := gate.Drivers(hosttest.Lay(t, archive(t, false, links, files, "/dev/nvme0n1p1 /data ext4 rw 0 0\n")), nil, claim)(change)
	if want := pf + ": carries /dev/nvme0n1p1, mounted at /data"; err == nil || err.Error() != want || claimed != nil {
		t.Errorf("mounted: %q, %v, want %s", claimed, err, want)
	}
}

// TestUnread: what the host needs cannot be read, which keeps functions from leaving it, and none
// from returning or from being offered to containers.
func TestUnread(t *testing.T) {
	root := hosttest.Lay(t, archive(t, false, "", "", "too few\n"))
	a := address(t, pf)
	scanned, _, err := pci.Scan(root, pci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range gate.Kinds() {
		_, _, err := gate.Observe(root, scanned, []gate.Leaving{{Address: a, Kind: kind}})
		if minds := kind != gate.Returned && kind != gate.Role; (err != nil) != minds {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestRDMAUnread: the uses of adapters by RDMA cannot be read, which is a use of each adapter, in
// the plan and in what carries it out, and of no other function.
func TestRDMAUnread(t *testing.T) {
	const spoiled = "symlink sys/class/infiniband_mad/issm0 -> issm0\nsymlink proc/7/fd/3 -> /dev/infiniband/issm0\nmkdir proc/7/map_files\n"
	root := hosttest.Lay(t, archive(t, false, spoiled, process(7, "opensm"), ""))
	a := address(t, pf)
	m := machine.Observe(root, machine.Boot|machine.Needs, machine.Options{})
	leaving := gate.Leaving{Address: a, Kind: gate.AtBoot}
	now, _, err := gate.Observe(root, m.Devices.Value, []gate.Leaving{leaving})
	if err != nil || !m.Needs.Seen() {
		t.Fatal(err, m.Needs.Err)
	}
	for name, h := range map[string]gate.Host{"plan": gate.New(m), "act": now} {
		if refused := h.Ask("", gate.Allowed{}, leaving).Refused; len(refused) != 1 || !strings.Contains(refused[0].Error(), "cannot determine whether the host uses it by RDMA") {
			t.Errorf("%s: %v", name, refused)
		}
		if answer := h.Ask("", gate.Allowed{Functions: []pci.Address{a}}, leaving); len(answer.Refused) != 0 || len(answer.Lifted) != 1 {
			t.Errorf("%s, allowed: %+v", name, answer)
		}
		for _, need := range h.Needs {
			if d := h.Devices.At(need.Address); need.Use == guard.UseRDMAUnread && *d.Class>>8 != 0x02 {
				t.Errorf("%s: %v is no network adapter", name, need)
			}
		}
	}
}
