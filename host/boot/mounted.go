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

// NotMounted is the error of a boot partition that is not mounted. What is read from its mount
// point is not what the machine boots, and what is written there has no effect.
type NotMounted struct {
	Dir     string // the mount point on the machine
	Command string // mounts the partition
}

func (e *NotMounted) Error() string {
	return e.Dir + ": /etc/fstab names a file system for it, which is not mounted"
}

// Mounted returns an error of type *NotMounted for a partition of boot files that /etc/fstab names
// (fstab(5)) and that is not mounted. A noauto entry counts with x-systemd.automount, which systemd
// mounts on access (systemd.mount(5)), and for a /boot without boot files.
//
// A root without /proc/mounts does not run: there, a mount point without boot files is one that
// the operator has not mounted below the root.
func Mounted(root host.Root) error {
	const fstab = "/etc/fstab"
	data, err := root.ReadFile(fstab)
	if host.IsAbsent(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", fstab, host.Cause(err))
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
	for _, dir := range []string{"/boot", "/boot/efi", "/efi"} { // outer ones first
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

// isMounted returns whether a boot partition is mounted at dir, and whether boot files are there.
func isMounted(root host.Root, dir string) (mounted, filled bool, err error) {
	names, err := root.ReadDir(dir) // has systemd mount it, if it mounts on access
	if err != nil && !host.IsAbsent(err) {
		return false, false, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	filled = slices.ContainsFunc(names, isBootFile)
	const mounts = "/proc/mounts"
	data, err := root.ReadTable(mounts)
	if host.IsAbsent(err) {
		return filled, filled, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("%s: %w", mounts, host.Cause(err))
	}
	place, err := mountPoint(root, dir)
	if err != nil {
		return false, false, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 2 && f[1] == place && f[2] != "autofs" {
			return true, filled, nil
		}
	}
	return false, filled, nil
}

// mountPoint returns dir as /proc/mounts below root has it: without links (proc_mounts(5)), and
// from the kernel itself as this process sees it.
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
	place = filepath.Join(top, place)
	return strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(place), nil
}

// isBootFile returns whether a name in a boot partition is that of a kernel, or of a folder that
// boot loaders read (Boot Loader Specification).
func isBootFile(name string) bool {
	return slices.ContainsFunc([]string{"vmlinu", "Image", "bzImage"}, func(kernel string) bool { return strings.HasPrefix(name, kernel) }) ||
		strings.EqualFold(name, "EFI") || strings.EqualFold(name, "loader")
}
