package guard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// adapters is a machine with two adapters, 03:00.0 on InfiniBand with ib0 and 04:00.0 on Ethernet
// with eth1, and a process. Storage modules are loaded and idle, as rdma-core loads them.
const adapters = `symlink sys/class/infiniband/mlx5_0 -> ../../devices/pci0000:00/0000:03:00.0/infiniband/mlx5_0
symlink sys/class/infiniband/mlx5_1 -> ../../devices/pci0000:00/0000:04:00.0/infiniband/mlx5_1
symlink sys/class/infiniband_verbs/uverbs0 -> ../../devices/pci0000:00/0000:03:00.0/infiniband_verbs/uverbs0
symlink sys/class/infiniband_mad/issm0 -> ../../devices/pci0000:00/0000:03:00.0/infiniband_mad/issm0
symlink sys/class/net/ib0 -> ../../devices/pci0000:00/0000:03:00.0/net/ib0
symlink sys/class/net/eth1 -> ../../devices/pci0000:00/0000:04:00.0/net/eth1
mkdir sys/devices/pci0000:00/0000:03:00.0/net/ib0
mkdir sys/class/infiniband_srp/srp-mlx5_0-1
mkdir sys/class/iscsi_transport/iser
-- sys/bus/pci/devices/0000:03:00.0/class --
0x020700
-- sys/bus/pci/devices/0000:04:00.0/class --
0x020000
-- sys/devices/pci0000:00/0000:03:00.0/infiniband/mlx5_0/ports/1/lid --
0x1
-- sys/module/rds_rdma/refcnt --
0
-- proc/net/route --
Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
ib0 0002000A 00000000 0001 0 0 0 00FFFFFF 0 0 0
-- proc/net/fib_trie --
Main:
  +-- 0.0.0.0/0 1 0 0
-- proc/1/comm --
systemd
`

func TestRDMANeeds(t *testing.T) {
	const any = "0000:03:00.0 may carry %[1]s: the adapter is not determined\n0000:04:00.0 may carry %[1]s: the adapter is not determined\n"
	for _, test := range []struct {
		name, files, want string
	}{
		{"idle", "", ""},
		{"NFS over RDMA", "-- proc/mounts --\nnas:/x /srv nfs rw,proto=rdma,addr=10.0.2.9 0 0\n",
			"0000:03:00.0 carries nas:/x, mounted at /srv, by NFS over RDMA\n"},
		{"NFS over RDMA from anywhere", "-- proc/mounts --\nnas:/x /srv nfs4 rw,proto=rdma,addr=192.0.2.9 0 0\n",
			fmt.Sprintf(any, "nas:/x, mounted at /srv, by NFS over RDMA")},
		{"NFS over TCP", "-- proc/mounts --\nnas:/x /srv nfs rw,proto=tcp,addr=10.0.2.9 0 0\n", ""},
		{"an NFS server", "-- proc/fs/nfsd/portlist --\nrdma 20049\ntcp 2049\n", fmt.Sprintf(any, "the NFS server, which listens on RDMA")},
		{"Lustre", "-- proc/mounts --\n10.0.0.1@o2ib:/l /l lustre rw 0 0\n", fmt.Sprintf(any, "10.0.0.1@o2ib:/l, mounted at /l, by Lustre over RDMA")},
		{"Lustre over TCP", "-- proc/mounts --\n10.0.0.1@tcp:/l /l lustre rw 0 0\n", ""},
		{"GPFS", "-- proc/mounts --\n/dev/gpfs0 /g gpfs rw 0 0\n-- var/mmfs/gen/mmfs.cfg --\nverbsRdma enable\n", fmt.Sprintf(any, "/dev/gpfs0, mounted at /g, by GPFS with verbsRdma")},
		{"GPFS without RDMA", "-- proc/mounts --\n/dev/gpfs0 /g gpfs rw 0 0\n-- var/mmfs/gen/mmfs.cfg --\nverbsRdma disable\n", ""},
		{"BeeGFS", "-- proc/mounts --\nbeegfs_nodev /b beegfs rw 0 0\n", fmt.Sprintf(any, "beegfs_nodev, mounted at /b, by BeeGFS")},
		{"BeeGFS without RDMA", "-- proc/mounts --\nbeegfs_nodev /b beegfs rw 0 0\n-- etc/beegfs/beegfs-client.conf --\nconnUseRDMA = false\n", ""},
		{"SRP", "symlink sys/class/scsi_host/host3 -> ../../devices/pci0000:00/0000:03:00.0/host3/scsi_host/host3\n" +
			"-- sys/devices/pci0000:00/0000:03:00.0/host3/scsi_host/host3/proc_name --\nib_srp\n", "0000:03:00.0 carries disks of host3, by SRP\n"},
		{"iSER", "symlink sys/class/scsi_host/host4 -> ../../devices/pci0000:00/0000:04:00.0/host4/scsi_host/host4\n" +
			"-- sys/devices/pci0000:00/0000:04:00.0/host4/scsi_host/host4/proc_name --\niscsi_iser\n", "0000:04:00.0 carries disks of host4, by iSER\n"},
		{"NVMe over RDMA", "-- sys/class/nvme/nvme0/transport --\nrdma\n-- sys/class/nvme/nvme0/address --\ntraddr=10.0.2.9,trsvcid=4420\n" +
			"-- sys/class/nvme/nvme1/transport --\npcie\n", "0000:03:00.0 carries the disks of nvme0, by NVMe over RDMA\n"},
		{"an NVMe target", "-- sys/kernel/config/nvmet/ports/1/addr_trtype --\nrdma\n", fmt.Sprintf(any, "port 1 of the NVMe target, by NVMe over RDMA")},
		{"RDS", "-- sys/module/rds_rdma/refcnt --\n2\n", fmt.Sprintf(any, "sockets of RDS (module rds_rdma is in use)")},
		{"a subnet manager", "-- sys/devices/pci0000:00/0000:03:00.0/infiniband/mlx5_0/ports/1/cap_mask --\n0x0251486a\n",
			"0000:03:00.0 runs the fabric's subnet manager, on port 1 of mlx5_0\n"},
		{"no subnet manager", "-- sys/devices/pci0000:00/0000:03:00.0/infiniband/mlx5_0/ports/1/cap_mask --\n0x02514868\n", ""},
		{"a process", "symlink proc/7/fd/3 -> /dev/infiniband/uverbs0\nsymlink proc/7/fd/4 -> /dev/infiniband/uverbs0\nsymlink proc/7/fd/5 -> /dev/infiniband/issm0\n" +
			"symlink proc/7/fd/6 -> /dev/infiniband/umad0\n-- proc/7/comm --\nopensm\n",
			"0000:03:00.0 is in use: opensm (pid 7) has /dev/infiniband/issm0 open, as a subnet manager\n" +
				"0000:03:00.0 is in use: opensm (pid 7) has /dev/infiniband/uverbs0 open\n"},
		{"an unreadable mask", "-- sys/devices/pci0000:00/0000:03:00.0/infiniband/mlx5_0/ports/1/cap_mask --\nyes\n",
			"error: /sys/class/infiniband/mlx5_0/ports/1/cap_mask: not a number: \"yes\"\n"},
		{"an unreadable count", "-- sys/module/rds_rdma/refcnt --\nmany\n", "error: /sys/module/rds_rdma/refcnt: not a number: \"many\"\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var commands, files strings.Builder
			for part := range strings.Lines(test.files) { // commands of an archive come first
				if strings.HasPrefix(part, "symlink ") {
					commands.WriteString(part)
				} else {
					files.WriteString(part)
				}
			}
			root := hosttest.Lay(t, commands.String()+adapters+files.String())
			devices, _, err := pci.Scan(root, pci.Options{})
			if err != nil {
				t.Fatal(err)
			}
			found, err := guard.RDMANeeds(root, devices)
			got := ""
			for _, n := range found {
				described(t, n)
				got += fmt.Sprintf("%s %s\n", n.Address, n.Reason)
			}
			if err != nil {
				got += "error: " + err.Error() + "\n"
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestNoRDMA: a machine without RDMA devices has no such uses, whatever else it shows.
func TestNoRDMA(t *testing.T) {
	root := hosttest.Lay(t, "-- proc/fs/nfsd/portlist --\nrdma 20049\n")
	if needs, err := guard.RDMANeeds(root, nil); len(needs) > 0 || err != nil {
		t.Error(needs, err)
	}
}
