package check_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/check"
	"gpustack/host/checklist"
	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/initramfs"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/selection"
	startup "gpustack/host/steps" // steps are what changes a tree here
)

func observe(root host.Root) machine.Machine {
	return machine.ObserveCheck(root, nil, nil)
}

func plan(t *testing.T, root host.Root, opts selection.Options) (prepare.Plan, error) {
	t.Helper()
	observed := prepare.Observe(root, machine.ObservePrepare(root, true), opts)
	want, err := prepare.NewWant(observed, opts)
	if err != nil {
		return prepare.Plan{}, err
	}
	return prepare.NewPlan(observed, want)
}

func apply(t *testing.T, root host.Root, opts selection.Options) {
	t.Helper()
	p, err := plan(t, root, opts)
	if err == nil {
		err = p.Files.Apply(context.Background(), root)
	}
	hosttest.NoError(t, err)
}

// planned is the same server after host prepare, and before it is booted anew.
func planned(t *testing.T, opts selection.Options) host.Root {
	t.Helper()
	root := bare(t)
	// Every kernel gets the hook. What images hold is for TestImages.
	for _, release := range []string{kernel, newer} {
		write("boot/initrd.img-"+release, "")(t, root)
		defer remove("boot/initrd.img-"+release)(t, root)
	}
	p, err := plan(t, root, opts)
	hosttest.NoError(t, err)
	engine := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{change.Files{Root: root}}}
	if _, err := engine.Apply(context.Background(), change.Work{Command: "host prepare", About: &change.Topic{Subject: change.OfGuests}, Change: change.Files{Root: root}.New(p.Files)}); err != nil {
		t.Fatal(err)
	}
	replace("boot/grub/grub.cfg", "ro quiet", "ro quiet intel_iommu=on iommu=pt")(t, root)
	return root
}

var reboot = steps(
	write("proc/stat", fmt.Sprintf("btime %d\n", time.Now().Add(time.Hour).Unix())),
	replace("proc/cmdline", "ro quiet", "ro quiet intel_iommu=on iommu=pt"),
)

// ready is the server after that boot.
func ready(t *testing.T, opts selection.Options) host.Root {
	t.Helper()
	root := planned(t, opts)
	held := opts.Driver
	if held == "" {
		held = machine.VFIO
	}
	steps(reboot, each(func(f string) step { return heldBy(f, held) }))(t, root)
	return root
}

// off switches the IOMMU off: the kernel then has no units and no groups.
var off = steps(
	remove("sys/class/iommu/dmar0"), remove("sys/kernel/iommu_groups"), write("sys/kernel/iommu_groups/.keep", ""), remove("sys/kernel/iommu_groups/.keep"),
	each(func(f string) step { return remove(function(f + "/iommu_group")) }),
	remove("sys/devices/pci0000:00/0000:00:01.0/iommu_group"), remove("sys/devices/pci0000:00/0000:00:02.0/iommu_group"),
	remove("sys/devices/pci0000:00/0000:00:17.0/iommu_group"), remove("sys/devices/pci0000:00/0000:00:19.0/iommu_group"),
)

// otherNotation adds an entry with the same root file system in another notation.
var otherNotation = steps(
	replace("boot/grub/grub.cfg", "menuentry 'Debian' {", "if [ \"${next_entry}\" ] ; then\nset default=\"${next_entry}\"\nelse\nset default=0\nfi\nmenuentry 'Debian' {"),
	replace("boot/grub/grub.cfg", "menuentry 'another system' {", "menuentry Mine --id mine {\n\tlinux /boot/vmlinuz root=/dev/sda1 ro\n}\nmenuentry 'another system' {"),
)

// judge judges the tree.
func judge(t *testing.T, root host.Root) ([]host.Finding, checklist.Verdict) {
	t.Helper()
	_, err := plan(t, root, selection.Options{})
	return check.Verify(observe(root), host.Split(err), startup.State{})
}

// bad are the findings that warn or fail, each as a line.
func bad(t *testing.T, findings []host.Finding) []string {
	t.Helper()
	var lines []string
	for _, f := range findings {
		if f.Status != host.Warn && f.Status != host.Fail {
			continue
		}
		at := f.File
		if f.Line > 0 {
			at += fmt.Sprintf(":%d", f.Line)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", f.Status, f.Check, at, f.Seen))
		if f.Seen == "" || f.Effect == "" || len(f.Remedy) == 0 {
			t.Errorf("%s: seen %q, effect %q, remedy %q", f.Check, f.Seen, f.Effect, f.Remedy)
		}
	}
	return lines
}

// The machines that cases change.
const (
	isBare    = "bare"
	isPlanned = "planned"
	isReady   = "ready"
)

// masters are those machines, each laid out once.
func masters(t *testing.T) map[string]host.Root {
	t.Helper()
	return map[string]host.Root{isBare: bare(t), isPlanned: planned(t, selection.Options{}), isReady: ready(t, selection.Options{})}
}

// like lays out the same machine again.
func like(t *testing.T, master host.Root) host.Root {
	t.Helper()
	dir := t.TempDir()
	hosttest.NoError(t, os.CopyFS(dir, os.DirFS(master.Path("/"))))
	return hosttest.Root(t, dir)
}

// inMemory has the root file system need no disk.
var inMemory = write("proc/mounts", "tmpfs / tmpfs rw 0 0\n")

// hasUnit is what a machine needs for the unit that binds what --allow lets leave.
var hasUnit = steps(write("usr/lib/systemd/systemd", ""), write("usr/sbin/gpustack", ""))

// onDisk mounts a partition of the machine's disk.
func onDisk(place string) step {
	const disk = "sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"
	return steps(write(disk+"/sda1/partition", "1\n"), write(disk+"/sda1/dev", "8:1\n"), write(disk+"/dev", "8:0\n"), link("sys/class/block/sda", "../../"+strings.TrimPrefix(disk, "sys/")),
		link("sys/class/block/sda1", "../../"+strings.TrimPrefix(disk, "sys/")+"/sda1"), write("proc/mounts", "/dev/sda1 "+place+" ext4 rw 0 0\n"+map[bool]string{true: "", false: "tmpfs / tmpfs rw 0 0\n"}[place == "/"]))
}

// TestCheck: for every fail and every warning a machine with just that one.
func TestCheck(t *testing.T) {
	const (
		grub     = "/boot/grub/grub.cfg: "
		cmdline  = "/proc/cmdline: "
		conf     = "/etc/modprobe.d/"
		devices  = "/sys/bus/pci/devices/0000:"
		contract = "/var/lib/gpustack/contract.json: "
		// an initramfs: the end of a cpio archive
		noFiles = "0707010000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" + "0000000B00000000TRAILER!!!\x00\x00\x00\x00"
	)
	machines := masters(t)
	for _, test := range []struct {
		name    string
		from    string
		change  step
		verdict checklist.Verdict
		want    []string
	}{
		{"nothing is wrong", isReady, steps(), checklist.Ready, nil},
		{"not prepared", isBare, steps(), checklist.NotPrepared, []string{"fail prepared " + contract + "nothing is recorded by gpustack host prepare"}},
		{"gpustack=off", isReady, steps(replace("proc/cmdline", "quiet", "quiet gpustack=off"), heldBy("01:00.0", "nouveau")), checklist.PendingReboot,
			[]string{"fail reboot " + cmdline + "booted with gpustack=off"}},

		// Firmware and IOMMU.
		{"the firmware offers none", isReady, steps(off, remove(dmarFile), write("sys/firmware/acpi/tables/FACP", "")), checklist.NotReady,
			[]string{"fail firmware /sys/firmware/acpi/tables: no IOMMU table (DMAR, IVRS, VIOT, or IORT with an SMMU)"}},
		{"the firmware offers none, nothing prepared", isBare, steps(off, remove(dmarFile), write("sys/firmware/acpi/tables/FACP", "")), checklist.NotPrepared,
			[]string{"fail firmware /sys/firmware/acpi/tables: no IOMMU table (DMAR, IVRS, VIOT, or IORT with an SMMU)"}},
		{"off for no reason that is seen", isReady, off, checklist.NotReady,
			[]string{"fail iommu /sys/kernel/iommu_groups: off, although no kernel argument turns it off"}},
		{"off by an argument", isBare, steps(off, replace("proc/cmdline", "quiet", "intel_iommu=off"), replace("boot/grub/grub.cfg", "quiet", "intel_iommu=off")), checklist.NotPrepared,
			[]string{"fail iommu " + cmdline + "turned off by a kernel argument: intel_iommu=off"}},
		{"never switched on", isBare, off, checklist.NotPrepared,
			[]string{"fail iommu " + cmdline + "off: kernel argument missing: intel_iommu=on"}},
		{"off, and it is not known what the kernel was told", isBare, steps(off, remove("proc/cmdline")), checklist.NotPrepared,
			[]string{"fail iommu /sys/kernel/iommu_groups: off; the kernel arguments are unknown"}},
		{"off for AMD's processors, which needs no argument", isBare, steps(off, replace("proc/cpuinfo", "GenuineIntel", "AuthenticAMD"), remove(dmarFile), write("sys/firmware/acpi/tables/IVRS", "")), checklist.NotPrepared,
			[]string{"fail iommu /sys/kernel/iommu_groups: off, although no kernel argument turns it off"}},
		{"off until the reboot", isPlanned, off, checklist.PendingReboot, []string{"fail reboot " + contract + "what was recorded at TIME takes effect at the next boot"}},
		{"translated, and told not to be", isReady, replaceTypes("identity", "DMA"), checklist.Ready,
			[]string{"warn iommu_type /sys/kernel/iommu_groups: DMA for 6 groups, although passthrough for the host was requested"}},
		{"translated, as the operator chose", isReady, steps(replaceTypes("identity", "DMA"), replace("proc/cmdline", "iommu=pt", "iommu=nopt kvm_amd.sev_snp=1"), replace("boot/grub/grub.cfg", "iommu=pt", "iommu=nopt kvm_amd.sev_snp=1")),
			checklist.Ready, nil},
		// github.com/harvester/harvester, issue 7340; github.com/NVIDIA/OpenShell, issue 1780.
		{"a 1:1 mapping", isReady, write("sys/kernel/iommu_groups/10/reserved_regions", "0x6f766000 0x6f775fff direct\n0xfee00000 0xfeefffff msi\n"), checklist.NotReady,
			[]string{"fail reserved_regions /sys/kernel/iommu_groups/10/reserved_regions: 0000:01:00.0 is in group 10, of which the firmware requires 0x6f766000-0x6f775fff mapped 1:1"}},
		{"a 1:1 mapping, nothing prepared", isBare, write("sys/kernel/iommu_groups/10/reserved_regions", "0x6f766000 0x6f775fff direct\n"), checklist.NotPrepared,
			[]string{"fail reserved_regions /sys/kernel/iommu_groups/10/reserved_regions: 0000:01:00.0 is in group 10, of which the firmware requires 0x6f766000-0x6f775fff mapped 1:1"}},
		// github.com/lf-edge/eve, pull 790.
		{"groups that are split, as the kernel spells its parameters too", isReady, replace("proc/cmdline", "quiet", "quiet pcie-acs-override=downstream \"pci=config_acs=xx1@0000:00:01.0;0000:00:02.0\""), checklist.Ready,
			[]string{"warn acs " + cmdline + "kernel arguments change which devices can reach each other: pcie-acs-override=downstream \"pci=config_acs=xx1@0000:00:01.0;0000:00:02.0\""}},
		{"groups that are split", isReady, replace("proc/cmdline", "quiet", "quiet pcie_acs_override=downstream,multifunction pci=noaer,disable_acs_redir=pci:10b5:8747"), checklist.Ready,
			[]string{"warn acs " + cmdline + "kernel arguments change which devices can reach each other: pcie_acs_override=downstream,multifunction pci=noaer,disable_acs_redir=pci:10b5:8747"}},

		// Interrupt remapping.
		{"no interrupt remapping", isReady, write(dmarFile, dmar(0)), checklist.NotReady,
			[]string{"fail interrupt_remapping /sys/firmware/acpi/tables/DMAR: the firmware reports that the platform does not support it"}},
		{"a unit without", isReady, write("sys/class/iommu/dmar0/intel-iommu/ecap", "f020d7\n"), checklist.NotReady,
			[]string{"fail interrupt_remapping /sys/class/iommu/dmar0/intel-iommu/ecap: dmar0 does not support it"}},
		{"switched off", isReady, replace("proc/cmdline", "quiet", "intremap=off"), checklist.NotReady,
			[]string{"fail interrupt_remapping " + cmdline + "turned off by a kernel argument: intremap=off"}},
		{"done without", isReady, steps(write(dmarFile, dmar(0)), write(unsafeFile, "Y\n")), checklist.Ready,
			[]string{"warn interrupt_remapping /sys/firmware/acpi/tables/DMAR: the firmware reports that the platform does not support it"}},
		{"done without for no reason", isReady, write(unsafeFile, "Y\n"), checklist.Ready,
			[]string{"warn interrupt_remapping /" + unsafeFile + ": on, by the firmware and 1 unit, and VFIO is configured to work without it"}},

		// Arguments.
		{"booted without an argument", isReady, replace("proc/cmdline", " iommu=pt", ""), checklist.NotReady,
			[]string{"fail arguments " + cmdline + "running kernel was booted without iommu=pt"}},
		{"without it, and so without an IOMMU", isReady, steps(off, replace("proc/cmdline", "intel_iommu=on ", "")), checklist.NotReady,
			[]string{"fail arguments " + cmdline + "running kernel was booted without intel_iommu=on"}},
		{"an argument against what is recorded", isReady, replace("proc/cmdline", "iommu=pt", "iommu=pt amd_iommu=off iommu=soft"), checklist.NotReady,
			[]string{"fail arguments " + cmdline + "iommu=soft conflicts with the prepared configuration"}},
		{"further words are no fault", isReady, steps(replace("proc/cmdline", "intel_iommu=on", "intel-iommu=on,sm_on"), replace("boot/grub/grub.cfg", "intel_iommu=on", "intel_iommu=on,sm_on")), checklist.Ready, nil},
		{"an entry without an argument", isReady, replace("boot/grub/grub.cfg", newer+" root=UUID=a ro quiet intel_iommu=on", newer+" root=UUID=a ro quiet"), checklist.NotReady,
			[]string{"fail next_boot " + grub + "the entry of /boot/vmlinuz-" + newer + " lacks intel_iommu=on"}},
		{"an entry that boots with another notation of the root", isReady, steps(otherNotation, write("boot/grub/grubenv", "# GRUB Environment Block\nnext_entry=mine\n")), checklist.NotReady,
			[]string{"fail next_boot " + grub + "the entry of /boot/vmlinuz, which GRUB selects by itself, lacks intel_iommu=on iommu=pt"}},
		{"the same entry, not selected", isReady, steps(otherNotation, write("boot/grub/grubenv", "# GRUB Environment Block\nsaved_entry=mine\n")), checklist.Ready, nil},
		{"a recovery entry that boots", isReady, replace("boot/grub/grub.cfg", "menuentry 'Debian' {", "set default=2\nmenuentry 'Debian' {"), checklist.NotReady,
			[]string{"fail next_boot " + grub + "the entry of /boot/vmlinuz-" + kernel + ", which GRUB selects by itself, lacks intel_iommu=on iommu=pt"}},
		{"an entry of another system that boots", isReady, replace("boot/grub/grub.cfg", "menuentry 'Debian' {", "set default=Windows\nmenuentry Windows {\n}\nmenuentry 'Debian' {"), checklist.NotReady,
			[]string{"fail next_boot " + grub + "the entry of 'Windows', which GRUB selects by itself, lacks intel_iommu=on iommu=pt"}},
		{"an entry that boots, of a machine without a record", isBare, steps(otherNotation, replace("boot/grub/grub.cfg", "root=/dev/sda1", "root=/dev/sda1 iommu=pt"), replace("boot/grub/grub.cfg", "set default=0", "set default=mine")), checklist.NotPrepared,
			[]string{"warn next_boot " + grub + "the entry of /boot/vmlinuz has iommu=pt, the kernel runs with no IOMMU argument", "fail prepared " + contract + "nothing is recorded by gpustack host prepare"}},
		{"an environment of GRUB that cannot be read", isReady, write("boot/grub/grubenv", "x"), checklist.Ready, nil},
		{"an entry with a conflicting argument", isReady, replace("boot/grub/grub.cfg", kernel+" root=UUID=a ro quiet", kernel+" root=UUID=a ro gpustack=off"), checklist.NotReady,
			[]string{"fail next_boot " + grub + "the entry of /boot/vmlinuz-" + kernel + " has gpustack=off"}},
		{"a file that takes the arguments from later menus", isReady, write("etc/default/grub.d/zzzz.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=quiet\n"), checklist.NotReady,
			[]string{"fail next_boot /etc/default/grub.d/zzzz.cfg: the entry of a kernel installed later lacks intel_iommu=on iommu=pt"}},
		{"a menu that was not regenerated", isPlanned, replace("boot/grub/grub.cfg", " intel_iommu=on iommu=pt", ""), checklist.NotReady,
			[]string{"fail next_boot " + grub + "the entry of /boot/vmlinuz-" + newer + " lacks intel_iommu=on iommu=pt", "fail next_boot " + grub + "the entry of /boot/vmlinuz-" + kernel + " lacks intel_iommu=on iommu=pt"}},
		{"an entry with more than the kernel runs with", isReady, replace("boot/grub/grub.cfg", kernel+" root=UUID=a ro quiet", kernel+" root=UUID=a ro pci-stub.ids=10de:1"), checklist.Ready,
			[]string{"warn next_boot " + grub + "the entry of /boot/vmlinuz-" + kernel + " has pci-stub.ids=10de:1 intel_iommu=on iommu=pt, the kernel runs with intel_iommu=on iommu=pt"}},
		{"an argument that was given at the menu's prompt", isBare, steps(replace("proc/cmdline", "quiet", "quiet iommu=pt"), remove("boot/grub/grub.cfg"), write("boot/grub/grub.cfg", "linux /boot/vmlinuz root=UUID=a\n")), checklist.NotPrepared,
			[]string{"warn next_boot " + grub + "the entry of /boot/vmlinuz has no IOMMU argument, the kernel runs with iommu=pt", "fail prepared " + contract + "nothing is recorded by gpustack host prepare"}},

		// Modules.
		{"the kernel that runs lacks the driver", isReady, replace("lib/modules/"+kernel+"/modules.dep", "vfio-pci", "x"), checklist.NotReady,
			[]string{"fail kernels /lib/modules/" + kernel + ": kernel " + kernel + " has no vfio-pci"}},
		{"the kernel that is booted next lacks it", isReady, replace("lib/modules/"+newer+"/modules.dep", "vfio-pci", "x"), checklist.NotReady,
			[]string{"fail kernels /lib/modules/" + newer + ": kernel " + newer + " has no vfio-pci"}},
		{"a kernel that was left lacks it", isReady, write("lib/modules/5.10.0/modules.dep", ""), checklist.Ready,
			[]string{"warn kernels /lib/modules/5.10.0: kernel 5.10.0 has no vfio-pci"}},
		{"a line that loses", isReady, write("etc/modprobe.d/vfio.conf", "# ours\noptions vfio_pci ids=1234:5678,10de:11b4\n"), checklist.Ready,
			[]string{"warn ids " + conf + "vfio.conf:2: ids=1234:5678 is ignored here for vfio-pci; " + conf + "zz-gpustack.conf:5 overrides it"}},
		{"a line that loses, and whose ids are all in the one that counts", isReady, write("etc/modprobe.d/vfio.conf", "options vfio_pci ids=10de:11b4\n"), checklist.Ready, nil},
		{"a line that wins, with all of ours", isReady, write("etc/modprobe.d/zzz.conf", "options vfio-pci ids=10de:11b4,10de:0e0a,1234:5678\n"), checklist.Ready, nil},
		{"a line that wins", isReady, write("etc/modprobe.d/zzz.conf", "options vfio-pci ids=10de:11b4\n"), checklist.NotReady,
			[]string{"fail ids " + conf + "zzz.conf:1: vfio-pci lacks ids=10de:0e0a; " + conf + "zzz.conf:1 overrides it"}},
		{"prepared by other means, nothing recorded", isBare, write("etc/initramfs-tools/modules", "loop\npci_stub ids=10de:11b4\n"), checklist.NotPrepared,
			[]string{"warn ids /etc/initramfs-tools/modules:2: prepared by other means: pci-stub ids=10de:11b4 matches 0000:01:00.0, 0000:02:00.0", "fail prepared " + contract + "nothing is recorded by gpustack host prepare"}},
		{"prepared by other means too", isReady, steps(write("etc/modules", "pci_stub ids=10de:11b4\n"), write("etc/modprobe.d/a.conf", "options pci-stub ids=10de:0e0a\n")), checklist.Ready,
			[]string{"warn ids /etc/modprobe.d/a.conf:1: prepared by other means: pci-stub ids=10de:0e0a matches 0000:01:00.1, 0000:02:00.1",
				"warn ids /etc/modules:1: prepared by other means: pci-stub ids=10de:11b4 matches 0000:01:00.0, 0000:02:00.0"}},
		{"the other driver on the command line", isReady, steps(replace("proc/cmdline", "quiet", "quiet pci-stub.ids=10de:11b4"), replace("boot/grub/grub.cfg", "quiet", "quiet pci-stub.ids=10de:11b4")), checklist.Ready,
			[]string{"warn ids " + grub + "prepared by other means: pci-stub ids=10de:11b4 matches 0000:01:00.0, 0000:02:00.0"}},
		{"ids of others that match no function", isReady, write("etc/modules", "pci_stub ids=8086:9999\n"), checklist.Ready, nil},
		{"a line that loses to the kernel's arguments", isReady, steps(replace("proc/cmdline", "quiet", "vfio-pci.ids=10de:11b4"), replace("boot/grub/grub.cfg", "quiet", "vfio_pci.ids=10de:11b4")), checklist.NotReady,
			[]string{"fail ids " + grub + "vfio-pci lacks ids=10de:0e0a; the kernel argument in /boot/grub/grub.cfg overrides it"}},
		{"a line that takes a disk of the root file system", isReady, steps(onDisk("/"), write("etc/modprobe.d/zzz.conf", "options vfio-pci ids=10de:11b4,10de:0e0a,8086:8d02\n")), checklist.NotReady,
			[]string{"fail ids " + conf + "zzz.conf:1: ids=8086:8d02 of vfio-pci also matches 0000:00:17.0, which carries /dev/sda1, mounted at /, without which the host does not boot"}},
		{"a line that takes a mounted disk", isReady, steps(onDisk("/srv"), write("etc/modprobe.d/zzz.conf", "options vfio-pci ids=10de:11b4,10de:0e0a,8086:8d02\n")), checklist.NotReady,
			[]string{"fail ids " + conf + "zzz.conf:1: ids=8086:8d02 of vfio-pci also matches 0000:00:17.0, which its disk /dev/sda is claimed: /dev/sda1 is mounted at /srv"}},
		{"a line that takes it, nothing recorded", isBare, steps(onDisk("/"), write("etc/modprobe.d/zzz.conf", "options vfio-pci ids=8086:8d02\n")), checklist.NotPrepared,
			[]string{"warn ids " + conf + "zzz.conf:1: prepared by other means: vfio-pci ids=8086:8d02 matches 0000:00:17.0",
				"fail ids " + conf + "zzz.conf:1: ids=8086:8d02 of vfio-pci also matches 0000:00:17.0, which carries /dev/sda1, mounted at /, without which the host does not boot",
				"fail preparable /sys/bus/pci/devices/0000:00:17.0: 0000:00:17.0: carries /dev/sda1, mounted at /, without which the host does not boot; vfio-pci ids=8086:8d02 in /etc/modprobe.d/zzz.conf:1 matches it"}},
		{"a line that gpustack's repeats", isReady, steps(onDisk("/"), write("etc/modprobe.d/vfio.conf", "options vfio-pci ids=8086:8d02\n"),
			replace("etc/modprobe.d/zz-gpustack.conf", "vfio-pci ids=", "vfio-pci ids=8086:8d02,")), checklist.NotReady,
			[]string{"fail ids " + conf + "vfio.conf:1: ids=8086:8d02 of vfio-pci also matches 0000:00:17.0, which carries /dev/sda1, mounted at /, without which the host does not boot",
				"warn files " + conf + "zz-gpustack.conf: " + conf + "zz-gpustack.conf was changed by another program"}},
		{"the record and the journal are lost", isReady, steps(remove("var/lib/gpustack/contract.json"), remove("var/lib/gpustack/journal")), checklist.NotPrepared,
			[]string{"fail initramfs " + conf + "zz-gpustack.conf: still binds functions for guests"}},
		{"a line of others that takes it", isReady, steps(onDisk("/"), write("etc/initramfs-tools/modules", "pci_stub ids=8086:8d02\n")), checklist.NotReady,
			[]string{"fail ids /etc/initramfs-tools/modules:1: pci-stub ids=8086:8d02 matches 0000:00:17.0, which carries /dev/sda1, mounted at /, without which the host does not boot"}},
		{"a line that takes the host's", isReady, steps(inMemory, write("etc/modprobe.d/zzz.conf", "options vfio-pci ids=10de:11b4,10de:0e0a,8086:1533\n")), checklist.Ready,
			[]string{"warn ids " + conf + "zzz.conf:1: ids=8086:1533 of vfio-pci also matches 0000:00:19.0, which should stay with the host"}},
		{"a line that takes all NICs of a vendor", isReady, steps(inMemory, write("etc/modprobe.d/zzz.conf", "options vfio-pci ids=10de:11b4,10de:0e0a,8086:ffffffff:ffffffff:ffffffff:00020000:ffff0000\n")), checklist.Ready,
			[]string{"warn ids " + conf + "zzz.conf:1: ids=8086:ffffffff:ffffffff:ffffffff:00020000:ffff0000 of vfio-pci also matches 0000:00:19.0, which should stay with the host"}},
		{"all display controllers of a vendor, nothing recorded", isBare, write("etc/modules", "vfio-pci ids=10de:ffffffff:ffffffff:ffffffff:00030000:ffff00ff\n"), checklist.NotPrepared,
			[]string{"warn ids /etc/modules:1: prepared by other means: vfio-pci ids=10de:ffffffff:ffffffff:ffffffff:00030000:ffff00ff matches 0000:01:00.0, 0000:02:00.0", "fail prepared " + contract + "nothing is recorded by gpustack host prepare"}},

		// What host prepare refuses.
		{"a group with a part of the host", isBare, steps(inMemory, hasUnit, group("01:00.0", 4)), checklist.NotPrepared,
			[]string{"fail preparable " + devices + "00:19.0: 0000:00:19.0: shares IOMMU group 4 with a selected device but is not part of it: NIC 0000:00:19.0 (igb); no interface is shown here: it may be in another network namespace, or have a driver of DPDK"}},
		{"the host needs a card", isBare, steps(inMemory, hasUnit, write("proc/net/route", "Iface Destination\nib0 00000000 0 0 0 0 0 00000000\n"), link("sys/class/net/ib0", "../../devices/pci0000:00/0000:00:01.0/0000:01:00.1/net/ib0"), write("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.1/net/ib0/x", "")), checklist.NotPrepared,
			[]string{"fail preparable " + devices + "01:00.1: 0000:01:00.1: is a part of GPU 0000:01:00.0, and has interface ib0 below it"}},
		{"a maker of initramfs images that is not known", isBare, steps(remove("usr/sbin/mkinitramfs"), write("usr/bin/booster", "")), checklist.NotPrepared,
			[]string{"fail preparable : booster: initramfs generator not supported"}},
		{"no GPU of NVIDIA's", isBare, steps(write(function("01:00.0/vendor"), "0x1002\n"), write(function("02:00.0/vendor"), "0x1002\n")), checklist.NotPrepared,
			[]string{"fail preparable /sys/bus/pci/devices: this machine has no NVIDIA GPU"}},
		{"a GPU is the console", isBare, write(function("01:00.0/boot_vga"), "1\n"), checklist.NotPrepared,
			[]string{"fail boot_vga " + devices + "01:00.0/boot_vga: 0000:01:00.0 is the firmware's console"}},
		{"a GPU is the console and goes", isReady, steps(write(function("01:00.0/boot_vga"), "1\n"), write("proc/sys/kernel/osrelease", "5.15.0-91-generic\n")), checklist.Ready,
			[]string{"warn boot_vga " + devices + "01:00.0/boot_vga: 0000:01:00.0 is the firmware's console"}},
		{"and the kernel is not known", isReady, steps(write(function("01:00.0/boot_vga"), "1\n"), remove("proc/sys/kernel/osrelease")), checklist.Ready,
			[]string{"warn boot_vga " + devices + "01:00.0/boot_vga: 0000:01:00.0 is the firmware's console"}},
		{"and is no VGA controller", isReady, steps(write(function("01:00.0/boot_vga"), "1\n"), write(function("01:00.0/class"), "0x038000\n")), checklist.Ready,
			[]string{"warn boot_vga " + devices + "01:00.0/boot_vga: 0000:01:00.0 is the firmware's console"}},
		{"and the kernel leaves it alone", isReady, steps(write(function("01:00.0/boot_vga"), "1\n"), replace("proc/cmdline", "quiet", "initcall_blacklist=sysfb_init"), write("proc/sys/kernel/osrelease", "5.15.0-91-generic\n")), checklist.Ready, nil},
		{"and vfio-pci removes the framebuffer", isReady, write(function("01:00.0/boot_vga"), "1\n"), checklist.Ready, nil},

		// A boot that is not that of GRUB's menu.
		{"the boot partition is not mounted", isReady, write("etc/fstab", "UUID=2 /boot ext4\n"), checklist.NotReady,
			[]string{"fail next_boot /boot: /boot: is in /etc/fstab but not mounted"}},
		{"the boot partition is not mounted, nothing prepared", isBare, write("etc/fstab", "UUID=2 /boot ext4\n"), checklist.NotPrepared,
			[]string{"fail preparable : /boot: is in /etc/fstab but not mounted"}},
		{"a unified kernel image", isReady, steps(hosttest.Variable("LoaderInfo", "systemd-boot 257"), write("efi/EFI/Linux/x.efi", ""), write("efi/loader/entries/x.conf", "linux /x\noptions root=UUID=a intel_iommu=on iommu=pt\n")), checklist.NotReady,
			[]string{"fail next_boot /boot: unified kernel images (/efi/EFI/Linux/x.efi): the initramfs is not regenerated here, and functions are recorded for it"}},
		{"unified kernel images alone, and a menu that is left", isReady, write("efi/EFI/Linux/x.efi", ""), checklist.NotReady,
			[]string{"fail next_boot /boot: unified kernel images (/efi/EFI/Linux/x.efi): the initramfs is not regenerated here, and functions are recorded for it"}},
		{"Proxmox, and only the running kernel has the arguments", isReady, write("etc/kernel/proxmox-boot-uuids", "1234-ABCD\n"), checklist.Ready,
			[]string{"warn next_boot /boot: /etc/default/grub lacks intel_iommu=on, which the running kernel has: add intel_iommu=on iommu=pt to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub, then proxmox-boot-tool refresh"}},
		{"a root that transactional-update keeps read-only", isReady, steps(write("usr/sbin/transactional-update", ""), write("proc/mounts", "/dev/none / btrfs ro 0 0\n")), checklist.Ready, nil},

		// Functions.
		{"a card has fallen off the bus", isReady, write(function("01:00.0/config"), strings.Repeat("\xff", 64)), checklist.NotReady,
			[]string{"fail bus " + devices + "01:00.0/config: 0000:01:00.0 does not respond: all registers read ffff"}},
		{"one that the kernel has not found out of", isReady, write(function("01:00.1/vendor"), "0xffff\n"), checklist.NotReady,
			[]string{"fail bus " + devices + "01:00.1/config: 0000:01:00.1 does not respond: all registers read ffff"}},
		{"a function is missing", isReady, remove("sys/bus/pci/devices/0000:02:00.1"), checklist.Drifted,
			[]string{"fail functions " + devices + "02:00.1: 0000:02:00.1 is gone (10de:0e0a)"}},
		{"a function is renumbered", isReady, steps(remove("sys/bus/pci/devices/0000:02:00.1"), link("sys/bus/pci/devices/0000:05:00.1", "../../../devices/pci0000:00/0000:00:02.0/0000:05:00.1"),
			rename(function("02:00.1"), "sys/devices/pci0000:00/0000:00:02.0/0000:05:00.1")), checklist.Drifted,
			[]string{"fail functions " + devices + "02:00.1: 0000:02:00.1 (10de:0e0a) was renumbered and is now at 0000:05:00.1"}},
		{"another function", isReady, write(function("02:00.1/device"), "0x10f0\n"), checklist.Drifted,
			[]string{"fail functions " + devices + "02:00.1: 0000:02:00.1 is a different function: 10de:10f0; recorded was 10de:0e0a"}},
		{"another board", isReady, write(function("02:00.0/subsystem_device"), "0x1097\n"), checklist.Drifted,
			[]string{"fail functions " + devices + "02:00.0: 0000:02:00.0 is on a different board: 103c:1097; recorded was 103c:1096"}},
		{"another slot", isReady, steps(rename(function("02:00.1"), "sys/devices/pci0000:00/0000:00:01.0/0000:02:00.1"), link("sys/bus/pci/devices/0000:02:00.1", "../../../devices/pci0000:00/0000:00:01.0/0000:02:00.1")), checklist.Drifted,
			[]string{"fail functions " + devices + "02:00.1: 0000:02:00.1 is in a different slot: below 0000:00:01.0; recorded was 0000:00:02.0"}},

		// Drivers and groups.
		{"a driver has been taken", isReady, heldBy("01:00.1", "snd_hda_intel"), checklist.Drifted,
			[]string{"fail drivers " + devices + "01:00.1/driver: 0000:01:00.1 is bound to snd_hda_intel instead of vfio-pci"}},
		{"no driver", isReady, remove(function("02:00.0/driver")), checklist.Drifted,
			[]string{"fail drivers " + devices + "02:00.0/driver: 0000:02:00.0 is bound to no driver instead of vfio-pci"}},
		{"no driver, because it is not loaded", isReady, steps(remove(function("02:00.0/driver")),
			write("etc/modprobe.d/a.conf", "blacklist vfio-pci\ninstall vfio-pci /bin/true\n")), checklist.Drifted,
			[]string{"fail drivers " + conf + "a.conf:2: install vfio_pci keeps the driver for guests from being loaded",
				"fail drivers " + devices + "02:00.0/driver: 0000:02:00.0 is bound to no driver instead of vfio-pci"}},
		{"bound still, and not at the next boot", isReady, write("etc/modprobe.d/a.conf", "install vfio-pci /bin/false\n"), checklist.Drifted,
			[]string{"fail drivers " + conf + "a.conf:1: install vfio_pci keeps the driver for guests from being loaded"}},
		{"another one that leaves it alone", isReady, heldBy("02:00.0", "pci-stub"), checklist.Drifted,
			[]string{"fail drivers " + devices + "02:00.0/driver: 0000:02:00.0 is bound to pci-stub instead of vfio-pci"}},
		{"a function has come into a group", isReady, link("sys/devices/pci0000:00/0000:00:19.0/iommu_group", "../../../kernel/iommu_groups/10"), checklist.Drifted,
			[]string{"fail groups /sys/kernel/iommu_groups/10/devices: group 10 now also contains 0000:00:19.0"}},
		{"a function has gone from a group", isReady, group("02:00.1", 12), checklist.Drifted,
			[]string{"fail groups /sys/kernel/iommu_groups/11/devices: group 11 no longer contains 0000:02:00.1"}},
		{"groups with other numbers are no fault", isReady, each(func(f string) step { return group(f, 20+int(f[1]-'0')) }), checklist.Ready, nil},
		{"a function in no group", isReady, remove(function("02:00.0/iommu_group")), checklist.Drifted,
			[]string{"fail groups " + devices + "02:00.0/iommu_group: 0000:02:00.0 has no IOMMU group"}},
		{"no reset", isReady, remove(function("02:00.0/reset_method")), checklist.Ready,
			[]string{"warn reset " + devices + "02:00.0/reset_method: 0000:02:00.0 has no reset method that the kernel supports"}},
		{"resets switched off", isReady, write(function("02:00.0/reset_method"), "\n"), checklist.Ready,
			[]string{"warn reset " + devices + "02:00.0/reset_method: 0000:02:00.0 has no reset method that the kernel supports"}},
		{"no place for memory", isReady, write(function("01:00.0/resource"), "0x0 0x0 0x0\n0x0000000000000000 0x0000000fffffffff 0x000000002014220c\n"), checklist.NotReady,
			[]string{"fail bars " + devices + "01:00.0/resource: 0000:01:00.0: the host has no address space for region 1 (64 GiB)"}},
		{"no place for memory, shown like no memory", isReady, steps(write(function("01:00.0/resource"), "0x0 0x0 0x0\n0x0 0x0 0x0\n"),
			write(function("01:00.0/config"), "\xde\x10\xb4\x11"+strings.Repeat("\x00", 16)+"\x0c"+strings.Repeat("\x00", 43))), checklist.NotReady,
			[]string{"fail bars " + devices + "01:00.0/resource: 0000:01:00.0: the host has no address space for region 1"}},
		{"a card that is not seated well", isReady, steps(write(function("01:00.0/current_link_width"), "4\n"), write(function("01:00.0/max_link_width"), "16\n"),
			write("sys/devices/pci0000:00/0000:00:01.0/max_link_width", "16\n")), checklist.Ready,
			[]string{"warn pcie " + devices + "01:00.0/current_link_width: 0000:01:00.0: the PCIe link has 4 lanes; the card supports 16, the slot 16"}},
		{"large regions are a hint", isReady, write(function("01:00.0/resource"), "0x0 0x0 0x0\n0x0000380000000000 0x0000380fffffffff 0x000000000014220c\n"), checklist.Ready, nil},

		// The record.
		{"a file is missing", isReady, remove(ours), checklist.Drifted, []string{"fail files /" + ours + ": /" + ours + " is missing"}},
		{"a file was changed", isReady, replace(ours, "softdep nouveau", "# blacklist nouveau"), checklist.Ready, []string{"warn files /" + ours + ": /" + ours + " was changed by another program"}},
		{"a run was cut off", isReady, replace("var/lib/gpustack/journal/0001.json", `"done"`, `"rebuilding"`), checklist.NotReady,
			[]string{"fail journal /var/lib/gpustack/journal: entry 1 (host prepare) was interrupted while rebuilding"}},
		{"a repair of rows was interrupted", isReady, write("var/lib/gpustack/journal/0002.json", `{"schema":1,"id":2,"kind":"journal entry", "changes":"rows","command":"repair-migration --apply","status":"applying","origin":{"user":"","host":"","version":"","argv":null},"started":"2026-03-01T08:00:00Z","ended":null,"files":[],"programs":null,"left":null,"rows":[]}`), checklist.Ready,
			[]string{"warn journal /var/lib/gpustack/journal: entry 2 (repair-migration --apply) was interrupted, and its outcome is unknown"}},
		{"an initramfs without the hook, and a boot menu that cannot be read", isReady, steps(write("boot/initrd.img-"+kernel, noFiles), remove("boot/grub/grub.cfg"), write("boot/grub/grub.cfg/x", "")), checklist.NotReady,
			[]string{"fail initramfs /boot/initrd.img-" + kernel + ": the initramfs of " + kernel + " has no scripts/init-top/gpustack, /etc/modprobe.d/zz-gpustack.conf, module vfio_pci"}},
		{"to be booted", isPlanned, steps(), checklist.PendingReboot, []string{"fail reboot " + contract + "what was recorded at TIME takes effect at the next boot"}},
		{"to be booted, though the arguments were there before", isPlanned, replace("proc/cmdline", "ro quiet", "ro quiet intel_iommu=on iommu=pt"), checklist.PendingReboot,
			[]string{"fail reboot " + contract + "what was recorded at TIME takes effect at the next boot"}},
		{"to be booted, and nothing tells when it was", isPlanned, remove("proc/stat"), checklist.PendingReboot, []string{"fail reboot " + contract + "what was recorded at TIME takes effect at the next boot"}},
		{"bound without a boot", isPlanned, steps(replace("proc/cmdline", "ro quiet", "ro quiet intel_iommu=on iommu=pt"), each(func(f string) step { return heldBy(f, machine.VFIO) })), checklist.Ready, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := like(t, machines[test.from])
			test.change(t, root)
			findings, verdict := judge(t, root)
			hosttest.EqualIn(t, "verdict", test.verdict, verdict)
			got := bad(t, findings)
			for i := range got {
				if before, after, ok := strings.Cut(got[i], "recorded at "); ok {
					_, after, _ = strings.Cut(after, " ")
					got[i] = before + "recorded at TIME " + after
				}
			}
			hosttest.Equal(t, test.want, got)
			var names []string
			for _, f := range findings {
				names = append(names, f.Check)
			}
			hosttest.EqualIn(t, "checks", checks, slices.Compact(names))
		})
	}
}

// checks are the names of all checks, in their order.
var checks = strings.Fields(`virtualization firmware secure_boot iommu iommu_type reserved_regions acs interrupt_remapping arguments next_boot kernels initramfs ids
	preparable boot_vga bus functions drivers groups reset bars pcie fabric files journal prepared reboot`)

func replaceTypes(from, to string) step {
	var all []step
	for _, n := range []string{"1", "2", "3", "4", "10", "11"} {
		all = append(all, replace("sys/kernel/iommu_groups/"+n+"/type", from, to))
	}
	return steps(all...)
}

func rename(from, to string) step {
	return func(t *testing.T, root host.Root) {
		t.Helper()
		hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(root.Path(to)), 0o755), os.Rename(root.Path(from), root.Path(to))))
	}
}

// find returns the findings of a check, as lines.
func find(findings []host.Finding, check string) string {
	var lines []string
	for _, f := range findings {
		if f.Check == check {
			line := string(f.Status) + ": " + f.Seen
			if f.Status != host.Warn && f.Status != host.Fail && len(f.Remedy) > 0 {
				line += "; " + f.Remedy.String()
			}
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// TestUnseen: what is absent, unreadable or makes no sense is never passed, and the words
// say which it is. Nothing fails for it.
func TestUnseen(t *testing.T) {
	root := ready(t, selection.Options{})
	const noDevices, noCommandLine = "n/a: /sys/bus/pci/devices is missing", "n/a: /proc/cmdline is missing"
	for _, test := range []struct {
		name    string
		change  step
		verdict checklist.Verdict
		want    map[string]string // by check
	}{
		{"no sys", remove("sys"), checklist.Unknown, map[string]string{
			"firmware": "n/a: /sys/firmware/acpi/tables is missing", "secure_boot": "n/a: the firmware does not show a Secure Boot setting",
			"iommu": "n/a: /sys/kernel/iommu_groups or /sys/class/iommu is missing", "interrupt_remapping": "n/a: the IOMMU is off or not shown",
			"boot_vga": noDevices, "bus": noDevices, "functions": noDevices, "drivers": noDevices, "groups": noDevices, "reset": noDevices, "bars": noDevices, "pcie": noDevices,
			"arguments": "pass: as recorded: intel_iommu=on iommu=pt", "reboot": "n/a: unknown without /proc/cmdline and /sys/bus/pci/devices",
		}},
		{"no proc", remove("proc"), checklist.Unknown, map[string]string{
			"arguments": noCommandLine, "drivers": "pass: 4 functions bound as recorded", "reboot": "n/a: unknown without /proc/cmdline and /sys/bus/pci/devices",
		}},
		{"no groups", steps(remove("sys/kernel/iommu_groups"), remove("sys/class/iommu"), each(func(f string) step { return remove(function(f + "/iommu_group")) })), checklist.Unknown, map[string]string{
			"groups": "n/a: 0000:01:00.0: its IOMMU group cannot be read\nn/a: 0000:01:00.1: its IOMMU group cannot be read\nn/a: 0000:02:00.0: its IOMMU group cannot be read\nn/a: 0000:02:00.1: its IOMMU group cannot be read",
			"iommu":  "pass: on: 4 groups", "iommu_type": "n/a: /sys/kernel/iommu_groups is missing",
		}},
		{"no menu", remove("boot"), checklist.Ready, map[string]string{"next_boot": "n/a: /boot: no boot menu that gpustack can read"}},
		{"no kernels", remove("lib/modules"), checklist.Ready, map[string]string{"kernels": "n/a: /lib/modules: no installed kernel"}},
		{"kernels that cannot be read", steps(remove("lib/modules"), write("lib/modules", "")), checklist.Ready, map[string]string{"kernels": "n/a: /lib/modules: not a directory"}},
		{"a command line that is none", steps(remove("proc/cmdline"), write("proc/cmdline/x", "")), checklist.Unknown, map[string]string{"arguments": "n/a: /proc/cmdline: not a regular file"}},
		{"modprobe's lines cannot be read", steps(remove("etc/modprobe.d"), write("etc/modprobe.d", "")), checklist.Ready, map[string]string{
			"ids": "n/a: /etc/modprobe.d: not a directory", "files": "n/a: /etc/modprobe.d/zz-gpustack.conf: not a directory",
		}},
		{"a driver that cannot be read", steps(remove(function("01:00.0/driver")), write(function("01:00.0/driver"), "")), checklist.Unknown, map[string]string{
			"drivers": "n/a: 0000:01:00.0: its driver cannot be read", "groups": "pass: 2 groups can be assigned to guests, with the recorded members",
		}},
		{"ids that cannot be read", write(function("01:00.0/vendor"), "intel\n"), checklist.Unknown, map[string]string{"functions": "n/a: 0000:01:00.0: vendor and product id cannot be read"}},
		{"a DMAR cut short, and units that do not tell", steps(write(dmarFile, "DMAR"), remove("sys/class/iommu/dmar0/intel-iommu")), checklist.Ready, map[string]string{
			"firmware": "pass: IOMMU tables found: DMAR", "interrupt_remapping": "n/a: /sys/firmware/acpi/tables/DMAR: not a DMAR table",
		}},
		{"Secure Boot's setting cut short", write("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "\x06"), checklist.Ready, map[string]string{
			"secure_boot": `n/a: /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c: not a variable of one byte: "\x06"`,
		}},
		{"no configuration of functions", each(func(f string) step { return remove(function(f + "/config")) }), checklist.Ready, map[string]string{"bus": "n/a: the kernel shows the PCI configuration of 0 of 4 functions"}},
		{"no regions", each(func(f string) step { return remove(function(f + "/resource")) }), checklist.Ready, map[string]string{"bars": "n/a: the kernel shows no memory regions of functions for guests"}},
		{"a kernel that tells no resets", steps(remove(function("01:00.0/reset_method")), remove(function("02:00.0/reset_method"))), checklist.Ready, map[string]string{"reset": "n/a: not shown by this kernel"}},
		{"one that tells in the old way", steps(remove(function("01:00.0/reset_method")), remove(function("02:00.0/reset_method")), write(function("01:00.0/reset"), ""), write(function("02:00.0/reset"), "")), checklist.Ready,
			map[string]string{"reset": "pass: each of 2 GPUs can be reset"}},
		{"modprobe's lines lead nowhere", link("etc/modprobe.d/gone.conf", "nowhere"), checklist.Ready, map[string]string{"ids": "n/a: /etc/modprobe.d/gone.conf: link to a missing file"}},
		{"a journal that makes no sense", write("var/lib/gpustack/journal/0001.json", "{}"), checklist.Ready, map[string]string{
			"journal": "n/a: /var/lib/gpustack/journal/0001.json: no schema: this version of gpustack reads schema 1; undo it with the version of gpustack that wrote it", "reboot": "pass: no reboot is pending",
		}},
		{"a contract that makes no sense", write("var/lib/gpustack/contract.json", `{"schema":3}`), checklist.Unknown, map[string]string{
			"prepared": "n/a: /var/lib/gpustack/contract.json: schema 3: this version of gpustack reads schema 1; undo it with the version of gpustack that wrote it", "reboot": "n/a: what is recorded is unknown",
			"arguments": "n/a: nothing is recorded to compare them with", "functions": "n/a: what is recorded is unknown", "drivers": "n/a: what is recorded is unknown",
			"files": "n/a: what is recorded is unknown", "next_boot": "n/a: what is recorded is unknown", "preparable": "n/a: what is recorded is unknown",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := like(t, root)
			test.change(t, root)
			findings, verdict := judge(t, root)
			if lines := bad(t, findings); verdict != test.verdict || len(lines) > 0 {
				t.Errorf("verdict %s, want %s; %q", verdict, test.verdict, lines)
			}
			for name, want := range test.want {
				hosttest.EqualIn(t, name, want, find(findings, name))
			}
		})
	}
}

// TestUnreadable: what a user may not read is told apart, with what to do.
func TestUnreadable(t *testing.T) {
	m := observe(ready(t, selection.Options{}))
	m.Contract = machine.Look[*machine.Contract]{File: machine.ContractFile, Err: fmt.Errorf("%s: %w", machine.ContractFile, os.ErrPermission)}
	findings, verdict := check.Verify(m, nil, startup.State{})
	if verdict != checklist.Unknown || len(bad(t, findings)) > 0 {
		t.Errorf("%s, %q", verdict, bad(t, findings))
	}
	hosttest.Equal(t, "n/a: /var/lib/gpustack/contract.json: permission denied; "+host.AsRoot().String(), find(findings, "prepared"))
}

// TestSeen: what is told of a machine that is well.
func TestSeen(t *testing.T) {
	efi := "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	root := ready(t, selection.Options{})
	for _, test := range []struct {
		name, check, want string
		change            step
	}{
		{"Intel's tables", "firmware", "pass: IOMMU tables found: DMAR", steps()},
		{"an IOMMU without a table", "firmware", "pass: no known IOMMU table, but the kernel uses an IOMMU", steps(remove(dmarFile), write("sys/firmware/acpi/tables/FACP", ""))},
		{"Secure Boot off", "secure_boot", "pass: off, lockdown none: VFIO and signed modules work as usual", steps()},
		{"Secure Boot on", "secure_boot", "pass: on, lockdown integrity: VFIO and signed modules work as usual", steps(write(efi, "\x06\x00\x00\x00\x01"), write("sys/kernel/security/lockdown", "none [integrity] confidentiality\n"))},
		{"the IOMMU", "iommu", "pass: on: 6 groups, dmar0", steps()},
		{"regions", "reserved_regions", "pass: the firmware requires no 1:1 mapping of a group for guests", write("sys/kernel/iommu_groups/10/reserved_regions", "0x0 0xffffff direct-relaxable\n0xfee00000 0xfeefffff msi\n")},
		{"groups", "acs", "pass: no kernel argument splits IOMMU groups", steps()},
		// A GH200 with the SMMU off in the firmware's setup.
		{"an SMMU", "firmware", "fail: no IOMMU table (DMAR, IVRS, VIOT, or IORT with an SMMU)", steps(off, remove(dmarFile), write("sys/firmware/acpi/tables/IORT", "IORT\x30\x00\x00\x00"+strings.Repeat("\x00", 32)+"\x00\x00\x00\x00\x30\x00\x00\x00\x00\x00\x00\x00"))},
		{"an IORT that is cut", "firmware", "n/a: /sys/firmware/acpi/tables/IORT: not an IORT table", steps(off, remove(dmarFile), write("sys/firmware/acpi/tables/IORT", ""))},
		{"the default", "next_boot", "n/a: unknown: /boot/grub/custom.cfg may set another default than the menu",
			steps(write("boot/grub/custom.cfg", "set default=3\n"), replace("boot/grub/grub.cfg", "menuentry 'Debian' {", "source ${config_directory}/custom.cfg\nmenuentry 'Debian' {"))},
		{"types", "iommu_type", "pass: DMA-FQ for 1 group, identity for 5 groups", write("sys/kernel/iommu_groups/3/type", "DMA-FQ\n")},
		{"interrupts", "interrupt_remapping", "pass: on, by the firmware and 1 unit", steps()},
		{"interrupts, without the firmware's word", "interrupt_remapping", "pass: on, by 1 unit", remove(dmarFile)},
		{"AMD's interrupts", "interrupt_remapping", "pass: on: all AMD IOMMUs support it", replace("proc/cpuinfo", "GenuineIntel", "AuthenticAMD")},
		{"ARM's interrupts", "interrupt_remapping", "n/a: not applicable: the interrupt controller of this platform does it", write("proc/cpuinfo", "CPU implementer : 0x41\n")},
		{"entries", "next_boot", "pass: 2 entries and the template for later kernels as recorded", steps()},
		{"kernels", "kernels", "pass: 2 kernels with vfio-pci", steps()},
		{"images", "initramfs", "n/a: no initramfs of an installed kernel", steps()},
		{"ids", "ids", "pass: all ids= lines are effective", steps()},
		{"functions", "functions", "pass: 4 functions unchanged, at the recorded addresses", steps()},
		{"cards that answer", "bus", "pass: 4 functions respond", steps()},
		{"resets", "reset", "pass: each of 2 GPUs can be reset: flr, bus", steps()},
		{"regions", "bars", "pass: all regions have address space; the largest above 4 GiB has 256 MiB", steps()},
		{"large regions", "bars", "pass: all regions have address space; 1 function with more than 32 GiB above 4 GiB, up to 64 GiB in one region; for UEFI guests, set hw:maxphysaddr_mode=passthrough in the flavor (Nova 2024.1 and later)",
			write(function("01:00.0/resource"), "0x0 0x0 0x0\n0x0000380000000000 0x0000380fffffffff 0x000000000014220c\n")},
		{"no lanes", "pcie", "n/a: the kernel shows no PCIe link of a GPU for guests", steps()},
		{"lanes", "pcie", "pass: 1 PCIe link with all lanes of card and slot", steps(write(function("01:00.0/current_link_width"), "8\n"),
			write(function("01:00.0/max_link_width"), "16\n"), write("sys/devices/pci0000:00/0000:00:01.0/max_link_width", "8\n"))},
		{"files", "files", "pass: 5 files unchanged", steps()},
		{"the record", "prepared", "pass: 4 functions recorded for vfio-pci", steps()},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			root := like(t, root)
			test.change(t, root)
			findings, _ := judge(t, root)
			hosttest.Equal(t, test.want, find(findings, test.check))
		})
	}
}

// TestPending: while a machine awaits its boot, what that will bring is said not to
// apply yet, and what it will not bring fails as always.
func TestPending(t *testing.T) {
	root := planned(t, selection.Options{})
	findings, _ := judge(t, root)
	for name, want := range map[string]string{
		"arguments": "n/a: added at the next boot: intel_iommu=on iommu=pt",
		"drivers":   "n/a: 4 functions to be bound at the next boot",
		"groups":    "n/a: 2 groups with functions to be bound at the next boot",
		"functions": "pass: 4 functions unchanged, at the recorded addresses",
	} {
		hosttest.EqualIn(t, name, want, find(findings, name))
	}
	used := like(t, root)
	write(function("01:00.0/boot_vga"), "1\n")(t, used)
	findings, verdict := judge(t, used)
	hosttest.EqualIn(t, fmt.Sprint(verdict), "fail: 0000:01:00.0: has changed since it was recorded: is the console (boot_vga)", find(findings, "preparable"))
	used = like(t, planned(t, selection.Options{Allow: []pci.Address{{Bus: 1}}}))
	write(function("01:00.0/boot_vga"), "1\n")(t, used)
	if findings, _ = judge(t, used); !strings.HasPrefix(find(findings, "preparable"), "fail: 0000:01:00.0") {
		t.Errorf("--allow lifted no use, and lifts a later one: %s", find(findings, "preparable"))
	}
	steps(off, replace("proc/cmdline", "quiet", "intel_iommu=off"))(t, root)
	findings, verdict = judge(t, root)
	if got, want := find(findings, "iommu"), "n/a: off until the machine is booted with the recorded arguments"; got != want || verdict != checklist.PendingReboot {
		t.Errorf("%s\ngot  %s\nwant %s", verdict, got, want)
	}
	write(function("01:00.0/device"), "0x0001\n")(t, root)
	findings, verdict = judge(t, root)
	if got, want := find(findings, "reboot"), "n/a: skipped until the failures above are fixed"; got != want || verdict != checklist.Drifted {
		t.Errorf("%s\ngot  %s\nwant %s", verdict, got, want)
	}
}

// TestPendingUses: before the boot that takes recorded functions from the host, programs that have
// come to use them are named, and what the gate refuses by now.
func TestPendingUses(t *testing.T) {
	opened := func(file string) step {
		return steps(
			write("proc/4711/stat", "4711 (python3) S 1 1 1 0 -1 0 1 1 1 1 1 1 1 1 20 0 1 0 100 1 1 1\n"), write("proc/4711/comm", "python3\n"),
			write("proc/4711/cmdline", "python3\x00train.py\x00"), link("proc/4711/fd/7", file),
		)
	}
	drm := steps(write(function("01:00.0/drm/renderD128/dev"), "226:128\n"), link("sys/class/drm/renderD128", "../../../"+function("01:00.0/drm/renderD128")))
	const since, remove = "has changed since it was recorded: ", "end the use, or gpustack host prepare --remove 0000:01:00.0 before the reboot"
	for _, test := range []struct {
		name         string
		root         func(t *testing.T) host.Root
		change       step
		want, remedy string
	}{
		{"a GPU that nothing uses", bare, steps(drm, opened("/dev/null")), "n/a: already prepared", ""},
		{"a program on a GPU", bare, steps(drm, opened("/dev/dri/renderD128")), "fail: 0000:01:00.0: " + since + "is in use: python3 (pid 4711) has /dev/dri/renderD128 open", remove},
		{"programs that cannot be read", bare, write("proc/4711/fd", ""), "n/a: /proc/4711/fd: not a directory", ""},
		{"a program that only watches GPUs", bare, steps(drm, opened("/dev/dri/renderD128"), write("proc/4711/comm", "nv-hostengine\n")), "n/a: already prepared", ""},
		{"a keyboard at a card", bare, steps(write(function("01:00.1/input/input9/name"), "x\n"), link("sys/class/input/input9", "../../"+strings.TrimPrefix(function("01:00.1/input/input9"), "sys/"))),
			"fail: 0000:01:00.1: " + since + "is a part of GPU 0000:01:00.0, and has input device input9 below it", remove},
		{"a keyboard, of a function that gpustack-boot.service binds", bare, steps(replace("var/lib/gpustack/contract.json", `"by":"ids"`, `"by":"service"`),
			write(function("01:00.1/input/input9/name"), "x\n"), link("sys/class/input/input9", "../../"+strings.TrimPrefix(function("01:00.1/input/input9"), "sys/"))),
			"fail: 0000:01:00.1: " + since + "is a part of GPU 0000:01:00.0, and has input device input9 below it", remove},
		{"both GPUs", bare, steps(drm, opened("/dev/dri/renderD128"), write(function("02:00.0/boot_vga"), "1\n")), "fail: 0000:02:00.0: " + since + "is the console (boot_vga)\nfail: 0000:01:00.0: " + since + "is in use: python3 (pid 4711) has /dev/dri/renderD128 open",
			"end the use, or gpustack host prepare --none before the reboot"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := test.root(t)
			apply(t, root, selection.Options{})
			test.change(t, root)
			m := observe(root)
			findings, _ := check.Verify(m, nil, startup.State{})
			var got []string
			for _, f := range findings {
				if f.Check == "preparable" {
					got = append(got, fmt.Sprintf("%s: %s", f.Status, f.Seen))
					hosttest.EqualIn(t, f.Seen+": remedy", test.remedy, f.Remedy.String())
					if f.Status == host.Fail && strings.Contains(f.Effect, "the host loses it") == strings.Contains(test.name, "service") {
						t.Errorf("effect %q", f.Effect)
					}
				}
			}
			if got := strings.Join(got, "\n"); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestStub: functions of pci-stub are bound as recorded, and on vfio-pci too while a
// guest has their group open, and only then.
func TestStub(t *testing.T) {
	process := func(pid, opened string) step {
		return steps(
			write("proc/"+pid+"/stat", pid+" (qemu-system-x86) S 1 1 1 0 -1 0 1 1 1 1 1 1 1 1 20 0 1 0 100 1 1 1\n"),
			write("proc/"+pid+"/cmdline", "/usr/bin/qemu-system-x86_64\x00"),
			link("proc/"+pid+"/ns/pid", "pid:[4026531836]"),
			link("proc/"+pid+"/fd/7", opened),
		)
	}
	root := ready(t, selection.Options{Driver: machine.Stub})
	for _, test := range []struct {
		name    string
		change  step
		verdict checklist.Verdict
		want    string
	}{
		{"all on pci-stub", steps(), checklist.Ready, "pass: 4 functions bound as recorded"},
		{"a guest has a group", steps(process("1", "/dev/null"), process("4711", "/dev/vfio/10"), heldBy("01:00.0", "vfio-pci"), heldBy("01:00.1", "vfio-pci")), checklist.Ready, "pass: 4 functions bound as recorded"},
		{"a guest has another group", steps(process("1", "/dev/null"), process("4711", "/dev/vfio/11"), heldBy("01:00.0", "vfio-pci")), checklist.Drifted, "fail: 0000:01:00.0 is bound to vfio-pci instead of pci-stub"},
		{"nothing tells who has it", heldBy("01:00.0", "vfio-pci"), checklist.Unknown,
			"n/a: 0000:01:00.0 is bound to vfio-pci instead of pci-stub, as while a guest uses it; whether a guest uses it is unknown: /proc: process 1 is hidden, others may be too"},
		{"the host has it", heldBy("01:00.0", "nouveau"), checklist.Drifted, "fail: 0000:01:00.0 is bound to nouveau instead of pci-stub"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := like(t, root)
			test.change(t, root)
			findings, verdict := judge(t, root)
			if got := find(findings, "drivers"); got != test.want || verdict != test.verdict {
				t.Errorf("%s, want %s\ngot  %s\nwant %s", verdict, test.verdict, got, test.want)
			}
			if got, want := find(findings, "groups"), "pass: 2 groups can be assigned to guests, with the recorded members"; test.verdict == checklist.Ready && got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// TestGroupOfOthers: a function that is not recorded keeps a group from guests, if the
// host works with it.
func TestGroupOfOthers(t *testing.T) {
	root := bare(t)
	off(t, root) // so that groups are not known when it is prepared
	p, err := plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
	hosttest.NoError(t, p.Files.Apply(context.Background(), root))
	steps(replace("proc/cmdline", "quiet", "intel_iommu=on iommu=pt"), each(func(f string) step { return heldBy(f, "vfio-pci") }),
		each(func(f string) step { return group(f, 10+int(f[1]-'0')) }), write("sys/kernel/iommu_groups/11/type", "identity\n"), write("sys/class/iommu/dmar0/x", ""),
		link("sys/devices/pci0000:00/0000:00:19.0/iommu_group", "../../../kernel/iommu_groups/11"))(t, root)
	findings, verdict := judge(t, root)
	want := "fail: group 11 contains 0000:00:19.0, bound to igb, and not in a GPU's slot"
	if got := find(findings, "groups"); got != want || verdict != checklist.Drifted {
		t.Errorf("%s\ngot  %s\nwant %s", verdict, got, want)
	}
}

// TestImages: the initramfs of the kernel that runs, or is booted next, is to have what
// is recorded; of others it is worth a warning.
func TestImages(t *testing.T) {
	m := observe(ready(t, selection.Options{}))
	image := func(kernel string, err error) machine.Initramfs {
		return machine.Initramfs{Kernel: kernel, File: "/boot/initrd.img-" + kernel, Err: err}
	}
	order := func(kernel string) error { return fmt.Errorf("/boot/initrd.img-%s: %w", kernel, initramfs.ErrOrder) }
	for _, test := range []struct {
		name    string
		images  machine.Look[[]machine.Initramfs]
		verdict checklist.Verdict
		want    string
	}{
		{"all are well", machine.Look[[]machine.Initramfs]{Value: []machine.Initramfs{image(kernel, nil), image(newer, nil)}}, checklist.Ready, "pass: 2 initramfs images as recorded"},
		{"that of the kernel that runs", machine.Look[[]machine.Initramfs]{Value: []machine.Initramfs{image(kernel, order(kernel)), image(newer, nil)}}, checklist.NotReady,
			"fail: the initramfs of " + kernel + " does not bind functions before udev starts"},
		{"that of the kernel booted next", machine.Look[[]machine.Initramfs]{Value: []machine.Initramfs{image(kernel, nil), image(newer, order(newer))}}, checklist.NotReady,
			"fail: the initramfs of " + newer + " does not bind functions before udev starts"},
		{"that of another", machine.Look[[]machine.Initramfs]{Value: []machine.Initramfs{image(kernel, nil), image("5.10.0", order("5.10.0"))}}, checklist.Ready,
			"warn: the initramfs of 5.10.0 does not bind functions before udev starts"},
		{"one that cannot be read", machine.Look[[]machine.Initramfs]{Value: []machine.Initramfs{image(kernel, os.ErrPermission), image(newer, nil)}}, checklist.Ready,
			"n/a: /boot/initrd.img-" + kernel + ": permission denied; " + host.AsRoot().String()},
		{"none can be listed", machine.Look[[]machine.Initramfs]{File: "/boot", Err: os.ErrNotExist}, checklist.Ready, "n/a: /boot is missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m.Initramfs = test.images
			findings, verdict := check.Verify(m, nil, startup.State{})
			if got := find(findings, "initramfs"); got != test.want || verdict != test.verdict {
				t.Errorf("%s, want %s\ngot  %s\nwant %s", verdict, test.verdict, got, test.want)
			}
			bad(t, findings)
		})
	}
}

// TestRegrouped: after a group changed host prepare adapts, unless it refuses a new member; binding now
// would take what no group needs any more. Each command is accepted in that state.
func TestRegrouped(t *testing.T) {
	const nic = "sys/devices/pci0000:00/0000:00:19.0/iommu_group"
	const adapts = "the slot, kernel or firmware determines the groups; gpustack host prepare adapts to the current ones"
	for _, test := range []struct {
		name    string
		change  step
		options selection.Options
		want    string
	}{
		{"a function has gone", group("02:00.1", 12), selection.Options{}, adapts},
		{"a function has gone and has a driver of the host", steps(group("02:00.1", 12), heldBy("02:00.1", "snd_hda_intel")), selection.Options{}, adapts},
		{"a NIC has come", link(nic, "../../../kernel/iommu_groups/10"), selection.Options{Remove: []pci.Selector{pci.SelectorOf(pci.Address{Bus: 1})}},
			"move one of the cards to another slot, or return this one to the host: gpustack host prepare --remove 0000:01:00.0"},
	} {
		root := ready(t, selection.Options{})
		test.change(t, root)
		if _, err := plan(t, root, test.options); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		findings, _ := judge(t, root)
		for _, f := range findings {
			if f.Status == host.Fail && f.Remedy.String() != test.want {
				t.Errorf("%s: %s: remedy %q, want %q", test.name, f.Seen, f.Remedy, test.want)
			}
		}
		if !host.Failed(findings) {
			t.Errorf("%s: nothing fails", test.name)
		}
	}
}

// TestOtherGenerator: an image of a generator for which nothing is recorded lacks the hook again
// however often it is regenerated; host prepare is what helps.
func TestOtherGenerator(t *testing.T) {
	m := observe(ready(t, selection.Options{}))
	m.Initramfs = machine.Look[[]machine.Initramfs]{Value: []machine.Initramfs{{Kernel: kernel, File: "/boot/x", Err: fmt.Errorf("/boot/x: hook: %w", initramfs.ErrMissing)}}}
	for generator, want := range map[initramfs.Generator]string{
		initramfs.Tools:  "regenerate it: ",
		initramfs.Dracut: "another program generates it now: gpustack host prepare writes the files for dracut",
	} {
		m.Generator.Value = generator
		findings, _ := check.Verify(m, nil, startup.State{})
		i := slices.IndexFunc(findings, func(f host.Finding) bool { return f.Check == "initramfs" })
		if i < 0 || !strings.HasPrefix(findings[i].Remedy.String(), want) {
			t.Errorf("%s: %+v, want %s", generator, findings, want)
		}
	}
}

// TestRenumbered: where buses are renumbered, an identical device has the address that is recorded.
// No plan gives it to guests.
func TestRenumbered(t *testing.T) {
	root := bare(t)
	p, err := plan(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:02:00.0")})
	hosttest.NoError(t, err)
	hosttest.NoError(t, p.Files.Apply(context.Background(), root))
	for _, f := range []string{"0", "1"} {
		const first, second = "sys/devices/pci0000:00/0000:00:01.0/0000:0", "sys/devices/pci0000:00/0000:00:02.0/0000:0"
		steps(rename(second+"2:00."+f, second+"3:00."+f), rename(first+"1:00."+f, first+"2:00."+f),
			link("sys/bus/pci/devices/0000:03:00."+f, "../../../devices/pci0000:00/0000:00:02.0/0000:03:00."+f),
			link("sys/bus/pci/devices/0000:02:00."+f, "../../../devices/pci0000:00/0000:00:01.0/0000:02:00."+f),
			remove("sys/bus/pci/devices/0000:01:00."+f))(t, root)
	}
	_, err = plan(t, root, selection.Options{})
	const want = "0000:02:00.0: is not the function that was recorded (10de:11b4 below 0000:00:02.0)\n" +
		"0000:02:00.1: is not the function that was recorded (10de:0e0a below 0000:00:02.0)"
	if !errors.Is(err, selection.ErrChanged) || err.Error() != want {
		t.Errorf("%v", err)
	}
	if _, err := plan(t, root, selection.Options{Remove: hosttest.Selectors(t, "0000:02:00.0"), Add: hosttest.Selectors(t, "0000:03:00.0")}); err != nil {
		t.Error(err)
	}
}

// TestGone: a card that is gone was not renumbered to the address of an identical one, which
// remains with the host: only below the recorded bridges it has moved.
func TestGone(t *testing.T) {
	for name, test := range map[string]struct{ bridge, want string }{
		"dead":                      {"", "is gone (10de:11b4)"},
		"below the same bridge":     {"0000:00:02.0", "(10de:11b4) was renumbered and is now at 0000:05:00.0"},
		"an identical one is added": {"0000:00:19.0", "is gone (10de:11b4)"},
	} {
		t.Run(name, func(t *testing.T) {
			root := planned(t, selection.Options{Add: hosttest.Selectors(t, "0000:02:00.0")})
			const from = "sys/devices/pci0000:00/0000:00:02.0/0000:02:00."
			for _, f := range []string{"0", "1"} {
				if remove("sys/bus/pci/devices/0000:02:00."+f)(t, root); test.bridge == "" {
					continue
				}
				to := "devices/pci0000:00/" + test.bridge + "/0000:05:00." + f
				steps(rename(from+f, "sys/"+to), link("sys/bus/pci/devices/0000:05:00."+f, "../../../"+to))(t, root)
			}
			findings, _ := judge(t, root)
			hosttest.Equal(t, "fail: 0000:02:00.0 "+test.want, find(findings, "functions"))
		})
	}
}

// TestAdded: where gpustack's own line would take a card that was added since, host prepare is the
// remedy, and no edit of its file.
func TestAdded(t *testing.T) {
	root := planned(t, selection.Options{})
	const nic = "sys/devices/pci0000:00/0000:00:19.0/"
	steps(write(nic+"modalias", "pci:v000010DEd000011B4sv000010DEsd00001096bc03sc00i00\n"), write(nic+"class", "0x030000\n"),
		write(nic+"vendor", "0x10de\n"), write(nic+"device", "0x11b4\n"))(t, root)
	findings, _ := judge(t, root)
	i := slices.IndexFunc(findings, func(f host.Finding) bool { return strings.Contains(f.Seen, "also matches 0000:00:19.0") })
	if i < 0 || findings[i].Remedy.String() != "gpustack host prepare binds the recorded functions by their addresses" {
		t.Errorf("%v", findings)
	}
}

// TestSysfsPath: where the kernel has another folder for a function, with the same bridges, the
// initramfs leaves it to the host. host check says so, and host prepare records the folder.
func TestSysfsPath(t *testing.T) {
	root := bare(t)
	apply := func() {
		t.Helper()
		p, err := plan(t, root, selection.Options{Add: hosttest.Selectors(t, "0000:02:00.0")})
		hosttest.NoError(t, err)
		hosttest.NoError(t, p.Files.Apply(context.Background(), root))
	}
	apply()
	finding := func() string {
		t.Helper()
		findings, _ := judge(t, root)
		bad(t, findings)
		return find(findings, "functions")
	}
	if got := finding(); !strings.HasPrefix(got, "pass: ") {
		t.Fatal(got)
	}
	const bridge = "sys/devices/pci0000:00/0000:00:02.0"
	steps(rename(bridge, "sys/devices/platform/soc/pci0000:00/0000:00:02.0"), link("sys/bus/pci/devices/0000:00:02.0", "../../../devices/platform/soc/pci0000:00/0000:00:02.0"))(t, root)
	for _, f := range []string{"0000:02:00.0", "0000:02:00.1"} {
		link("sys/bus/pci/devices/"+f, "../../../devices/platform/soc/pci0000:00/0000:00:02.0/"+f)(t, root)
	}
	const want = "fail: 0000:02:00.0 is at /sys/devices/platform/soc/pci0000:00/0000:00:02.0/0000:02:00.0; recorded was /" + bridge + "/0000:02:00.0"
	hosttest.Contains(t, want, finding())
	apply()
	if got := finding(); !strings.HasPrefix(got, "pass: ") {
		t.Error(got)
	}
}

// TestAnotherBoard: a function that is bound by its ids goes to guests whatever its board and slot
// are. host check says that they differ, and host prepare records them.
func TestAnotherBoard(t *testing.T) {
	root := ready(t, selection.Options{})
	write(function("02:00.0/subsystem_device"), "0x1097\n")(t, root)
	functions := func() host.Finding {
		t.Helper()
		findings, _ := judge(t, root)
		i := slices.IndexFunc(findings, func(f host.Finding) bool { return f.Check == "functions" })
		return findings[i]
	}
	const remedy = "if it is meant for guests, gpustack host prepare records it; otherwise gpustack host prepare --remove 0000:02:00.0"
	if got := functions(); got.Status != host.Fail || got.Remedy.String() != remedy || got.Effect != "guests get this device: vfio-pci binds it by its ids" {
		t.Errorf("%+v", got)
	}
	p, err := plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
	hosttest.NoError(t, p.Files.Apply(context.Background(), root))
	if got := functions(); got.Status != host.Pass {
		t.Errorf("%+v", got)
	}
}

// TestBecameConsole: a function that became the console after it was recorded is left to the host
// at boot. host check names the way out, which records it as the console.
func TestBecameConsole(t *testing.T) {
	root := ready(t, selection.Options{})
	steps(write(function("01:00.0/boot_vga"), "1\n"), remove(function("01:00.0/driver")))(t, root)
	findings, verdict := judge(t, root)
	const want = "fail: 0000:01:00.0 is bound to no driver instead of vfio-pci; it became the console after it was recorded"
	if got := find(findings, "drivers"); got != want || verdict != checklist.Drifted {
		t.Errorf("%s: %s", verdict, got)
	}
	if _, err := plan(t, root, selection.Options{}); err == nil {
		t.Error("the console is planned for guests")
	}
	a := hosttest.Address(t, "0000:01:00.0")
	p, err := plan(t, root, selection.Options{Allow: []pci.Address{a}})
	hosttest.NoError(t, err)
	for _, f := range p.Functions {
		hosttest.EqualIn(t, fmt.Sprintf("%s: boot_vga", f.Address), f.Address == a, f.BootVGA)
	}
}

// TestBlacklist: while a kernel has no initramfs with the hook, the blacklist is in /etc, and plan
// and check say that gpustack=off does not cover it. It moves once every kernel has one. The files
// that the hook writes for one boot are not the configuration of others: a machine booted with
// gpustack=off can be prepared.
func TestBlacklist(t *testing.T) {
	root := bare(t)
	write("boot/initrd.img-"+kernel, "")(t, root)
	p, err := plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
	const warning = "gpustack=off does not cover the blacklist (nouveau): it remains in /etc/modprobe.d for kernel " + newer + ", which has no initramfs in /boot"
	if !slices.Contains(p.Warnings, warning) {
		t.Errorf("%q", p.Warnings)
	}
	hosttest.NoError(t, p.Files.Apply(context.Background(), root))
	finding := func() string {
		findings, _ := judge(t, root)
		bad(t, findings)
		return find(findings, "initramfs")
	}
	const want = "warn: gpustack=off does not cover the blacklist here (nouveau)"
	hosttest.Contains(t, want, finding())

	steps(write("boot/initrd.img-"+newer, ""),
		write("run/modprobe.d/gpustack-blacklist.conf", "blacklist nouveau\n"), write("run/modprobe.d/zzzzz-gpustack-off.conf", "options vfio-pci ids=\n"))(t, root)
	p, err = plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
	var names []string
	for _, c := range p.Files.Pending() {
		names = append(names, c.Name)
	}
	hosttest.EqualIn(t, "moves", []string{"/" + ours, "/etc/initramfs-tools/scripts/init-top/gpustack", machine.ContractFile}, names)
	hosttest.NoError(t, p.Files.Apply(context.Background(), root))
	if got := finding(); strings.Contains(got, "gpustack=off") {
		t.Error(got)
	}
	if text, err := root.ReadFile("/" + ours); err != nil || strings.Contains(string(text), "blacklist") {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestNoMachine: a folder that is no machine's is no machine without anything.
func TestNoMachine(t *testing.T) {
	if err := machine.Find(hosttest.Lay(t, "-- readme --\n")); !errors.Is(err, machine.ErrNoMachine) {
		t.Errorf("%v", err)
	}
}

// TestSeparation: the command for a board that would be divided offers its switches to guests only where
// they are known.
func TestSeparation(t *testing.T) {
	for unread, want := range map[bool]string{
		false: "run 'gpustack host prepare --nvswitch host' or 'gpustack host prepare --nvswitch guest'",
		true:  "run 'gpustack host prepare --nvswitch host'",
	} {
		findings, _ := check.Verify(observe(bare(t)), []error{&gate.Separation{Unread: unread}}, startup.State{})
		i := slices.IndexFunc(findings, func(f host.Finding) bool { return f.Check == "preparable" })
		if got := findings[i].Remedy.String(); findings[i].Status != host.Fail || got != want {
			t.Errorf("%s: %s, want %s", findings[i].Status, got, want)
		}
	}
}

// TestFabric: GPUs whose NVSwitches remain with the host need NVIDIA's Fabric Manager.
func TestFabric(t *testing.T) {
	const config, unit = "usr/share/nvidia/nvswitch/fabricmanager.cfg", "lib/systemd/system/nvidia-fabricmanager.service"
	const enabled = "etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service"
	for _, test := range []struct {
		name   string
		choice machine.NVSwitch
		files  map[string]string
		status host.Status
		seen   string
	}{
		{"not installed", machine.SwitchesToHost, nil, host.Fail, "nvidia-fabricmanager.service is not installed"},
		{"not enabled", machine.SwitchesToHost, map[string]string{unit: "", config: "FABRIC_MODE=1\n"}, host.Fail, "nvidia-fabricmanager.service is not enabled"},
		{"no mode", machine.SwitchesToHost, map[string]string{unit: "", enabled: "", config: "# FABRIC_MODE=1\n"}, host.Fail, "/usr/share/nvidia/nvswitch/fabricmanager.cfg does not set FABRIC_MODE"},
		{"another mode", machine.SwitchesToHost, map[string]string{unit: "", enabled: "", config: "FABRIC_MODE=0\n"}, host.Fail, "/usr/share/nvidia/nvswitch/fabricmanager.cfg sets FABRIC_MODE=0"},
		{"all of it", machine.SwitchesToHost, map[string]string{unit: "", enabled: "", config: "FABRIC_MODE = 1\n"}, host.Pass, "nvidia-fabricmanager.service is enabled in shared NVSwitch mode"},
		{"for a guest", machine.SwitchesToGuest, nil, host.Pass, "NVSwitches are assigned to guests"},
	} {
		root := hosttest.Lay(t, hosttest.Board())
		apply(t, root, selection.Options{Add: hosttest.Selectors(t, "10de:20b2"), NVSwitch: test.choice})
		for name, text := range test.files {
			file := root.Path(name)
			hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)))
		}
		findings, _ := judge(t, root)
		i := slices.IndexFunc(findings, func(f host.Finding) bool { return f.Check == "fabric" })
		if f := findings[i]; f.Status != test.status || f.Seen != test.seen {
			t.Errorf("%s: %s %s", test.name, f.Status, f.Seen)
		}
	}
}

// TestAcceleratorReset: check looks at how a processing accelerator can be reset.
func TestAcceleratorReset(t *testing.T) {
	root := ready(t, selection.Options{})
	for _, f := range []string{"01:00.0", "02:00.0"} {
		write(function(f+"/class"), "0x120000\n")(t, root)
	}
	findings, _ := judge(t, root)
	for _, f := range findings {
		if f.Check == "reset" && (f.Status != host.Pass || f.Seen != "each of 2 GPUs can be reset: flr, bus") {
			t.Errorf("%s: %s", f.Status, f.Seen)
		}
	}
}

// TestInterruptedElsewhere: of a change of databases or clouds that was interrupted, the remedy is
// that of its kind.
func TestInterruptedElsewhere(t *testing.T) {
	for kind, want := range map[string]string{
		change.KindRows:    "gpustack repair-migration --apply determines it",
		change.KindObjects: "the next gpustack command that changes objects of that cloud, such as flavor create, determines it",
		"volumes":          "the release of gpustack that made it recovers it",
	} {
		root := bare(t)
		entry := `{"schema":1,"id":1,"kind":"journal entry", "changes":"` + kind + `","command":"a command","status":"applying","origin":{"user":"","host":"","version":"","argv":null},"started":"2026-03-01T08:00:00Z","ended":null,"files":[],"programs":null,"left":null}`
		write("var/lib/gpustack/journal/0001.json", entry)(t, root)
		findings, _ := judge(t, root)
		f := findings[slices.IndexFunc(findings, func(f host.Finding) bool { return f.Check == "journal" })]
		if f.Status != host.Warn || f.Effect == "" || !strings.HasPrefix(f.Remedy.String(), want) {
			t.Errorf("%s: %+v", kind, f)
		}
	}
}
