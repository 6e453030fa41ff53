package hosttest

import (
	"fmt"
	"strings"
)

// Server is a machine with two cards of two functions each, 01:00 and 02:00, a disk and a network
// card. Its distribution is Debian by default.
type Server struct {
	Distro    string // "" for Debian
	CPU       string // vendor_id, or for arm64 the implementer
	Builtin   bool   // vfio-pci and pci-stub are built into the kernel
	NoGroups  bool   // the IOMMU is off
	Holds     string // a host driver that is built into the kernel
	Aliases   string // more lines of modules.alias
	CardGroup int    // group of the network card
	More      string // further files of the archive
}

// Archive returns the machine as a txtar archive, for [Lay].
func (n Server) Archive() string {
	var commands, files strings.Builder
	function := func(address, class, ids, modalias, driver string, group int) {
		dir := "sys/bus/pci/devices/" + address
		fmt.Fprintf(&commands, "symlink %s/driver -> ../../drivers/%s\n", dir, driver)
		if !n.NoGroups {
			fmt.Fprintf(&commands, "symlink %s/iommu_group -> ../../../../kernel/iommu_groups/%d\n", dir, group)
		}
		vendor, product, _ := strings.Cut(ids, ":")
		for name, text := range map[string]string{"class": "0x" + class, "vendor": "0x" + vendor, "device": "0x" + product, "modalias": modalias} {
			fmt.Fprintf(&files, "-- %s/%s --\n%s\n", dir, name, text)
		}
	}
	for i, bus := range []string{"01", "02"} {
		function("0000:"+bus+":00.0", "030000", "10de:11b4", "pci:v000010DEd000011B4sv00000000sd00000000bc03sc00i00", "nouveau", 10+i)
		function("0000:"+bus+":00.1", "040300", "10de:0e0a", "pci:v000010DEd00000E0Asv00000000sd00000000bc04sc03i00", "snd_hda_intel", 10+i)
	}
	function("0000:03:00.0", "010601", "8086:8d02", "pci:v00008086d00008D02sv00000000sd00000000bc01sc06i01", "ahci", 12)
	function("0000:04:00.0", "020000", "8086:1533", "pci:v00008086d00001533sv00000000sd00000000bc02sc00i00", "igb", n.CardGroup)
	const kernel = "lib/modules/6.1.0-28-amd64/"
	loadable, builtin := "", ""
	for _, m := range []string{"vfio", "vfio_iommu_type1", "vfio-pci", "pci-stub"} {
		if n.Builtin {
			builtin += "kernel/drivers/" + m + ".ko\n"
		} else {
			loadable += "kernel/drivers/" + m + ".ko.xz:\n"
		}
	}
	if n.Holds != "" {
		builtin += "kernel/" + n.Holds + ".ko\n"
	}
	for _, m := range []string{"kvm", "kvm-intel", "kvm-amd", "nouveau", "snd-hda-intel", "ahci", "igb"} {
		loadable += "kernel/" + m + ".ko.xz:\n"
	}
	fmt.Fprintf(&files, "-- %smodules.dep --\n%s-- %smodules.builtin --\n%s", kernel, loadable, kernel, builtin)
	fmt.Fprintf(&files, "-- %smodules.alias --\nalias pci:v000010DEd*sv*sd*bc03sc*i* nouveau\n"+
		"alias pci:v*d*sv*sd*bc04sc03i00* snd_hda_intel\nalias pci:v00008086d00001533sv*sd*bc*sc*i* igb\n%s", kernel, n.Aliases)
	key := "vendor_id"
	if strings.HasPrefix(n.CPU, "0x") {
		key = "CPU implementer"
	}
	fmt.Fprintf(&files, "-- proc/cpuinfo --\n%s : %s\n", key, n.CPU)
	if n.Distro == "" {
		n.Distro = "debian"
	}
	return commands.String() + files.String() + Distributions[n.Distro] + n.More
}

// Distributions are the files with which each distribution starts kernels and generates initramfs
// images.
var Distributions = map[string]string{
	"debian": `-- etc/default/grub --
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX=""
-- usr/sbin/grub-mkconfig --
for x in ${sysconfdir}/default/grub.d/*.cfg ; do
-- boot/initrd.img-6.1.0-28-amd64 --
-- usr/sbin/mkinitramfs --
`,
	"rhel8": `-- etc/os-release --
ID="rhel"
VERSION_ID="8.10"
-- etc/default/grub --
GRUB_CMDLINE_LINUX="crashkernel=auto rhgb quiet"
GRUB_ENABLE_BLSCFG=true
-- boot/grub2/grub.cfg --
blscfg
-- boot/grub2/grubenv --
# GRUB Environment Block
saved_entry=f00d-6.1.0-28-amd64
kernelopts=root=/dev/mapper/rhel-root ro crashkernel=auto iommu=soft rhgb quiet 
###############################################################################################################################
-- boot/loader/entries/f00d-6.1.0-28-amd64.conf --
version 6.1.0-28-amd64
linux /vmlinuz-6.1.0-28-amd64
initrd /initramfs-6.1.0-28-amd64.img $tuned_initrd
options $kernelopts $tuned_params
-- boot/initramfs-6.1.0-28-amd64.img --
-- usr/bin/dracut --
-- usr/sbin/grub2-mkconfig --
`,
	"rhel9": `-- etc/os-release --
ID="rhel"
VERSION_ID="9.4"
-- etc/default/grub --
GRUB_CMDLINE_LINUX="rhgb quiet"
GRUB_ENABLE_BLSCFG=true
-- boot/grub2/grub.cfg --
blscfg
-- boot/loader/entries/f00d-6.1.0-28-amd64.conf --
version 6.1.0-28-amd64
linux /vmlinuz-6.1.0-28-amd64
initrd /initramfs-6.1.0-28-amd64.img $tuned_initrd
options root=/dev/mapper/rhel-root ro rhgb quiet $tuned_params
-- boot/loader/entries/f00d-0-rescue.conf --
linux /vmlinuz-0-rescue-f00d
options root=/dev/mapper/rhel-root ro
-- boot/initramfs-6.1.0-28-amd64.img --
-- usr/bin/dracut --
-- usr/sbin/grub2-mkconfig --
`,
	"fedora": `-- etc/os-release --
ID=fedora
VERSION_ID=41
-- etc/default/grub --
GRUB_CMDLINE_LINUX="rhgb quiet"
GRUB_ENABLE_BLSCFG=true
-- etc/kernel/cmdline --
root=UUID=12 ro rootflags=subvol=root intel_iommu=off rhgb quiet
-- boot/grub2/grub.cfg --
blscfg
-- boot/loader/entries/f00d-6.1.0-28-amd64.conf --
version 6.1.0-28-amd64
linux /vmlinuz-6.1.0-28-amd64
initrd /initramfs-6.1.0-28-amd64.img
options root=UUID=12 ro rootflags=subvol=root intel_iommu=off rhgb quiet
-- boot/initramfs-6.1.0-28-amd64.img --
-- usr/bin/dracut --
-- usr/sbin/grub2-mkconfig --
`,
	"suse": `-- etc/os-release --
ID="sles"
ID_LIKE="suse"
VERSION_ID="15.6"
-- etc/sysconfig/bootloader --
LOADER_TYPE="grub2-efi"
-- etc/default/grub --
GRUB_CMDLINE_LINUX_DEFAULT="splash=silent mitigations=auto iommu=soft quiet"
GRUB_CMDLINE_LINUX=""
-- boot/grub2/grub.cfg --
menuentry 'SLES' {
	linux /boot/vmlinuz-6.1.0-28-amd64 root=UUID=34 splash=silent
}
-- boot/initrd-6.1.0-28-amd64 --
-- usr/bin/dracut --
-- usr/sbin/grub2-mkconfig --
. ${sysconfdir}/default/grub
`,
	"debian-systemd-boot": `-- etc/os-release --
ID=debian
VERSION_ID="12"
-- etc/machine-id --
cafe
-- boot/efi/EFI/systemd/systemd-bootx64.efi --
-- boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf --
version    6.1.0-28-amd64
machine-id cafe
options    root=UUID=77 ro quiet systemd.machine_id=cafe
linux      /cafe/6.1.0-28-amd64/linux
initrd     /cafe/6.1.0-28-amd64/initrd.img-6.1.0-28-amd64
-- boot/vmlinuz-6.1.0-28-amd64 --
-- usr/sbin/mkinitramfs --
-- usr/bin/kernel-install --
`,
	"fedora-systemd-boot": `-- etc/os-release --
ID=fedora
VERSION_ID=41
-- etc/kernel/cmdline --
root=UUID=12 ro quiet
-- efi/EFI/systemd/systemd-bootx64.efi --
-- efi/loader/entries/beef-6.1.0-28-amd64.conf --
version    6.1.0-28-amd64
options    root=UUID=12 ro quiet
linux      /beef/6.1.0-28-amd64/linux
initrd     /beef/6.1.0-28-amd64/initrd
-- efi/beef/6.1.0-28-amd64/initrd --
-- lib/modules/6.1.0-28-amd64/vmlinuz --
-- usr/bin/dracut --
-- usr/bin/kernel-install --
`,
}

// Board returns an HGX board on AMD: two GPUs and two NVSwitches, each behind a bridge.
func Board() string {
	text := Server{CPU: "AuthenticAMD"}.Archive()
	commands, files, _ := strings.Cut(text, "-- ")
	for i, class := range []string{"030200", "030200", "068000", "068000"} {
		at := fmt.Sprintf("sys/devices/pci0000:20/0000:20:0%d.0/0000:2%d:00.0", i, i+1)
		commands += fmt.Sprintf("symlink sys/bus/pci/devices/0000:2%d:00.0 -> ../../../../%s\n", i+1, at)
		product := "0x20b2"
		if class == "068000" {
			product = "0x1af1"
		}
		files += fmt.Sprintf("-- %s/class --\n0x%s\n-- %s/vendor --\n0x10de\n-- %s/device --\n%s\n", at, class, at, at, product)
	}
	return commands + "-- " + files
}

// Running returns a running server with vfio-pci loaded, and with further links and folders, and
// files.
func Running(links, files string) string {
	for _, address := range []string{"0000:01:00.0", "0000:01:00.1", "0000:02:00.0", "0000:02:00.1"} {
		if name := "sys/bus/pci/devices/" + address + "/driver_override"; !strings.Contains(files, name) {
			files += "-- " + name + " --\n(null)\n"
		}
	}
	return links + "mkdir sys/bus/pci/drivers/vfio-pci\nmkdir sys/bus/pci/drivers/nouveau\n" +
		Server{CPU: "GenuineIntel", CardGroup: 13, More: "-- proc/sys/kernel/osrelease --\n6.1.0-28-amd64\n-- proc/mounts --\n" + files}.Archive()
}

// Instinct returns the running server with an MI300X, which is a processing accelerator (class
// 1200) without display outputs.
func Instinct() string {
	const at = "sys/bus/pci/devices/0000:05:00.0"
	return "symlink " + at + "/driver -> ../../drivers/amdgpu\nsymlink " + at +
		"/iommu_group -> ../../../../kernel/iommu_groups/20\nmkdir sys/bus/pci/drivers/amdgpu\n" +
		Running("", "-- "+at+"/class --\n0x120000\n-- "+at+"/vendor --\n0x1002\n-- "+at+"/device --\n0x74a1\n-- "+at+"/driver_override --\n(null)\n"+
			"-- "+at+"/modalias --\npci:v00001002d000074A1sv00000000sd00000000bc12sc00i00\n"+
			"-- lib/modules/6.1.0-28-amd64/modules.dep --\nkernel/amdgpu.ko:\nkernel/vfio-pci.ko:\nkernel/pci-stub.ko:\n")
}
