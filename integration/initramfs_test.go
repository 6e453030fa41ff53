package integration

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/initramfs"
	"gpustack/host/pci"
)

// makeInitramfs makes an initramfs of a prepared node with initramfs-tools' own
// programs, in a mount namespace where the node's modules and configuration are the
// machine's. It begins with an archive for the processor, as those of machines that
// have microcode do. What unmkinitramfs makes of it lies in the folder.
func makeInitramfs(t *testing.T, root, kernel, compression string) (image, dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", `
		mount -t tmpfs tmpfs /mnt
		mkdir /mnt/upper /mnt/work
		# The machine's own folders, with what the node has put over them.
		mount -t overlay overlay -o lowerdir=/etc/initramfs-tools,upperdir=/mnt/upper,workdir=/mnt/work /etc/initramfs-tools
		cp -a "$ROOT/etc/initramfs-tools/hooks" "$ROOT/etc/initramfs-tools/scripts" /etc/initramfs-tools
		cat >/etc/initramfs-tools/hooks/early <<-'END'
			#!/bin/sh -e
			[ "$1" != prereqs ] || exit 0
			. /usr/share/initramfs-tools/hook-functions
			mkdir -p /mnt/early/kernel/x86/microcode
			echo code >/mnt/early/kernel/x86/microcode/GenuineIntel.bin
			cd /mnt/early
			find . | cpio --quiet -o -H newc >/mnt/early.cpio
			prepend_earlyinitramfs /mnt/early.cpio
		END
		chmod +x /etc/initramfs-tools/hooks/early
		mount --bind "$ROOT/etc/modprobe.d" /etc/modprobe.d
		mkdir /mnt/modules /mnt/lib /mnt/boot
		mount -t overlay overlay -o lowerdir=/lib,upperdir=/mnt/modules,workdir=/mnt/lib /lib
		mkdir -p /lib/modules
		cp -r "$ROOT/lib/modules/$KERNEL" /lib/modules
		touch "/lib/modules/$KERNEL/modules.order"
		depmod "$KERNEL"
		mount --bind /mnt/boot /boot
		for c in GZIP BZIP2 LZMA XZ LZ4 ZSTD; do echo "CONFIG_RD_$c=y"; done > "/boot/config-$KERNEL"
		mkinitramfs -c "$COMPRESSION" -l 1 -o "$DIR/initrd" "$KERNEL"
		unmkinitramfs "$DIR/initrd" "$DIR/unpacked"`)
	cmd.Env = append(os.Environ(), "ROOT="+root, "KERNEL="+kernel, "COMPRESSION="+compression, "DIR="+dir)
	if _, talk, status := try(t, cmd); status != 0 {
		t.Fatalf("exit status %d: %s", status, talk)
	}
	return filepath.Join(dir, "initrd"), filepath.Join(dir, "unpacked")
}

// readImage reads an image, and of its files those that are small for certain.
func readImage(t *testing.T, image string) initramfs.Content {
	t.Helper()
	root, err := host.NewRoot(filepath.Dir(image))
	if err != nil {
		t.Fatal(err)
	}
	c, err := initramfs.Read(root, "/"+filepath.Base(image), isSmall)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// isSmall leaves out what is not kept whole in memory: libraries, and udev's database.
func isSmall(name string) bool {
	base := path.Base(name)
	return !strings.Contains(base, ".so") && base != "hwdb.bin"
}

// compareImage holds what was read of an image against a list of names, and against
// folders into which others have unpacked it.
func compareImage(t *testing.T, c initramfs.Content, names []string, dirs ...string) {
	t.Helper()
	for i, name := range names {
		names[i] = path.Clean("/" + name)[1:]
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
	if diff := cmp.Diff(names, c.Names); diff != "" || len(names) < 50 {
		t.Errorf("%d names (-theirs +ours):\n%s", len(names), diff)
	}
	files := 0
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			name, _ := filepath.Rel(dir, file)
			if err != nil || !d.Type().IsRegular() || !isSmall(name) {
				return err
			}
			files++
			if text := read(t, file); text != string(c.Files[name]) {
				t.Errorf("%s: %d bytes, and not %d, or others", name, len(c.Files[name]), len(text))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files != len(c.Files) || files < 10 {
		t.Errorf("%d files, theirs %d", len(c.Files), files)
	}
}

// workstationFunctions are those of the example's second card.
var workstationFunctions = []initramfs.Function{
	{Address: pci.Address{Bus: 0x65}, Vendor: 0x10de, Product: 0x1eb1, Driver: "vfio-pci"},
	{Address: pci.Address{Bus: 0x65, Function: 1}, Vendor: 0x10de, Product: 0x10f8, Driver: "vfio-pci"},
	{Address: pci.Address{Bus: 0x65, Function: 2}, Vendor: 0x10de, Product: 0x1ad8, Driver: "vfio-pci"},
	{Address: pci.Address{Bus: 0x65, Function: 3}, Vendor: 0x10de, Product: 0x1ad9, Driver: "vfio-pci"},
}

// bootCase is a machine that starts, and what a script that runs before udev makes of
// it: the files that it writes.
type bootCase struct {
	name, cmdline, device string
	want                  map[string]string
}

// bootCases are for a script that takes those four functions.
var bootCases = []bootCase{
	{"as recorded", "quiet", "0x1eb1", map[string]string{
		"65:00.0/driver_override": "vfio-pci", "65:00.0/driver/unbind": "0000:65:00.0",
		"65:00.1/driver_override": "vfio-pci", "65:00.2/driver_override": "vfio-pci", "65:00.3/driver_override": "vfio-pci",
		"drivers_probe": "0000:65:00.3",
	}},
	{"renumbered", "quiet", "0x1533", map[string]string{
		"65:00.0/driver_override": "(null)", "65:00.0/driver/unbind": "",
		"65:00.1/driver_override": "vfio-pci", "65:00.2/driver_override": "vfio-pci", "65:00.3/driver_override": "vfio-pci",
		"drivers_probe": "0000:65:00.3",
		"kmsg":          "gpustack: 0000:65:00.0 is not 0x10de:0x1eb1, left alone",
	}},
	{"switched off", "quiet gpustack=off splash", "0x1eb1", map[string]string{
		"65:00.0/driver_override": "(null)", "65:00.0/driver/unbind": "",
		"65:00.1/driver_override": "(null)", "65:00.2/driver_override": "(null)", "65:00.3/driver_override": "(null)",
		"off": "options vfio-pci ids=",
	}},
}

// boot runs a program where an initramfs is the root, on such a machine, and compares
// what comes of it. It returns what the program printed.
func (b bootCase) boot(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	devices := "sys/bus/pci/devices"
	files := map[string]string{"proc/cmdline": b.cmdline, "dev/kmsg": "", "sys/bus/pci/drivers_probe": ""}
	for f, product := range map[string]string{"0": b.device, "1": "0x10f8", "2": "0x1ad8", "3": "0x1ad9"} {
		at := devices + "/0000:65:00." + f
		files[at+"/vendor"], files[at+"/device"], files[at+"/driver_override"] = "0x10de\n", product+"\n", "(null)\n"
	}
	files[devices+"/0000:65:00.0/driver/unbind"] = ""
	for name, text := range files {
		file := filepath.Join(dir, name)
		// In an image that root has made, dev/kmsg is the kernel's own.
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.RemoveAll(file), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	off := filepath.Join(dir, "run/modprobe.d/zzzzz-gpustack-off.conf")
	if err := os.RemoveAll(off); err != nil {
		t.Fatal(err)
	}
	out, talk, status := try(t, exec.Command("chroot", append([]string{dir}, argv...)...))
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, talk)
	}
	got := map[string]string{}
	for short, name := range map[string]string{
		"65:00.0/driver_override": devices + "/0000:65:00.0/driver_override", "65:00.0/driver/unbind": devices + "/0000:65:00.0/driver/unbind",
		"65:00.1/driver_override": devices + "/0000:65:00.1/driver_override", "65:00.2/driver_override": devices + "/0000:65:00.2/driver_override",
		"65:00.3/driver_override": devices + "/0000:65:00.3/driver_override",
		"drivers_probe":           "sys/bus/pci/drivers_probe", "kmsg": "dev/kmsg", "off": "run/modprobe.d/zzzzz-gpustack-off.conf",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if _, wanted := b.want[short]; err == nil && (wanted || len(text) > 0) {
			got[short] = strings.TrimSpace(string(text))
		}
	}
	if diff := cmp.Diff(b.want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	return out
}

// TestInitramfs: initramfs-tools takes our files as they are, and runs our script
// before udev's. In the initramfs' own shell the script takes just the functions
// that are still what they were, and nothing with gpustack=off.
func TestInitramfs(t *testing.T) {
	root := unpack(t, examples(t)["workstation-twins.txtar"])
	run(t, gpustack, "host", "prepare", "--root", root, "--device", "0000:65:00.0", "--yes")
	const kernel = "6.1.0-28-amd64"
	for _, m := range []string{"vfio/vfio", "vfio/vfio_iommu_type1", "vfio/pci/vfio-pci"} {
		file := filepath.Join(root, "lib/modules", kernel, "kernel/drivers", m+".ko")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, kernelModule(filepath.Base(m)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	image, dir := makeInitramfs(t, root, kernel, "gzip")
	dir = filepath.Join(dir, "main")

	early := initramfs.Early{Driver: "vfio-pci", Modules: []string{"vfio", "vfio_iommu_type1", "vfio_pci"}, Take: workstationFunctions}
	if err := early.Verify(readImage(t, image), initramfs.Tools, initramfs.Expected{
		Release:  kernel,
		Loadable: func(string) bool { return true },
		Files:    map[string][]byte{"/etc/modprobe.d/zz-gpustack.conf": []byte(read(t, filepath.Join(root, "etc/modprobe.d/zz-gpustack.conf")))},
	}); err != nil {
		t.Error(err)
	}
	for _, test := range bootCases {
		t.Run(test.name, func(t *testing.T) {
			test.boot(t, dir, "sh", "/scripts/init-top/gpustack")
		})
	}
}

// TestInitramfsRead: what mkinitramfs makes is read as lsinitramfs and unmkinitramfs
// read it, however it is compressed.
func TestInitramfsRead(t *testing.T) {
	root := unpack(t, examples(t)["workstation-twins.txtar"])
	run(t, gpustack, "host", "prepare", "--root", root, "--device", "0000:65:00.0", "--yes")
	for _, compression := range []string{"gzip", "bzip2", "lzma", "xz", "lz4", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			image, dir := makeInitramfs(t, root, "6.1.0-28-amd64", compression)
			compareImage(t, readImage(t, image), strings.Fields(run(t, "lsinitramfs", image)), filepath.Join(dir, "early"), filepath.Join(dir, "main"))
		})
	}
}
