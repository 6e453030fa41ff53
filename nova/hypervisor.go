package nova

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Hypervisor is the versions of a compute node's hypervisor.
type Hypervisor struct {
	Libvirt, QEMU Version // nil: unknown
}

// Version is the numbers of a version, the most significant first.
type Version []int

// ParseVersion returns the leading numbers of a version: 8.2.2 for 8.2.2+ds-0ubuntu1.
func ParseVersion(s string) (Version, error) {
	var v Version
	for number := range strings.SplitSeq(versionNumbers().FindString(s), ".") {
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%q is not a version", s)
		}
		v = append(v, n)
	}
	return v, nil
}

var versionNumbers = host.LazyRegexp(`^[0-9]+(\.[0-9]+)*`)

func (v Version) String() string {
	var numbers []string
	for _, n := range v {
		numbers = append(numbers, strconv.Itoa(n))
	}
	return strings.Join(numbers, ".")
}

// libvirtLibrary matches the file name of libvirt's library, which contains the version as
// major*1000+minor and micro (libvirt/meson.build, so_version).
var libvirtLibrary = host.LazyRegexp(`^libvirt\.so\.0\.([0-9]+)\.([0-9]+)$`)

// InstalledHypervisor returns the versions that are installed below root, from Debian's package
// database, or for libvirt from the name of its library. A version that is not found is nil.
func InstalledHypervisor(root host.Root) (Hypervisor, error) {
	var h Hypervisor
	found, err := packages(root, "libvirt-daemon", "qemu-system-x86", "qemu-system-arm")
	if err != nil {
		return h, err
	}
	parse := func(names ...string) Version {
		for _, name := range names {
			if v, err := ParseVersion(found[name]); err == nil {
				return v
			}
		}
		return nil
	}
	h.Libvirt, h.QEMU = parse("libvirt-daemon"), parse("qemu-system-x86", "qemu-system-arm")
	if h.Libvirt == nil {
		h.Libvirt, err = libraryVersion(root)
	}
	return h, err
}

func libraryVersion(root host.Root) (Version, error) {
	dirs, err := expand(root, []string{"usr", "lib64"})
	if err != nil {
		return nil, err
	}
	var found []Version
	for _, dir := range dirs {
		names, err := root.ReadDir(dir)
		if host.IsAbsent(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
		}
		for _, name := range names {
			m := libvirtLibrary().FindStringSubmatch(path.Base(name))
			if m == nil {
				continue
			}
			release, err1 := strconv.Atoi(m[1])
			micro, err2 := strconv.Atoi(m[2])
			if err1 == nil && err2 == nil {
				found = append(found, Version{release / 1000, release % 1000, micro})
			}
		}
	}
	if len(found) != 1 { // which of several is in use is unknown
		return nil, nil
	}
	return found[0], nil
}

// Before reports whether the version is known and lower than other. 8.2 is not before 8.2.2.
func (v Version) Before(other Version) bool {
	return v != nil && slices.Compare(v, other) < 0 && !slices.Equal(v, other[:min(len(v), len(other))])
}
