package fit

import (
	"cmp"
	"slices"
	"strings"

	"gpustack/nova"
)

// flag reports whether the flavor or the image turns something on. Nova rejects the guest if they
// differ.
func (g Guest) flag(key string) (bool, error) {
	flavor, inFlavor := g.Specs["hw:"+key]
	image, inImage := g.Image["hw_"+key]
	if inFlavor && inImage && isTrue(flavor) != isTrue(image) {
		return false, reject("FlavorImageConflict", "hw:%s of the flavor is %s, and hw_%s of the image is %s", key, flavor, key, image)
	}
	return isTrue(flavor) || isTrue(image), nil
}

// Validate rejects extra specs and properties of the virtual machine that nova-api does not accept
// (nova/compute/api.py, _validate_flavor_image_nostatus).
//
// Errors: a [Rejection].
func (g Guest) Validate() error {
	for _, f := range []struct {
		key   string
		since nova.Release
	}{{"pmu", nova.Train}, {"vif_multiqueue_enabled", nova.Wallaby}, {"virtio_packed_ring", packedRings}} {
		if g.Release < f.since || f.key == "vif_multiqueue_enabled" && g.VCPUs == 1 {
			continue
		}
		if _, err := g.flag(f.key); err != nil {
			return err
		}
	}
	if err := g.serialPorts(); err != nil {
		return err
	}
	return g.cpuTopology()
}

// serialPorts is get_number_of_serial_ports.
func (g Guest) serialPorts() error {
	flavor, image := g.both("serial_port_count")
	if flavor == "" {
		return nil
	}
	most, err := parseInt(flavor)
	if err != nil {
		return reject("ImageSerialPortNumberInvalid", "hw:serial_port_count of the flavor is %q", flavor)
	}
	if ports, err := parseInt(image); err == nil && most != 0 && ports > most {
		return reject("ImageSerialPortNumberExceedFlavorValue", "hw:serial_port_count of the flavor is %d, and hw_serial_port_count of the image is %d", most, ports)
	}
	return nil
}

// cpuTopology rejects numbers of sockets, cores and threads that the image must not have
// (get_cpu_topology_constraints).
func (g Guest) cpuTopology() error {
	for _, unit := range []string{"sockets", "cores", "threads"} {
		numbers := map[string]int{}
		for _, key := range []string{"cpu_max_" + unit, "cpu_" + unit} {
			flavor, image := g.both(key)
			n, err := parseInt(cmp.Or(flavor, "0"))
			if err != nil {
				return reject("InvalidRequest", "hw:%s of the flavor is %q", key, flavor)
			}
			numbers["hw:"+key] = n
			numbers["hw_"+key], _ = parseInt(image) // not a number, or none: 0
		}
		most, mostOfImage, image := numbers["hw:cpu_max_"+unit], numbers["hw_cpu_max_"+unit], numbers["hw_cpu_"+unit]
		if most != 0 && mostOfImage > most {
			return reject("ImageVCPULimitsRangeExceeded", "hw_cpu_max_%s of the image is %d, and hw:cpu_max_%s of the flavor is %d", unit, mostOfImage, unit, most)
		}
		if limit := cmp.Or(mostOfImage, most); limit != 0 && image > limit {
			return reject("ImageVCPUTopologyRangeExceeded", "hw_cpu_%s of the image is %d, and the most is %d", unit, image, limit)
		}
	}
	return nil
}

// unique returns the value of an extra spec or of the image property of the same meaning
// (_get_unique_flavor_image_meta). nova-scheduler fails if they differ or the value is none of
// those that Nova knows.
func (g Guest) unique(prefix, key string, known ...string) (string, error) {
	flavor, image := g.Specs[prefix+":"+key], g.Image[prefix+"_"+key]
	value := cmp.Or(flavor, image)
	switch {
	case flavor != "" && image != "" && flavor != image:
		return "", rejectLater("FlavorImageConflict", "%s:%s of the flavor is %s, and %s_%s of the image is %s", prefix, key, flavor, prefix, key, image)
	case value != "" && !slices.Contains(known, value):
		return "", rejectLater("Invalid", "%s:%s is %q, not one of %s", prefix, key, value, strings.Join(known, ", "))
	}
	return value, nil
}

// Releases since which nova-scheduler requires traits for what a guest requests: 26.2.2 does not
// require them and 31.0.0 does; releases between were not compared.
const (
	packedRings       = nova.Antelope
	statelessFirmware = nova.Epoxy
)

// Traits returns the traits that the virtual machine of the guest requires of a host, besides those
// that extra specs name (nova/scheduler/utils.py, ResourceRequest.from_request_spec).
//
// Errors: a [Rejection].
func (g Guest) Traits() (traits []string, err error) {
	if g.Release >= nova.Victoria {
		if traits, err = g.tpm(); err != nil {
			return nil, err
		}
	}
	if g.Release >= nova.Wallaby {
		if policy, err := g.PCIPolicy(); err == nil && policy == Socket {
			traits = append(traits, "COMPUTE_SOCKET_PCI_NUMA_AFFINITY")
		}
		boot, err := g.unique("os", "secure_boot", "required", "disabled", "optional")
		if err != nil {
			return nil, err
		}
		if boot == Required {
			traits = append(traits, "COMPUTE_SECURITY_UEFI_SECURE_BOOT")
		}
	}
	if g.Release >= nova.Antelope {
		mode, err := g.unique("hw", "maxphysaddr_mode", "passthrough", "emulate")
		if err != nil {
			return nil, err
		}
		if mode != "" {
			traits = append(traits, map[string]string{"passthrough": "COMPUTE_ADDRESS_SPACE_PASSTHROUGH", "emulate": "COMPUTE_ADDRESS_SPACE_EMULATED"}[mode])
		}
	}
	if g.Release >= statelessFirmware && isTrue(g.Image["hw_firmware_stateless"]) {
		if g.Image["hw_firmware_type"] != "uefi" {
			return nil, rejectLater("Invalid", "hw_firmware_stateless of the image requires hw_firmware_type=uefi")
		}
		traits = append(traits, "COMPUTE_SECURITY_STATELESS_FIRMWARE")
	}
	return traits, nil
}

// tpm is get_vtpm_constraint, and _translate_vtpm_request.
func (g Guest) tpm() (traits []string, err error) {
	version, err := g.unique("hw", "tpm_version", "1.2", "2.0")
	if err != nil || version == "" {
		return nil, err
	}
	model, err := g.unique("hw", "tpm_model", "tpm-tis", "tpm-crb")
	if err != nil {
		return nil, err
	}
	if model == "tpm-crb" && version != "2.0" {
		return nil, rejectLater("Invalid", "hw:tpm_model=tpm-crb requires hw:tpm_version=2.0")
	}
	if g.Release >= nova.Epoxy {
		traits = append(traits, "COMPUTE_SECURITY_TPM_"+strings.ToUpper(strings.TrimPrefix(cmp.Or(model, "tpm-tis"), "tpm-")))
	}
	return append(traits, "COMPUTE_SECURITY_TPM_"+strings.ReplaceAll(version, ".", "_")), nil
}

// FilterTraits returns the traits that request filters of nova-scheduler require for what the guest
// requests (nova/scheduler/request_filter.py). They do not open isolated aggregates.
//
// Errors: a [Rejection].
func (g Guest) FilterTraits() (traits []string, err error) {
	if g.Specs["accel:device_profile"] != "" && g.Release >= nova.Victoria {
		traits = append(traits, "COMPUTE_ACCELERATORS")
	}
	if isPacked, err := g.flag("virtio_packed_ring"); isPacked && err == nil && g.Release >= packedRings { // nova-api has rejected others
		traits = append(traits, "COMPUTE_NET_VIRTIO_PACKED")
	}
	if g.Release < nova.Zed {
		return traits, nil
	}
	isEncrypted, err := g.flag("ephemeral_encryption")
	if err != nil {
		return nil, later(err)
	}
	if !isEncrypted {
		return traits, nil
	}
	format, err := g.unique("hw", "ephemeral_encryption_format", "luks", "plain")
	if err != nil {
		return nil, err
	}
	traits = append(traits, "COMPUTE_EPHEMERAL_ENCRYPTION")
	if format != "" {
		traits = append(traits, "COMPUTE_EPHEMERAL_ENCRYPTION_"+strings.ToUpper(format))
	}
	return traits, nil
}
