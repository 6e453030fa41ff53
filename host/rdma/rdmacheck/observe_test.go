package rdmacheck_test

import (
	"os"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/checklist"
	"gpustack/host/hosttest"
	"gpustack/host/rdma/rdmacheck"
)

// TestUsed: before the boot that takes an adapter from the host, what uses it is a failure.
func TestUsed(t *testing.T) {
	t.Parallel()
	const whole = "sys/devices/pci0000:00/0000:0d:00.0"
	tree := `symlink sys/bus/pci/devices/0000:0d:00.0 -> ../../../devices/pci0000:00/0000:0d:00.0
symlink ` + whole + `/driver -> ../../../bus/pci/drivers/mlx5_core
symlink sys/class/net/eth1 -> ../../devices/pci0000:00/0000:0d:00.0/net/eth1
symlink sys/class/net/docker0 -> ../../devices/virtual/net/docker0
symlink sys/class/infiniband_mad/umad1 -> ../../devices/pci0000:00/0000:0d:00.0/infiniband_mad/umad1
symlink proc/1/ns/pid -> pid:[4026531836]
mkdir ` + whole + `/infiniband_mad/umad1
mkdir sys/bus/pci/drivers/mlx5_core
mkdir proc/1/fd
-- ` + whole + `/class --
0x020000
-- ` + whole + `/vendor --
0x15b3
-- ` + whole + `/device --
0x101b
-- ` + whole + `/net/eth1/flags --
0x1003
-- ` + whole + `/net/eth1/carrier --
1
-- sys/devices/virtual/net/docker0/uevent --
DEVTYPE=bridge
-- proc/1/stat --
1 (systemd) S 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0
-- proc/1/cmdline --
/sbin/init
-- proc/mounts --
tmpfs / tmpfs rw 0 0
-- proc/net/fib_trie --
Main:
     |-- 172.17.0.0
        /16 link UNICAST
Id 10:
     |-- 172.17.0.1
        /32 host LOCAL
-- var/lib/gpustack/rdma.json --
{"schema":1,"kind":"rdma record","adapters": [{"address": "0000:0d:00.0", "vendor_id": "15b3", "product_id": "101b", "bridges": [], "driver": "mlx5_core",
  "link_layer": "Ethernet", "for": "guests", "whole": true, "vfs": []}], "files": [], "allowed": []}
`
	const since = "fail has come into use since it was recorded: 0000:0d:00.0: "
	program := "symlink proc/7/fd/3 -> /dev/infiniband/umad1\n" + tree + "-- proc/7/stat --\n7 (ibping) S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n-- proc/7/cmdline --\nibping\n-- proc/7/comm --\nibping\n"
	const up = "0x1003\n-- " + whole + "/net/eth1/carrier"
	if !strings.Contains(tree, up) {
		t.Fatal(tree)
	}
	down := func(tree string) string {
		return strings.Replace(tree, up, strings.Replace(up, "0x1003", "0x1002", 1), 1)
	}
	for _, test := range []struct{ name, tree, want string }{
		{"an interface that is down", down(tree), "pass 1 adapter as recorded"},
		{"an interface that is up", tree, since + "has a network interface in use: eth1 is up"},
		{"a port of a bridge", "symlink " + whole + "/net/eth1/master -> ../../../../virtual/net/docker0\n" + down(tree),
			since + "has a network interface in use: eth1 is a port of docker0"},
		{"a program", down(program), since + "is in use: ibping (pid 7) has /dev/infiniband/umad1 open"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := hosttest.Lay(t, test.tree)
			devices := hosttest.Devices(t, root)
			findings, _, err := rdmacheck.Verify(rdmacheck.Observe(root, devices, change.Machine(root).Observe()))
			hosttest.NoError(t, err)
			var got []string
			for _, f := range findings {
				if f.Check == "functions" {
					got = append(got, string(f.Status)+" "+f.Seen)
				}
			}
			hosttest.Equal(t, []string{test.want}, got)
		})
	}
}

// TestRxe checks the tree of a real software adapter.
func TestRxe(t *testing.T) {
	t.Parallel()
	root := hosttest.RDMA(t, "../../../integration/testdata/rdma/debian12-rxe.txtar")
	modules := "ib_uverbs 1 0 - Live 0x0\nrdma_ucm 1 0 - Live 0x0\nib_umad 1 0 - Live 0x0\n"
	hosttest.NoError(t, os.MkdirAll(root.Path("/proc"), 0o700))
	hosttest.NoError(t, os.WriteFile(root.Path("/proc/modules"), []byte(modules), 0o600))
	m := rdmacheck.Observe(root, nil, change.Machine(root).Observe())
	findings, verdict, err := rdmacheck.Verify(m)
	if err != nil || verdict != checklist.Ready {
		t.Errorf("%s, %v", verdict, err)
	}
	var got []string
	for _, f := range findings {
		if f.Status != host.NA {
			got = append(got, string(f.Status)+" "+f.Check+" "+f.Seen)
		}
	}
	hosttest.Equal(t, []string{
		"pass adapters 1 RDMA device",
		"pass modules ib_uverbs, rdma_ucm and ib_umad are loaded",
		"pass nodes 4 device nodes as the kernel makes them",
		"pass ports 1 port ACTIVE",
		"pass gids 1 port with a RoCE v2 GID",
		"pass rdma_cm 1 port with an interface for rdma_cm",
		"pass netns network namespaces are shared",
		"warn memlock users have no memlock limit of their own: the kernel's default is 8 MiB, before 5.16 64 KiB",
		"pass storage no module of storage over RDMA is loaded",
	}, got)
}
