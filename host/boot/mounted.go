package boot

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// NotMounted is the error of a boot partition that is not mounted. The machine does not boot from
// the files in its mount point, so changing them has no effect.
type NotMounted struct {
	Dir     string // the mount point on the machine
	Command string // that mounts the partition
}

func (e *NotMounted) Error() string {
	return e.Dir + ": is in /etc/fstab but not mounted"
}

// Hint returns the command that mounts the partition.
func (e *NotMounted) Hint() string { return e.Command }

// Mounted returns an error of type *NotMounted for a boot partition in /etc/fstab (fstab(5)) that
// is not mounted. It ignores noauto entries, except those with x-systemd.automount, which systemd
// mounts on access (systemd.mount(5)), and /boot if it has no boot files.
//
// A root without /proc/mounts is not a running machine. There, a mount point without boot files
// counts as not mounted below the root.
func Mounted(root host.Root) error {
	const fstab = "/etc/fstab"
	data, err := host.IfPresent(root.ReadFile(fstab))
	if err != nil {
		return err
	}
	sources := map[string]string{}
	byHand := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 || strings.HasPrefix(f[0], "#") {
			continue
		}
		var options []string
		if len(f) > 3 {
			options = strings.Split(f[3], ",")
		}
		dir := path.Clean(f[1])
		sources[dir] = f[0]
		byHand[dir] = slices.Contains(options, "noauto") && !slices.Contains(options, "x-systemd.automount")
	}
	for _, dir := range []string{"/boot", "/boot/efi", "/efi"} { // /boot first: it contains /boot/efi
		source, named := sources[dir]
		if !named || byHand[dir] && dir != "/boot" {
			continue
		}
		mounted, filled, err := isMounted(root, dir)
		if err != nil {
			return err
		}
		if mounted || filled && byHand[dir] {
			continue
		}
		command := "mount " + dir
		if place := root.Path(dir); place != dir {
			command = "mount " + source + " " + place
		}
		return &NotMounted{dir, command}
	}
	return nil
}

// isMounted reports whether a boot partition is mounted at dir, and whether dir has boot files.
func isMounted(root host.Root, dir string) (mounted, filled bool, err error) {
	names, err := root.ReadDir(dir) // triggers an automount
	if err != nil && !host.IsAbsent(err) {
		return false, false, err
	}
	filled = slices.ContainsFunc(names, isBootFile)
	const mounts = "/proc/mounts"
	data, err := root.ReadTable(mounts)
	if host.IsAbsent(err) {
		return filled, filled, nil
	}
	if err != nil {
		return false, false, err
	}
	table, err := host.ParseMounts(string(data))
	if err != nil {
		return false, false, fmt.Errorf("%s: %w", mounts, err)
	}
	place, err := mountPoint(root, dir)
	if err != nil {
		return false, false, host.OfFile(dir, err)
	}
	mounted = slices.ContainsFunc(table, func(m host.Mount) bool { return m.Place == place && m.Kind != "autofs" })
	return mounted, filled, nil
}

// mountPoint returns dir as /proc/mounts below root has it: with links resolved
// (proc_mounts(5)), and, if that is the kernel's own file, as a path of this process.
func mountPoint(root host.Root, dir string) (string, error) {
	place, err := root.Resolve(dir)
	if err == nil {
		place, err = filepath.Rel(root.Path("/"), place)
	}
	if err != nil {
		return "", err
	}
	top := "/"
	var stat unix.Statfs_t
	if err := unix.Statfs(root.Path("/proc"), &stat); err == nil && stat.Type == unix.PROC_SUPER_MAGIC {
		if top, err = filepath.EvalSymlinks(root.Path("/")); err != nil {
			return "", err
		}
	}
	return filepath.Join(top, place), nil
}

// isBootFile reports whether a name in a boot partition is that of a kernel, or of a directory that
// boot loaders read (Boot Loader Specification).
func isBootFile(name string) bool {
	isKernel := slices.ContainsFunc([]string{"vmlinu", "Image", "bzImage"}, func(kernel string) bool { return strings.HasPrefix(name, kernel) })
	return isKernel || strings.EqualFold(name, "EFI") || strings.EqualFold(name, "loader")
}
