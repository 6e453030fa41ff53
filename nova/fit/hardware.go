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
// require the first two and 31.0.0 does, which does not require the others, and 33.0.2 does;
// releases between were not compared.
const (
	packedRings       = nova.Antelope
	statelessFirmware = nova.Epoxy
	encryptionModels  = nova.Gazpacho
	secretSecurity    = nova.Gazpacho
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
	isUEFI := g.Image["hw_firmware_type"] == "uefi"
	// Without UEFI, 34.0.0 ignores the property (get_stateless_firmware_constraint).
	if g.Release >= statelessFirmware && isTrue(g.Image["hw_firmware_stateless"]) && (isUEFI || g.Release < nova.Hibiscus) {
		if !isUEFI {
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

// secrets adds the trait of a host that keeps the secrets of a TPM as the flavor requests it
// (tpm_secret_security_filter).
func (g Guest) secrets(traits []string) ([]string, error) {
	if g.Release < secretSecurity {
		return traits, nil
	}
	if tpm, err := g.tpm(); err != nil || len(tpm) == 0 {
		return traits, nil // Traits says what is rejected
	}
	security := cmp.Or(g.Specs["hw:tpm_secret_security"], "user")
	if !slices.Contains([]string{"user", "host", "deployment"}, security) {
		return nil, rejectLater("RequestFilterFailed", "hw:tpm_secret_security of the flavor is %q, not one of user, host, deployment", security)
	}
	return append(traits, "COMPUTE_SECURITY_TPM_SECRET_SECURITY_"+strings.ToUpper(security)), nil
}

// encryptionTraits are the traits of hosts that encrypt memory, by the model that is requested.
var encryptionTraits = map[string]string{
	"": "HW_CPU_X86_AMD_SEV", "amd-sev": "HW_CPU_X86_AMD_SEV", "amd-sev-es": "HW_CPU_X86_AMD_SEV_ES",
	"amd-sev-snp": "HW_CPU_X86_AMD_SEV_SNP", "intel-tdx": "HW_CPU_X86_INTEL_TDX", // since 34.0.0
}

// EncryptionTrait returns the trait that encrypted memory requires, "" if none is required
// (_translate_mem_encryption_request).
func (g Guest) EncryptionTrait() string {
	if encrypts, err := g.EncryptsMemory(); err != nil || !encrypts || g.Release < encryptionModels {
		return ""
	}
	flavor, image := g.both("mem_encryption_model")
	return encryptionTraits[cmp.Or(image, flavor)]
}

// FilterTraits returns the traits that request filters of nova-scheduler require for what the guest
// requests (nova/scheduler/request_filter.py). They do not open isolated aggregates.
//
// Errors: a [Rejection].
func (g Guest) FilterTraits() (traits []string, err error) {
	if g.Specs["accel:device_profile"] != "" && g.Release >= nova.Victoria {
		traits = append(traits, "COMPUTE_ACCELERATORS")
	}
	if traits, err = g.secrets(traits); err != nil {
		return nil, err
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
