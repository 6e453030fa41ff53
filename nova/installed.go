package nova

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/document"
)

// ErrNoRelease says that the release of the installed Nova cannot be determined.
var ErrNoRelease = host.WithHint(errors.New("cannot determine the release of Nova"), "give it with --release RELEASE, such as 2025.1 or epoxy")

// Installed returns the release of the Nova that is installed below root, from Debian's package
// database and from the metadata of Python packages.
//
// Errors: ErrNoRelease if there is none, more than one, or one older than Mitaka. A newer one than
// [Newest] is returned as it is; see [Release.Known].
func Installed(root host.Root) (Release, error) {
	found := map[Release]string{} // with where it was found
	packages, err := host.Installed(root)
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"nova-common", "python3-nova"} {
		note(found, packages[name], host.PackageFile)
	}
	for _, pattern := range []string{
		"usr/lib/python3/dist-packages", "usr/lib/python*/site-packages", "usr/local/lib/python*/dist-packages", "usr/local/lib/python*/site-packages",
		"var/lib/kolla/venv/lib/python*/site-packages", "openstack/venvs/*/lib/python*/site-packages", "opt/stack/data/venv/lib/python*/site-packages",
		"snap/openstack-hypervisor/current/usr/lib/python3/dist-packages", "snap/openstack-hypervisor/current/lib/python*/site-packages",
	} {
		dirs, err := expand(root, strings.Split(pattern, "/"))
		if err != nil {
			return 0, err
		}
		for _, dir := range dirs {
			names, err := host.IfPresent(root.ReadDir(dir))
			if err != nil {
				return 0, err
			}
			for _, name := range names {
				if m := metadataName().FindStringSubmatch(name); m != nil {
					note(found, m[1], path.Join(dir, name))
				}
			}
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("%w: no installed Nova found", ErrNoRelease)
	case 1:
		for r := range found {
			if r < Mitaka || r >= firstYear {
				return 0, fmt.Errorf("%w: %s contains version %d, which is older than %s", ErrNoRelease, found[r], int(r), Mitaka)
			}
			return r, nil
		}
	}
	var several []string
	for r, where := range found {
		several = append(several, fmt.Sprintf("%s (%s)", r, where))
	}
	slices.Sort(several)
	return 0, fmt.Errorf("%w: more than one is installed: %s", ErrNoRelease, strings.Join(several, ", "))
}

// OrInstalled returns the release, or if it is 0 the one that is installed below root, as a release
// that gpustack knows. The warning says that it is newer; see [Release.Known].
func (r Release) OrInstalled(root host.Root) (known Release, warnings []string, err error) {
	if r == 0 {
		if r, err = Installed(root); err != nil {
			return 0, nil, err
		}
	}
	known, warnings = r.Known()
	return known, warnings, nil
}

// OrInstalledFor is OrInstalled for files of machines that the operator names: the release that is
// installed below root is that of its own files alone.
//
// Errors: ErrNoRelease too for a file of another machine.
func (r Release) OrInstalledFor(root host.Root, machines []SideFiles) (known Release, warnings []string, err error) {
	for _, m := range machines {
		for _, name := range m.Names {
			if r == 0 && !isOwnFile(name) {
				return 0, nil, fmt.Errorf("%w: %s may be another machine's", ErrNoRelease, document.Name(name))
			}
		}
	}
	return r.OrInstalled(root)
}

// expand returns the folders that match a path whose elements may be patterns.
func expand(root host.Root, elements []string) ([]string, error) {
	dirs := []string{"/"}
	for _, element := range elements {
		var next []string
		for _, dir := range dirs {
			if !strings.Contains(element, "*") {
				next = append(next, path.Join(dir, element))
				continue
			}
			names, err := host.IfPresent(root.ReadDir(dir))
			if err != nil {
				return nil, err
			}
			names = host.Filter(names, func(name string) bool { ok, _ := path.Match(element, name); return ok })
			next = append(next, host.Map(names, func(name string) string { return path.Join(dir, name) })...)
		}
		dirs = next
	}
	return dirs, nil
}

// firstYear is the major number of the first release of 2012: the years were numbers until Kilo,
// 2015.1.
const firstYear = 2012

// metadataName matches the folder or file with the metadata of a Python package (PEP 376, 427).
var metadataName = host.LazyRegexp(`^nova-([0-9.]+[^-]*)(-py[0-9.]+)?\.(dist|egg)-info$`)

func note(found map[Release]string, version, where string) {
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && found[Release(n)] == "" {
		found[Release(n)] = where
	}
}
