package image_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hardware"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/image"
)

const gib = 1 << 30

// newest is the microversion of Nova 2024.1.
const newest cloud.Microversion = 96

const (
	passthrough = "COMPUTE_ADDRESS_SPACE_PASSTHROUGH"
	secure      = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
)

// gpus is the inventory of host gpu1 with GPUs of a product, each with a region of a size.
func gpus(product string, alias pci.Alias, n int, region uint64, addressBits int) nova.Host {
	h := nova.Host{Name: "gpu1", Machine: &hardware.Facts{}}
	if addressBits > 0 {
		h.Machine.CPU.AddressBits = &addressBits
	}
	for range n {
		d := pci.Device{Class: new(pci.Controller3D), VendorID: new(pci.NVIDIA), ProductID: new(pci.ID(0x20b0)), Product: &product,
			AliasHint: &alias, BARs: []pci.BAR{
				{Number: 0, Size: 16 << 20}, {Number: 1, Size: region, Wide: true, Prefetchable: true}, {Number: 3, Size: 32 << 20, Wide: true},
			}}
		h.Devices = append(h.Devices, d)
	}
	return h
}

// seen is an image of 3 GiB that fits a flavor with two A100, with other properties.
func seen(properties ...string) image.Seen {
	s := image.Seen{
		Newest: newest,
		Image: cloud.Image{
			ID: "id", Name: "debian", Status: "active", Visibility: "public", DiskFormat: "qcow2", Size: new(int64(gib)), VirtualSize: new(int64(2*gib + 1)),
			MinDisk: 3, Properties: map[string]string{},
		},
		Flavor: &cloud.Flavor{Name: "gpu", RAM: 8192, Disk: 40, ExtraSpecs: map[string]string{nova.RequestKey: "A100:2"}},
		Traits: image.Traits{Nodes: map[string][]string{passthrough: {"gpu1"}, secure: {"gpu1", "gpu2"}}},
	}
	for _, p := range properties {
		name, value, _ := strings.Cut(p, "=")
		s.Image.Properties[name] = value
	}
	return s
}

// with returns what is seen with a change.
func with(change func(s *image.Seen), properties ...string) image.Seen {
	s := seen(properties...)
	change(&s)
	return s
}

func a100(s *image.Seen) {
	s.Hosts = []nova.Host{gpus("A100 SXM4 80GB", "A100-SXM4-80GB", 8, 128*gib, 46)}
}

// TestRemedyNamesImage: a remedy has the word by which the operator gave the image: names are not
// unique.
func TestRemedyNamesImage(t *testing.T) {
	for given, want := range map[string]string{"id": " image set id ", "debian": " image set debian ", "my image": " image set id ", "-x": " image set id "} {
		found := ""
		for _, f := range image.Check(image.ForGPU, with(func(s *image.Seen) { a100(s); s.Given = given })) {
			found += f.Remedy.String() + "\n"
		}
		hosttest.ContainsIn(t, given, want, found)
	}
}

// TestCheck: each rule, by the findings that are no pass.
func TestCheck(t *testing.T) {
	const unknownBARs = "n/a bars: without --inventory, the memory regions of the devices are unknown"
	const notWindows = "n/a windows: not an image of Windows"
	quiet := []string{unknownBARs, notWindows}
	for name, c := range map[string]struct {
		purpose image.Purpose
		seen    image.Seen
		want    []string // beside notWindows
	}{
		"all is well":           {seen: seen(), want: quiet},
		"hidden and protected":  {seen: with(func(s *image.Seen) { s.Image.Hidden, s.Image.Protected = true, true }), want: quiet},
		"deactivated":           {seen: with(func(s *image.Seen) { s.Image.Status = "deactivated" }), want: append([]string{"fail image: status deactivated"}, quiet...)},
		"without data":          {seen: with(func(s *image.Seen) { s.Image.Status = "queued" }), want: append([]string{"fail image: status queued"}, quiet...)},
		"min_disk is too small": {seen: with(func(s *image.Seen) { s.Image.MinDisk = 2 }), want: append([]string{"warn disk: min_disk is 2 GiB, and the disk of the image has 3 GiB"}, quiet...)},
		"the disk is unknown, and min_disk is set": {seen: with(func(s *image.Seen) { s.Image.VirtualSize = nil }), want: quiet},
		"properties that are not checked": {seen: seen("hw_cpu_policy=pinned", "hw_firmware_type=uefi", "hw_video_model=x"),
			want: append([]string{"n/a properties: not checked: hw_cpu_policy, hw_video_model"}, quiet...)},
		"the disk is unknown": {seen: with(func(s *image.Seen) { s.Image.VirtualSize, s.Image.MinDisk = nil, 0 }),
			want: append([]string{"warn disk: the size of the image's disk is unknown: Glance has no virtual_size"}, quiet...)},
		"a raw file is its disk": {seen: with(func(s *image.Seen) { s.Image.VirtualSize, s.Image.DiskFormat = nil, "raw" }), want: quiet},
		"the API rejects the flavor": {seen: with(func(s *image.Seen) { s.Image.MinDisk = 41 }),
			want: append([]string{"fail disk: flavor gpu has a disk of 40 GiB, and min_disk is 41 GiB"}, quiet...)},
		"the API accepts the flavor, and the host does not": {seen: with(func(s *image.Seen) { s.Flavor.Disk, s.Image.MinDisk = 2, 0 }),
			want: append([]string{"warn disk: min_disk is 0 GiB, and the disk of the image has 3 GiB",
				"fail disk: flavor gpu has a disk of 2 GiB, and the disk of the image has 3 GiB"}, quiet...)},
		"no disk": {seen: with(func(s *image.Seen) { s.Flavor.Disk = 0 }), want: append([]string{"warn disk: flavor gpu has a disk of 0 GiB"}, quiet...)},
		"ram": {seen: with(func(s *image.Seen) { s.Image.MinRAM = 8193 }),
			want: append([]string{"fail ram: flavor gpu has 8 GiB of RAM, and min_ram is 8193 MiB"}, quiet...)},
		"a value that Nova rejects": {seen: seen("hw_firmware_type=efi"),
			want: append([]string{`fail properties: hw_firmware_type: unknown value "efi"; Nova accepts bios, uefi`}, quiet...)},
		"a property of a newer release": {seen: with(func(s *image.Seen) { s.Newest = 90 }, "hw_locked_memory=true"),
			want: append([]string{"warn properties: hw_locked_memory=true: the cloud has microversion 2.90, and the property is of a release with 2.93"}, quiet...)},
		"image and flavor differ": {seen: with(func(s *image.Seen) { s.Flavor.ExtraSpecs["hw:pci_numa_affinity_policy"] = "required" }, "hw_pci_numa_affinity_policy=preferred"),
			want: append([]string{"fail properties: hw_pci_numa_affinity_policy=preferred, but flavor gpu has hw:pci_numa_affinity_policy=required"}, quiet...)},
		"image and flavor differ in a boolean": {seen: with(func(s *image.Seen) { s.Flavor.ExtraSpecs["hw:vif_multiqueue_enabled"] = "yes" }, "hw_vif_multiqueue_enabled=false"),
			want: append([]string{"fail properties: hw_vif_multiqueue_enabled=false, but flavor gpu has hw:vif_multiqueue_enabled=yes"}, quiet...)},
		"the same boolean in other words": {seen: with(func(s *image.Seen) { s.Flavor.ExtraSpecs["hw:vif_multiqueue_enabled"] = "yes" }, "hw_vif_multiqueue_enabled=true"), want: quiet},
		"locked memory without a page size": {seen: seen("hw_locked_memory=true"),
			want: append([]string{"fail properties: hw_locked_memory is true, and hw:mem_page_size is not set"}, quiet...)},
		"locked memory with a page size": {seen: with(func(s *image.Seen) { s.Flavor.ExtraSpecs["hw:mem_page_size"] = "large" }, "hw_locked_memory=true"), want: quiet},

		"no devices": {seen: with(func(s *image.Seen) { s.Flavor.ExtraSpecs = map[string]string{} }),
			want: []string{"fail bars: flavor gpu requests no devices", notWindows}},
		"small regions": {seen: with(func(s *image.Seen) { s.Hosts = []nova.Host{gpus("Quadro K4200", "A100", 2, 256<<20, 0)} }), want: []string{notWindows}},
		"regions of just 16 GiB": {seen: with(func(s *image.Seen) { s.Hosts = []nova.Host{gpus("A100", "A100", 2, 16*gib, 46)} }, "hw_machine_type=pc-q35-8.0", "hw_firmware_type=uefi"),
			want: []string{"fail bars: hw_maxphysaddr_mode is not set; A100 on host gpu1 has a memory region of 16 GiB", notWindows}},
		"large regions": {seen: with(a100, "hw_machine_type=pc"), want: []string{
			"fail bars: hw_machine_type is pc; A100 SXM4 80GB on host gpu1 has a memory region of 128 GiB",
			"fail bars: hw_firmware_type is not set; A100 SXM4 80GB on host gpu1 has a memory region of 128 GiB",
			"fail bars: hw_maxphysaddr_mode is not set; A100 SXM4 80GB on host gpu1 has a memory region of 128 GiB", notWindows}},
		"large regions, met": {seen: with(a100, "hw_machine_type=q35", "hw_firmware_type=uefi", "hw_maxphysaddr_mode=passthrough"), want: []string{notWindows}},
		"large regions, met by the flavor": {seen: with(func(s *image.Seen) {
			a100(s)
			s.Flavor.ExtraSpecs["hw:maxphysaddr_mode"] = "passthrough"
		}, "hw_machine_type=q35", "hw_firmware_type=uefi"), want: []string{notWindows}},
		"large regions, old Nova": {seen: with(func(s *image.Seen) {
			a100(s)
			s.Newest = 95
		}, "hw_machine_type=q35", "hw_firmware_type=uefi"), want: []string{
			"warn bars: hw_maxphysaddr_mode is not set; A100 SXM4 80GB on host gpu1 has a memory region of 128 GiB", notWindows}},
		"large regions on arm64": {seen: with(a100, "hw_architecture=aarch64"), want: []string{"n/a properties: not checked: hw_architecture",
			"n/a bars: the rules are for x86, and the image is for another architecture", notWindows}},
		"large regions on another name of x86": {seen: with(a100, "architecture=AMD64", "hw_machine_type=q35", "hw_firmware_type=bios", "hw_maxphysaddr_mode=passthrough"), want: []string{
			"n/a properties: not checked: architecture", "fail bars: hw_firmware_type is bios; A100 SXM4 80GB on host gpu1 has a memory region of 128 GiB", notWindows}},
		"eight GPUs of 141 GB": {seen: with(func(s *image.Seen) {
			s.Hosts = []nova.Host{gpus("H200 SXM 141GB", "H200", 8, 256*gib, 46)}
			s.Flavor.ExtraSpecs[nova.RequestKey] = "H200:8"
		}, "hw_machine_type=q35", "hw_firmware_type=uefi", "hw_maxphysaddr_mode=passthrough"), want: []string{notWindows}},
		"eight GPUs of 141 GB in 45 bits": {seen: with(func(s *image.Seen) {
			s.Hosts = []nova.Host{gpus("H200 SXM 141GB", "H200", 8, 256*gib, 45)}
			s.Flavor.ExtraSpecs[nova.RequestKey] = "H200:8"
		}, "hw_machine_type=q35", "hw_firmware_type=uefi", "hw_maxphysaddr_mode=passthrough"),
			want: []string{"fail bars: host gpu1: the devices of a guest need 4.0 TiB of addresses, and firmware has 4 TiB of 45 bits", notWindows}},
		"an alias of no product": {seen: with(func(s *image.Seen) {
			a100(s)
			s.Flavor.ExtraSpecs[nova.RequestKey] = "gpu:1"
		}), want: []string{"n/a bars: no host in the inventories has the devices of flavor gpu", notWindows}},
		"a malformed request": {seen: with(func(s *image.Seen) {
			a100(s)
			s.Flavor.ExtraSpecs[nova.RequestKey] = "A100"
		}), want: []string{`fail bars: flavor gpu: pci_passthrough:alias: "A100" must be NAME:COUNT`, notWindows}},
		"an older inventory": {seen: with(func(s *image.Seen) {
			a100(s)
			for i := range s.Hosts[0].Devices {
				s.Hosts[0].Devices[i].BARs = nil
			}
		}), want: []string{"n/a bars: the inventory of gpu1 lacks memory regions of devices", notWindows}},
		"a region without a size": {seen: with(func(s *image.Seen) {
			s.Hosts = []nova.Host{gpus("A100", "A100", 2, 256<<20, 0)}
			s.Hosts[0].Devices[1].BARs[1] = pci.BAR{Number: 1, Unplaced: true}
		}), want: []string{"n/a bars: the inventory of gpu1 lacks memory regions of devices", notWindows}},
		"addresses are unknown": {seen: with(func(s *image.Seen) { s.Hosts = []nova.Host{gpus("A100", "A100", 2, 128*gib, 0)} },
			"hw_machine_type=q35", "hw_firmware_type=uefi", "hw_maxphysaddr_mode=passthrough"),
			want: []string{"n/a bars: host gpu1: the size of the processor's addresses is unknown", notWindows}},
		// Eight GPUs of 512 GiB in 46 bits: 8 TiB and what else they have do not fit in 8 TiB.
		"the window is too small": {seen: with(func(s *image.Seen) {
			s.Hosts = []nova.Host{gpus("B300", "A100", 8, 512*gib, 46)}
			s.Flavor.ExtraSpecs[nova.RequestKey] = "A100:8"
		}, "hw_machine_type=q35", "hw_firmware_type=uefi", "hw_maxphysaddr_mode=passthrough"),
			want: []string{"fail bars: host gpu1: the devices of a guest need 8.0 TiB of addresses, and firmware has 8 TiB of 46 bits", notWindows}},
		"the window of emulated addresses": {seen: with(func(s *image.Seen) {
			a100(s)
			s.Traits.Nodes["COMPUTE_ADDRESS_SPACE_EMULATED"] = []string{"gpu1"}
		}, "hw_machine_type=q35", "hw_firmware_type=uefi", "hw_maxphysaddr_mode=emulate", "hw_maxphysaddr_bits=40"),
			want: []string{"fail bars: host gpu1: the devices of a guest need 512.1 GiB of addresses, and firmware has 128 GiB of 40 bits", notWindows}},

		"Windows": {purpose: image.ForWindows, seen: seen(), want: []string{unknownBARs,
			"fail windows: os_type is not set", "warn windows: hw_disk_bus is not set", "warn windows: hw_vif_multiqueue_enabled is not set"}},
		"Windows by its os_type": {seen: seen("os_type=Windows", "hw_disk_bus=ide", "hw_vif_model=e1000"),
			want: []string{"n/a properties: not checked: hw_vif_model", unknownBARs,
				"warn windows: hw_disk_bus is ide", "warn windows: hw_vif_model is e1000", "warn windows: hw_vif_multiqueue_enabled is not set"}},
		"Windows with SCSI": {purpose: image.ForWindows, seen: seen("os_type=windows", "hw_disk_bus=scsi", "hw_vif_multiqueue_enabled=yes"), want: []string{unknownBARs,
			"warn windows: hw_scsi_model is not set"}},
		"Windows as needed": {purpose: image.ForWindows, seen: with(func(s *image.Seen) { s.Flavor.ExtraSpecs["hw:vif_multiqueue_enabled"] = "true" },
			"os_type=windows", "hw_disk_bus=scsi", "hw_scsi_model=virtio-scsi", "hw_vif_model=virtio"),
			want: []string{"n/a properties: not checked: hw_scsi_model, hw_vif_model", unknownBARs}},

		"hidden from Linux": {seen: seen("img_hide_hypervisor_id=true"), want: []string{unknownBARs, notWindows, "warn hypervisor: the image has img_hide_hypervisor_id"}},
		"hidden by the flavor": {seen: with(func(s *image.Seen) { s.Flavor.ExtraSpecs["hw:hide_hypervisor_id"] = "true" }),
			want: []string{unknownBARs, notWindows, "warn hypervisor: flavor gpu has hw:hide_hypervisor_id"}},
		"hidden where no card needs it": {seen: with(func(s *image.Seen) { s.Hosts = []nova.Host{gpus("A100", "A100", 2, gib, 0)} },
			"img_hide_hypervisor_id=true", "os_type=windows", "hw_disk_bus=virtio", "hw_vif_multiqueue_enabled=true"), want: []string{"warn hypervisor: the image has img_hide_hypervisor_id"}},
		"hidden where it may help": {seen: with(func(s *image.Seen) { s.Hosts = []nova.Host{gpus("GeForce GTX 1080", "A100", 2, 256<<20, 0)} },
			"img_hide_hypervisor_id=true", "os_type=windows", "hw_disk_bus=virtio", "hw_vif_multiqueue_enabled=true")},

		"secure boot": {seen: seen("os_secure_boot=required", "hw_firmware_type=uefi", "hw_machine_type=q35"), want: []string{unknownBARs, notWindows,
			"warn secure_boot: os_secure_boot=required"}},
		"secure boot without UEFI": {seen: seen("os_secure_boot=required", "hw_machine_type=pc"), want: []string{unknownBARs, notWindows,
			"fail secure_boot: os_secure_boot=required without hw_firmware_type=uefi", "fail secure_boot: os_secure_boot=required without hw_machine_type=q35",
			"warn secure_boot: os_secure_boot=required"}},
		"secure boot of the flavor": {seen: with(func(s *image.Seen) { s.Flavor.ExtraSpecs["os:secure_boot"] = "required" }, "hw_firmware_type=uefi", "hw_machine_type=q35"),
			want: []string{unknownBARs, notWindows, "warn secure_boot: os:secure_boot of flavor gpu=required"}},

		"a trait that no node has": {seen: with(func(s *image.Seen) { s.Traits.Nodes["COMPUTE_VIOMMU_MODEL_INTEL"] = nil }, "hw_viommu_model=intel"),
			want: append(quiet[:2:2], "fail traits: hw_viommu_model=intel needs trait COMPUTE_VIOMMU_MODEL_INTEL, which no compute node reports")},
		"a vIOMMU of the flavor takes precedence": {seen: with(func(s *image.Seen) {
			s.Flavor.ExtraSpecs["hw:viommu_model"] = "virtio"
			s.Traits.Nodes["COMPUTE_VIOMMU_MODEL_INTEL"], s.Traits.Nodes["COMPUTE_VIOMMU_MODEL_VIRTIO"] = []string{"gpu1"}, nil
		}, "hw_viommu_model=intel"),
			want: append(quiet[:2:2], "fail traits: hw:viommu_model of flavor gpu=virtio needs trait COMPUTE_VIOMMU_MODEL_VIRTIO, which no compute node reports")},
		"Placement does not answer": {seen: with(func(s *image.Seen) { s.Traits = image.Traits{Err: errors.New("permission denied")} }, "hw_maxphysaddr_mode=passthrough"),
			want: append(quiet[:2:2], "n/a traits: hw_maxphysaddr_mode=passthrough demands trait COMPUTE_ADDRESS_SPACE_PASSTHROUGH: permission denied")},
	} {
		t.Run(name, func(t *testing.T) {
			purpose := image.ForGPU
			if c.purpose != "" {
				purpose = c.purpose
			}
			var got []string
			checks := map[string]bool{}
			for _, f := range image.Check(purpose, c.seen) {
				checks[f.Check] = true
				if f.Status != host.Pass {
					got = append(got, fmt.Sprintf("%s %s: %s", f.Status, f.Check, f.Seen))
				}
				if f.Status == host.Fail && (f.Effect == "" || len(f.Remedy) == 0) || f.File != "" {
					t.Errorf("%+v", f)
				}
			}
			hosttest.Equal(t, c.want, got)
			if len(checks) != 9 {
				t.Errorf("only these checks have a finding: %v", checks)
			}
		})
	}
}

func text(s string) *string { return &s }

// TestPlan: what is planned, left out and warned of.
func TestPlan(t *testing.T) {
	noFlavor := func(change func(s *image.Seen), properties ...string) image.Seen {
		s := with(change, properties...)
		s.Flavor = nil
		return s
	}
	same := func(*image.Seen) {}
	const kept = "existing servers keep the properties that the image had when they were created, until they are rebuilt"
	const noInventory = "without --inventory, whether the memory regions of GPUs are large is unknown: machine type, firmware and addresses are not planned"
	const uefi = "the image must boot with UEFI: it needs an EFI system partition"
	const host = "compute nodes need [libvirt] cpu_mode=host-passthrough, libvirt 8.7.0 and QEMU 2.7.0"
	const virtio = "the image must have the virtio-win drivers, or the guest does not boot"
	const on = "hw_maxphysaddr_mode=passthrough: guests run only on the compute nodes with trait COMPUTE_ADDRESS_SPACE_PASSTHROUGH: gpu1"
	large := []string{"+hw_firmware_type=uefi", "+hw_machine_type=q35"}
	for name, c := range map[string]struct {
		options  image.Options
		seen     image.Seen
		values   []string
		left     []string
		warnings []string
	}{
		"nothing":                       {seen: noFlavor(same), warnings: []string{noInventory}},
		"min_disk is at least the disk": {seen: noFlavor(func(s *image.Seen) { s.Image.MinDisk = 1 }), values: []string{"min_disk: 1 -> 3"}, warnings: []string{noInventory, kept}},
		"the operator's sizes": {options: image.Options{MinDisk: new(40), MinRAM: new(8192)}, seen: noFlavor(same),
			values: []string{"min_disk: 3 -> 40", "min_ram: 0 -> 8192"}, warnings: []string{noInventory, kept}},
		"an unknown disk": {seen: noFlavor(func(s *image.Seen) { s.Image.VirtualSize, s.Image.MinDisk = nil, 0 }), warnings: []string{
			"the size of the image's disk is unknown: Glance has no virtual_size of this image; 'qemu-img info' shows that of its file, --min-disk sets it", noInventory}},
		"large regions": {seen: noFlavor(a100), values: append(large, "+hw_maxphysaddr_mode=passthrough"), warnings: []string{uefi, host, on, kept}},
		"large regions, in part": {seen: noFlavor(a100, "hw_machine_type=q35", "hw_firmware_type=bios"),
			values: []string{"hw_firmware_type: bios -> uefi", "+hw_maxphysaddr_mode=passthrough"}, warnings: []string{uefi, host, on, kept}},
		"large regions, as planned": {seen: noFlavor(a100, "hw_machine_type=q35", "hw_firmware_type=uefi", "hw_maxphysaddr_mode=passthrough")},
		"no node has the trait": {seen: noFlavor(func(s *image.Seen) {
			a100(s)
			s.Traits.Nodes[passthrough] = nil
		}), values: large, warnings: []string{uefi, kept},
			left: []string{"hw_maxphysaddr_mode=passthrough: it demands trait COMPUTE_ADDRESS_SPACE_PASSTHROUGH, which no compute node reports: Nova would find no host"}},
		"the trait is unknown": {seen: noFlavor(func(s *image.Seen) {
			a100(s)
			s.Traits = image.Traits{Err: errors.New("permission denied")}
		}), values: large, warnings: []string{uefi, kept}, left: []string{
			"hw_maxphysaddr_mode=passthrough: it demands trait COMPUTE_ADDRESS_SPACE_PASSTHROUGH, and whether a compute node has it is unknown: permission denied"}},
		"Nova is too old": {seen: noFlavor(func(s *image.Seen) {
			a100(s)
			s.Newest = 95
		}), values: large, warnings: []string{uefi, kept},
			left: []string{"hw_maxphysaddr_mode=passthrough: this release of Nova does not read it: it has microversion 2.95, and the property is of a release with 2.96"}},
		"the operator names it": {options: image.Options{Properties: map[string]*string{"hw_maxphysaddr_mode": text("passthrough")}}, seen: noFlavor(func(s *image.Seen) {
			a100(s)
			s.Traits.Nodes[passthrough] = nil
		}), values: append(large, "+hw_maxphysaddr_mode=passthrough"), warnings: []string{uefi,
			"hw_maxphysaddr_mode=passthrough: it demands trait COMPUTE_ADDRESS_SPACE_PASSTHROUGH, which no compute node reports: Nova would find no host", kept}},
		"the operator does not want it": {options: image.Options{Properties: map[string]*string{"hw_maxphysaddr_mode": nil, "hw_firmware_type": text("bios")}}, seen: noFlavor(a100),
			values: []string{"+hw_firmware_type=bios", "+hw_machine_type=q35"}, warnings: []string{kept}},
		"removed": {options: image.Options{Properties: map[string]*string{"os_distro": nil, "absent": nil}}, seen: noFlavor(same, "os_distro=debian"),
			values: []string{"-os_distro=debian"}, warnings: []string{noInventory, kept}},
		"an older inventory": {seen: noFlavor(func(s *image.Seen) {
			a100(s)
			s.Hosts[0].Devices = s.Hosts[0].Devices[:1]
			s.Hosts[0].Devices[0].BARs = nil
		}), warnings: []string{"the inventory of gpu1 lacks memory regions of GPUs: whether they are large is unknown; run on the compute node: gpustack host scan -o json"}},
		"Windows": {options: image.Options{Purpose: image.ForWindows}, seen: noFlavor(same),
			values: []string{"+hw_disk_bus=virtio", "+hw_vif_multiqueue_enabled=true", "+os_type=windows"}, warnings: []string{virtio, noInventory, kept}},
		"Windows with SCSI": {options: image.Options{Purpose: image.ForWindows}, seen: noFlavor(same, "hw_disk_bus=scsi", "os_type=windows", "hw_vif_model=e1000"),
			values: []string{"+hw_scsi_model=virtio-scsi", "hw_vif_model: e1000 -> virtio", "+hw_vif_multiqueue_enabled=true"}, warnings: []string{virtio, noInventory, kept}},
		"secure boot": {options: image.Options{Properties: map[string]*string{"os_secure_boot": text("required")}}, seen: noFlavor(same), values: []string{"+os_secure_boot=required"},
			warnings: []string{noInventory,
				"os_secure_boot=required: the guest's kernel loads only signed modules, and NVIDIA's driver that DKMS builds is not signed: the image needs a signed one, or an enrolled key",
				"os_secure_boot=required: guests run only on the compute nodes with trait COMPUTE_SECURITY_UEFI_SECURE_BOOT: gpu1, gpu2", kept}},
		"a vIOMMU": {options: image.Options{Properties: map[string]*string{"hw_viommu_model": text("intel")}},
			seen: noFlavor(func(s *image.Seen) { s.Traits.Nodes["COMPUTE_VIOMMU_MODEL_INTEL"] = []string{"gpu1"} }), values: []string{"+hw_viommu_model=intel"},
			warnings: []string{noInventory, "hw_viommu_model=intel: guests run only on the compute nodes with trait COMPUTE_VIOMMU_MODEL_INTEL: gpu1; " +
				"Nova does not ask for the trait, and guests fail on other compute nodes", kept}},
		"a vIOMMU that no node has": {options: image.Options{Properties: map[string]*string{"hw_viommu_model": text("virtio")}},
			seen: noFlavor(func(s *image.Seen) { s.Traits.Nodes["COMPUTE_VIOMMU_MODEL_VIRTIO"] = nil }), values: []string{"+hw_viommu_model=virtio"},
			warnings: []string{noInventory, "hw_viommu_model=virtio: no compute node reports trait COMPUTE_VIOMMU_MODEL_VIRTIO: guests would fail on the host", kept}},
		"hidden from Linux": {options: image.Options{Properties: map[string]*string{"img_hide_hypervisor_id": text("true")}}, seen: noFlavor(same), values: []string{"+img_hide_hypervisor_id=true"},
			warnings: []string{noInventory, "img_hide_hypervisor_id: it helps only with os_type=windows, and it hides kvm-clock from Linux", kept}},
		"hidden where it helps": {options: image.Options{Purpose: image.ForWindows, Properties: map[string]*string{"img_hide_hypervisor_id": text("true")}},
			seen:   noFlavor(func(s *image.Seen) { s.Hosts = []nova.Host{gpus("GeForce GTX 1080", "", 1, 256<<20, 0)} }, "hw_disk_bus=virtio", "hw_vif_multiqueue_enabled=true"),
			values: []string{"+img_hide_hypervisor_id=true", "+os_type=windows"}, warnings: []string{kept}},
		"deactivated": {seen: noFlavor(func(s *image.Seen) { s.Image.Status = "deactivated" }), warnings: []string{noInventory, "the image is deactivated: guests cannot boot from it until it is active"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := image.NewPlan(c.options, c.seen)
			hosttest.NoError(t, err)
			var values, left []string
			for _, v := range p.Values {
				switch {
				case v.Before == nil:
					values = append(values, "+"+v.Name+"="+*v.After)
				case v.After == nil:
					values = append(values, "-"+v.Name+"="+*v.Before)
				default:
					values = append(values, v.Name+": "+*v.Before+" -> "+*v.After)
				}
			}
			for _, l := range p.LeftOut {
				left = append(left, l.Name+"="+l.Value+": "+l.Reason)
			}
			for what, lists := range map[string][2][]string{"values": {c.values, values}, "left out": {c.left, left}, "warnings": {c.warnings, p.Warnings}} {
				hosttest.EqualIn(t, what, lists[0], lists[1])
			}
			if p.Changed() != (len(c.values) > 0) || len(p.Requests()) > 1 {
				t.Errorf("changed: %v, requests: %v", p.Changed(), p.Requests())
			}
			// The plan of an image as planned is empty.
			again := c.seen
			again.Image = p.After
			if p, err := image.NewPlan(c.options, again); err != nil || p.Changed() {
				t.Errorf("again: %v, %v", p.Values, err)
			}
		})
	}
}

// TestTooSmall: guests of flavors with less than the disk of the image would fail on the host.
func TestTooSmall(t *testing.T) {
	_, err := image.NewPlan(image.Options{MinDisk: new(2)}, seen())
	if !errors.Is(err, image.ErrTooSmall) || err.Error() != "--min-disk: 2 GiB is smaller than the disk of the image, which has 3 GiB" {
		t.Error(err)
	}
}

// TestDemands: Placement is asked for what the plan and the check depend on, and for nothing else.
func TestDemands(t *testing.T) {
	for name, c := range map[string]struct {
		seen image.Seen
		o    image.Options
		want []string
	}{
		"nothing":          {seen: seen()},
		"large regions":    {seen: with(a100), want: []string{passthrough}},
		"of the image":     {seen: seen("hw_viommu_model=smmuv3", "hw_maxphysaddr_mode=emulate"), want: []string{"COMPUTE_ADDRESS_SPACE_EMULATED", "COMPUTE_VIOMMU_MODEL_SMMUV3"}},
		"of the flavor":    {seen: with(func(s *image.Seen) { s.Flavor.ExtraSpecs["os:secure_boot"] = "required" }), want: []string{secure}},
		"of the operator":  {seen: seen(), o: image.Options{Properties: map[string]*string{"os_secure_boot": text("required"), "hw_viommu_model": nil}}, want: []string{secure}},
		"optional is none": {seen: seen("os_secure_boot=optional", "hw_viommu_model=odd")},
	} {
		hosttest.EqualIn(t, name, c.want, c.seen.Demands(c.o))
	}
}

func TestParseProperty(t *testing.T) {
	for s, want := range map[string]string{
		"hw_machine_type=q35": "q35", "os_distro=": "removed", "os_type=Windows": "Windows", "trait:CUSTOM_A=required": "required", "a=b=c": "b=c",
		"hw_maxphysaddr_bits=46":        "46",
		"a":                             `"a" must be NAME=VALUE, or NAME= to remove the property`,
		"=b":                            `"=b": the name is missing`,
		"a/b=c":                         `"a/b=c": only letters, digits and - _ . : are allowed in a name`,
		"min_disk=3":                    "min_disk is no property: it is set by --min-disk",
		"owner=me":                      "owner is no property of an image, but a field: 'openstack image set' changes it where Glance allows that",
		"hw_firmware_type=UEFI":         `hw_firmware_type: unknown value "UEFI"; Nova accepts bios, uefi`,
		"hw_maxphysaddr_bits=0":         `hw_maxphysaddr_bits: not a number above 0: "0"`,
		strings.Repeat("a", 256) + "=b": strings.Repeat("a", 256) + " is longer than 255 characters",
	} {
		_, value, err := image.ParseProperty(s)
		got := "removed"
		if value != nil {
			got = *value
		}
		if err != nil {
			got = err.Error()
		}
		hosttest.EqualIn(t, s, want, got)
	}
}
