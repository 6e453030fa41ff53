package image

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// Properties of images that gpustack checks and plans (nova/objects/image_meta.py).
const (
	machineType   = "hw_machine_type"
	firmwareType  = "hw_firmware_type"
	addressMode   = "hw_maxphysaddr_mode"
	addressBits   = "hw_maxphysaddr_bits"
	viommuModel   = "hw_viommu_model"
	lockedMemory  = "hw_locked_memory"
	memPageSize   = "hw_mem_page_size"
	secureBoot    = "os_secure_boot"
	osType        = "os_type"
	diskBus       = "hw_disk_bus"
	scsiModel     = "hw_scsi_model"
	vifModel      = "hw_vif_model"
	multiqueue    = "hw_vif_multiqueue_enabled"
	numaPolicy    = "hw_pci_numa_affinity_policy"
	hideKVM       = "img_hide_hypervisor_id"
	configDrive   = "img_config_drive"
	architecture  = "hw_architecture"
	architecture0 = "architecture" // its name before Kilo, which Nova still reads
)

// property is what Nova demands of the value of a property.
type property struct {
	// since is the newest microversion of the first release that reads it, 0 for every release.
	since cloud.Microversion
	// values are those that Nova accepts. It rejects a boot from an image with another one.
	values []string
	number bool
}

// readByNova matches names of properties of whose values Nova accepts only some
// (nova/objects/image_meta.py, ImageMetaProps; it ignores others, such as owner_specified).
var readByNova = host.LazyRegexp(`^(hw_|img_|os_type$|os_shutdown_timeout$|architecture$|hypervisor_type$|vm_mode$)`)

// known are properties whose values (without a list any value) and releases are known:
// nova/objects/image_meta.py and fields.py of 26.2.2, and the specification "Add maxphysaddr
// support for Libvirt" of 2024.1.
// os_secure_boot is older for Hyper-V, and of Wallaby for libvirt.
var known = map[string]property{
	machineType:  {},
	multiqueue:   {},
	firmwareType: {values: []string{"bios", "uefi"}},
	addressMode:  {since: caracal, values: []string{"passthrough", "emulate"}},
	addressBits:  {since: caracal, number: true},
	viommuModel:  {since: zed, values: []string{"intel", "smmuv3", "virtio", "auto"}},
	lockedMemory: {since: zed},
	secureBoot:   {since: wallaby, values: []string{"required", "optional", "disabled"}},
	osType:       {values: []string{"linux", "windows"}},
	diskBus:      {values: []string{"virtio", "scsi", "ide", "sata", "usb", "fdc", "xen", "lxc", "uml"}},
	numaPolicy:   {since: ussuri, values: []string{"required", "legacy", "preferred", "socket"}},
	hideKVM:      {since: pike},
	configDrive:  {values: []string{"optional", "mandatory"}},
}

// The newest microversion of releases (nova/api/openstack/compute/rest_api_version_history.rst).
const (
	pike    cloud.Microversion = 53
	ussuri  cloud.Microversion = 87
	wallaby cloud.Microversion = 88
	zed     cloud.Microversion = 93
	caracal cloud.Microversion = 96
)

// invalid returns why Nova rejects a value of a property, or "".
func invalid(name, value string) string {
	p := known[name]
	if name == osType {
		value = strings.ToLower(value) // as Nova does
	}
	if p.number {
		if n, err := strconv.Atoi(value); err != nil || n < 1 {
			return fmt.Sprintf("%s: not a number above 0: %q", name, value)
		}
	}
	if p.values != nil && !slices.Contains(p.values, value) {
		return fmt.Sprintf("%s: unknown value %q; Nova accepts %s", name, value, strings.Join(p.values, ", "))
	}
	return ""
}

// demand returns the trait that a compute node must have for guests of an image with a property, or
// "" (os_traits/compute; nova/scheduler/utils.py, _translate_secure_boot_request and, since 2024.1,
// the request for an address space).
func demand(name string, value *string) string {
	switch {
	case value == nil:
		return ""
	case name == addressMode && *value == "passthrough":
		return "COMPUTE_ADDRESS_SPACE_PASSTHROUGH"
	case name == addressMode && *value == "emulate":
		return "COMPUTE_ADDRESS_SPACE_EMULATED"
	case name == viommuModel && invalid(name, *value) == "":
		return "COMPUTE_VIOMMU_MODEL_" + strings.ToUpper(*value)
	case name == secureBoot && *value == "required":
		return "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
	}
	return ""
}

// scheduled reports whether Nova places guests only on compute nodes with the trait of a property.
// It never asks for that of a vIOMMU: transform_image_metadata (nova/scheduler/request_filter.py)
// builds COMPUTE_VIOMMU_INTEL, which os_traits does not have, and then asks for no trait at all.
func scheduled(name string) bool {
	return name != viommuModel
}

// extraSpec returns the extra spec of flavors with the meaning of a property, or "".
func extraSpec(name string) string {
	switch name {
	case addressMode, addressBits, viommuModel, numaPolicy, multiqueue, lockedMemory, memPageSize:
		return strings.Replace(name, "hw_", "hw:", 1)
	case secureBoot:
		return "os:secure_boot"
	}
	return ""
}

var propertyName = host.LazyRegexp(`^[A-Za-z0-9_.:-]+$`)

// fields are values of an image that are not properties, and the command that changes them.
var fields = []string{
	"id", "name", "owner", "status", "visibility", "protected", "os_hidden", "size", "virtual_size", "checksum", "os_hash_algo", "os_hash_value",
	"disk_format", "container_format", "created_at", "updated_at", "tags", "locations", "direct_url", "stores", "file", "schema", "self",
}

// ParseProperty reads NAME=VALUE. The value is nil for NAME=, which removes the property. A value
// that Nova rejects at boot is an error.
func ParseProperty(s string) (name string, value *string, err error) {
	name, text, ok := strings.Cut(s, "=")
	const longest = 255 // glance/db/sqlalchemy/models.py, ImageProperty
	switch {
	case !ok:
		return "", nil, fmt.Errorf("%q must be NAME=VALUE, or NAME= to remove the property", s)
	case name == "":
		return "", nil, fmt.Errorf("%q: the name is missing", s)
	case !propertyName().MatchString(name):
		return "", nil, fmt.Errorf("%q: only letters, digits and - _ . : are allowed in a name", s)
	case len(name) > longest:
		return "", nil, fmt.Errorf("%s is longer than %d characters", name, longest)
	case name == cloud.MinDisk, name == cloud.MinRAM:
		return "", nil, fmt.Errorf("%s is no property: it is set by --%s", name, strings.ReplaceAll(name, "_", "-"))
	case slices.Contains(fields, name):
		return "", nil, fmt.Errorf("%s is no property of an image, but a field: 'openstack image set' changes it where Glance allows that", name)
	case text == "":
		return name, nil, nil
	}
	if fault := invalid(name, text); fault != "" {
		return "", nil, fmt.Errorf("%s", fault)
	}
	return name, &text, nil
}
