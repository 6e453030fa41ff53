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

// Properties of images that Nova knows, by the type of their values (nova/objects/image_meta.py,
// ImageMetaProps of 31.0.0), except lists.
var (
	flagProperties = strings.Fields("hw_boot_menu hw_firmware_stateless hw_ipxe_boot hw_locked_memory hw_mem_encryption hw_pmu hw_qemu_guest_agent " +
		"hw_time_hpet hw_vif_multiqueue_enabled hw_ephemeral_encryption hw_virtio_packed_ring img_bittorrent img_bdm_v2 img_cache_in_nova img_linked_clone " +
		"img_use_agent img_hide_hypervisor_id os_require_quiesce os_skip_agent_inject_files_at_boot os_skip_agent_inject_ssh")
	integerProperties = strings.Fields("hw_cpu_cores hw_cpu_sockets hw_cpu_max_cores hw_cpu_max_sockets hw_cpu_max_threads hw_cpu_threads hw_device_id " +
		"hw_numa_nodes hw_serial_port_count hw_video_ram hw_maxphysaddr_bits img_compression_level img_version")
	textProperties = strings.Fields("hw_architecture hw_emulation_architecture hw_ephemeral_encryption_format hw_rescue_device hw_cpu_policy " +
		"hw_cpu_thread_policy img_config_drive hw_cdrom_bus hw_disk_bus hw_floppy_bus hw_rescue_bus hw_firmware_type img_hv_type img_signature_hash_method " +
		"img_signature_key_type hw_input_bus hw_maxphysaddr_mode os_type hw_pci_numa_affinity_policy hw_pointer_model hw_rng_model hw_scsi_model " +
		"os_secure_boot hw_auto_disk_config hw_cpu_realtime_mask hw_disk_type hw_machine_type hw_mem_page_size img_owner_id img_root_device_name " +
		"img_signature os_admin_user os_command_line os_distro hw_tpm_model hw_tpm_version hw_ephemeral_encryption_secret_uuid " +
		"img_signature_certificate_uuid hw_vif_model hw_viommu_model hw_vm_mode img_hv_requested_version hw_video_model hw_watchdog_action")
)

// Property returns a property of the image as filters compare it, "" for none: of properties that
// Nova does not know, of flags that are off, and of 0.
func (g Guest) Property(key string) string {
	value := g.Image[key]
	switch {
	case slices.Contains(flagProperties, key) && isTrue(value):
		return "True"
	case slices.Contains(integerProperties, key):
		if n, err := parseInt(value); err == nil && n != 0 {
			return strconv.Itoa(n)
		}
	case key == "hw_architecture":
		return g.named(key, architectures)
	case key == "img_hv_type":
		return g.named(key, hypervisors)
	case key == "hw_vm_mode":
		return g.named(key, modes)
	case slices.Contains(textProperties, key):
		return value
	}
	return ""
}

// named is canonical for a name that nova-api accepts.
func (g Guest) named(key string, names []string) string {
	name, err := g.canonical(key, names)
	if err != nil {
		return ""
	}
	return name
}

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
