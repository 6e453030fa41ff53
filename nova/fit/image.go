package fit

import (
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Machine is what an image requires of the hypervisor; "" for anything.
type Machine struct {
	Architecture, Hypervisor, Mode string
	Versions                       []versionRange // of the hypervisor
}

// versionRange is a comparison with a version of the hypervisor.
type versionRange struct {
	operator string
	version  []int
}

// Names of architectures, hypervisors and modes (nova/objects/fields.py: Architecture, HVType and
// VMMode), and other names for them.
var (
	architectures = strings.Fields("alpha armv6 armv7 armv7b aarch64 cris i686 ia64 lm32 m68k microblaze microblazeel mips mipsel mips64 mips64el openrisc " +
		"parisc parisc64 ppc ppcle ppc64 ppc64le ppcemb s390 s390x sh4 sh4eb sparc sparc64 unicore32 x86_64 xtensa xtensaeb")
	hypervisors = strings.Fields("baremetal bhyve docker fake hyperv ironic kqemu kvm lxc lxd openvz parallels vz phyp qemu test uml vbox vmware xen zvm prsm")
	modes       = []string{"hvm", "xen", "uml", "exe"}
	otherNames  = map[string]map[string]string{
		"hw_architecture": {"i386": "i686", "i486": "i686", "i586": "i686", "x86_32": "i686", "x86_32p": "i686", "amd64": "x86_64"},
		"img_hv_type":     {"xapi": "xen"},
		"hw_vm_mode":      {"pv": "xen", "hv": "hvm", "baremetal": "hvm"},
	}
)

// canonical returns Nova's name of an architecture, a hypervisor or a mode. Nova reads a property
// with an older name even if the current one replaces it.
func (g Guest) canonical(key string, names []string) (name string, err error) {
	for _, property := range []string{legacyName(key), key} {
		text := g.Image[property]
		if text == "" {
			continue
		}
		name = strings.ToLower(text)
		if other, there := otherNames[key][name]; there {
			name = other
		}
		if !slices.Contains(names, name) {
			return "", reject("ValueError", "%s of the image is %q, a name that Nova does not have", property, text)
		}
	}
	return name, nil
}

// Machine returns what the image requires of the hypervisor. architecture is that of images without
// one.
//
// Errors: a [Rejection].
func (g Guest) Machine(architecture string) (m Machine, err error) {
	if m.Architecture, err = g.canonical("hw_architecture", architectures); err != nil {
		return m, err
	}
	if m.Architecture == "" {
		m.Architecture = architecture
	}
	if m.Hypervisor, err = g.canonical("img_hv_type", hypervisors); err != nil {
		return m, err
	}
	if m.Mode, err = g.canonical("hw_vm_mode", modes); err != nil {
		return m, err
	}
	text := g.Image["img_hv_requested_version"]
	if text == "" {
		return m, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		found := predicate().FindStringSubmatch(part)
		if found == nil {
			return m, reject("ValueError", "img_hv_requested_version of the image is %q, no comparison of versions", text)
		}
		m.Versions = append(m.Versions, versionRange{found[1], numbers(found[2])})
	}
	return m, nil
}

// predicate matches a comparison with a version (oslo_utils/versionutils.py, VersionPredicate).
var predicate = host.LazyRegexp(`^\s*(<=|>=|<|>|!=|==)\s*([0-9]+(?:\.[0-9]+)*)\s*$`)

func numbers(version string) (list []int) {
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part) // digits only
		list = append(list, n)
	}
	for len(list) > 0 && list[len(list)-1] == 0 { // 7.0 equals 7
		list = list[:len(list)-1]
	}
	return list
}

// IsAny reports whether the image fits every hypervisor: Nova compares the version only together
// with one of the other values.
func (m Machine) IsAny() bool { return m.Architecture == "" && m.Hypervisor == "" && m.Mode == "" }

// Fits reports whether a hypervisor with a version, such as 7002000 for 7.2.0, and one of several
// triples of architecture, hypervisor and mode fits (ImagePropertiesFilter).
func (m Machine) Fits(supported [][]string, version int) bool {
	if m.IsAny() {
		return true
	}
	return m.fitsVersion(version) && slices.ContainsFunc(supported, func(triple []string) bool {
		for _, want := range []string{m.Architecture, m.Hypervisor, m.Mode} {
			if want != "" && !slices.Contains(triple, want) {
				return false
			}
		}
		return true
	})
}

func (m Machine) fitsVersion(version int) bool {
	const thousand = 1000
	has := []int{}
	for n := version; n > 0; n /= thousand {
		has = slices.Insert(has, 0, n%thousand)
	}
	for len(has) > 0 && has[len(has)-1] == 0 {
		has = has[:len(has)-1]
	}
	return version == 0 || !slices.ContainsFunc(m.Versions, func(r versionRange) bool { return !holds(r.operator, slices.Compare(has, r.version)) })
}

// holds reports whether the result of a comparison, as of cmp.Compare, agrees with an operator.
func holds(operator string, compared int) bool {
	switch operator {
	case "<":
		return compared < 0
	case "<=":
		return compared <= 0
	case ">":
		return compared > 0
	case ">=", "=": // "=" is ">=" in extra specs
		return compared >= 0
	case "!=":
		return compared != 0
	}
	return compared == 0
}
