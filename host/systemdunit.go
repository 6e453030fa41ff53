package host

import (
	"os"
	"path"
)

// UnitDirs returns the folders from which systemd reads the units of the system, in its order of
// precedence (systemd.unit(5), "Unit File Load Path"). /lib is a folder of its own where it is not
// merged into /usr.
func UnitDirs() []string {
	return []string{
		"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient", "/run/systemd/generator.early",
		"/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system", "/run/systemd/system.attached",
		"/run/systemd/generator", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", "/run/systemd/generator.late",
	}
}

// FindUnit returns the file of a unit, such as docker.service, in the first of these folders that
// has one, or "". With an error, it returns the file that cannot be looked at.
func (r Root) FindUnit(name string) (file string, err error) {
	for _, dir := range UnitDirs() {
		file := path.Join(dir, name)
		ok, err := r.Exists(file)
		if ok || err != nil {
			return file, err
		}
	}
	return "", nil
}

// IsMask reports whether a file of a unit is a link to /dev/null, with which the unit never starts
// (systemctl(1), mask).
func (r Root) IsMask(file string) bool {
	dir, err := r.OpenDir(path.Dir(file))
	if err != nil {
		return false
	}
	defer dir.Close() //nolint:errcheck // only read from
	target, err := dir.Readlink(path.Base(file))
	return err == nil && target == os.DevNull
}
