package vm

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// What the small machine has beside the kernel: modules, with all that they need, and
// programs, all of which are busybox.
var (
	smallModules = []string{
		"vfio_pci", "vfio_iommu_type1", "pci_stub", // take functions for guests
		"bochs", "snd_hda_intel", "e1000", "e1000e", "nvme", // QEMU's devices
		"ext4", "crc32c_generic", "loop", "dm_mod", "raid1", "nvmet", // use disks
	}
	earlierNames  = map[string]string{"bochs": "bochs_drm"} // before Linux 5.16
	builtInLater  = []string{"crc32c_generic"}              // Linux 7.2 has it in the kernel, and no such module
	smallPrograms = []string{"sh", "cat", "ls", "ip", "modprobe", "readlink", "basename", "sleep", "unshare", "mount"}
)

const busybox = "/bin/busybox"

// writeInitramfs writes the file system of the small machine: guest as its init
// and the binary under test.
func writeInitramfs(ctx context.Context, name string, k kernel, programs Programs) (err error) {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if closing := out.Close(); err == nil {
			err = closing
		}
	}()
	a := &archive{to: out}
	made := map[string]bool{}
	folders := func(name string) {
		var all []string
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			all = append(all, dir)
		}
		for _, dir := range slices.Backward(all) {
			if !made[dir] {
				made[dir] = true
				a.folder(dir)
			}
		}
	}
	for _, dir := range []string{"proc", "sys", "dev", "tmp", "run", "etc", "root", "var/lib"} {
		folders(filepath.Join(dir, "x"))
	}
	folders("bin/x")
	folders("sbin/x")
	a.file("init", 0o755, programs.Guest)
	a.file("bin/guest", 0o755, programs.Guest)
	a.file("bin/gpustack", 0o755, programs.Gpustack)
	a.file("bin/busybox", 0o755, busybox)
	for _, program := range smallPrograms {
		a.link("bin/"+program, "busybox")
	}
	a.link("sbin/modprobe", "../bin/busybox") // where the kernel looks for it
	tree, err := moduleTree(ctx, k, smallModules)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tree)
	modules, err := list(tree)
	if err != nil {
		return err
	}
	for _, file := range modules {
		folders(file)
		a.file(file, 0o644, filepath.Join(tree, file))
	}
	return a.close()
}

// moduleTree is a folder with modules, and all that they need, in its lib/modules, and
// what depmod makes of them.
func moduleTree(ctx context.Context, k kernel, wanted []string) (dir string, err error) {
	needs, err := dependencies(k)
	if err != nil {
		return "", err
	}
	dir, err = os.MkdirTemp("", "vm-modules-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	top := filepath.Join("lib/modules", k.Release)
	var files []string
	for _, module := range wanted {
		all, ok := needs[module]
		if !ok {
			all, ok = needs[earlierNames[module]]
		}
		if !ok && slices.Contains(builtInLater, module) {
			continue
		}
		if !ok {
			return "", fmt.Errorf("kernel %s has no module %s", k.Release, module)
		}
		files = append(files, all...)
	}
	slices.Sort(files)
	files = append(slices.Compact(files), "modules.order", "modules.builtin", "modules.builtin.modinfo")
	for _, file := range files {
		to := filepath.Join(dir, top, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		data, err := os.ReadFile(filepath.Join(k.Modules, file))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return "", err
		}
	}
	return dir, command(ctx, "", "depmod", "--basedir", dir, k.Release)
}

// dependencies tells by the name of each module which files it needs, its own first
// (modules.dep(5)).
func dependencies(k kernel) (map[string][]string, error) {
	text, err := os.ReadFile(filepath.Join(k.Modules, "modules.dep"))
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		file, needs, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, _, _ := strings.Cut(filepath.Base(file), ".ko")
		all[strings.ReplaceAll(name, "-", "_")] = append([]string{file}, strings.Fields(needs)...)
	}
	return all, nil
}

// list returns the names of all files below a folder.
func list(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			below, _ := filepath.Rel(dir, name)
			files = append(files, below)
		}
		return err
	})
	return files, err
}

// Programs are the files that go into machines: the binary under test, and this
// package's own part.
type Programs struct {
	Gpustack, Guest string
}

// BuildGuest makes this package's part of machines in a folder, and returns its path.
func BuildGuest(dir string) (string, error) {
	file := filepath.Join(dir, "guest")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", file, "gpustack/integration/vm/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build guest: %w\n%s", err, out)
	}
	return file, nil
}

// An archive is written in the form that Linux unpacks as its first file system:
// Documentation/driver-api/early-userspace/buffer-format.rst. Several may follow each
// other in one file.
type archive struct {
	to    io.Writer
	inode int
	err   error // the first
}

// Modes of stat(2) that archives have.
const (
	modeFolder = 0o040000
	modeFile   = 0o100000
	modeLink   = 0o120000
)

func (a *archive) folder(name string) {
	a.add(name, modeFolder|0o755, nil)
}

func (a *archive) link(name, target string) {
	a.add(name, modeLink|0o777, []byte(target))
}

// file adds what a file of this machine holds.
func (a *archive) file(name string, perm fs.FileMode, from string) {
	data, err := os.ReadFile(from)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.add(name, modeFile|int(perm), data)
}

// close ends the archive, and returns the first error.
func (a *archive) close() error {
	a.add("TRAILER!!!", 0, nil)
	return a.err
}

func (a *archive) add(name string, mode int, data []byte) {
	a.inode++
	links := 1
	if mode&modeFolder != 0 && mode&modeFile != modeFile {
		links = 2
	}
	const header = 6 + 13*8
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		a.inode, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.write([]byte(head), []byte(name), make([]byte, 1+pad(header+len(name)+1)))
	a.write(data, make([]byte, pad(len(data))))
}

// pad is how many bytes are missing to a multiple of four.
func pad(n int) int {
	return -n & 3
}

func (a *archive) write(parts ...[]byte) {
	for _, part := range parts {
		if a.err == nil {
			_, a.err = a.to.Write(part)
		}
	}
}
