package rdmaprepare_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
)

// TestFindMentions: a line is found by its words in each kind of files, whatever the file makes of
// it, apart from comments and gpustack's own file. A file that cannot be searched is named.
func TestFindMentions(t *testing.T) {
	const write = "echo 8 > /sys/class/net/eth1/device/sriov_numvfs\n"
	for _, test := range []struct{ name, commands, files, found, left string }{
		{"nothing", "", "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth1:\n      mtu: 9000\n", "", ""},
		{"udev", "", "-- etc/udev/rules.d/82-a.rules --\n# sriov_numvfs\nACTION==\"add\", DRIVER==\"mlx5_core\", ATTR{device/sriov_numvfs}=\"8\"\n", "/etc/udev/rules.d/82-a.rules:2 numvfs", ""},
		{"udev, other rules", "", "-- etc/udev/rules.d/82-a.rules --\nDRIVERS==\"mlx5_core\", ATTR{sriov_totalvfs}==\"8\", TAG+=\"x\"\n", "", ""},
		{"systemd", "", "-- etc/systemd/system/a.service.d/b.conf --\n[Service]\n; sriov_numvfs\nExecStart=/bin/sh -c \\\n '" + write + "'\n", "/etc/systemd/system/a.service.d/b.conf:4 numvfs", ""},
		{"systemd, a package's unit that is enabled", "symlink etc/systemd/system/a.target.wants/a.service -> /usr/lib/systemd/system/a.service\n", "-- usr/lib/systemd/system/a.service --\n[Service]\nExecStart=" + write, "/usr/lib/systemd/system/a.service:2 numvfs", ""},
		{"systemd, a package's unit that is not", "", "-- usr/lib/systemd/system/a.service --\n[Service]\nExecStart=" + write, "", ""},
		{"systemd, enabled twice", "symlink etc/systemd/system/a.target.wants/z.service -> ../z.service\n", "-- etc/systemd/system/z.service --\n[Service]\nExecStart=" + write, "/etc/systemd/system/z.service:2 numvfs", ""},
		{"a link file", "", "-- etc/systemd/network/10-a.link --\n[Match]\nDriver=mlx5_core\n[Link]\nSR-IOVVirtualFunctions=8\n", "/etc/systemd/network/10-a.link:2 Driver=mlx5_core, /etc/systemd/network/10-a.link:4 VirtualFunctions", ""},
		{"netplan", "", "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    a:\n      match: {driver: [igb, mlx5_core], macaddress: x}\n      virtual-function-count: 8\n",
			"/etc/netplan/50.yaml:4 driver: [igb, mlx5_core], macaddress, /etc/netplan/50.yaml:5 virtual-function-count", ""},
		{"NetworkManager", "", "-- etc/NetworkManager/system-connections/a --\n[match]\ndriver=|igb;|mlx5_core;\n[sriov]\ntotal-vfs=4\n-- etc/NetworkManager/conf.d/a.conf --\nsriov-num-vfs=4\n",
			"/etc/NetworkManager/conf.d/a.conf:1 num-vfs, /etc/NetworkManager/system-connections/a:2 driver=|igb;|mlx5_core;, /etc/NetworkManager/system-connections/a:4 total-vfs", ""},
		{"a dispatcher", "", "-- etc/NetworkManager/dispatcher.d/pre-up.d/a --\n" + write, "/etc/NetworkManager/dispatcher.d/pre-up.d/a:1 numvfs", ""},
		{"ifupdown", "", "-- etc/network/interfaces --\niface eth1 inet manual\n  up " + write + "-- etc/network/if-up.d/a --\n#!/bin/sh\n" + write, "/etc/network/if-up.d/a:2 numvfs, /etc/network/interfaces:2 numvfs", ""},
		{"cron", "", "-- etc/crontab --\n@reboot root " + write + "-- var/spool/cron/crontabs/root --\n@reboot " + write, "/etc/crontab:1 numvfs, /var/spool/cron/crontabs/root:1 numvfs", ""},
		{"System V", "symlink etc/init.d -> rc.d/init.d\nsymlink etc/rc.local -> rc.d/rc.local\n", "-- etc/rc.d/init.d/a --\n" + write + "-- etc/rc.d/rc.local --\n" + write, "/etc/rc.d/init.d/a:1 numvfs, /etc/rc.d/rc.local:1 numvfs", ""},
		{"a script that these start", "", "-- etc/rc.local --\n/usr/local/bin/a\n-- usr/local/bin/a --\n" + write, "", ""},
		{"modprobe", "", "-- etc/modprobe.d/a.conf --\noptions mlx4_core num_vfs=8\n", "/etc/modprobe.d/a.conf:1 num_vfs", ""},
		{"gpustack's own", "", "-- etc/modprobe.d/gpustack-rdma.conf --\noptions mlx4_core num_vfs=8\n", "", ""},
		{"nmstate, os-net-config, ifcfg and the operator", "", "-- etc/nmstate/a.yml --\ntotal-vfs: 8\n-- etc/os-net-config/a.yaml --\nnumvfs: 8\n-- etc/sysconfig/network-scripts/ifcfg-a --\nSRIOV_TOTAL_VFS=8\n-- etc/sriov-operator/pci/0000:0d:00.0 --\n{\"numVfs\": 8}\n",
			"/etc/nmstate/a.yml:1 total-vfs, /etc/os-net-config/a.yaml:1 numvfs, /etc/sriov-operator/pci/0000:0d:00.0:1 numVfs, /etc/sysconfig/network-scripts/ifcfg-a:1 TOTAL_VFS", ""},
		{"tmpfiles.d and sysfsutils", "", "-- etc/tmpfiles.d/a.conf --\nw " + write + "-- etc/sysfs.conf --\nclass/net/eth1/device/sriov_drivers_autoprobe = 1\n", "/etc/sysfs.conf:1 sriov_drivers_autoprobe, /etc/tmpfiles.d/a.conf:1 numvfs", ""},

		{"a file that cannot be read", "symlink etc/cron.d/a -> a\n", "-- etc/rc.local --\n" + write, "/etc/rc.local:1 numvfs", "/etc/cron.d/a: too many levels of symbolic links"},
		{"a binary file", "", "-- etc/init.d/a --\n\x7fELF\x00sriov_numvfs\n", "", "/etc/init.d/a: not a text"},
		{"a file that is too large", "", "-- etc/init.d/a --\n" + write + strings.Repeat("#\n", 2<<20), "", "/etc/init.d/a: larger than 4194304 bytes"},
		{"a link to a file", "symlink etc/cron.d/a -> /opt/a\n", "-- opt/a --\n" + write, "/opt/a:1 numvfs", ""},
		{"a link to a folder", "symlink etc/cron.d/a -> /opt\n", "-- opt/a --\n" + write, "", "/opt: not a regular file"},
		{"a link to nothing", "symlink etc/cron.d/a -> ../../../../opt/a\n", "", "", ""},
		{"a link above the root", "symlink etc/cron.d/a -> ../../../../../../../../opt/a\n", "-- opt/a --\n" + write, "/opt/a:1 numvfs", ""},
		{"a masked unit", "fifo dev/null\nsymlink etc/systemd/system/a.service -> /dev/null\n", "-- usr/lib/systemd/system/a.service --\nExecStart=" + write, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			commands, fifo := strings.CutPrefix(test.commands, "fifo dev/null\n")
			root := hosttest.Lay(t, "mkdir dev\n"+commands+test.files)
			if fifo { // like a device, no regular file
				if err := unix.Mkfifo(root.Path("/dev/null"), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			mentions, left := rdmaprepare.FindMentions(root)
			var found []string
			for _, m := range mentions {
				found = append(found, fmt.Sprint(m, " ", m.Words))
			}
			slices.Sort(found)
			if got := strings.Join(found, ", "); got != test.found {
				t.Errorf("%q, want %q", got, test.found)
			}
			if got := strings.Join(left, ", "); got != test.left {
				t.Errorf("left: %q, want %q", got, test.left)
			}
		})
	}
}

// TestMentions: what is found is a warning, and prevents no plan.
func TestMentions(t *testing.T) {
	const (
		sets   = "these lines may set VFs too: /etc/rc.local:2; one program has to own the VFs of an adapter, and 'gpustack rdma check' compares them with the record after the boot"
		driver = "these lines select interfaces by the driver mlx5_core, and so the VFs of 0000:0d:00.0 too: /etc/netplan/50.yaml:4"
		left   = "not searched for lines that set VFs: /etc/cron.d/a: too many levels of symbolic links; /etc/cron.d/b: too many levels of symbolic links"
		files  = "-- etc/rc.local --\n#!/bin/sh\necho 8 > /sys/bus/pci/devices/0000:0d:00.0/sriov_numvfs\n" +
			"-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    a:\n      match: {driver: mlx5_core}\n      addresses: [10.0.0.2/24]\n    b:\n      match: {driver: igb}\n"
	)
	root := hosttest.Lay(t, machineOf([]hca{infiniband(), ethernet()}, "mkdir etc/cron.d\n", files))
	for _, name := range []string{"a", "b"} {
		if err := os.Symlink(name, root.Path("/etc/cron.d/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	added := []pci.Address{address("0d:00.0")}
	for _, test := range []struct {
		name    string
		options rdmaprepare.Options
		want    []string
	}{
		{"VFs for guests", rdmaprepare.Options{Add: added, VFs: 2}, []string{left, sets}},
		{"VFs for containers", rdmaprepare.Options{Add: added, VFs: 2, Use: rdma.ForContainers}, []string{left, sets, driver}},
		{"whole, for guests", rdmaprepare.Options{Add: added, Whole: true, Allow: added}, []string{left, sets}},
		{"whole, for containers", rdmaprepare.Options{Add: added, Whole: true, Use: rdma.ForContainers}, nil},
		{"nothing", rdmaprepare.Options{None: true}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, got := plan(t, root, test.options)
			warnings := slices.DeleteFunc(p.Warnings, func(w string) bool { return !strings.Contains(w, "lines") })
			if got != "" || !slices.Equal(warnings, test.want) {
				t.Errorf("%q, %q, want %q", got, warnings, test.want)
			}
		})
	}
}
