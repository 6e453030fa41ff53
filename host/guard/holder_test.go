package guard_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// users is a machine with processes that have devices open: two NVIDIA GPUs at
// 06:00.0 and 07:00.0, a nouveau card at 05:00.0, audio at 05:00.1, a disk at 01:00.0.
const users = `
symlink proc/10/fd/3 -> /dev/nvidia0
symlink proc/10/fd/4 -> /dev/nvidiactl
symlink proc/10/fd/5 -> /dev/nvidia0
symlink proc/20/fd/9 -> /dev/nvidia1 (deleted)
symlink proc/30/fd/7 -> /dev/dri/card1
symlink proc/30/fd/8 -> /dev/snd/pcmC1D3p
symlink proc/30/fd/9 -> socket:[1]
symlink proc/40/fd/7 -> /dev/dm-0
symlink proc/50/fd/0 -> /dev/null
mkdir proc/60/fd
symlink sys/class/drm/card1 -> ../../devices/pci0000:00/0000:00:01.0/0000:05:00.0/drm/card1
symlink sys/class/sound/pcmC1D3p -> ../../devices/pci0000:00/0000:00:01.0/0000:05:00.1/sound/card1/pcmC1D3p
symlink sys/class/mem/null -> ../../devices/virtual/mem/null
symlink sys/class/block/nvme0n1 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1
symlink sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0
mkdir sys/devices/pci0000:00/0000:00:01.0/0000:05:00.0/drm/card1
mkdir sys/devices/pci0000:00/0000:00:01.0/0000:05:00.1/sound/card1/pcmC1D3p
mkdir sys/devices/virtual/mem/null
mkdir sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1
mkdir sys/devices/virtual/block/dm-0/slaves/nvme0n1
symlink sys/bus/pci/devices/0000:06:00.0/driver -> ../../drivers/nvidia
symlink sys/bus/pci/devices/0000:07:00.0/driver -> ../../drivers/nvidia
-- sys/class/a_file --
-- proc/10/comm --
nvidia-persiste
-- proc/10/cgroup --
0::/system.slice/nvidia-persistenced.service
-- proc/20/comm --
python3
-- proc/20/cgroup --
12:devices:/x.service
1:name=systemd:/kubepods.slice/kubepods-pod1.slice/cri-containerd-4711.scope/deeper
-- proc/30/comm --
Xorg
-- proc/30/cgroup --
0::/user.slice/user-1000.slice/user@1000.service/app.slice/desktop.service
-- proc/40/comm --
ceph-osd
-- proc/40/cgroup --
0::/system.slice/system-ceph.slice/ceph-osd@3.service
-- sys/bus/pci/devices/0000:06:00.0/class --
0x030200
-- sys/bus/pci/devices/0000:07:00.0/class --
0x030200
`

const information = "Model: \t\t A100\nIRQ:   \t\t 42\nBus Location: \t 0000:07:00.0\nDevice Minor: \t "

func TestHolders(t *testing.T) {
	others := "0000:01:00.0 /dev/dm-0 40 ceph-osd ceph-osd@3.service\n0000:05:00.0 /dev/dri/card1 30 Xorg desktop.service\n" +
		"0000:05:00.1 /dev/snd/pcmC1D3p 30 Xorg desktop.service\n"
	for _, test := range []struct{ name, files, want string }{
		{"each NVIDIA GPU by its minor", "-- proc/driver/nvidia/gpus/0000:06:00.0/information --\n" + information +
			"1\n-- proc/driver/nvidia/gpus/0000:07:00.0/information --\n" + information + "0\n",
			others + "0000:06:00.0 /dev/nvidia1 20 python3 cri-containerd-4711.scope\n0000:07:00.0 /dev/nvidia0 10 nvidia-persiste nvidia-persistenced.service\n"},
		{"where that is not known, any", "", others +
			"0000:06:00.0 /dev/nvidia0 10 nvidia-persiste nvidia-persistenced.service\n0000:06:00.0 /dev/nvidia1 20 python3 cri-containerd-4711.scope\n" +
			"0000:07:00.0 /dev/nvidia0 10 nvidia-persiste nvidia-persistenced.service\n0000:07:00.0 /dev/nvidia1 20 python3 cri-containerd-4711.scope\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, users+test.files)
			devices := hosttest.Devices(t, root)
			holders, err := guard.Holders(root, devices)
			hosttest.NoError(t, err)
			var got strings.Builder
			for _, h := range holders {
				unit := h.Unit
				if unit == "" {
					unit = "-"
				}
				fmt.Fprintf(&got, "%s %s %d %s %s\n", h.Address, h.File, h.PID, h.Command, unit)
			}
			hosttest.Equal(t, test.want, got.String())
		})
	}
}

// TestHolderOfTwoNames: a holder says by which name the process has the device, too.
func TestHolderOfTwoNames(t *testing.T) {
	h := guard.Holder{File: "/dev/nvme0n1", As: "/dev/xvdc", PID: 7, Command: "postgres"}
	hosttest.Equal(t, "postgres (pid 7) has /dev/nvme0n1 (as /dev/xvdc) open", h.Who())
	if h.As = ""; h.Who() != "postgres (pid 7) has /dev/nvme0n1 open" {
		t.Error(h.Who())
	}
}

// TestHoldersBlind: files that cannot be read are an error; a tree without /proc is not.
func TestHoldersBlind(t *testing.T) {
	for _, test := range []struct{ name, tree, want string }{
		{"nothing runs", "mkdir etc\n", "<nil>"},
		{"a process that has ended", "mkdir proc/10\n", "<nil>"},
		{"no folder of descriptors", "-- proc/10/fd --\n", "/proc/10/fd: not a directory"},
		{"no link", "-- proc/10/fd/3 --\n", "/proc/10/fd/3: invalid argument"},
		{"not an address", "mkdir proc/driver/nvidia/gpus/x\n", `/proc/driver/nvidia/gpus: not a PCI address: "x"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := guard.Holders(hosttest.Lay(t, test.tree), nil); fmt.Sprint(err) != test.want {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestNVIDIAHolders: which GPUs a process holds by the nodes of NVIDIA's driver that it has open or
// mapped, and whether its unit is a service of the host.
func TestNVIDIAHolders(t *testing.T) {
	const gpus = `symlink sys/bus/pci/devices/0000:06:00.0/driver -> ../../drivers/nvidia
symlink sys/bus/pci/devices/0000:07:00.0/driver -> ../../drivers/nvidia
symlink sys/bus/pci/devices/0000:08:00.0/driver -> ../../drivers/nvidia-nvswitch
`
	const numbers = `-- sys/bus/pci/devices/0000:06:00.0/class --
0x030200
-- sys/bus/pci/devices/0000:07:00.0/class --
0x030200
-- sys/bus/pci/devices/0000:08:00.0/class --
0x068000
-- proc/driver/nvidia/gpus/0000:06:00.0/information --
Device Minor: 0
-- proc/driver/nvidia/gpus/0000:07:00.0/information --
Device Minor: 1
-- proc/10/comm --
python3
`
	open := func(files ...string) string {
		tree := ""
		for i, f := range files {
			tree += fmt.Sprintf("symlink proc/10/fd/%d -> %s\n", i+3, f)
		}
		return tree
	}
	cgroup := func(path string) string { return "-- proc/10/cgroup --\n0::" + path + "\n" }
	id := strings.Repeat("0123456789abcdef", 4)
	const shared = ", through which it may use any GPU of the nvidia driver"
	for _, test := range []struct{ name, links, files, want string }{
		{"the control node alone", open("/dev/nvidiactl"), "",
			"0000:06:00.0: python3 (pid 10) has /dev/nvidiactl open" + shared + "\n0000:07:00.0: python3 (pid 10) has /dev/nvidiactl open" + shared + "\n"},
		{"a program that reads one GPU", open("/dev/nvidiactl", "/dev/nvidia1"), "", "0000:07:00.0: python3 (pid 10) has /dev/nvidia1 open\n"},
		{"CUDA on one GPU", open("/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"), "",
			"0000:06:00.0: python3 (pid 10) has /dev/nvidia-uvm open" + shared + "\n0000:07:00.0: python3 (pid 10) has /dev/nvidia1 open\n"},
		{"CUDA, its nodes in another order", open("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"), "",
			"0000:06:00.0: python3 (pid 10) has /dev/nvidia-uvm open" + shared + "\n0000:07:00.0: python3 (pid 10) has /dev/nvidia1 open\n"},
		{"a capability, and NVLink", open("/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps-imex-channels/channel0", "/dev/nvidia-nvlink"), "", ""},
		{"a switch", open("/dev/nvidia-nvswitch0"), "", "0000:08:00.0: python3 (pid 10) has /dev/nvidia-nvswitch0 open\n"},
		{"memory of a closed node", "mkdir proc/10/fd\n", "-- proc/10/maps --\n7f00-7f01 r-xp 00000000 fe:01 17 /usr/bin/python3\n7f02-7f03 rw-s 00000000 00:06 42                         /dev/nvidia1 (deleted)\n7ffc-7ffd rw-p 00000000 00:00 0 [stack]\n",
			"0000:07:00.0: python3 (pid 10) has /dev/nvidia1 open\n"},
		{"memory that cannot be read", "mkdir proc/10/fd\nmkdir proc/10/maps\n", "", "/proc/10/maps: not a regular file"},
		{"a service", open("/dev/nvidia1"), cgroup("/system.slice/nvidia-dcgm.service/sub"), "0000:07:00.0: python3 (pid 10, nvidia-dcgm.service) has /dev/nvidia1 open, a service\n"},
		{"a user's service", open("/dev/nvidia1"), cgroup("/user.slice/user-1.slice/user@1.service/app.slice/nvidia-dcgm.service"),
			"0000:07:00.0: python3 (pid 10, nvidia-dcgm.service) has /dev/nvidia1 open\n"},
		{"a service inside a container", open("/dev/nvidia1"), cgroup("/lxc.payload.c1/system.slice/nvidia-dcgm.service"),
			"0000:07:00.0: python3 (pid 10, nvidia-dcgm.service) has /dev/nvidia1 open\n"},
		{"podman", open("/dev/nvidia1"), cgroup("/machine.slice/libpod-" + id + ".scope/container"),
			"0000:07:00.0: python3 (pid 10, container 0123456789ab) has /dev/nvidia1 open; stop the container 0123456789ab\n"},
		{"docker with systemd", open("/dev/nvidia1"), cgroup("/system.slice/docker-" + id + ".scope"),
			"0000:07:00.0: python3 (pid 10, container 0123456789ab) has /dev/nvidia1 open; stop the container 0123456789ab\n"},
		{"docker with cgroupfs", open("/dev/nvidia1"), cgroup("/docker/" + id),
			"0000:07:00.0: python3 (pid 10, container 0123456789ab) has /dev/nvidia1 open; stop the container 0123456789ab\n"},
		{"containerd", open("/dev/nvidia1"), cgroup("/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope"),
			"0000:07:00.0: python3 (pid 10, container 0123456789ab) has /dev/nvidia1 open; stop the container 0123456789ab\n"},
		{"CRI-O", open("/dev/nvidia1"), cgroup("/kubepods.slice/crio-" + id + ".scope"),
			"0000:07:00.0: python3 (pid 10, container 0123456789ab) has /dev/nvidia1 open; stop the container 0123456789ab\n"},
		{"kubelet with cgroupfs", open("/dev/nvidia1"), cgroup("/kubepods/burstable/pod7/" + id),
			"0000:07:00.0: python3 (pid 10, container 0123456789ab) has /dev/nvidia1 open; stop the container 0123456789ab\n"},
		{"an unknown engine", open("/dev/nvidia1"), cgroup("/default/" + id),
			"0000:07:00.0: python3 (pid 10, container 0123456789ab) has /dev/nvidia1 open; stop the container 0123456789ab\n"},
		{"the console", "mkdir proc/10/fd\nmkdir sys/bus/pci/devices/0000:06:00.0/graphics/fb0\n",
			"-- sys/class/vtconsole/vtcon0/name --\n(S) VGA+\n-- sys/class/vtconsole/vtcon0/bind --\n1\n-- sys/class/vtconsole/vtcon1/name --\n(M) frame buffer device\n-- sys/class/vtconsole/vtcon1/bind --\n1\n",
			"0000:06:00.0: the framebuffer console (vtcon1) uses /dev/fb0\n"},
		{"the console elsewhere", "mkdir proc/10/fd\nmkdir sys/bus/pci/devices/0000:06:00.0/graphics/fb0\n",
			"-- sys/class/vtconsole/vtcon1/name --\n(M) frame buffer device\n-- sys/class/vtconsole/vtcon1/bind --\n0\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, gpus+test.links+numbers+test.files)
			devices := hosttest.Devices(t, root)
			holders, err := guard.Holders(root, devices)
			got := ""
			for _, h := range holders {
				got += h.Error()
				if h.Service {
					got += ", a service"
				}
				if h.Container != "" {
					got += "; " + h.Hint()
				}
				got += "\n"
			}
			if err != nil {
				got = err.Error()
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestNodes: a process holds a function by each kind of node of its disks.
func TestNodes(t *testing.T) {
	const nodes = `symlink sys/class/block/nvme0n1p1 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p1
symlink sys/class/nvme/nvme0 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0
symlink sys/class/nvme-generic/ng0n1 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0/ng0n1
symlink sys/class/nvme-generic/ng1n1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys1/ng1n1
symlink sys/class/nvme-subsystem/nvme-subsys1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys1
symlink sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme1 -> ../../../pci0000:00/0000:02:00.0/nvme/nvme1
symlink sys/class/nvme/nvme1 -> ../../devices/pci0000:00/0000:02:00.0/nvme/nvme1
symlink sys/class/scsi_generic/sg0 -> ../../devices/pci0000:00/0000:03:00.0/ata1/host0/target0:0:0/0:0:0:0/scsi_generic/sg0
symlink sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0
mkdir sys/devices/virtual/block/dm-0/slaves/nvme0n1p1
mkdir sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p1
mkdir sys/devices/pci0000:00/0000:02:00.0/nvme/nvme1
mkdir sys/devices/virtual/nvme-subsystem/nvme-subsys1/ng1n1
mkdir sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/ng0n1
mkdir sys/devices/pci0000:00/0000:03:00.0/ata1/host0/target0:0:0/0:0:0:0/scsi_generic/sg0
-- sys/devices/virtual/block/dm-0/dm/name --
vg-a
`
	for _, test := range []struct{ node, want string }{
		{"nvme0n1p1", "0000:01:00.0"}, {"nvme0", "0000:01:00.0"}, {"ng0n1", "0000:01:00.0"}, {"ng1n1", "0000:02:00.0"},
		{"sg0", "0000:03:00.0"}, {"mapper/vg-a", "0000:01:00.0"},
	} {
		t.Run(test.node, func(t *testing.T) {
			holders, err := guard.Holders(hosttest.Lay(t, "symlink proc/10/fd/3 -> /dev/"+test.node+"\n"+nodes), nil)
			if err != nil || len(holders) != 1 || holders[0].Address.String() != test.want {
				t.Errorf("%v, %v, want one of %s", holders, err, test.want)
			}
		})
	}
}

// TestParts: a process that has a device of a subfunction, or a vDPA device, uses the function that
// they belong to.
func TestParts(t *testing.T) {
	const pf, vf = "../../../devices/pci0000:00/0000:07:00.0", "../../../devices/pci0000:00/0000:07:00.2"
	const machine = "symlink sys/bus/vdpa/devices/vdpa0 -> " + pf + "/mlx5_core.sf.4/vdpa0\nsymlink sys/bus/vdpa/devices/vdpa1 -> " + vf + "/vdpa1\n" +
		"symlink sys/bus/vdpa/devices/sim -> ../../../devices/vdpasim/sim\n" +
		"mkdir sys/devices/pci0000:00/0000:07:00.0/mlx5_core.sf.4/vdpa0/vhost-vdpa-0\nmkdir sys/devices/pci0000:00/0000:07:00.2/vdpa1/vhost-vdpa-1\n" +
		"mkdir sys/devices/vdpasim/sim/vhost-vdpa-2\nsymlink sys/bus/pci/devices/0000:07:00.2/physfn -> ../0000:07:00.0\n" +
		"symlink sys/class/infiniband_verbs/uverbs4 -> ../../devices/pci0000:00/0000:07:00.0/mlx5_core.sf.4/infiniband_verbs/uverbs4\n" +
		"mkdir sys/devices/pci0000:00/0000:07:00.0/mlx5_core.sf.4/infiniband_verbs/uverbs4\n" +
		"symlink sys/class/ptp/ptp2 -> ../../devices/pci0000:00/0000:07:00.0/ptp/ptp2\nmkdir sys/devices/pci0000:00/0000:07:00.0/ptp/ptp2\n" +
		"-- proc/7/comm --\nqemu-system-x86\n"
	for _, test := range []struct{ node, want string }{
		{"vhost-vdpa-0", "0000:07:00.0 /dev/vhost-vdpa-0\n"},
		{"vhost-vdpa-1", "0000:07:00.0 /dev/vhost-vdpa-1\n0000:07:00.2 /dev/vhost-vdpa-1\n"},
		{"vhost-vdpa-2", ""},
		{"vhost-vdpa-9", ""},
		{"infiniband/uverbs4", "0000:07:00.0 /dev/infiniband/uverbs4\n"},
		{"ptp2", "0000:07:00.0 /dev/ptp2\n"},
		{"ptp2\nsymlink proc/7/fd/4 -> /dev/infiniband/uverbs4", "0000:07:00.0 /dev/ptp2\n0000:07:00.0 /dev/infiniband/uverbs4\n"},
	} {
		t.Run(test.node, func(t *testing.T) {
			found, err := guard.Holders(hosttest.Lay(t, "symlink proc/7/fd/3 -> /dev/"+test.node+"\n"+machine), nil)
			hosttest.NoError(t, err)
			got := ""
			for _, h := range found {
				got += h.Address.String() + " " + h.File + "\n"
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}
