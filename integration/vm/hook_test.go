package vm

import (
	"archive/tar"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// recorded is the machine that is prepared: two identical cards, of which the second goes to
// guests, by its address; and a display whose driver works, which goes by its ids, since no
// identical device stays. The first card is the console.
func recorded() Topology {
	return Topology{
		Name: "recorded", CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Arguments: "intel_iommu=on iommu=pt",
		Devices: slices.Concat(port("rp1", 1, "addr=0x4"), port("rp2", 2, "addr=0x5"), port("rp3", 3, "addr=0x6"),
			nvidia("rp1", 0), nvidia("rp2", 0), own("bochs-display,bus=rp3,addr=0x0")),
	}
}

// renumbered is the same machine with a third identical card before the others, so that the
// first has the address that the second had, and with a display controller of the same
// vendor:product as the display, which is the console now.
func renumbered() Topology {
	t := recorded()
	t.Name = "renumbered"
	t.Devices = slices.Concat(own("VGA,bus=pcie.0,addr=0x2"), port("rp0", 4, "addr=0x3"), nvidia("rp0", 0), t.Devices)
	return t
}

// A generator makes an initramfs with the hook of gpustack, and with what boots the small
// machine from it.
type generator struct {
	maker  maker
	file   string // by which gpustack recognizes it
	kernel string // arguments that others have set
	script string // run by sh in a mount namespace of its own
}

// Both get the drivers that udev would load by alias, and unpack the small machine as the root
// file system. MODULES=list and --drivers keep other drivers out, for time. With initramfs-tools,
// ids= is among the kernel's arguments, and a script loads vfio-pci before all others: where it is
// part of the kernel, as of Ubuntu's, it binds by these ids before any script runs.
var generators = []generator{
	{initramfsTools, "usr/sbin/mkinitramfs", "vfio-pci.ids=1234:1111", `
mkdir /mnt/upper /mnt/work
mount -t overlay overlay -o lowerdir=/etc/initramfs-tools,upperdir=/mnt/upper,workdir=/mnt/work /etc/initramfs-tools
cp -a "$TREE/etc/initramfs-tools/." /etc/initramfs-tools
# Without busybox, programs of the image are those of klibc, which are the fewest.
printf '%s\n' MODULES=list BUSYBOX=n COMPRESS=gzip COMPRESSLEVEL=1 FSTYPE=ext4 RESUME=none >/etc/initramfs-tools/conf.d/lab
cat >/etc/initramfs-tools/hooks/lab <<'END'
#!/bin/sh
[ "$1" != prereqs ] || exit 0
. /usr/share/initramfs-tools/hook-functions
manual_add_modules bochs bochs_drm snd_hda_intel
cp -r "$LAB" "$DESTDIR/lab"
END
cat >/etc/initramfs-tools/scripts/init-top/a-lab <<'END'
#!/bin/sh
[ "$1" = prereqs ] || modprobe vfio-pci
END
cat >/etc/initramfs-tools/scripts/lab <<'END'
mountroot() {
	mount -t tmpfs tmpfs "$rootmnt"
	cd "$rootmnt" && /lab/busybox cpio -id </lab/root.cpio
	cd /
}
END
chmod +x /etc/initramfs-tools/hooks/lab /etc/initramfs-tools/scripts/init-top/a-lab
mkdir /mnt/boot
mount --bind /mnt/boot /boot
echo CONFIG_RD_GZIP=y >"/boot/config-$KERNEL"
mkinitramfs -o "$IMAGE" "$KERNEL"
`},
	{dracut, "usr/bin/dracut", "", `
mkdir /mnt/tmp /mnt/include
for dir in etc usr; do
	mkdir /mnt/$dir /mnt/$dir.work
	mount -t overlay overlay -o lowerdir=/$dir,upperdir=/mnt/$dir,workdir=/mnt/$dir.work /$dir
	[ ! -e "$TREE/$dir" ] || cp -a "$TREE/$dir/." /$dir
done
mkdir -p "/lib/modules/$KERNEL"
mount --bind "$MODULES" "/lib/modules/$KERNEL"
hooks=/usr/lib/dracut/hooks
mkdir -p "/mnt/include$hooks/cmdline" "/mnt/include$hooks/mount"
cp -r "$LAB" /mnt/include/lab
echo 'root=lab; rootok=1' >"/mnt/include$hooks/cmdline/00-lab.sh"
cat >"/mnt/include$hooks/mount/00-lab.sh" <<'END'
mount -t tmpfs tmpfs "$NEWROOT"
(cd "$NEWROOT" && /lab/busybox cpio -id </lab/root.cpio)
END
dracut --quiet --force --tmpdir /mnt/tmp --no-hostonly --gzip --modules "base kernel-modules" --drivers "bochs bochs_drm snd_hda_intel" \
	--include /mnt/include / "$IMAGE" "$KERNEL"
`},
}

// image makes an initramfs of what host prepare has written in a tree.
func (g generator) image(t *testing.T, tree string) string {
	t.Helper()
	lab := filepath.Join(t.TempDir(), "lab")
	image := filepath.Join(t.TempDir(), "initramfs")
	cmd := exec.Command("unshare", "--mount", "sh", "-ec", `
mount -t tmpfs tmpfs /mnt
mkdir /mnt/lib /mnt/lib.work
mount -t overlay overlay -o lowerdir=/lib,upperdir=/mnt/lib,workdir=/mnt/lib.work /lib
mkdir -p "/lib/modules/$KERNEL"
mount --bind "$MODULES" "/lib/modules/$KERNEL"
mkdir -p /etc/modprobe.d
mount --bind "$TREE/etc/modprobe.d" /etc/modprobe.d
mkdir "$LAB"
cp "$BUSYBOX" "$LAB/busybox"
cp "$SMALL" "$LAB/root.cpio"
`+g.script)
	cmd.Env = append(os.Environ(), "TREE="+tree, "LAB="+lab, "IMAGE="+image, "KERNEL="+linux.Release, "MODULES="+linux.Modules, "BUSYBOX="+busybox, "SMALL="+initramfs)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", g.maker, err, out)
	}
	return image
}

// prepares runs host prepare on a tree that is the machine's own but for its boot loader and its
// generator, and returns a copy of what was written there.
func (m machine) prepares(g generator, args ...string) (tree string) {
	m.t.Helper()
	m.run("sh", "-ec", `
mkdir -p /tree/$1/proc /tree/$1/sys /tree/$1/lib/modules /tree/$1/etc/default /tree/$1/boot/grub /tree/$1/usr/sbin /tree/$1/usr/bin /tree/$1/usr/lib
cd /tree/$1
for dir in proc sys lib/modules; do busybox mount -o bind /$dir $dir; done
echo ID=debian >etc/os-release
echo "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet $4\"" >etc/default/grub
echo 'for x in ${sysconfdir}/default/grub.d/*.cfg ; do' >usr/sbin/grub-mkconfig
echo >$2
echo >boot/initrd.img-$3
`, "sh", string(g.maker), g.file, linux.Release, g.kernel)
	root := "/tree/" + string(g.maker)
	m.run(append([]string{"gpustack", "host", "prepare", "--root", root, "--yes"}, args...)...)
	written := m.run("sh", "-ec", `cd $1; busybox tar -c etc usr/lib | busybox base64`, "sh", root)
	tree = m.t.TempDir()
	hosttest.NoError(m.t, untar(base64.NewDecoder(base64.StdEncoding, strings.NewReader(written)), tree))
	return tree
}

// untar writes files of an archive into a folder.
func untar(from io.Reader, dir string) error {
	files := tar.NewReader(from)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(files)
		if err != nil {
			return err
		}
		name := filepath.Join(dir, h.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data, h.FileInfo().Mode())); err != nil {
			return err
		}
	}
}

// TestHook boots initramfs images of both generators with the hook of gpustack, on the machine
// that was prepared and on one whose buses are renumbered. The judges are the kernel's driver
// links and its list of modules, once udev of the initramfs has loaded drivers.
func TestHook(t *testing.T) {
	t.Parallel() // a machine keeps one processor busy
	const (
		first, second, third = "0000:01:00", "0000:02:00", "0000:03:00"
		display              = "0000:03:00.0" // on the prepared machine
		sound                = "snd_hda_intel"
		blacklist            = "/run/modprobe.d/gpustack-blacklist.conf"
	)
	prepared := small(t, recorded())
	if vga := prepared.run("cat", "/sys/bus/pci/devices/"+first+".0/boot_vga"); strings.TrimSpace(vga) != "1" {
		t.Fatalf("boot_vga of the first card: %q", vga)
	}
	for _, g := range generators {
		tree := prepared.prepares(g, "--device", second+".0", "--device", display)
		t.Run(string(g.maker), func(t *testing.T) {
			image := g.image(t, tree)
			boot := func(topology Topology, arguments string) machine {
				topology.Arguments += " root=lab boot=lab init=/init " + g.kernel + " " + arguments
				return start(t, topology, fromMemory(linux, image, topology))
			}
			for _, test := range []struct {
				name, arguments string
				topology        Topology
				want            map[string]string // drivers of functions
				bochs           bool              // the blacklisted module is loaded
			}{
				{"as recorded", "", recorded(), map[string]string{
					first + ".0": "", first + ".1": sound, second + ".0": vfioPCI, second + ".1": vfioPCI, display: vfioPCI,
				}, false},
				{"gpustack=off", "gpustack=off", recorded(), map[string]string{
					first + ".0": "", first + ".1": sound, second + ".0": "", second + ".1": sound, display: "bochs-drm",
				}, true},
				{"renumbered", "", renumbered(), map[string]string{
					first + ".0": "", first + ".1": sound, second + ".0": "", second + ".1": sound, third + ".0": "", third + ".1": sound,
					"0000:00:02.0": "", "0000:04:00.0": vfioPCI,
				}, false},
			} {
				if g.maker == dracut && test.name == "as recorded" && !*full {
					continue // the last one shows the same, except for the card
				}
				t.Run(test.name, func(t *testing.T) {
					m := boot(test.topology, test.arguments)
					m.t = t
					drivers := m.drivers()
					got := map[string]string{}
					for function := range test.want {
						got[function] = drivers[function]
					}
					hosttest.EqualIn(t, "drivers", test.want, got)
					hosttest.EqualIn(t, "bochs is loaded", test.bochs, strings.Contains(m.run("cat", "/proc/modules"), "bochs "))
					// It is there once the root file system is the machine's own.
					if reply := m.try("cat", blacklist); (reply.Status == 0) == test.bochs || !test.bochs && reply.Stdout != "blacklist bochs\n" {
						t.Errorf("%s: exit status %d, %q", blacklist, reply.Status, reply.Stdout)
					}
				})
			}
		})
	}
}
