package host

import (
	"os"
	"path"
	"slices"
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
// has one, or "": a unit is masked, and never starts, if that is a link to /dev/null (systemd.unit(5)),
// which may not exist below the root. With an error, it returns the file that cannot be looked at.
func (r Root) FindUnit(name string) (file string, err error) {
	dirs := UnitDirs()
	for i, dir := range dirs {
		file := path.Join(dir, name)
		ok, err := r.Exists(file)
		if err != nil {
			return file, err
		}
		if ok && slices.ContainsFunc(dirs[:i+1], func(dir string) bool {
			place, err := r.Real(path.Join(dir, name))
			return err == nil && place == os.DevNull
		}) {
			return "", nil
		}
		if ok {
			return file, nil
		}
	}
	return "", nil
}
