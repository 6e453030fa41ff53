package fit

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/nova"
)

// Guest is what a flavor and an image request.
type Guest struct {
	Release    nova.Release
	VCPUs, RAM int               // MiB
	Specs      map[string]string // extra specs of the flavor
	Image      map[string]string // properties of the image, with Nova's current names; see [Properties]
}

// Rejection is why Nova rejects a guest.
type Rejection struct {
	Exception string // of Nova
	Seen      string
	Later     bool // by nova-scheduler, after nova-api has accepted the request
}

func (r *Rejection) Error() string { return r.Seen + " (" + r.Exception + ")" }

func reject(exception, format string, args ...any) error {
	return &Rejection{Exception: exception, Seen: fmt.Sprintf(format, args...)}
}

func rejectLater(exception, format string, args ...any) error {
	return later(reject(exception, format, args...))
}

// later returns a rejection as one by nova-scheduler.
func later(err error) error {
	if r, ok := err.(*Rejection); ok { //nolint:errorlint // as reject has returned it
		r.Later = true
	}
	return err
}

// legacyProperties are properties of images by their older names (nova/objects/image_meta.py,
// _legacy_property_map), except lists.
var legacyProperties = map[string]string{
	"architecture": "hw_architecture", "vm_mode": "hw_vm_mode", "hypervisor_type": "img_hv_type", "hypervisor_version_requires": "img_hv_requested_version",
	"owner_id": "img_owner_id", "vmware_disktype": "hw_disk_type", "vmware_image_version": "img_version", "vmware_ostype": "os_distro",
	"auto_disk_config": "hw_auto_disk_config", "ipxe_boot": "hw_ipxe_boot", "xenapi_device_id": "hw_device_id",
	"xenapi_image_compression_level": "img_compression_level", "vmware_linked_clone": "img_linked_clone", "xenapi_use_agent": "img_use_agent",
	"xenapi_skip_agent_inject_ssh": "os_skip_agent_inject_ssh", "xenapi_skip_agent_inject_files_at_boot": "os_skip_agent_inject_files_at_boot",
	"cache_in_nova": "img_cache_in_nova", "bittorrent": "img_bittorrent", "bdm_v2": "img_bdm_v2", "root_device_name": "img_root_device_name",
}

// Properties returns the properties of an image with Nova's current names, which take precedence.
func Properties(image map[string]string) map[string]string {
	all := map[string]string{}
	for _, old := range slices.Sorted(maps.Keys(legacyProperties)) {
		if value, there := image[old]; there {
			all[legacyProperties[old]] = value
		}
	}
	maps.Copy(all, image)
	return all
}

// legacyName returns the older name of a property, "" for none.
func legacyName(property string) string {
	for old, name := range legacyProperties {
		if name == property {
			return old
		}
	}
	return ""
}

// NUMA policies of PCI devices (nova/objects/fields.py, PCINUMAAffinityPolicy).
const (
	Required  = "required"
	Legacy    = "legacy"
	Preferred = "preferred"
	Socket    = "socket"
)

// values are those that an extra spec and the image property of the same meaning can have.
var values = map[string][]string{
	"cpu_policy":               {"dedicated", "shared", "mixed"},
	"cpu_thread_policy":        {"prefer", "isolate", "require"},
	"pci_numa_affinity_policy": {Required, Legacy, Preferred, Socket},
	"emulator_threads_policy":  {"isolate", "share"},
}

// exceptions of values that the flavor must not have.
var invalid = map[string]string{
	"cpu_policy":               "InvalidCPUAllocationPolicy",
	"cpu_thread_policy":        "InvalidCPUThreadAllocationPolicy",
	"pci_numa_affinity_policy": "InvalidPCINUMAAffinity",
	"emulator_threads_policy":  "InvalidEmulatorThreadsPolicy",
}

// both returns the extra spec and the image property of one meaning (_get_flavor_image_meta).
func (g Guest) both(key string) (flavor, image string) {
	return g.Specs["hw:"+key], g.Image["hw_"+key]
}

// checked returns what both returns, of values that Nova knows.
func (g Guest) checked(key string) (flavor, image string, err error) {
	flavor, image = g.both(key)
	switch {
	case image != "" && !slices.Contains(values[key], image):
		return "", "", reject("ValueError", "hw_%s of the image is %q, not one of %s", key, image, strings.Join(values[key], ", "))
	case flavor != "" && !slices.Contains(values[key], flavor):
		return "", "", reject(invalid[key], "hw:%s of the flavor is %q, not one of %s", key, flavor, strings.Join(values[key], ", "))
	}
	return flavor, image, nil
}

// PCIPolicy returns the NUMA policy of the flavor or the image for all its PCI devices, "" for that
// of each alias (get_pci_numa_policy_constraint).
func (g Guest) PCIPolicy() (string, error) {
	flavor, image, err := g.checked("pci_numa_affinity_policy")
	if err == nil && flavor != "" && image != "" && flavor != image {
		err = reject("ImagePCINUMAPolicyForbidden", "hw:pci_numa_affinity_policy of the flavor is %s, and hw_pci_numa_affinity_policy of the image is %s",
			flavor, image)
	}
	if flavor == "" {
		return image, err
	}
	return flavor, err
}

// isTrue reports whether oslo.utils reads a text as true (strutils.bool_from_string).
func isTrue(text string) bool {
	return slices.Contains([]string{"1", "t", "true", "on", "y", "yes"}, strings.ToLower(strings.TrimSpace(text)))
}

// EncryptsMemory reports whether the guest requests encrypted memory, whose contexts Placement
// counts (get_mem_encryption_constraint, since Train).
func (g Guest) EncryptsMemory() (bool, error) {
	flavor, image := g.both("mem_encryption")
	if !isTrue(flavor) && !isTrue(image) {
		return false, nil
	}
	switch {
	case flavor != "" && image != "" && isTrue(flavor) != isTrue(image):
		return false, reject("FlavorImageConflict", "hw:mem_encryption of the flavor is %s, and hw_mem_encryption of the image is %s", flavor, image)
	case g.Image["hw_firmware_type"] != "uefi":
		return false, reject("FlavorImageConflict", "hw:mem_encryption requires an image with hw_firmware_type=uefi")
	case g.Image["hw_machine_type"] != "" && !strings.Contains(g.Image["hw_machine_type"], "q35"):
		return false, reject("InvalidMachineType", "hw:mem_encryption requires machine type q35, and hw_machine_type of the image is %s",
			g.Image["hw_machine_type"])
	}
	return true, nil
}

// PersistentMemory returns the labels of the persistent memory that the flavor requests
// (get_vpmems, since Train).
func (g Guest) PersistentMemory() (labels []string) {
	for label := range strings.SplitSeq(g.Specs["hw:pmem"], ",") {
		if label = strings.TrimSpace(label); label != "" {
			labels = append(labels, label)
		}
	}
	return labels
}

// HasPinnedCPUs reports whether all CPUs of the guest are pinned by its policy, so that Placement
// is also asked for hosts with shared ones (nova/scheduler/utils.py, cpu_pinning_requested).
func (g Guest) HasPinnedCPUs() bool {
	policy, err := g.cpuPolicy()
	return err == nil && policy == dedicated
}

// CPUs returns the numbers of shared and pinned CPUs that the policy of the guest requests from
// Placement, both 0 for those of the flavor (_translate_pinning_policies).
func (g Guest) CPUs() (shared, pinned int) {
	policy, err := g.cpuPolicy()
	switch {
	case err != nil || policy != dedicated && policy != mixed:
		return 0, 0
	case policy == dedicated:
		pinned = g.VCPUs
	default:
		mask, _ := g.dedicatedMask()
		if len(mask) == 0 {
			mask, _ = g.realtimeMask()
		}
		shared, pinned = g.VCPUs-len(mask), len(mask)
	}
	if g.Specs["hw:emulator_threads_policy"] == isolate {
		pinned++
	}
	return shared, pinned
}

// ThreadPolicy returns the policy for threads of a core, "" for none.
func (g Guest) ThreadPolicy() string {
	policy, err := g.threadPolicy()
	if err != nil {
		return ""
	}
	return policy
}

// integers returns the numbers from 0 on.
func integers(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// parseInt reads an integer as Python's int does.
func parseInt(text string) (int, error) {
	return strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(text), "_", ""))
}
