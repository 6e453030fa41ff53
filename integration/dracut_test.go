package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/initramfs"
)

// dracutNode is a machine with dracut, laid out in a folder: its kernel's modules,
// what modprobe is told, and our files.
type dracutNode struct {
	dir   string
	early initramfs.Early
}

const (
	dracutKernel  = "6.1.0-28-amd64"
	dracutOptions = "options vfio-pci ids=10de:2235\n"
	// The file has the name that it gets beside others of the site's.
	dracutOptionsFile = "/etc/modprobe.d/zzz-gpustack.conf"
)

func layDracutNode(t *testing.T) dracutNode {
	t.Helper()
	n := dracutNode{t.TempDir(), initramfs.Early{
		Driver: "vfio-pci", Modules: []string{"vfio", "vfio_iommu_type1", "vfio_pci", "nvgrace-gpu-vfio-pci"}, ByAddress: workstationFunctions,
	}}
	n.write(t, dracutOptionsFile, dracutOptions)
	// systemd-modules-load would load these beside the hook.
	n.write(t, "/etc/modules-load.d/gpustack.conf", "vfio_pci\n")
	modules := "/lib/modules/" + dracutKernel
	for _, m := range []string{"vfio/vfio", "vfio/vfio_iommu_type1", "vfio/pci/vfio-pci", "gpu/drm/nouveau/nouveau"} {
		n.write(t, modules+"/kernel/drivers/"+m+".ko", string(kernelModule(filepath.Base(m))))
	}
	for _, list := range []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"} {
		n.write(t, modules+"/"+list, "")
	}
	root := hosttest.Root(t, n.dir)
	plan, err := n.early.Plan(edit.Observe(root, initramfs.PlanFiles()...), initramfs.Dracut)
	if err == nil {
		err = plan.Apply(context.Background(), root)
	}
	hosttest.NoError(t, err)
	return n
}

func (n dracutNode) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(n.dir, name)
	hosttest.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	hosttest.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// dracut makes an initramfs of the node with dracut, in a mount namespace where the
// node's files are over the machine's.
func (n dracutNode) dracut(t *testing.T, args ...string) (image string) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "initramfs")
	cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec", `
		mount -t tmpfs tmpfs /mnt
		mkdir /mnt/tmp
		for dir in etc usr; do
			mkdir /mnt/$dir /mnt/$dir.work
			mount -t overlay overlay -o lowerdir=/$dir,upperdir=/mnt/$dir,workdir=/mnt/$dir.work /$dir
			cp -a "$ROOT/$dir/." /$dir
		done
		mkdir -p /lib/modules
		cp -a "$ROOT/lib/modules/." /lib/modules
		depmod "$KERNEL"
		dracut --quiet --force --tmpdir /mnt/tmp "$@" "$IMAGE" "$KERNEL"`, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), "ROOT="+n.dir, "IMAGE="+image, "KERNEL="+dracutKernel)
	if _, talk, status := try(t, cmd); status != 0 {
		t.Fatalf("exit status %d: %s", status, talk)
	}
	return image
}

// expected is what the node's images are held against. The kernel has no module for
// a product of its own.
func (n dracutNode) expected(t *testing.T) initramfs.Expected {
	t.Helper()
	script := edit.File{Content: []byte(hosttest.Read(t, filepath.Join(n.dir, initramfs.Dracut.Script())))}
	return initramfs.Expected{
		Script:   script.Hash(),
		Release:  dracutKernel,
		Loadable: func(module string) bool { return module != "nvgrace-gpu-vfio-pci" },
		Files:    map[string][]byte{dracutOptionsFile: []byte(dracutOptions)},
	}
}

// lsinitrd returns the names in an image, as lsinitrd lists them: like ls, with two
// numbers for a device where others have a size.
func lsinitrd(t *testing.T, image string) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(run(t, "lsinitrd", image)) {
		fields := strings.Fields(line)
		if len(fields) < 9 || len(fields[0]) != 10 || !strings.ContainsRune("-dlbcps", rune(line[0])) {
			continue
		}
		name := 8
		if line[0] == 'c' || line[0] == 'b' {
			name++
		}
		names = append(names, fields[name])
	}
	return names
}

// unpackDracut unpacks an image with lsinitrd.
func unpackDracut(t *testing.T, image string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command("lsinitrd", "--unpack", image)
	cmd.Dir = dir
	if _, talk, status := try(t, cmd); status != 0 {
		t.Fatalf("exit status %d: %s", status, talk)
	}
	return dir
}

// TestDracut: dracut takes our module as it is, for any machine or just for this
// one, with systemd or without. What it makes is read as lsinitrd reads it, and has
// all that is wanted, but not what would load the driver past the hook. The hook
// does what it should.
func TestDracut(t *testing.T) {
	node := layDracutNode(t)
	for _, test := range []struct {
		name    string
		args    []string
		systemd bool
	}{
		{"for any machine, without systemd", []string{"--no-hostonly", "--modules", "base kernel-modules rootfs-block shutdown", "--gzip"}, false},
		{"for this one, with systemd", []string{"--hostonly", "--compress", "zstd -1 -q -T0"}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			image := node.dracut(t, test.args...)
			c, dir := readImage(t, image), unpackDracut(t, image)
			compareImage(t, c, lsinitrd(t, image), dir)
			if err := node.early.Verify(c, initramfs.Dracut, node.expected(t)); err != nil {
				t.Error(err)
			}
			if _, systemd := slices.BinarySearch(c.Names, "usr/lib/systemd/systemd"); systemd != test.systemd {
				t.Errorf("systemd is in it: %t", systemd)
			}
			for _, name := range c.Names {
				if strings.HasSuffix(name, "modules-load.d/gpustack.conf") {
					t.Errorf("%s is in it", name)
				}
			}
			runHook(t, dir)
		})
	}
}

// bootDracut does what dracut's own init does, as far as our hook can tell, and tells
// what the hook has left in the shell that goes on.
const bootDracut = `
trap 'echo ended' EXIT
. /lib/dracut-lib.sh
source_hook pre-udev
echo "goes on: ${argument-} ${function-} ${consoles-} $1"
if command -v take; then echo take is left; fi
`

// runHook runs our hook in an initramfs, read as dracut reads hooks and by each shell
// that may be its own. It takes just the functions that are still what they were,
// nothing with gpustack=off, and leaves nothing behind.
func runHook(t *testing.T, dir string) {
	t.Helper()
	for name, text := range map[string]string{"boot": bootDracut, "usr/bin/busybox": hosttest.Read(t, "/bin/busybox"),
		"usr/bin/dash": hosttest.Read(t, "/bin/dash")} {
		hosttest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	shells := map[string][]string{"dash": {"dash"}, "busybox": {"busybox", "sh"}}
	// dracut 106 leaves it out where sh is dash.
	if sh, err := os.Readlink(filepath.Join(dir, "usr/bin/sh")); err != nil || filepath.Base(sh) != "dash" || exists(filepath.Join(dir, "usr/bin/bash")) {
		shells["bash"], shells["bash as sh"] = []string{"bash"}, []string{"bash", "--posix"}
	}
	for name, argv := range shells {
		for _, test := range bootCases {
			t.Run(name+", "+test.name, func(t *testing.T) {
				hosttest.Equal(t, "goes on:    word\nended\n", test.boot(t, dir, append(argv, "/boot", "word")...))
			})
		}
	}
}

// TestDracutSpoiled: an image whose maker was told otherwise is found out. The site
// has dracut make small images, and our configuration has our module in them too.
func TestDracutSpoiled(t *testing.T) {
	node := layDracutNode(t)
	module := filepath.Join(node.dir, "usr/lib/dracut/modules.d/99gpustack/module-setup.sh")
	text := strings.Replace(hosttest.Read(t, module), "pre-udev", "pre-trigger", 1)
	hosttest.NoError(t, os.WriteFile(module, []byte(text), 0o755))
	node.write(t, dracutOptionsFile, "options vfio-pci ids=10de:11b4\n")
	node.write(t, "/etc/dracut.conf.d/zzz.conf", "omit_drivers+=\" vfio_iommu_type1 \"\ndracutmodules=base\n")
	c := readImage(t, node.dracut(t, "--no-hostonly", "--gzip"))
	err := node.early.Verify(c, initramfs.Dracut, node.expected(t))
	const want = "/initramfs: lib/dracut/hooks/pre-udev/00-gpustack.sh: is missing\n" +
		"/initramfs: /etc/modprobe.d/zzz-gpustack.conf: differs from what was planned\n" +
		"/initramfs: module vfio_iommu_type1 of 6.1.0-28-amd64: is missing"
	hosttest.Equal(t, want, fmt.Sprint(err))
}
