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
	"gpustack/host/steps"
)

// verdict is what a state of the machine means for a function that leaves the host.
type verdict string

const (
	no    verdict = "refused" // no option lifts it
	lifts verdict = "--allow" // --allow lifts it for one function
	free  verdict = "unaffected"
)

// A column is a way of leaving the host: an RDMA adapter that rdma prepare assigns as a whole leaves
// by a rule of its own.
const (
	atBoot = iota
	now
	wholeAtBoot
	wholeNow
	removed
	making
	role
)

// matrix is what each state means for an adapter, or one of its VFs, in each column.
var matrix = map[string][7]verdict{
	//                          at boot, now,  whole, now,   removed, making, role
	"idle":                     {lifts, lifts, free, free, free, free, free},
	"the root file system":     {no, no, no, no, no, free, free},
	"a root that is not known": {no, no, no, no, no, free, free},
	"a boot over the network":  {no, no, no, no, no, free, free},
	"a mounted disk":           {no, no, no, no, no, free, free},
	"a disk below another":     {no, no, no, no, no, free, free},
	"swap":                     {no, no, no, no, no, free, free},
	"a line of fstab":          {no, no, no, no, no, free, free},
	"content that is not used": {lifts, lifts, free, free, free, free, free},
	"an interface that is up":  {lifts, lifts, lifts, lifts, lifts, free, free},
	"a port of a bridge":       {lifts, lifts, lifts, lifts, lifts, free, free},
	"a subfunction":            {lifts, lifts, lifts, lifts, lifts, free, free},
	"another namespace":        {lifts, lifts, lifts, lifts, lifts, free, free},
	"an active RDMA port":      {lifts, lifts, lifts, lifts, free, free, free},
	"a boot over a bond":       {no, no, no, no, no, no, free},
	"another port in use":      {lifts, lifts, lifts, free, free, free, free},
	"a process":                {lifts, no, lifts, no, no, free, free},
	"vDPA":                     {lifts, no, lifts, no, no, free, free},
	"virtual functions":        {no, no, no, no, free, free, free},
	"mediated devices":         {no, no, no, no, free, free, free},
}

// The machine of the paths: the adapter 0c:00.0, whose VFs, if any, are recorded for containers.
const (
	devices = "sys/devices/pci0000:00/"
	pf, vf  = "0000:0c:00.0", "0000:0c:00.2"
)

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
		fmt.Fprintf(f, "-- %s%s/net/eth%d/flags --\n0x1002\n", devices, a, 2+i)
		fmt.Fprintf(c, "symlink sys/class/net/eth%d -> ../../devices/pci0000:00/%s/net/eth%[1]d\n", 2+i, a)
		fmt.Fprintf(c, "symlink %s/virtfn%d -> ../%s\nsymlink %s%[3]s/physfn -> ../%[5]s\n", at, i, a, devices, pf)
	}
	fmt.Fprintf(c, "symlink sys/class/infiniband/mlx5_0 -> ../../devices/pci0000:00/%s/infiniband/mlx5_0\n"+
		"symlink sys/class/infiniband_verbs/uverbs0 -> ../../devices/pci0000:00/%[1]s/infiniband_verbs/uverbs0\n"+
		"symlink sys/class/net/eth1 -> ../../devices/pci0000:00/%[1]s/net/eth1\nmkdir sys/bus/pci/drivers/mlx5_core\n"+
		"symlink proc/1/ns/pid -> pid:[4026531836]\nmkdir proc/1/fd\nmkdir proc/1/map_files\n", pf)
	for name, text := range map[string]string{"infiniband/mlx5_0/node_type": "1: CA", "infiniband/mlx5_0/ports/1/link_layer": "Ethernet", "infiniband/mlx5_0/node_guid": "0c42:a103:0000:0000",
		"infiniband_verbs/uverbs0/ibdev": "mlx5_0", "infiniband_verbs/uverbs0/dev": "231:192", "infiniband/mlx5_0/ports/1/state": "1: DOWN", "net/eth1/flags": "0x1002", "net/eth1/address": "b8:59:9f:00:12:34", "net/eth1/ifindex": "3"} {
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
	p := rdma.Prepared{Address: hosttest.Address(t, pf), VendorID: 0x15b3, ProductID: 0x101b, Path: []pci.Address{}, Driver: "mlx5_core",
		LinkLayer: rdma.LinkEthernet, Use: rdma.ForContainers}
	for i := range 2 {
		p.VFs = append(p.VFs, rdma.PreparedVF{Index: i, Address: hosttest.Address(t, fmt.Sprintf("0000:0c:00.%d", 2+i)), ProductID: 0x101c,
			Driver: "mlx5_core"})
	}
	return &rdma.Record{Schema: host.Schema, Kind: rdma.RecordKind, Adapters: []rdma.Prepared{p}, Files: []rdma.File{}}
}

func recordText(t *testing.T, r *rdma.Record) string {
	t.Helper()
	text, err := r.Text()
	hosttest.NoError(t, err)
	return string(text)
}

// states are the states of the machine, as files show them, for the function at an address.
var states = map[string]func(a string) (links, files, mounts string){
	"idle":                 func(string) (string, string, string) { return "", "", "" },
	"the root file system": func(a string) (string, string, string) { return disk(a, "/") },
	"a root that is not known": func(a string) (string, string, string) {
		links, files, _ := network(a, "0x1003")
		return links, files, "rpool/ROOT / zfs rw 0 0\n"
	},
	"a boot over the network": func(a string) (string, string, string) {
		links, files, _ := network(a, "0x1002")
		return links, files, "10.0.0.1:/root / nfs4 rw 0 0\n"
	},
	"a mounted disk": func(a string) (string, string, string) { return disk(a, "/data") },
	"a disk below another": func(a string) (string, string, string) {
		links, files, _ := disk(a, "")
		return links + "symlink sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0\nsymlink " + devices + a + "/nvme/nvme0/nvme0n1/holders/dm-0 -> ../../../../../../virtual/block/dm-0\n",
			files + "-- sys/devices/virtual/block/dm-0/dm/name --\nnova-disk\n-- sys/devices/virtual/block/dm-0/dm/uuid --\nLVM-x\n-- sys/devices/virtual/block/dm-0/dev --\n253:0\n", ""
	},
	"swap": func(a string) (string, string, string) {
		return unmounted(a, "-- proc/swaps --\nFilename\n/dev/nvme0n1 partition 1 0 -2\n")
	},
	"a line of fstab": func(a string) (string, string, string) {
		return unmounted(a, "-- etc/fstab --\n/dev/nvme0n1 /srv ext4 noauto 0 0\n")
	},
	"content that is not used": func(a string) (string, string, string) {
		return unmounted(a, "-- run/udev/data/b259:0 --\nE:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n")
	},
	"an interface that is up": func(a string) (string, string, string) { return network(a, "0x1003") },
	"a port of a bridge": func(a string) (string, string, string) {
		links, files, _ := network(a, "0x1002")
		return links + fmt.Sprintf("symlink %s%s/net/eth9/master -> ../../../../virtual/net/ovs-system\n", devices, a), files, ""
	},
	"a subfunction": func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/class/net/eth9 -> ../../devices/pci0000:00/%s/mlx5_core.sf.4/net/eth9\n", a),
			fmt.Sprintf("-- %s%s/mlx5_core.sf.4/net/eth9/flags --\n0x1003\n", devices, a), ""
	},
	"another namespace": func(a string) (string, string, string) { return "without " + a, "", "" },
	"an active RDMA port": func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/class/infiniband/mlx5_9 -> ../../devices/pci0000:00/%s/infiniband/mlx5_9\n", a),
			fmt.Sprintf("-- %s%s/infiniband/mlx5_9/ports/1/state --\n4: ACTIVE\n-- %[1]s%[2]s/infiniband/mlx5_9/node_type --\n1: CA\n", devices, a), ""
	},
	"a boot over a bond": func(string) (string, string, string) { // with one RDMA device
		links, files := port("0000:0c:00.1")
		for i, a := range []string{pf, "0000:0c:00.1"} {
			links += fmt.Sprintf("symlink %s%s/net/eth%d/master -> ../../../../virtual/net/bond0\nsymlink %[1]s%[2]s/net/eth%[3]d/device -> ../../../%[2]s\n", devices, a, 1+7*i)
		}
		return links + "symlink sys/class/net/bond0 -> ../../devices/virtual/net/bond0\n", files + "-- sys/devices/virtual/net/bond0/bonding/slaves --\neth1 eth8\n", "10.0.0.1:/root / nfs4 rw 0 0\n"
	},
	"another port in use": func(string) (string, string, string) {
		links, files := port("0000:0c:00.1")
		return links, files, ""
	},
	"virtual functions": func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/bus/pci/devices/0000:0c:00.5 -> ../../../devices/pci0000:00/0000:0c:00.5\nsymlink %s0000:0c:00.5/physfn -> ../%s\n", devices, a),
			"-- " + devices + "0000:0c:00.5/class --\n0x020000\n", ""
	},
	"mediated devices": func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/bus/mdev/devices/u1 -> ../../../devices/pci0000:00/%s/u1\nmkdir %s%[1]s/u1\n", a, devices), "", ""
	},
	"vDPA": func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/bus/vdpa/devices/vdpa0 -> ../../../devices/pci0000:00/%s/vdpa0\nmkdir %s%[1]s/vdpa0/vhost-vdpa-0\n"+
				"symlink proc/7/fd/3 -> /dev/vhost-vdpa-0\nmkdir proc/7/map_files\n", a, devices),
			process(7, "qemu-system-x86"), ""
	},
	"a process": func(a string) (string, string, string) {
		return fmt.Sprintf("symlink sys/class/infiniband_verbs/uverbs9 -> ../../devices/pci0000:00/%s/infiniband_verbs/uverbs9\n", a) +
				"symlink proc/7/fd/3 -> /dev/infiniband/uverbs9\nmkdir proc/7/map_files\n", fmt.Sprintf("-- %s%s/infiniband_verbs/uverbs9/abi_version --\n1\n", devices, a) +
				process(7, "rping"), ""
	},
}

// inState returns the machine in a state of the function at an address. Unless the state says
// otherwise, the root file system is in memory.
func inState(t *testing.T, name string, vfs bool, a string) string {
	t.Helper()
	links, files, mounts := states[name](a)
	if !strings.Contains(mounts, " / ") {
		mounts = "rootfs / tmpfs rw 0 0\n" + mounts
	}
	if without, ok := strings.CutPrefix(links, "without "); ok { // its interface is not shown
		text := archive(t, vfs, "", files, mounts)
		lines := strings.SplitAfter(text, "\n")
		return strings.Join(slices.DeleteFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, "symlink sys/class/net/") && strings.Contains(l, without)
		}), "")
	}
	return archive(t, vfs, links, files, mounts)
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

// port is another function of the adapter's card, whose interface is up.
func port(a string) (links, files string) {
	return fmt.Sprintf("symlink sys/bus/pci/devices/%[2]s -> ../../../devices/pci0000:00/%[2]s\nsymlink %[1]s%[2]s/driver -> ../../../bus/pci/drivers/mlx5_core\n"+
			"symlink sys/class/net/eth8 -> ../../devices/pci0000:00/%[2]s/net/eth8\n", devices, a),
		fmt.Sprintf("-- %[1]s%[2]s/class --\n0x020000\n-- %[1]s%[2]s/vendor --\n0x15b3\n-- %[1]s%[2]s/device --\n0x101b\n-- %[1]s%[2]s/net/eth8/flags --\n0x1003\n", devices, a)
}

// network is an interface of the machine with flags of sysfs: 0x1003 is up.
func network(a, flags string) (links, files, mounts string) {
	return fmt.Sprintf("symlink sys/class/net/eth9 -> ../../devices/pci0000:00/%s/net/eth9\n", a),
		fmt.Sprintf("-- %s%s/net/eth9/flags --\n%s\n", devices, a, flags), ""
}

func disk(a, place string) (links, files, mounts string) {
	return fmt.Sprintf("symlink sys/class/block/nvme0n1 -> ../../devices/pci0000:00/%s/nvme/nvme0/nvme0n1\n", a),
		fmt.Sprintf("-- %s%s/nvme/nvme0/nvme0n1/size --\n8\n-- %[1]s%[2]s/nvme/nvme0/nvme0n1/dev --\n259:0\n", devices, a), "/dev/nvme0n1 " + place + " vfat rw 0 0\n"
}

// path is a way of taking a function from the host: what asks the gate in its place.
type path struct {
	name string
	kind int  // the column
	vfs  bool // it takes a VF that exists, else the adapter, which has none
	ask  func(t *testing.T, root host.Root, allow []pci.Address) error
}

func paths() []path {
	named := func(t *testing.T, allow []pci.Address) selection.Options {
		x, err := pci.ParseSelector(pf)
		hosttest.NoError(t, err)
		return selection.Options{Add: []pci.Selector{x}, Allow: allow}
	}
	ofAdapter := func(o func(a pci.Address) rdmaprepare.Options) func(*testing.T, host.Root, []pci.Address) error {
		return func(t *testing.T, root host.Root, allow []pci.Address) error {
			options := o(hosttest.Address(t, pf))
			options.Allow = allow
			m, err := rdmaprepare.Observe(root, machine.ObserveRecord(root, nil, true), options)
			hosttest.NoError(t, err)
			_, err = rdmaprepare.NewWant(m, options)
			return err
		}
	}
	permit := func(plan func(*testing.T, host.Root) (edit.Change, error)) func(*testing.T, host.Root, []pci.Address) error {
		return func(t *testing.T, root host.Root, allow []pci.Address) error {
			c, err := plan(t, root)
			hosttest.NoError(t, err)
			_, err = gate.Permit(root, edit.Changes{c}, steps.Made, gate.Allowed{Functions: allow})
			return err
		}
	}
	return []path{
		{"host prepare", atBoot, false, func(t *testing.T, root host.Root, allow []pci.Address) error {
			_, err := prepare.NewWant(prepare.Observe(root, machine.ObservePrepare(root, true), named(t, allow)), named(t, allow))
			return err
		}},
		{"host bind", now, false, func(t *testing.T, root host.Root, allow []pci.Address) error {
			m := machine.ObserveDrivers(root, true)
			uses, err := machine.ObserveUses(root, m.Devices.Value, false)
			hosttest.NoError(t, err)
			_, err = bind.NewPlan(root, m, named(t, allow), uses, bind.Mode{Live: true})
			return err
		}},
		{"host bind, carried out, undone and recovered", now, false, func(t *testing.T, root host.Root, allow []pci.Address) error {
			_, _, err := gate.Drivers(root, allow, nil)([]driver.Change{{Address: hosttest.Address(t, pf), Before: driver.State{Driver: "mlx5_core"},
				After: driver.State{Driver: machine.VFIO}}})
			return err
		}},
		{"undo of host bind", now, false, func(t *testing.T, root host.Root, allow []pci.Address) error {
			m := machine.ObserveDrivers(root, true)
			uses, err := machine.ObserveUses(root, m.Devices.Value, false)
			hosttest.NoError(t, err)
			p := driver.Plan{Changes: []driver.Change{{Address: hosttest.Address(t, pf), Before: driver.State{Driver: "mlx5_core"},
				After: driver.State{Driver: machine.VFIO}}}}
			_, err = bind.Refuse(m, p, uses, true)
			return errors.Join(err, bind.Needed(m, p, allow))
		}},
		{"rdma prepare --whole", wholeAtBoot, false, ofAdapter(func(a pci.Address) rdmaprepare.Options {
			return rdmaprepare.Options{Add: []pci.Address{a}, Whole: true}
		})},
		{"rdma prepare --whole --for containers", role, false, ofAdapter(func(a pci.Address) rdmaprepare.Options {
			return rdmaprepare.Options{Add: []pci.Address{a}, Whole: true, Use: rdma.ForContainers}
		})},
		{"rdma prepare --vfs", making, false, ofAdapter(func(a pci.Address) rdmaprepare.Options { return rdmaprepare.Options{Add: []pci.Address{a}, VFs: 4} })},
		{"rdma prepare --vfs, another number", removed, true, ofAdapter(func(a pci.Address) rdmaprepare.Options { return rdmaprepare.Options{Add: []pci.Address{a}, VFs: 4} })},
		{"rdma prepare --for guests", removed, true, ofAdapter(func(a pci.Address) rdmaprepare.Options {
			return rdmaprepare.Options{Add: []pci.Address{a}, VFs: 2, Use: rdma.ForGuests}
		})},
		{"rdma prepare --remove", removed, true, ofAdapter(func(a pci.Address) rdmaprepare.Options { return rdmaprepare.Options{Remove: []pci.Address{a}} })},
		{"rdma prepare --none", removed, true, ofAdapter(func(pci.Address) rdmaprepare.Options { return rdmaprepare.Options{None: true} })},
		{"container prepare --hca", role, false, func(t *testing.T, root host.Root, _ []pci.Address) error {
			m, err := containerprepare.Observe(root, machine.ObserveRecord(root, nil, true))
			hosttest.NoError(t, err)
			_, err = containerprepare.NewWant(m, containerprepare.Options{HCAs: []pci.Address{hosttest.Address(t, pf)}})
			return err
		}},
		{"undo that adds to the record of host prepare", atBoot, false, permit(func(t *testing.T, root host.Root) (edit.Change, error) {
			text, err := machine.RecordText(&machine.Contract{Driver: machine.VFIO, Selected: []pci.Address{hosttest.Address(t, pf)},
				Functions: []machine.Function{
					{Address: hosttest.Address(t, pf), VendorID: 0x15b3, ProductID: 0x101b, Driver: machine.VFIO, By: machine.ByAddress}}}, nil)
			if err != nil {
				return edit.Change{}, err
			}
			return edit.Put(root, machine.ContractFile, text, 0o600, false)
		})},
		{"undo that removes a record of VFs", removed, true, permit(func(_ *testing.T, root host.Root) (edit.Change, error) {
			return edit.Observe(root, rdma.RecordFile).Remove(rdma.RecordFile)
		})},
		{"undo that adds a record of VFs", making, false, permit(func(t *testing.T, root host.Root) (edit.Change, error) {
			return edit.Put(root, rdma.RecordFile, []byte(recordText(t, recorded(t))), 0o600, false)
		})},
		{"gpustack boot, whole adapter", wholeNow, false, bootWhole},
		{"gpustack boot --revert", removed, true, func(_ *testing.T, root host.Root, allow []pci.Address) error {
			_, err := startup.Permit(startup.Machine{Root: root, Kernel: func(time.Duration) driver.Requester { return nil }, Allowed: gate.Allowed{Functions: allow}}, nil)
			return err
		}},
	}
}

// bootWhole returns the error of the step that unbinds a whole adapter which is recorded for
// guests, nil if the step gets as far as the kernel.
func bootWhole(t *testing.T, root host.Root, allow []pci.Address) error {
	r := recorded(t)
	r.Adapters[0].Whole, r.Adapters[0].Use, r.Adapters[0].VFs, r.Allowed = true, rdma.ForGuests, []rdma.PreparedVF{}, []pci.Address{}
	c, err := edit.Put(root, rdma.RecordFile, []byte(recordText(t, r)), 0o600, false)
	if err == nil {
		err = edit.Changes{c}.Apply(t.Context(), root)
	}
	hosttest.NoError(t, err)
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

// TestPaths: each path refuses a function in each state, or --allow lifts it, or the state does not
// matter, as the matrix says.
func TestPaths(t *testing.T) {
	for name := range states {
		if _, ok := matrix[name]; !ok || len(matrix) != len(states) {
			t.Fatalf("%s has no row", name)
		}
	}
	for _, p := range paths() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			at := pf
			if p.vfs {
				at = vf
			}
			allow := []pci.Address{hosttest.Address(t, at)}
			for name, row := range matrix {
				root := hosttest.Lay(t, inState(t, name, p.vfs, at))
				got := free
				if p.ask(t, root, nil) != nil {
					got = no
					if p.ask(t, root, allow) == nil {
						got = lifts
					}
				}
				if got != row[p.kind] {
					t.Errorf("%s: %v, want %v: %v; allowed: %v", name, got, row[p.kind], p.ask(t, root, nil), p.ask(t, root, allow))
				}
			}
		})
	}
}

// TestLeave: what a tree does not hold. Guests that are unknown refuse what goes now, and a manager
// of NVSwitches what leaves its host by itself.
func TestLeave(t *testing.T) {
	a := pci.Address{Bus: 1}
	class, name := pci.Class(0x0207), "mlx5_core"
	unknown := machine.Uses{Running: true, Guests: guest.Report{Sources: []guest.Source{{Name: "processes", State: guest.Unreadable, Detail: "permission denied"}}}}
	known := machine.Uses{Guests: guest.Report{Holders: []guest.Holder{}, Guests: []guest.Guest{}}}
	for _, test := range []struct {
		name    string
		uses    machine.Uses
		manager host.Bool
		refused []gate.Kind // also with --allow
	}{
		{"an adapter", known, host.No, nil},
		{"guests are unknown", unknown, host.No, []gate.Kind{gate.Now, gate.Removed, gate.Returned}},
		{"it manages NVSwitches", known, host.Yes, []gate.Kind{gate.AtBoot, gate.Now, gate.Role}},
	} {
		h := gate.Host{Devices: pci.Devices{{Address: a, Class: &class, Driver: &name, NVSwitchManager: test.manager}}}
		h.Bonds = gate.ReadBonds(hosttest.Lay(t, "-- etc/hostname --\nx\n"), a)
		for _, kind := range gate.Kinds() {
			_, err := h.Leave(test.uses, gate.Allowed{Functions: []pci.Address{a}}, gate.Leaving{Address: a, Kind: kind})
			if refused := slices.Contains(test.refused, kind); (err != nil) != refused {
				t.Errorf("%s, %s: %v, want refused: %v", test.name, kind, err, refused)
			}
		}
	}
}

// TestAskers: each function that asks the gate belongs to a path of TestPaths, or is tested where
// it is. A new one needs its path there.
func TestAskers(t *testing.T) {
	known := map[string]string{
		"host/prepare.judge":                  "host prepare",
		"host/prepare.taken":                  "TestForeignIDs of host/prepare",
		"host/bind.judge":                     "host bind",
		"host/bind.refuse":                    "undo of host bind",
		"host/bind.Needed":                    "undo of host bind",
		"host/rdma/rdmaprepare.leave":         "rdma prepare --remove",
		"host/container/containerprepare.hca": "container prepare --hca",
		"host/startup.ask":                    "gpustack boot --revert",
		"host/startup.carryOut":               "gpustack boot, whole adapter",
		"host/check.leaving":                  "TestPending of host/check",
		"host/check.refusals":                 "host prepare",
		"host/check.adapted":                  "TestRegrouped of host/check",
		"host/check.never":                    "TestCheck of host/check",
		"host/rdma/rdmaprepare.takes":         "rdma prepare --remove",
		"host/rdma/rdmacheck.readUsed":        "script rdma_check of cmd/gpustack",
		"host/selection.accepts":              "TestRandomMachines of host/prepare",
		"host/selection.refusedOf":            "TestStates of host/selection",
		"host/selection.Without":              "TestPendingUses of host/check",
		"operate/cloud.observeNode":           "script nova_offered of cmd/gpustack",
		"operate/node.files":                  "undo that removes a record of VFs",
		"operate/node.binder":                 "host bind, carried out, undone and recovered",
		"operate/node.findHolders":            "rdma scan shows it",
		"operate/node.ofLeaving":              "a plan of undo names them",
		"operate/node.PlanPrepare":            "TestAskKernel",
		"operate/node.PlanRDMA":               "TestAskKernel",
		"operate/node.PlanBind":               "TestAskKernel",
	}
	asks := []string{"Permit", "Drivers", "Leave", "Leaves", "Ask", "AskAtBoot", "AskKernel", "Decide", "Never", "HeldOf", "HoldDisks", "Users", "Virtualized", "OfSwitches"}
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
		hosttest.NoError(t, err)
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
	a, b := hosttest.Address(t, pf), hosttest.Address(t, vf)
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
	route := guard.Needs{Links: map[pci.Address]guard.Links{b: {Interfaces: []guard.Interface{{Name: "eth9", Up: true}}}}}
	blind := func(denied bool) machine.Uses {
		source := guest.Source{Name: "processes", State: guest.Unreadable, Detail: "/proc/1/ns: no", Denied: denied}
		return machine.Uses{Running: true, Guests: guest.Report{Sources: []guest.Source{source}}}
	}
	for _, test := range []struct {
		name, remove, want string // remove is that of the command, want that of VFs
		needs              guard.Needs
		uses               machine.Uses
	}{
		{name: "idle", remove: "gpustack rdma prepare --remove " + pf, want: "once no guest has one, write 0 to the function's sriov_numvfs"},
		{name: "an interface that is up", want: "end this use first: its VF " + vf + " has a network interface in use: eth9 is up", needs: route},
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
	links, files, _ := disk(pf, "")
	links += "symlink sys/class/block/nvme0n1p1 -> ../../devices/pci0000:00/" + pf + "/nvme/nvme0/nvme0n1/nvme0n1p1\nsymlink sys/class/block/nvme1n1 -> ../../devices/pci0000:00/" + pf + "/nvme/nvme1/nvme1n1\n"
	files += "-- " + devices + pf + "/nvme/nvme0/nvme0n1/nvme0n1p1/partition --\n1\n-- " + devices + pf + "/nvme/nvme1/nvme1n1/size --\n8\n"
	root := hosttest.Lay(t, archive(t, false, links, files, inMemory))
	var log []string
	refuse := ""
	ask := gate.Drivers(root, []pci.Address{hosttest.Address(t, pf)}, func(disk string) (func() error, error) {
		if disk == refuse {
			return nil, guard.ErrClaimed
		}
		log = append(log, "claim "+disk)
		return func() error { log = append(log, "release "+disk); return nil }, nil
	})
	change := []driver.Change{{Address: hosttest.Address(t, pf), Before: driver.State{Driver: "nvme"}, After: driver.State{Driver: machine.VFIO}}}
	_, release, err := ask(change)
	if err != nil || !slices.Equal(log, []string{"claim /dev/nvme0n1", "claim /dev/nvme1n1"}) {
		t.Errorf("%q, %v", log, err)
	}
	if err := release(); err != nil || len(log) != 4 {
		t.Errorf("%q, %v", log, err)
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
			})([]driver.Change{{Address: hosttest.Address(t, test.function), After: driver.State{Driver: test.after}, Any: test.any}})
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
	change := []driver.Change{{Address: hosttest.Address(t, pf), Before: driver.State{Driver: "nvme"}, After: driver.State{Driver: machine.VFIO}}}
	var claimed []string
	claim := func(disk string) (func() error, error) {
		claimed = append(claimed, disk)
		return func() error { return nil }, nil
	}
	_, _, err := gate.Drivers(hosttest.Lay(t, archive(t, false, links, files, inMemory)), []pci.Address{hosttest.Address(t, pf)}, claim)(change)
	if err != nil || !slices.Equal(claimed, []string{"/dev/nvme0n1"}) {
		t.Errorf("idle: %q, %v", claimed, err)
	}
	claimed = nil
	_, _, err = gate.Drivers(hosttest.Lay(t, archive(t, false, links, files, inMemory+"/dev/nvme0n1p1 /data ext4 rw 0 0\n")),
		[]pci.Address{hosttest.Address(t, pf)}, claim)(change)
	if want := pf + ": its disk /dev/nvme0n1 is claimed: /dev/nvme0n1p1 is mounted at /data"; err == nil || err.Error() != want || claimed != nil {
		t.Errorf("mounted: %q, %v, want %s", claimed, err, want)
	}
}

// TestUnread: what the host needs cannot be read, which keeps functions from leaving it, and none
// from returning or from being offered to containers.
func TestUnread(t *testing.T) {
	root := hosttest.Lay(t, archive(t, false, "", "", "too few\n"))
	a := hosttest.Address(t, pf)
	scanned := hosttest.Devices(t, root)
	for _, kind := range gate.Kinds() {
		_, _, err := gate.Observe(root, scanned, []gate.Leaving{{Address: a, Kind: kind}})
		if minds := kind == gate.AtBoot || kind == gate.Now || kind == gate.Removed; (err != nil) != minds {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// inMemory is a mount table whose root file system needs no function.
const inMemory = "rootfs / tmpfs rw 0 0\n"

// TestAskKernel: the kernel is asked about the disks of functions that --allow names only, and on the
// running machine only. A user who may not open disks gets a warning.
func TestAskKernel(t *testing.T) {
	links, files, _ := disk(pf, "")
	root := hosttest.Lay(t, archive(t, false, links, files, inMemory))
	var needs guard.Needs
	if warnings, err := gate.AskKernel(root, &needs, nil, hosttest.Address(t, pf)); err != nil || warnings != nil || needs.Claims != nil {
		t.Errorf("a tree: %v, %v, %v", warnings, err, needs.Claims)
	}
}
