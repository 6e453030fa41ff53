package nova

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova/devspec"
)

// Hypervisor is the versions of a compute node's hypervisor.
type Hypervisor struct {
	Libvirt, QEMU Version // nil: unknown
}

// Part is a part of a hypervisor with the lowest version that something needs.
type Part struct {
	Name         string // libvirt or QEMU
	Have, Lowest Version
}

// IsOld reports whether the version is known and too low.
func (p Part) IsOld() bool { return p.Have.Before(p.Lowest) }

// LacksLiveMigration returns the parts that are too old for a device_spec with live_migratable, or
// of unknown versions: nova-compute tests the tag as a text, so that it does not start with "no"
// either (nova/virt/libvirt/driver.py of 2025.1, MIN_VFIO_PCI_VARIANT_LIBVIRT_VERSION).
func (h Hypervisor) LacksLiveMigration() []Part {
	parts := []Part{{"libvirt", h.Libvirt, Version{10, 0, 0}}, {"QEMU", h.QEMU, Version{8, 2, 2}}}
	return slices.DeleteFunc(parts, func(p Part) bool { return p.Have != nil && !p.IsOld() })
}

// HasLiveMigratable reports whether nova-compute needs a hypervisor for live migration because of a
// device_spec: whatever the value is, except null and those that it rejects.
func HasLiveMigratable(s devspec.Spec, r Release) bool {
	value := s.Object["live_migratable"]
	_, err := devspec.Bool(value)
	return r >= Epoxy && value != nil && err == nil
}

// Or returns the versions, and those of another hypervisor instead of unknown ones.
func (h Hypervisor) Or(other Hypervisor) Hypervisor {
	if h.Libvirt == nil {
		h.Libvirt = other.Libvirt
	}
	if h.QEMU == nil {
		h.QEMU = other.QEMU
	}
	return h
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
	return strings.Join(host.Map(v, strconv.Itoa), ".")
}

// libvirtLibrary matches the file name of libvirt's library, which contains the version as
// major*1000+minor and micro (libvirt/meson.build, so_version).
var libvirtLibrary = host.LazyRegexp(`^libvirt\.so\.0\.([0-9]+)\.([0-9]+)$`)

// InstalledHypervisor returns the versions that are installed below root, from Debian's package
// database, or for libvirt from the name of its library. A version that is not found is nil.
func InstalledHypervisor(root host.Root) (Hypervisor, error) {
	var h Hypervisor
	found, err := host.Installed(root)
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
	names, err := host.IfPresent(root.ReadDir("/usr/lib64"))
	if err != nil {
		return nil, err
	}
	var found []Version
	for _, name := range names {
		m := libvirtLibrary().FindStringSubmatch(name)
		if m == nil {
			continue
		}
		release, err1 := strconv.Atoi(m[1])
		micro, err2 := strconv.Atoi(m[2])
		if err1 == nil && err2 == nil {
			found = append(found, Version{release / 1000, release % 1000, micro})
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

// setLiveMigratable sets live_migratable of an alias's device_spec, if nova-compute starts with it.
func setLiveMigratable(o Options, s *Spec, a Alias) {
	if o.Release < Epoxy {
		return
	}
	switch lacks := o.Hypervisor.LacksLiveMigration(); {
	case len(lacks) == 0:
		s.LiveMigratable = a.LiveMigratable
	case !slices.ContainsFunc(lacks, Part.IsOld):
		s.unwritten = a.LiveMigratable
	}
}

// warnLiveMigratable returns a warning for an alias whose device_spec is written without its
// live_migratable. Nova matches such an alias with tagged devices only (nova/pci/stats.py,
// _filter_pools_for_live_migratable_devices).
func warnLiveMigratable(o Options, a Alias) []string {
	lacks := o.Hypervisor.LacksLiveMigration()
	if !o.Role.Computes() || o.Release < Epoxy || a.LiveMigratable == "" || len(lacks) == 0 {
		return nil
	}
	effect := "no guest with this alias gets a device of this host"
	if !slices.ContainsFunc(lacks, Part.IsOld) {
		effect = "guests with this alias get only devices whose device_spec has it already"
	}
	return []string{fmt.Sprintf("alias %s: live_migratable is not written to device_spec, because %s; %s", a.Name, lacking(lacks), effect)}
}

// lacking returns which parts are too old, or else which versions are unknown.
func lacking(lacks []Part) string {
	var old, lowest, unknown, flags []string
	for _, part := range lacks {
		if part.IsOld() {
			old, lowest = append(old, part.Name+" is "+part.Have.String()), append(lowest, part.Name+" "+part.Lowest.String())
			continue
		}
		unknown, flags = append(unknown, part.Name), append(flags, "--"+strings.ToLower(part.Name))
	}
	switch {
	case len(old) > 0:
		return strings.Join(old, " and ") + ", and nova-compute does not start with it before " + strings.Join(lowest, " and ")
	case len(unknown) == 1:
		return fmt.Sprintf("the version of %s is unknown: %s gives it", unknown[0], flags[0])
	}
	return fmt.Sprintf("the versions of %s are unknown: %s give them", strings.Join(unknown, " and "), strings.Join(flags, " and "))
}
