package hosttest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"gpustack/host"
)

// Step changes a machine's tree.
type Step func(t *testing.T, root host.Root)

func Write(name, text string) Step {
	return func(t *testing.T, root host.Root) {
		t.Helper()
		file := root.Path(name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.RemoveAll(file), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

func Remove(name string) Step {
	return func(t *testing.T, root host.Root) {
		t.Helper()
		file := root.Path(name)
		if _, err := os.Lstat(file); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
	}
}

func Link(name, target string) Step {
	return func(t *testing.T, root host.Root) {
		t.Helper()
		file := root.Path(name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.RemoveAll(file), os.Symlink(target, file)); err != nil {
			t.Fatal(err)
		}
	}
}

// Replace replaces a text, which must exist in the file.
func Replace(name, from, to string) Step {
	return func(t *testing.T, root host.Root) {
		t.Helper()
		text, err := os.ReadFile(root.Path(name))
		if err != nil || !strings.Contains(string(text), from) {
			t.Fatalf("%s: %q is not in it: %v", name, from, err)
		}
		Write(name, strings.ReplaceAll(string(text), from, to))(t, root)
	}
}

func Steps(all ...Step) Step {
	return func(t *testing.T, root host.Root) {
		t.Helper()
		for _, s := range all {
			s(t, root)
		}
	}
}

// Function returns the path below the bridges of a function's attribute, such as "01:00.0/vendor".
func Function(attribute string) string {
	bridge := map[string]string{"01:00": "pci0000:00/0000:00:01.0", "02:00": "pci0000:00/0000:00:02.0"}[attribute[:5]]
	return path.Join("sys/devices", bridge, "0000:"+attribute)
}

func HeldBy(function_, name string) Step {
	return Link(Function(function_+"/driver"), "../../../../../bus/pci/drivers/"+name)
}

func Group(function_ string, number int) Step {
	return Link(Function(function_+"/iommu_group"), fmt.Sprintf("../../../../kernel/iommu_groups/%d", number))
}

// Cards are the functions of the two cards.
var Cards = []string{"01:00.0", "01:00.1", "02:00.0", "02:00.1"}

// Each applies a step to the functions of the cards.
func Each(do func(function_ string) Step) Step {
	var all []Step
	for _, f := range Cards {
		all = append(all, do(f))
	}
	return Steps(all...)
}

const (
	Kernel     = "6.1.0-28-amd64" // the running kernel
	Newer      = "6.1.0-30-amd64" // installed too
	DMARFile   = "sys/firmware/acpi/tables/DMAR"
	UnsafeFile = "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
	Ours       = "etc/modprobe.d/zz-gpustack.conf"
)

// DMAR returns a firmware's DMAR table with these flags.
func DMAR(flags byte) string {
	return "DMAR\x30\x00\x00\x00" + strings.Repeat(" ", 28) + "\x26" + string([]byte{flags}) + strings.Repeat(" ", 10)
}

// Bare returns an unprepared server with two cards of two functions each, behind separate bridges,
// a disk, a network card and two kernels. Its IOMMU is on.
func Bare(t *testing.T) host.Root {
	t.Helper()
	const vfio = "kernel/vfio/vfio-pci.ko:\nkernel/pci/pci-stub.ko:\nkernel/gpu/nouveau.ko:\nkernel/sound/snd-hda-intel.ko:\n"
	root := Lay(t, `
mkdir sys/bus/pci/devices
mkdir sys/class/iommu
-- boot/grub/grub.cfg --
menuentry 'Debian' {
	linux /boot/vmlinuz-`+Newer+` root=UUID=a ro quiet
}
menuentry 'Debian, with Linux `+Kernel+`' {
	linux /boot/vmlinuz-`+Kernel+` root=UUID=a ro quiet
}
menuentry 'Debian, with Linux `+Kernel+` (recovery mode)' {
	linux /boot/vmlinuz-`+Kernel+` root=UUID=a ro single
}
menuentry 'another system' {
	linux /boot/vmlinuz-5 root=UUID=b ro quiet
}
-- etc/default/grub --
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX=""
-- etc/os-release --
ID=debian
VERSION_ID="12"
-- lib/modules/`+Kernel+`/modules.dep --
`+vfio+`-- lib/modules/`+Newer+`/modules.dep --
`+vfio+`-- proc/cmdline --
BOOT_IMAGE=/boot/vmlinuz-`+Kernel+` root=UUID=a ro quiet
-- proc/cpuinfo --
vendor_id : GenuineIntel
-- proc/mounts --
-- proc/stat --
cpu 1 2 3
btime 1772352000
-- proc/sys/kernel/osrelease --
`+Kernel+`
-- usr/sbin/grub-mkconfig --
for x in ${sysconfdir}/default/grub.d/*.cfg ; do
-- usr/sbin/mkinitramfs --
`)
	do := []Step{
		Write(DMARFile, DMAR(1)),
		Write("sys/class/iommu/dmar0/intel-iommu/ecap", "f020df\n"),
		Write("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "\x06\x00\x00\x00\x00"),
		Write("sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
	}
	add := func(at, function_, class, ids, driver, number string) {
		dir := "sys/devices/" + at
		vendor, product, _ := strings.Cut(ids, ":")
		do = append(do,
			Link("sys/bus/pci/devices/0000:"+function_, "../../../devices/"+at),
			Write(dir+"/class", "0x"+class+"\n"), Write(dir+"/vendor", "0x"+vendor+"\n"), Write(dir+"/device", "0x"+product+"\n"),
			Write(dir+"/subsystem_vendor", "0x103c\n"), Write(dir+"/subsystem_device", "0x1096\n"),
			Write(dir+"/config", "\xde\x10\xb4\x11"+strings.Repeat("\x00", 60)),
			Write(dir+"/resource", "0x00000000d1000000 0x00000000d1ffffff 0x0000000000040200\n0x0000380000000000 0x000038000fffffff 0x000000000014220c\n"),
			Link(dir+"/driver", strings.Repeat("../", strings.Count(dir, "/"))+"bus/pci/drivers/"+driver),
			Link(dir+"/iommu_group", strings.Repeat("../", strings.Count(dir, "/"))+"kernel/iommu_groups/"+number),
			Write("sys/kernel/iommu_groups/"+number+"/type", "identity\n"),
		)
	}
	add("pci0000:00/0000:00:01.0", "00:01.0", "060400", "8086:2f02", "pcieport", "1")
	add("pci0000:00/0000:00:02.0", "00:02.0", "060400", "8086:2f04", "pcieport", "2")
	add("pci0000:00/0000:00:17.0", "00:17.0", "010601", "8086:8d02", "ahci", "3")
	add("pci0000:00/0000:00:19.0", "00:19.0", "020000", "8086:1533", "igb", "4")
	for i, bridge := range []string{"00:01.0", "00:02.0"} {
		card, number := fmt.Sprintf("0%d:00", i+1), fmt.Sprint(10+i)
		add("pci0000:00/0000:"+bridge+"/0000:"+card+".0", card+".0", "030000", "10de:11b4", "nouveau", number)
		add("pci0000:00/0000:"+bridge+"/0000:"+card+".1", card+".1", "040300", "10de:0e0a", "snd_hda_intel", number)
		do = append(do, Write(Function(card+".0/boot_vga"), "0\n"), Write(Function(card+".0/reset_method"), "flr bus\n"))
	}
	Steps(do...)(t, root)
	return root
}

// Variable sets a variable of the Boot Loader Interface.
func Variable(name, value string) Step {
	data := []byte{6, 0, 0, 0}
	for _, unit := range utf16.Encode([]rune(value + "\x00")) {
		data = binary.LittleEndian.AppendUint16(data, unit)
	}
	return Write("sys/firmware/efi/efivars/"+name+"-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", string(data))
}
