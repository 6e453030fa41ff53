package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// The programs of a small machine: they make of the configuration what the real
// ones would, as far as gpustack looks at it.
const (
	updateGrub = `#!/bin/sh -e
[ ! -e /etc/slow/update-grub ] || { : > /etc/slow/begun; until [ -e /etc/slow/go ]; do sleep 0.05; done; }
. /etc/default/grub
for f in /etc/default/grub.d/*.cfg; do [ ! -e "$f" ] || . "$f"; done
root=UUID=0e8a5f6c-3d4f-4d5e-9a51-1c2f6b7f9a10
[ ! -e /etc/deaf ] || GRUB_CMDLINE_LINUX_DEFAULT=quiet
[ ! -e /etc/loop ] || root=/dev/loop0p2
[ ! -e /etc/broken ] || { echo "no device found" >&2; exit 3; }
echo "	linux /boot/vmlinuz-4.4.0-210-generic root=$root ro $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT" > /boot/grub/grub.cfg
[ ! -e /etc/empty ] || echo "# no kernel was found" > /boot/grub/grub.cfg
`
	updateInitramfs = `#!/bin/sh -e
[ ! -e /etc/slow/update-initramfs ] || { : > /etc/slow/begun; until [ -e /etc/slow/go ]; do sleep 0.05; done; }
rm -rf /var/tmp/initrd
mkdir -p /var/tmp/initrd/scripts/init-top
cd /var/tmp/initrd
ls /etc/initramfs-tools/scripts/init-top | sed 's,.*,/scripts/init-top/& "$@",' > scripts/init-top/ORDER
[ -e /etc/late ] || echo '/scripts/init-top/udev "$@"' >> scripts/init-top/ORDER
[ ! -e /etc/late ] || sed -i '1i /scripts/init-top/udev "$@"' scripts/init-top/ORDER
[ ! -d /etc/initramfs-tools/scripts ] || cp -a /etc/initramfs-tools/scripts .
mkdir -p etc lib/modules/4.4.0-210-generic
[ ! -e /etc/modprobe.d ] || cp -a /etc/modprobe.d etc
[ ! -e /etc/initramfs-tools/hooks/gpustack ] || for m in vfio vfio_iommu_type1 vfio-pci; do : > lib/modules/4.4.0-210-generic/$m.ko; done
[ ! -e /etc/few ] || rm -f lib/modules/4.4.0-210-generic/vfio-pci.ko
find . | sed 's,^\./,,' | cpio -o -H newc > /boot/initrd.img-4.4.0-210-generic
rm -rf /var/tmp/initrd
`
)

// The initramfs that the small machine has at first.
const (
	image      = "boot/initrd.img-4.4.0-210-generic"
	firstImage = "the first\n"
)

// layRebuild lays out the talk's node with these programs and the shell that they run in. The
// marks are empty files.
func layRebuild(t *testing.T, marks ...string) (root string) {
	t.Helper()
	root = unpack(t, examples(t)["talk-2xk4200.txtar"])
	addPrograms(t, root, nodeKernel)
	hosttest.NoError(t, errors.Join(os.WriteFile(filepath.Join(root, image), []byte(firstImage), 0o600), os.Chmod(filepath.Join(root, image), 0o600)))
	for _, mark := range marks {
		hosttest.NoError(t, os.WriteFile(filepath.Join(root, mark), nil, 0o644))
	}
	return root
}

// addPrograms adds the programs, and the shell that they run in, to a machine with one kernel.
func addPrograms(t testing.TB, root, kernel string) {
	t.Helper()
	for name, text := range map[string]string{"update-grub": updateGrub, "update-initramfs": updateInitramfs} {
		text = strings.ReplaceAll(text, nodeKernel, kernel)
		hosttest.NoError(t, os.WriteFile(filepath.Join(root, "usr/sbin", name), []byte(text), 0o755))
	}
	for _, dir := range []string{"bin", "dev", "etc/slow", "var/tmp"} {
		hosttest.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	busybox := hosttest.Read(t, "/bin/busybox")
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "bin/busybox"), []byte(busybox), 0o755))
	for _, tool := range []string{"sh", "find", "rm", "mkdir", "ls", "sed", "cpio", "sleep"} {
		hosttest.NoError(t, os.Symlink("busybox", filepath.Join(root, "bin", tool)))
	}
}

// mounted is a command that runs where proc, sys and dev are mounted below the root, and the
// node's own functions over those of this machine.
func mounted(root string, args ...string) *exec.Cmd {
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", `
		mkdir -p "$ROOT/../sys"
		mount --bind "$ROOT/sys" "$ROOT/../sys"
		# What the node's proc says is kept over the real one.
		mkdir -p "$ROOT/../proc"
		mount --bind "$ROOT/proc" "$ROOT/../proc"
		mount -t proc proc "$ROOT/proc"
		mount --bind "$ROOT/../proc/cpuinfo" "$ROOT/proc/cpuinfo"
		mount -t sysfs -o ro sysfs "$ROOT/sys"
		for d in bus class devices kernel; do mount --bind "$ROOT/../sys/$d" "$ROOT/sys/$d"; done
		mount --bind /dev "$ROOT/dev"
		exec "$@"`, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), "ROOT="+root)
	return cmd
}

// menu returns the kernel arguments of the node's boot menu.
func menu(t *testing.T, root string) string {
	t.Helper()
	_, args, _ := strings.Cut(hosttest.Read(t, filepath.Join(root, "boot/grub/grub.cfg")), " ro ")
	args, _, _ = strings.Cut(args, "\n")
	return args
}

// TestRebuild: on a root elsewhere, with the kernel's file systems below it, the
// programs run there, what they make is looked at, and undo runs them again.
func TestRebuild(t *testing.T) {
	call := func(t *testing.T, root string, args ...string) (stdout, talk string, status int) {
		return try(t, mounted(root, append([]string{gpustack}, args...)...))
	}
	const arguments = "console=tty0 console=ttyS1,115200n8 quiet"

	t.Run("done and undone", func(t *testing.T) {
		root := layRebuild(t)
		if out, talk, status := call(t, root, "host", "prepare", "--root", root, "--rebuild", "--yes"); status != 0 ||
			!strings.Contains(out, "then runs update-initramfs -u -k all\n") || !strings.Contains(out, "then runs update-grub\n") {
			t.Fatalf("exit status %d: %s\n%s", status, talk, out)
		}
		hosttest.EqualIn(t, "menu", arguments+" intel_iommu=on iommu=pt", menu(t, root))
		if left, err := filepath.Glob(filepath.Join(root, "var/tmp/*")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		// --rebuild runs the programs even if no file changes.
		if out, talk, status := call(t, root, "host", "prepare", "--root", root, "--rebuild", "--dry-run"); status != 2 || !strings.Contains(out, "then runs update-grub\n") {
			t.Errorf("exit status %d: %s\n%s", status, talk, out)
		}
		if _, talk, status := call(t, root, "undo", "--root", root, "--yes"); status != 0 {
			t.Fatalf("exit status %d: %s", status, talk)
		}
		hosttest.EqualIn(t, "menu after undo", arguments, menu(t, root))
	})
	t.Run("a kernel and a snapshot that are gone since the menu was made", func(t *testing.T) {
		root := layRebuild(t)
		menuFile := filepath.Join(root, "boot/grub/grub.cfg")
		old := hosttest.Read(t, menuFile) + "\tlinux /boot/vmlinuz-4.4.0-1-generic root=/dev/sdz1 ro\n" +
			"\tlinux /boot/vmlinuz-4.4.0-210-generic root=UUID=0e8a5f6c-3d4f-4d5e-9a51-1c2f6b7f9a11 ro quiet\n"
		hosttest.NoError(t, os.WriteFile(menuFile, []byte(old), 0o644))
		if _, talk, status := call(t, root, "host", "prepare", "--root", root, "--rebuild", "--yes"); status != 0 {
			t.Errorf("exit status %d: %s", status, talk)
		}
	})
	t.Run("another root file system, which update-grub run by hand accepts", func(t *testing.T) {
		root := layRebuild(t, "etc/loop")
		_, talk, status := call(t, root, "host", "prepare", "--root", root, "--rebuild", "--yes")
		if want := "gpustack: hint: if root=/dev/loop0p2 is right, run update-grub by hand, then run gpustack again; "; status != 1 || !strings.Contains(talk, want) {
			t.Errorf("exit status %d: %s", status, talk)
		}
		run(t, "chroot", root, "/bin/sh", "/usr/sbin/update-grub")
		if _, talk, status := call(t, root, "host", "prepare", "--root", root, "--rebuild", "--yes"); status != 0 {
			t.Errorf("exit status %d: %s", status, talk)
		}
	})
	t.Run("on the machine itself", func(t *testing.T) {
		root := layRebuild(t)
		hosttest.NoError(t, os.WriteFile(filepath.Join(root, "bin/gpustack"), []byte(hosttest.Read(t, gpustack)), 0o755))
		// Process 1 is one of its own: that of the machine of the tests may be hidden from root too.
		live := func(args ...string) (string, string, int) {
			cmd := mounted(root, append([]string{"chroot", root, "/bin/gpustack"}, args...)...)
			cmd.Args = slices.Insert(cmd.Args, 1, "--pid", "--fork")
			return try(t, cmd)
		}
		// Asked not to, it leaves the programs.
		out, talk, status := live("host", "prepare", "--no-rebuild", "--dry-run")
		if status != 2 || !strings.Contains(out, "run on the target machine: update-grub\n") {
			t.Errorf("exit status %d: %s\n%s", status, talk, out)
		}
		if out, talk, status = live("host", "prepare", "--yes"); status != 0 || !strings.Contains(out, "then runs update-grub\n") {
			t.Fatalf("exit status %d: %s\n%s", status, talk, out)
		}
		hosttest.EqualIn(t, "menu", arguments+" intel_iommu=on iommu=pt", menu(t, root))
		if out, talk, status = live("host", "prepare", "--yes"); status != 0 || !strings.Contains(out, "nothing to do") {
			t.Errorf("exit status %d: %s\n%s", status, talk, out)
		}
		if out, talk, status = live("undo", "--yes"); status != 0 {
			t.Fatalf("exit status %d: %s\n%s", status, talk, out)
		}
		hosttest.EqualIn(t, "menu after undo", arguments, menu(t, root))
	})
	for _, test := range []struct {
		name, mark string
		want       string
		menu       string // what it has in the end
	}{
		{"a program that fails", "etc/broken", "gpustack: error: update-grub: exit status 3: no device found\ngpustack: error: the files from before the program ran were restored\n", arguments},
		{"another root file system", "etc/loop", "gpustack: error: /boot/grub/grub.cfg: the new menu would boot /boot/vmlinuz-4.4.0-210-generic with root=/dev/loop0p2 instead of root=UUID=0e8a5f6c-3d4f-4d5e-9a51-1c2f6b7f9a10\ngpustack: error: the files from before the program ran were restored\n", arguments},
		{"a menu without entries", "etc/empty", "gpustack: error: /boot/grub/grub.cfg: no boot entries\ngpustack: error: the files from before the program ran were restored\n", arguments},
		{"a menu without the arguments", "etc/deaf", "gpustack: error: /boot/grub/grub.cfg: the arguments would not take effect: the entry of /boot/vmlinuz-4.4.0-210-generic has no intel_iommu=on iommu=pt\ngpustack: error: the files from before the program ran were restored\n", arguments},
		{"a module that is missing", "etc/few", "gpustack: error: /boot/initrd.img-4.4.0-210-generic: module vfio_pci of 4.4.0-210-generic: is missing\ngpustack: error: the files from before the program ran were restored\n", arguments},
		{"a script that comes too late", "etc/late", "gpustack: error: /boot/initrd.img-4.4.0-210-generic: does not bind functions before udev starts\ngpustack: error: the files from before the program ran were restored\n", arguments},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := layRebuild(t, test.mark)
			_, talk, status := call(t, root, "host", "prepare", "--root", root, "--rebuild", "--yes")
			if status != 1 || !strings.Contains(talk, test.want) {
				t.Errorf("exit status %d: %s", status, talk)
			}
			hosttest.EqualIn(t, "menu", test.menu, menu(t, root))
			if info, err := os.Stat(filepath.Join(root, image)); (test.mark == "etc/late" || test.mark == "etc/few") &&
				(hosttest.Read(t, filepath.Join(root, image)) != firstImage || err != nil || info.Mode() != 0o600) {
				t.Errorf("the initramfs is not back: %v, %v", info, err)
			}
			if _, err := os.Stat(filepath.Join(root, "var/lib/gpustack/kept")); !os.IsNotExist(err) {
				t.Errorf("copies are left: %v", err)
			}
			if left, err := filepath.Glob(filepath.Join(root, "var/tmp/*")); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
			// The next run goes on from there.
			hosttest.NoError(t, os.Remove(filepath.Join(root, test.mark)))
			_, talk, status = call(t, root, "host", "prepare", "--root", root, "--yes")
			if want := "gpustack: entry 1 was waiting for its programs: finished\n"; status != 0 || !strings.Contains(talk, want) {
				t.Errorf("exit status %d: %s", status, talk)
			}
			hosttest.EqualIn(t, "menu", arguments+" intel_iommu=on iommu=pt", menu(t, root))
			hosttest.Equal(t, "nothing to do: the files are as planned", lastLine(t, root, call))
		})
	}
}

// TestRebuildWithoutRoom: the boot partition has no room for an initramfs beside the one that it
// replaces. What was there before comes back all the same.
func TestRebuildWithoutRoom(t *testing.T) {
	root := layRebuild(t, "etc/few")
	before := strings.Repeat("x", 300000)
	large := updateInitramfs + "/bin/busybox dd if=/dev/zero bs=1000 count=300 >> /boot/initrd.img-4.4.0-210-generic\n"
	hosttest.NoError(t, errors.Join(os.WriteFile(filepath.Join(root, image), []byte(before), 0o600),
		os.WriteFile(filepath.Join(root, "usr/sbin/update-initramfs"), []byte(large), 0o755)))
	// It is in fstab, and the kernel's list of mounts has the place below the root.
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "etc/fstab"), []byte("UUID=2 /boot ext4\n"), 0o644))
	_, talk, status := try(t, mounted(root, gpustack, "host", "prepare", "--root", root, "--rebuild", "--yes"))
	if status != 1 || !strings.HasSuffix(talk, "gpustack: hint: mount UUID=2 "+filepath.Join(root, "boot")+"\n") {
		t.Errorf("exit status %d: %s", status, talk)
	}
	after := filepath.Join(t.TempDir(), "boot")
	_, talk, status = try(t, mounted(root, "sh", "-ec", `
		mkdir "$1/../boot"
		mount -t tmpfs -o size=500k tmpfs "$1/../boot"
		cp -a "$1/boot/." "$1/../boot"
		mount --move "$1/../boot" "$1/boot"
		"$2" host prepare --root "$1" --rebuild --yes || status=$?
		cp -a "$1/boot" "$3"
		exit $status`, "sh", root, gpustack, after))
	const want = "module vfio_pci of 4.4.0-210-generic: is missing\ngpustack: error: the files from before the program ran were restored\n"
	if status != 1 || !strings.Contains(talk, want) {
		t.Errorf("exit status %d: %s", status, talk)
	}
	hosttest.EqualIn(t, "the initramfs is not back", before, hosttest.Read(t, filepath.Join(after, filepath.Base(image))))
}

// TestRebuildKilled: a run is killed while a program runs, and an initramfs is installed before
// the next run, whose program fails: the newer initramfs stays.
func TestRebuildKilled(t *testing.T) {
	root := layRebuild(t)
	args := []string{gpustack, "host", "prepare", "--root", root, "--rebuild", "--yes"}
	mark(t, root, "update-initramfs")
	cmd := mounted(root, args...)
	hosttest.NoError(t, cmd.Start())
	await(t, filepath.Join(root, "etc/slow/begun"))
	if err := cmd.Process.Kill(); err != nil { // sh has become gpustack
		t.Fatal(err)
	}
	cmd.Wait()
	kept := filepath.Join(root, "var/lib/gpustack/kept/boot_initrd.img-4.4.0-210-generic")
	hosttest.EqualIn(t, "no copy is left", firstImage, hosttest.Read(t, kept))
	unmark(t, root)
	mark(t, root, "go")
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // the program that was left alone ends
		_, err := os.Stat(filepath.Join(root, "var/tmp/initrd"))
		if os.IsNotExist(err) && hosttest.Read(t, filepath.Join(root, image)) != firstImage {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the program does not end")
		}
	}
	run(t, "sh", "-ec", `cd "$1"; find etc | cpio -o -H newc > "$2"; rm -f etc/slow/go`, "sh", root, filepath.Join(root, image))
	newer := hosttest.Read(t, filepath.Join(root, image))
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "usr/sbin/update-initramfs"), []byte("#!/bin/sh\nexit 5\n"), 0o755))
	_, talk, status := try(t, mounted(root, gpustack, "host", "prepare", "--root", root, "--yes"))
	if status != 1 || !strings.Contains(talk, "update-initramfs -u -k all: exit status 5\n") {
		t.Errorf("exit status %d: %s", status, talk)
	}
	hosttest.EqualIn(t, "the newer initramfs was replaced", newer, hosttest.Read(t, filepath.Join(root, image)))
	if _, err := os.Stat(filepath.Dir(kept)); !os.IsNotExist(err) {
		t.Errorf("copies are left: %v", err)
	}
	// undo runs the program again, and what it makes now counts.
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "usr/sbin/update-initramfs"), []byte(updateInitramfs), 0o755))
	if _, talk, status := try(t, mounted(root, gpustack, "undo", "--root", root, "--yes")); status != 0 || menu(t, root) != unprepared {
		t.Errorf("undo: exit status %d, menu %q: %s", status, menu(t, root), talk)
	}
	if made := hosttest.Read(t, filepath.Join(root, image)); made == newer || made == firstImage {
		t.Error("undo did not regenerate the initramfs")
	}
}

func lastLine(t *testing.T, root string, call func(*testing.T, string, ...string) (string, string, int)) string {
	out, _, _ := call(t, root, "host", "prepare", "--root", root, "--dry-run")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
