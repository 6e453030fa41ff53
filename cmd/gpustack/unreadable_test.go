package main

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// readers are the commands that read the files of a machine. None changes anything.
func readers() []string {
	return []string{
		"host scan --machine", "host check", "host guests", "host prepare --device 01:00 --dry-run", "host release --dry-run",
		"rdma scan", "rdma check", "rdma prepare --device 0c:00.0 --vfs 2 --dry-run", "container check",
		"container prepare --device 02:00.0 --dry-run", "nova check", "nova configure --dry-run", "history",
	}
}

// TestUnreadableFiles: each message about a file that cannot be read names the file once, by its
// path on the machine, whichever command prints the message. The files take turns in what they are:
// host's TestRootNamesTheFile has all kinds for each way of reading one.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	t.Run("files", func(t *testing.T) {
		t.Parallel()
		checkUnreadable(t, func(_ string, d fs.DirEntry) bool { return d.Type().IsRegular() },
			func(place string) error { return os.Mkdir(place, 0o755) },
			func(place string) error { return os.WriteFile(place, []byte("\x00\xff{[=\n"), 0o644) },
			func(place string) error {
				return errors.Join(os.WriteFile(place, nil, 0o644), os.Truncate(place, 65<<20))
			})
	})
	t.Run("folders", func(t *testing.T) {
		t.Parallel()
		checkUnreadable(t, func(name string, d fs.DirEntry) bool { return d.IsDir() && strings.Count(name, "/") < 6 },
			func(place string) error { return os.WriteFile(place, nil, 0o644) })
	})
}

// checkUnreadable puts something else in place of each file of a machine for which chosen returns
// true, one after the other, and checks the messages of all commands. The next file gets the next
// of puts.
func checkUnreadable(t *testing.T, chosen func(name string, d fs.DirEntry) bool, puts ...func(place string) error) {
	root := readableNode(t)
	kept := filepath.Join(t.TempDir(), "kept")
	var names []string
	seen := map[string]bool{}
	err := filepath.WalkDir(root.Path("/"), func(place string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(place, root.Path("/"))
		if err != nil || name == "" || !chosen(name, d) {
			return err
		}
		attribute := path.Base(name)
		if strings.HasPrefix(name, "/sys/") && seen[attribute] { // attributes of one name are read by one function
			return nil
		}
		seen[attribute] = true
		names = append(names, name)
		return nil
	})
	hosttest.NoError(t, err)
	told := 0
	for i, name := range names {
		place := root.Path(name)
		hosttest.NoError(t, errors.Join(os.Rename(place, kept), puts[i%len(puts)](place)))
		for _, c := range readers() {
			o := shape{root: root}.runHere(t, c+" -o json")
			out := o.stdout + o.stderr
			if strings.Contains(out, name) {
				told++
			}
			checkPaths(t, root, name, c, out)
		}
		hosttest.NoError(t, errors.Join(os.Remove(place), os.Rename(kept, place)))
	}
	if told < len(names)/2 {
		t.Errorf("only %d outputs name one of %d files", told, len(names))
	}
}

// TestForbiddenFiles is TestUnreadableFiles for files that the user may not read.
func TestForbiddenFiles(t *testing.T) {
	t.Parallel()
	root := readableNode(t)
	c := trialCloud(t, 96)
	env := unprivilegedEnv(t)
	for name, value := range c.Env() {
		env = append(env, name+"="+value)
	}
	err := filepath.WalkDir(root.Path("/"), func(place string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			err = os.Chmod(place, 0)
		}
		return err
	})
	hosttest.NoError(t, err)
	denied := 0
	for _, c := range append(readers(), strings.Join(trialArgs("--dry-run"), " ")) {
		o := runProgram(t, "/", env, append(strings.Fields(c), "--root", root.Path("/"), "-o", "json")...)
		out := o.stdout + o.stderr
		denied += strings.Count(out, ": permission denied")
		checkPaths(t, root, "forbidden files", c, out)
	}
	if denied < 20 {
		t.Errorf("only %d messages say that a file may not be read", denied)
	}
}

// checkPaths reports each message that names a file twice in a row, or with the root.
func checkPaths(t *testing.T, root host.Root, what, command, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		parts := strings.Split(line, ": ")
		for i, part := range parts[1:] {
			before := parts[i]
			if last := strings.LastIndexAny(before, " \"("); last >= 0 {
				before = before[last+1:]
			}
			if strings.HasPrefix(part, "/") && part == before {
				t.Errorf("%s: %s: names the file twice: %s", what, command, line)
			}
		}
		if strings.Contains(line, root.Path("/")+"/") {
			t.Errorf("%s: %s: shows the root: %s", what, command, line)
		}
	}
}

// readableNode returns a compute node with files of each kind.
func readableNode(t *testing.T) host.Root {
	t.Helper()
	commands, files := hosttest.HCA{Address: "0000:0c:00.0", Device: "mlx5_0", Total: 8, LinkLayer: "Ethernet", Class: "0200"}.Archive()
	qemu := "/usr/bin/qemu-system-x86_64\x00-name\x00guest=instance-00000012\x00-uuid\x006f3e8a52-0d0c-4c3e-9d3b-2f8d0b9a7c11\x00"
	root := hosttest.Lay(t, commands+`symlink proc/42/fd/9 -> /dev/vfio/33
symlink sys/kernel/iommu_groups/33/devices/0000:84:00.0 -> ../../../../bus/pci/devices/0000:01:00.0
symlink sys/bus/mdev/devices/a -> ../../../devices/pci0000:00/a
mkdir sys/bus/pci/devices/0000:01:00.0/mdev_supported_types/nvidia-1/devices
mkdir sys/class/net
mkdir run/libvirt/qemu
mkdir boot/efi/EFI/Linux
mkdir boot/efi/loader/entries
`+hosttest.Server{CPU: "GenuineIntel", More: files + `-- boot/grub/grub.cfg --
menuentry 'Debian' {
	linux /boot/vmlinuz-6.1.0-28-amd64 root=UUID=a ro quiet
}
-- etc/cdi/a.json --
{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}]}
-- etc/docker/daemon.json --
{"features": {"cdi": true}}
-- etc/hostname --
gpu1
-- etc/libvirt/qemu/a.xml --
<domain type='kvm'><name>a</name><uuid>0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d</uuid></domain>
-- etc/machine-id --
3d12f0d5c3a94e7b8a6d2b1c0e9f8a7b
-- etc/modprobe.d/a.conf --
options vfio-pci ids=10de:11b4
-- etc/modules-load.d/a.conf --
vfio-pci
-- etc/network/interfaces --
auto eth7
-- etc/nova/nova.conf --
[DEFAULT]
host = gpu1
[pci]
alias = {"name": "k", "vendor_id": "10de", "product_id": "11b4"}
device_spec = {"vendor_id": "10de", "product_id": "11b4"}
-- etc/nova/nova-compute.conf --
[libvirt]
virt_type = kvm
-- etc/nvidia-container-toolkit/nvidia-cdi-refresh.env --
NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/run/cdi/nvidia.yaml
-- etc/os-release --
ID=debian
VERSION_ID="12"
-- etc/sysconfig/bootloader --
LOADER_TYPE="grub2"
-- etc/udev/rules.d/a.rules --
ACTION=="add"
-- proc/42/cmdline --
` + qemu + `
-- proc/42/comm --
qemu-system-x86
-- proc/42/stat --
42 (qemu-system-x86) S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 9 0 120050 1 1 1
-- proc/60/cmdline --
/usr/sbin/libvirtd
-- proc/60/comm --
libvirtd
-- proc/60/root/etc/libvirt/qemu/b.xml --
<domain type='kvm'><name>b</name><uuid>0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4e</uuid></domain>
-- proc/60/root/run/libvirt/qemu/b.xml --
<domstatus/>
-- proc/60/stat --
60 (libvirtd) S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 600 1 1 1
-- proc/cmdline --
BOOT_IMAGE=/boot/vmlinuz-6.1.0-28-amd64 root=UUID=a ro quiet
-- proc/mounts --
/dev/sda1 / ext4 rw 0 0
-- proc/self/mountinfo --
-- proc/stat --
btime 1772352000
-- proc/sys/kernel/hostname --
gpu1
-- proc/sys/kernel/osrelease --
6.1.0-28-amd64
-- proc/sys/kernel/random/boot_id --
b0b0
-- proc/uptime --
3600.75 7000.00
-- run/cdi/b.json --
{"cdiVersion": "0.5.0", "kind": "vendor.example/gpu", "devices": []}
-- sys/bus/pci/devices/0000:01:00.0/sriov_totalvfs --
4
-- sys/bus/pci/devices/0000:01:00.0/sriov_numvfs --
0
-- sys/devices/pci0000:0c/0000:0c:00.0/net/eth7/address --
b8:ce:f6:00:12:34
-- sys/devices/pci0000:0c/0000:0c:00.0/net/eth7/ifindex --
7
-- sys/devices/pci0000:0c/0000:0c:00.0/net/eth7/type --
1
-- sys/module/ib_core/parameters/netns_mode --
Y
-- usr/bin/gpustack --
-- usr/bin/nova-compute --
-- usr/lib/systemd/system/docker.service --
[Service]
ExecStart=/usr/bin/dockerd
-- usr/lib/systemd/system/nova-compute.service --
[Service]
ExecStart=/usr/bin/nova-compute
-- usr/lib/systemd/system/nvidia-cdi-refresh.service --
[Service]
-- usr/lib/systemd/systemd --
-- usr/sbin/update-initramfs --
-- usr/share/misc/pci.ids --
10de  NVIDIA Corporation
-- var/lib/dpkg/status --
Package: nova-compute
Status: install ok installed
Version: 2:26.2.2-1
-- var/lib/gpustack/journal/0001.json --
{"schema": 1}
`}.Archive())
	hosttest.NoError(t, os.WriteFile(root.Path("/boot/initrd.img-6.1.0-28-amd64"), cpio("usr/lib/modules/6.1.0-28-amd64/kernel/vfio-pci.ko"), 0o600))
	return root
}
