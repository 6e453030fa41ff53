package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// normal is what most servers have beside their GPUs: the root file system on LVM on RAID1, an NVMe
// disk in the IOMMU group of the first card that nothing uses, a network card in a bond with the
// interface that is up, kdump, and the programs that run on every node. It is more of a [hosttest.Server].
func normal() (commands, files string) {
	const ata, card, idle = "sys/bus/pci/devices/0000:03:00.0", "sys/bus/pci/devices/0000:04:00.0", "sys/bus/pci/devices/0000:05:00.0"
	folder := func(name string) { commands += "mkdir " + name + "\n" }
	link := func(name, target string) { commands += "symlink " + name + " -> " + target + "\n" }
	file := func(name, text string) { files += "-- " + name + " --\n" + text + "\n" }
	for i, disk := range []string{"sda", "sdb"} {
		at := fmt.Sprintf("%s/ata%d/host%d/target%d:0:0/%d:0:0:0/block/%s", ata, i, i, i, i, disk)
		for _, part := range []string{"1", "2"} {
			folder(at + "/" + disk + part)
			link("sys/class/block/"+disk+part, "../../"+strings.TrimPrefix(at, "sys/")+"/"+disk+part)
		}
		link("sys/class/block/"+disk, "../../"+strings.TrimPrefix(at, "sys/"))
	}
	for above, below := range map[string][]string{"md0": {"sda2", "sdb2"}, "dm-0": {"md0"}, "dm-1": {"md0"}} {
		for _, disk := range below {
			folder("sys/devices/virtual/block/" + above + "/slaves/" + disk)
		}
		link("sys/class/block/"+above, "../../devices/virtual/block/"+above)
	}
	file("sys/devices/virtual/block/dm-0/dm/name", "vg-root")
	file("sys/devices/virtual/block/dm-1/dm/name", "vg-swap")
	file("proc/mounts", "proc /proc proc rw 0 0\n/dev/mapper/vg-root / ext4 rw 0 0\n/dev/sda1 /boot ext4 rw 0 0\n/dev/sdb1 /boot/efi vfat rw 0 0")
	file("proc/swaps", "Filename Type Size Used Priority\n/dev/dm-1 partition 8388604 0 -2")
	file("etc/fstab", "/dev/mapper/vg-root / ext4 defaults 0 1\n/dev/mapper/vg-swap none swap sw 0 0")
	file("etc/mdadm/mdadm.conf", "ARRAY /dev/md/0 metadata=1.2 UUID=1:2:3:4")
	file("etc/kdump.conf", "path /var/crash")

	folder(card + "/net/eth0")
	link("sys/class/net/eth0", "../../"+strings.TrimPrefix(card, "sys/")+"/net/eth0")
	link(card+"/net/eth0/device", "../../../0000:04:00.0")
	link(card+"/net/eth0/master", "../../../../../../../devices/virtual/net/bond0")
	link("sys/class/net/bond0", "../../devices/virtual/net/bond0")
	link("sys/devices/virtual/net/bond0/lower_eth0", "../../../../"+strings.TrimPrefix(card, "sys/")+"/net/eth0")
	file(card+"/net/eth0/flags", "0x1803")
	file("sys/devices/virtual/net/bond0/flags", "0x1403")
	file("sys/devices/virtual/net/bond0/bonding/slaves", "eth0")
	file("proc/net/route", "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\nbond0 00000000 0102000A 0003 0 0 0 00000000 0 0 0")

	folder(idle + "/nvme/nvme0/nvme0n1")
	link("sys/class/block/nvme0n1", "../../bus/pci/devices/0000:05:00.0/nvme/nvme0/nvme0n1")
	link(idle+"/driver", "../../drivers/nvme")
	link(idle+"/iommu_group", "../../../../kernel/iommu_groups/20")
	file(idle+"/class", "0x010802")
	file(idle+"/vendor", "0x144d")
	file(idle+"/device", "0xa808")
	file(idle+"/modalias", "pci:v0000144Dd0000A808sv00000000sd00000000bc01sc08i02")

	for pid, program := range map[int]string{70: "dockerd", 71: "chronyd", 72: "containerd"} {
		c, f := having(pid, program, "/dev/null")
		commands, files = commands+c, files+f
	}
	return commands, files
}

// having returns a process that has devices open.
func having(pid int, program string, devices ...string) (commands, files string) {
	for i, device := range devices {
		commands += fmt.Sprintf("symlink proc/%d/fd/%d -> %s\n", pid, i+3, device)
	}
	return commands, fmt.Sprintf("-- proc/%[1]d/comm --\n%[2]s\n-- proc/%[1]d/cgroup --\n0::/system.slice/%[2]s.service\n-- proc/%[1]d/stat --\n%[1]d (x) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 1 1 1 1\n", pid, program)
}

// nodes gives functions, which are folders of sysfs, a node of DRM each, and returns these.
func nodes(functions ...string) (commands string, devices []string) {
	for i, f := range functions {
		name := fmt.Sprintf("card%d", i+1)
		commands += fmt.Sprintf("mkdir %s/drm/%s\nsymlink sys/class/drm/%s -> ../../%s/drm/%s\n", f, name, name, strings.TrimPrefix(f, "sys/"), name)
		devices = append(devices, "/dev/dri/"+name)
	}
	return commands, devices
}

// watched returns a machine with programs that only watch GPUs, and have all of them open.
func watched(tree string, functions ...string) string {
	commands, devices := nodes(functions...)
	files := ""
	for i, program := range []string{"nvidia-persiste", "nv-hostengine", "dcgm-exporter"} {
		c, f := having(80+i, program, devices...)
		commands, files = commands+c, files+f
	}
	return commands + tree + files
}

// TestStaysPossible: what is normal on servers is no refusal and needs no --allow; what needs it is
// accepted with the command that the refusal prints.
func TestStaysPossible(t *testing.T) {
	const first, second = "sys/bus/pci/devices/0000:01:00.0", "sys/bus/pci/devices/0000:02:00.0"
	commands, files := normal()
	server := func(distribution string) string {
		return commands + hosttest.Server{Distro: distribution, CPU: "GenuineIntel", CardGroup: 13, More: "-- proc/sys/kernel/osrelease --\n6.1.0-28-amd64\n" + files}.Archive()
	}
	var eight []string
	for _, function := range []string{"16/0000:16:02.0/0000:17", "30/0000:30:02.0/0000:31", "4a/0000:4a:02.0/0000:4b", "64/0000:64:02.0/0000:65",
		"97/0000:97:02.0/0000:98", "b0/0000:b0:02.0/0000:b1", "c9/0000:c9:02.0/0000:ca", "e2/0000:e2:02.0/0000:e3"} {
		eight = append(eight, "sys/devices/pci0000:"+function+":00.0")
	}
	beside := strings.Replace(server(""), "0000:05:00.0/iommu_group -> ../../../../kernel/iommu_groups/20", "0000:05:00.0/iommu_group -> ../../../../kernel/iommu_groups/10", 1)
	guests := "mkdir sys/bus/pci/drivers/vfio-pci\nsymlink proc/42/fd/9 -> /dev/vfio/10\n" + strings.NewReplacer(
		"0000:01:00.0/driver -> ../../drivers/nouveau", "0000:01:00.0/driver -> ../../drivers/vfio-pci",
		"0000:01:00.1/driver -> ../../drivers/snd_hda_intel", "0000:01:00.1/driver -> ../../drivers/vfio-pci",
		"0000:02:00.0/driver -> ../../drivers/nouveau", "0000:02:00.0/driver -> ../../drivers/vfio-pci",
		"0000:02:00.1/driver -> ../../drivers/snd_hda_intel", "0000:02:00.1/driver -> ../../drivers/vfio-pci").Replace(server("")) +
		"-- proc/42/stat --\n42 (qemu-system-x86) S 0 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 1 1 1 1\n-- proc/42/cmdline --\nqemu-system-x86_64\n"
	for _, test := range []struct {
		name, tree, command string
		refusal             []string // nil for none; what it says otherwise
		by                  string   // the command that it prints last
	}{
		{name: "eight GPUs, watched", tree: watched(example(t, "ubuntu-8xa100"), eight...), command: "host prepare"},
		{name: "Debian", tree: watched(server("debian"), first, second), command: "host prepare"},
		{name: "RHEL 8", tree: watched(server("rhel8"), first, second), command: "host prepare"},
		{name: "RHEL 9", tree: watched(server("rhel9"), first, second), command: "host prepare"},
		{name: "Fedora", tree: watched(server("fedora"), first, second), command: "host prepare"},
		{name: "SUSE", tree: watched(server("suse"), first, second), command: "host prepare"},
		{name: "Debian with systemd-boot", tree: watched(server("debian-systemd-boot"), first, second), command: "host prepare"},
		{name: "Fedora with systemd-boot", tree: watched(server("fedora-systemd-boot"), first, second), command: "host prepare"},
		{name: "one card, and one that stays", tree: watched(server(""), first, second), command: "host prepare --device 0000:01:00.0"},
		{name: "the talk's node", tree: example(t, "talk-2xk4200"), command: "host prepare"},
		{name: "the talk's node without IOMMU", tree: example(t, "talk-iommu-off"), command: "host prepare"},
		{name: "one of twins", tree: example(t, "workstation-twins"), command: "host prepare --device 0000:65:00.0"},
		{name: "six GPUs of a board", tree: example(t, "hgx-8xa100"), command: "host prepare --nvswitch host --device 0000:07:00.0 --device 0000:0f:00.0"},
		{name: "prepared by others, with a guest", tree: guests, command: "host prepare"},
		{name: "an idle disk in the group", tree: beside, command: "host prepare",
			refusal: []string{"0000:05:00.0: shares IOMMU group 10 with a selected device but is not part of it: disk controller nvme0n1 (nvme)"},
			by:      "host prepare --allow 0000:05:00.0 --dry-run"},
		{name: "a disk, bound now", tree: server(""), command: "host bind --device 0000:05:00.0",
			refusal: []string{"0000:05:00.0: is no GPU: disk controller nvme0n1 (nvme)"}, by: "host bind --device 0000:05:00.0 --allow 0000:05:00.0 --dry-run"},
		{name: "the card whose interface is up", tree: server(""), command: "host prepare --device 0000:04:00.0",
			refusal: []string{"0000:04:00.0: is no GPU: NIC eth0 (igb); eth0 is a port of bond0"},
			by:      "host prepare --device 0000:04:00.0 --allow 0000:04:00.0 --dry-run"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := shape{root: hosttest.Lay(t, test.tree)}
			s.complete(t)
			o, commands := s.play(t, test.command+" --dry-run")
			if test.refusal == nil {
				if o.status != 2 || strings.Contains(o.stdout+o.stderr, "--allow") {
					t.Errorf("exit status %d: %s", o.status, o.stderr)
				}
				if o := s.run(t, test.command+" --yes --no-rebuild"); o.status != 0 {
					t.Errorf("exit status %d: %s", o.status, o.stderr)
				}
				if o := s.run(t, "undo --yes"); o.status != 0 { // it only returns functions
					t.Errorf("exit status %d: %s", o.status, o.stderr)
				}
				return
			}
			for _, says := range test.refusal {
				if o.status != 1 || !strings.Contains(o.stderr, says) {
					t.Errorf("exit status %d without %q: %s", o.status, says, o.stderr)
				}
			}
			if len(commands) == 0 || !slices.Equal(commands[len(commands)-1:], []string{test.by}) {
				t.Errorf("%q, want %q", commands, test.by)
			}
		})
	}
}

// TestDummyBridge: a host bridge that no kernel has a driver for stays as it is in the group of a
// card, for every command, and one port of a card with a group for each leaves alone (harvester,
// issue 10499: a workstation with an RTX 2000 Ada and an X710).
func TestDummyBridge(t *testing.T) {
	commands, files := normal()
	for at, f := range map[string]struct{ class, id, driver, group string }{
		"0000:00:01.0": {"060000", "1022:14da", "", "10"}, "0000:04:00.1": {"020000", "8086:1533", "igb", "21"},
	} {
		dir := "sys/bus/pci/devices/" + at
		commands += "symlink " + dir + "/iommu_group -> ../../../../kernel/iommu_groups/" + f.group + "\n"
		if f.driver != "" {
			commands += "symlink " + dir + "/driver -> ../../drivers/" + f.driver + "\n"
		}
		vendor, product, _ := strings.Cut(f.id, ":")
		files += "-- " + dir + "/class --\n0x" + f.class + "\n-- " + dir + "/vendor --\n0x" + vendor + "\n-- " + dir + "/device --\n0x" + product + "\n" +
			"-- " + dir + "/modalias --\npci:v0000" + strings.ToUpper(vendor) + "d0000" + strings.ToUpper(product) + "sv00000000sd00000000bc" + f.class[:2] + "sc00i00\n"
	}
	s := shape{root: hosttest.Lay(t, commands+hosttest.Server{CPU: "AuthenticAMD", CardGroup: 20, More: "-- proc/sys/kernel/osrelease --\n6.1.0-28-amd64\n" + files}.Archive())}
	s.complete(t)
	for line, want := range map[string]string{
		"host prepare --dry-run":     "4 functions → vfio-pci (2 GPUs, 2 audio functions)",
		"host bind --live --dry-run": "4 functions → vfio-pci",
		"host scan":                  "2 of 2 GPUs can be prepared for guests",
		"host prepare --device 0000:04:00.1 --allow 0000:04:00.1 --dry-run": "1 function → vfio-pci",
	} {
		if o := s.run(t, line); o.status == 1 || !strings.Contains(o.stdout+o.stderr, want) || strings.Contains(o.stdout, "0000:00:01.0  1022") && line != "host scan" {
			t.Errorf("%s: exit status %d, want %q: %s%s", line, o.status, want, o.stdout, o.stderr)
		}
	}
}
