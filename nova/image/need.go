package image

import (
	"fmt"
	"math/bits"
	"strings"

	"gpustack/host"
)

// The names of the checks. They are part of the output (docs/json.md).
const (
	checkImage      = "image"
	checkDisk       = "disk"
	checkRAM        = "ram"
	checkBARs       = "bars"
	checkWindows    = "windows"
	checkHypervisor = "hypervisor"
	checkSecureBoot = "secure_boot"
	checkTraits     = "traits"
	checkProperties = "properties"
)

// need is a property that guests need. check and plan have the same list.
type need struct {
	check  string
	name   string
	value  string      // that is planned
	met    bool        // the image, or the extra spec of the flavor, has it or another value that serves
	status host.Status // of the check if it is not met
	why    string      // what the guests are, for the plan
	effect string      // of its absence
	caveat string      // what the image must have for it
}

// needs returns what guests of a purpose need, met or not.
func (s Seen) needs(purpose Purpose) []need {
	all := s.regionNeeds()
	if purpose == ForWindows {
		all = append(all, s.windowsNeeds()...)
	}
	return all
}

// regionNeeds returns what guests need whose devices have large memory regions: firmware that
// places them above 4 GiB, and addresses that are wide enough.
func (s Seen) regionNeeds() []need {
	all, err := s.spans()
	if err != nil || !s.isX86() {
		return nil // the check reports it
	}
	p := biggest(all)
	if p == nil || p.largest < largeBAR {
		return nil
	}
	why := fmt.Sprintf("%s on host %s has a memory region of %s", p.device, p.host.Name, size(p.largest))
	machine, _ := s.effective(machineType)
	firmware, _ := s.effective(firmwareType)
	mode, _ := s.effective(addressMode)
	return []need{
		{
			check: checkBARs, name: machineType, value: "q35", met: strings.Contains(machine, "q35"), status: host.Fail, why: why,
			effect: "with another machine type the guest has no PCI Express, and the driver may not find the GPU",
		},
		{
			check: checkBARs, name: firmwareType, value: "uefi", met: firmware == "uefi", status: host.Fail, why: why,
			effect: "other firmware may not place the region above 4 GiB, and the guest does not see the GPU",
			caveat: "the image must boot with UEFI: it needs an EFI system partition",
		},
		{
			check: checkBARs, name: addressMode, value: "passthrough", met: mode == "passthrough" || mode == "emulate", status: host.Fail, why: why,
			effect: fmt.Sprintf("the firmware of a UEFI guest places regions in %s by default, and the guest does not see GPUs that do not fit", size(window)),
			caveat: "compute nodes need [libvirt] cpu_mode=host-passthrough, libvirt 8.7.0 and QEMU 2.7.0",
		},
	}
}

// window is the range in which a UEFI guest's firmware places regions above 4 GiB without the
// addresses of the processor (EDK II, OvmfPkg/OvmfPkg.dec, PcdPciMmio64Size).
const window = 32 << 30

// windowOf returns the range in which OVMF places regions in a guest whose physical addresses have
// a number of bits: an eighth of them (EDK II, OvmfPkg/Library/PlatformInitLib/MemDetect.c; a
// quarter since pull request 12997 of 2026).
func windowOf(addressBits int) uint64 {
	const share = 3
	if addressBits <= share || addressBits > 63 {
		return 0
	}
	return 1 << (addressBits - share)
}

// windowsNeeds returns what Windows guests need to be fast.
func (s Seen) windowsNeeds() []need {
	const why = "the guests are Windows"
	const drivers = "the image must have the virtio-win drivers, or the guest does not boot"
	system, bus, scsi := strings.ToLower(s.has(osType)), s.has(diskBus), s.has(scsiModel)
	needs := []need{{
		check: checkWindows, name: osType, value: "windows", met: system == "windows", status: host.Fail, why: why,
		effect: "without it libvirt gets no Hyper-V enlightenments, and Windows is slow",
	}}
	if bus == "scsi" {
		needs = append(needs, need{
			check: checkWindows, name: scsiModel, value: "virtio-scsi", met: scsi == "virtio-scsi", status: host.Warn, why: why,
			effect: "the controller is an emulated one, and the disk is slow", caveat: drivers,
		})
	} else {
		needs = append(needs, need{
			check: checkWindows, name: diskBus, value: "virtio", met: bus == "virtio", status: host.Warn, why: why,
			effect: "Nova may choose an emulated controller by os_distro, and the disk is slow", caveat: drivers,
		})
	}
	if model := s.has(vifModel); model != "" {
		needs = append(needs, need{
			check: checkWindows, name: vifModel, value: "virtio", met: model == "virtio", status: host.Warn, why: why,
			effect: "the network adapter is an emulated one, and slow", caveat: drivers,
		})
	}
	queues, _ := s.effective(multiqueue)
	return append(needs, need{
		check: checkWindows, name: multiqueue, value: "true", met: isTrue(queues), status: host.Warn, why: why,
		effect: "the network adapter has one queue for all vCPUs, and packets are jerky under load",
	})
}

// isTrue reads a boolean as Nova does (oslo_utils/strutils.py, bool_from_string).
func isTrue(value string) bool {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "1", "t", "true", "on", "y", "yes":
		return true
	}
	return false
}

// size returns a number of bytes with a binary unit, such as "32 GiB".
func size(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	if n == 0 {
		return "0 bytes"
	}
	unit := (bits.Len64(n) - 1) / 10
	whole := n >> (10 * unit)
	if n&(1<<(10*unit)-1) != 0 && unit > 0 {
		return fmt.Sprintf("%.1f %s", float64(n)/float64(uint64(1)<<(10*unit)), units[unit])
	}
	return fmt.Sprintf("%d %s", whole, units[unit])
}
