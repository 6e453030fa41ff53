package guard

import (
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// Files with disks that are not in use yet.
const (
	fstabFile    = "/etc/fstab"
	crypttabFile = "/etc/crypttab"
	cmdlineFile  = "/proc/cmdline"
)

// inactive adds a disk that a file names and that nothing uses now.
func (g *guard) inactive(disk string, absolute bool, of subject) error {
	name, err := g.tagged(disk)
	if err != nil || name == "" || g.carried[name] {
		return err
	}
	return g.above(name, absolute, of)
}

// resume adds the disk from which the kernel resumes after hibernation (Linux,
// Documentation/admin-guide/kernel-parameters.txt: the last resume= counts).
func (g *guard) resume() error {
	lines, err := g.lines(cmdlineFile)
	if err != nil {
		return err
	}
	disk := ""
	for _, word := range slices.Concat(lines...) {
		if word == "noresume" || word == "nohibernate" {
			return nil
		}
		if value, ok := strings.CutPrefix(word, "resume="); ok {
			disk = value
		}
	}
	if disk == "" {
		return nil
	}
	return g.inactive(disk, false, subject{UseResume, cmdlineFile, "the image of hibernation (resume=" + disk + ")"})
}

// fstab adds the file systems and swap areas of fstab(5) that are not active. What the host boots
// from is an absolute need, as if it were mounted.
func (g *guard) fstab() error {
	lines, err := g.lines(fstabFile)
	if err != nil && !forbidden(err) {
		return err
	}
	for _, fields := range lines {
		if strings.HasPrefix(fields[0], "#") || len(fields) < 3 {
			continue
		}
		disk, dir := host.UnescapeOctal(fields[0]), path.Clean(host.UnescapeOctal(fields[1]))
		as := "mounted at " + dir
		if fields[2] == "swap" {
			dir, as = "", "used as swap"
		}
		absolute := dir == "/" || dir == "/usr" || dir == "/boot" || strings.HasPrefix(dir, "/boot/")
		of := subject{UseTable, fstabFile, disk + ", to be " + as + " (" + fstabFile + "), not active now"}
		if err := g.inactive(disk, absolute, of); err != nil {
			return err
		}
	}
	return nil
}

// crypttab adds the devices of crypttab(5) that are not open.
func (g *guard) crypttab() error {
	lines, err := g.lines(crypttabFile)
	if err != nil && !forbidden(err) {
		return err
	}
	for _, fields := range lines {
		if strings.HasPrefix(fields[0], "#") || len(fields) < 2 {
			continue
		}
		of := subject{UseTable, crypttabFile, fields[1] + ", to be opened as " + fields[0] + " (" + crypttabFile + "), not active now"}
		if err := g.inactive(fields[1], false, of); err != nil {
			return err
		}
	}
	return nil
}
