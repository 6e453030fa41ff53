package integration

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/initramfs"
	"gpustack/host/pci"
)

// makeInitramfs makes an initramfs of a prepared node with initramfs-tools' own
// programs, in a mount namespace where the node's modules and configuration are the
// machine's, or a copy of the configuration is, in a folder other than /etc/initramfs-tools.
// It begins with an archive for the processor, as those of machines that
// have microcode do. What unmkinitramfs makes of it lies in the folder.
func makeInitramfs(t *testing.T, root, kernel, compression, configuration string) (image, dir string) {
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
		if [ "$CONFIGURATION" != /etc/initramfs-tools ]; then
			mkdir /mnt/var /mnt/var.work
			mount -t overlay overlay -o lowerdir=/var/lib,upperdir=/mnt/var,workdir=/mnt/var.work /var/lib
			mkdir -p "$CONFIGURATION"
			cp -r /etc/initramfs-tools/. "$CONFIGURATION"
		fi
		mkinitramfs -d "$CONFIGURATION" -c "$COMPRESSION" -l 1 -o "$DIR/initrd" "$KERNEL"
		unmkinitramfs "$DIR/initrd" "$DIR/unpacked"`)
	cmd.Env = append(os.Environ(), "ROOT="+root, "KERNEL="+kernel, "COMPRESSION="+compression, "DIR="+dir, "CONFIGURATION="+configuration)
	if _, talk, status := try(t, cmd); status != 0 {
		t.Fatalf("exit status %d: %s", status, talk)
	}
	return filepath.Join(dir, "initrd"), filepath.Join(dir, "unpacked")
}

const toolsConfiguration = "/etc/initramfs-tools"

// readImage reads an image, and of its files those that are small for certain.
func readImage(t *testing.T, image string) initramfs.Content {
	t.Helper()
	root := hosttest.Root(t, filepath.Dir(image))
	c, err := initramfs.Read(root, "/"+filepath.Base(image), isSmall)
	hosttest.NoError(t, err)
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
	if diff := gocmp.Diff(names, c.Names); diff != "" || len(names) < 50 {
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
			if text := hosttest.Read(t, file); text != string(c.Files[name]) {
				t.Errorf("%s: %d bytes, and not %d, or others", name, len(c.Files[name]), len(text))
			}
			return nil
		})
		hosttest.NoError(t, err)
	}
	if files != len(c.Files) || files < 10 {
		t.Errorf("%d files, theirs %d", len(c.Files), files)
	}
}

// workstationFunctions are those of the example's second card.
var workstationFunctions = []initramfs.Function{workstationFunction(0, 0x1eb1), workstationFunction(1, 0x10f8), workstationFunction(2, 0x1ad8), workstationFunction(3, 0x1ad9)}

func workstationFunction(function uint8, product pci.ID) initramfs.Function {
	board := pci.ID(0x12a0)
	vendor := pci.NVIDIA
	f := initramfs.Function{
		Address: pci.Address{Bus: 0x65, Function: function}, Vendor: vendor, Product: product,
		SubsystemVendor: &vendor, Subsystem: &board, Driver: "vfio-pci",
	}
	f.Path = "/" + workstationBus + "/" + workstationBridge + "/" + f.Address.String()
	return f
}

const (
	workstationBus    = "sys/devices/pci0000:64"
	workstationBridge = "0000:64:00.0"
)

// bootCase is a machine that starts, and what a script that runs before udev makes of
// it: the files that it writes.
type bootCase struct {
	name, cmdline string
	bridge        string            // above the card, where it is another one than the recorded
	files         map[string]string // of the machine, where they differ or there are more
	want          map[string]string
}

// all is what is written where the card is the recorded one.
var all = map[string]string{
	"65:00.0/driver_override": "vfio-pci", "65:00.0/driver/unbind": "0000:65:00.0",
	"65:00.1/driver_override": "vfio-pci", "65:00.2/driver_override": "vfio-pci", "65:00.3/driver_override": "vfio-pci",
	"66:00.0/driver_override": "(null)", "drivers_probe": "0000:65:00.3",
}

// none is what there is where nothing is written.
var none = map[string]string{
	"65:00.0/driver_override": "(null)", "65:00.0/driver/unbind": "", "65:00.1/driver_override": "(null)",
	"65:00.2/driver_override": "(null)", "65:00.3/driver_override": "(null)", "66:00.0/driver_override": "(null)", "drivers_probe": "",
}

// but returns a copy of a map with some values replaced.
func but(m map[string]string, with ...string) map[string]string {
	m = maps.Clone(m)
	for i := 0; i < len(with); i += 2 {
		m[with[i]] = with[i+1]
	}
	return m
}

const (
	remains  = "gpustack: 0000:65:00.0 remains with the host: "
	expected = ", expected /" + workstationBus + "/" + workstationBridge + "/0000:65:00.0 pci:v000010DEd00001EB1sv000010DEsd000012A0bc*"
	modalias = "pci:v000010DEd00001EB1sv000010DEsd000012A0bc03sc00i00"
)

// bootCases are for a script that binds those four functions. Beside the card is one of the same
// product, 66:00.0, which ids= of the driver may match.
var bootCases = []bootCase{
	{"as recorded", "quiet", "", nil, all},
	{"another device", "quiet", "", map[string]string{"65:00.0/modalias": "pci:v00008086d00001533sv00008086sd00000001bc02sc00i00"}, but(all,
		"65:00.0/driver_override", "(null)", "65:00.0/driver/unbind", "",
		"kmsg", remains+"found /"+workstationBus+"/"+workstationBridge+"/0000:65:00.0 pci:v00008086d00001533sv00008086sd00000001bc02sc00i00"+expected)},
	{"another board", "quiet", "", map[string]string{"65:00.0/modalias": strings.Replace(modalias, "12A0", "12A1", 1)}, but(all,
		"65:00.0/driver_override", "(null)", "65:00.0/driver/unbind", "",
		"kmsg", remains+"found /"+workstationBus+"/"+workstationBridge+"/0000:65:00.0 "+strings.Replace(modalias, "12A0", "12A1", 1)+expected)},
	// The kernel's log has a line for each function; here each overwrites the one before.
	{"an identical card in another slot", "quiet", "0000:64:01.0", nil, but(none,
		"kmsg", strings.NewReplacer("00.0 remains", "00.3 remains", "00.0 pci", "00.3 pci", "1EB1", "1AD9").Replace(
			remains+"found /"+workstationBus+"/0000:64:01.0/0000:65:00.0 pci:v000010DEd00001EB1sv000010DEsd000012A0bc03sc00i00"+expected))},
	{"the card is the console", "quiet", "", map[string]string{"65:00.0/boot_vga": "1"}, but(all,
		"65:00.0/driver_override", "", "65:00.0/driver/unbind", "", "kmsg", remains+"it is the console (boot_vga)")},
	{"another card is the console", "quiet", "", map[string]string{"66:00.0/boot_vga": "1"}, but(all, "66:00.0/driver_override", "")},
	{"switched off", "quiet gpustack=off splash", "", nil, but(none, "off", "options vfio-pci ids=")},
	{"a crash kernel", "quiet", "", map[string]string{"/proc/vmcore": ""}, none},
}

// boot runs a program where an initramfs is the root, on such a machine, and compares
// what comes of it. It returns what the program printed.
func (b bootCase) boot(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	files := map[string]string{"/proc/cmdline": b.cmdline, "/dev/kmsg": "", "/sys/bus/pci/drivers_probe": "", "65:00.0/driver/unbind": ""}
	for f, product := range map[string]string{"65:00.0": "1EB1", "65:00.1": "10F8", "65:00.2": "1AD8", "65:00.3": "1AD9", "66:00.0": "1EB1"} {
		files[f+"/modalias"], files[f+"/driver_override"] = strings.Replace(modalias, "1EB1", product, 1), "(null)\n"
	}
	files["65:00.0/boot_vga"], files["66:00.0/boot_vga"] = "0\n", "0\n"
	maps.Copy(files, b.files)
	// What another case has left goes.
	for _, name := range []string{"sys", "proc/vmcore", "run/modprobe.d"} {
		hosttest.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
	}
	const devices = "sys/bus/pci/devices"
	hosttest.NoError(t, os.MkdirAll(filepath.Join(dir, devices), 0o755))
	for name, text := range files {
		file := filepath.Join(dir, name)
		if name[0] != '/' {
			function, attribute, _ := strings.Cut(name, "/")
			at := workstationBus + "/" + cmp.Or(b.bridge, workstationBridge) + "/0000:" + function
			file = filepath.Join(dir, at, attribute)
			if err := os.Symlink("../../../../"+at, filepath.Join(dir, devices, "0000:"+function)); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Fatal(err)
			}
		}
		// In an image that root has made, dev/kmsg is the kernel's own.
		hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.RemoveAll(file), os.WriteFile(file, []byte(text), 0o644)))
	}
	out, talk, status := try(t, exec.Command("chroot", append([]string{dir}, argv...)...))
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, talk)
	}
	got := map[string]string{}
	for short, name := range map[string]string{
		"65:00.0/driver_override": devices + "/0000:65:00.0/driver_override", "65:00.0/driver/unbind": devices + "/0000:65:00.0/driver/unbind",
		"65:00.1/driver_override": devices + "/0000:65:00.1/driver_override", "65:00.2/driver_override": devices + "/0000:65:00.2/driver_override",
		"65:00.3/driver_override": devices + "/0000:65:00.3/driver_override", "66:00.0/driver_override": devices + "/0000:66:00.0/driver_override",
		"drivers_probe": "sys/bus/pci/drivers_probe", "kmsg": "dev/kmsg", "off": "run/modprobe.d/zzzzz-gpustack-off.conf",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if _, wanted := b.want[short]; err == nil && (wanted || len(text) > 0) {
			got[short] = strings.TrimSpace(string(text))
		}
	}
	hosttest.Equal(t, b.want, got)
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
		hosttest.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		hosttest.NoError(t, os.WriteFile(file, kernelModule(filepath.Base(m)), 0o644))
	}
	image, dir := makeInitramfs(t, root, kernel, "gzip", toolsConfiguration)
	dir = filepath.Join(dir, "main")

	early := initramfs.Early{Driver: "vfio-pci", Modules: []string{"vfio", "vfio_iommu_type1", "vfio_pci"}, ByAddress: workstationFunctions}
	script := edit.File{Content: []byte(hosttest.Read(t, filepath.Join(root, initramfs.Tools.Script())))}
	if err := early.Verify(readImage(t, image), initramfs.Tools, initramfs.Expected{
		Release:  kernel,
		Loadable: func(string) bool { return true },
		Files:    map[string][]byte{"/etc/modprobe.d/zz-gpustack.conf": []byte(hosttest.Read(t, filepath.Join(root, "etc/modprobe.d/zz-gpustack.conf")))},
		Script:   script.Hash(),
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
			image, dir := makeInitramfs(t, root, "6.1.0-28-amd64", compression, toolsConfiguration)
			compareImage(t, readImage(t, image), strings.Fields(run(t, "lsinitramfs", image)), filepath.Join(dir, "early"), filepath.Join(dir, "main"))
		})
	}
}

// TestCrashImages: the image of a crash kernel gets nothing that loads drivers for guests, from
// initramfs-tools with a configuration as kdump-tools makes it, nor from dracut with the module
// that mkdumprd adds.
func TestCrashImages(t *testing.T) {
	root := unpack(t, examples(t)["workstation-twins.txtar"])
	run(t, gpustack, "host", "prepare", "--root", root, "--device", "0000:65:00.0", "--yes")
	const kernel = "6.1.0-28-amd64"
	file := filepath.Join(root, "lib/modules", kernel, "kernel/drivers/vfio/pci/vfio-pci.ko")
	hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, kernelModule("vfio-pci"), 0o644)))
	tools, _ := makeInitramfs(t, root, kernel, "gzip", "/var/lib/kdump/initramfs-tools")

	node := layDracutNode(t)
	const module = "/usr/lib/dracut/modules.d/99kdumpbase/module-setup.sh"
	node.write(t, module, "#!/bin/bash\ncheck() { return 0; }\ninstall() { :; }\n")
	hosttest.NoError(t, os.Chmod(filepath.Join(node.dir, module), 0o755))
	for name, image := range map[string]string{"initramfs-tools": tools, "dracut": node.dracut(t, "--hostonly", "--gzip", "--modules", "base systemd-modules-load", "--add", "kdumpbase")} {
		c := readImage(t, image)
		for _, file := range c.Names {
			// Modules that /etc/modules-load.d names are there because of dracut's own.
			if name == "initramfs-tools" && strings.Contains(file, "vfio") || strings.Contains(file, "gpustack") && path.Dir(file) != "etc/modprobe.d" {
				t.Errorf("%s: %s is in it", name, file)
			}
		}
		if strings.Contains(string(c.Files["scripts/init-top/ORDER"]), "gpustack") {
			t.Errorf("%s: the script would run", name)
		}
	}
}
