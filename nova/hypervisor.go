package nova

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Hypervisor is the versions of what a compute node's guests run on.
type Hypervisor struct {
	Libvirt, QEMU Version // nil where it is not known
}

// Version is a version's numbers, the most significant first.
type Version []int

// ParseVersion reads the numbers that a version begins with, such as 8.2.2 of
// 8.2.2+ds-0ubuntu1.
func ParseVersion(s string) (Version, error) {
	var v Version
	for number := range strings.SplitSeq(versionNumbers.FindString(s), ".") {
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("%q is not a version", s)
		}
		v = append(v, n)
	}
	return v, nil
}

var versionNumbers = regexp.MustCompile(`^[0-9]+(\.[0-9]+)*`)

func (v Version) String() string {
	var numbers []string
	for _, n := range v {
		numbers = append(numbers, strconv.Itoa(n))
	}
	return strings.Join(numbers, ".")
}

// libvirtLibrary has the version in its name: major*1000+minor, and micro
// (libvirt/meson.build, so_version).
var libvirtLibrary = regexp.MustCompile(`^libvirt\.so\.0\.([0-9]+)\.([0-9]+)$`)

// InstalledHypervisor returns the versions below root: those of Debian's package
// database, and else libvirt's as its library is named. What is found nowhere is nil.
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
			m := libvirtLibrary.FindStringSubmatch(path.Base(name))
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
	if len(found) != 1 { // of several, which one is at work is not known
		return nil, nil
	}
	return found[0], nil
}

// before reports whether the version is known and lower than another.
func (v Version) before(other Version) bool {
	return v != nil && slices.Compare(v, other) < 0 && !slices.Equal(v, other[:min(len(v), len(other))])
}
