package vm

import (
	"fmt"
	"slices"
	"strings"
)

// A Topology is what a machine is made of.
type Topology struct {
	Name      string
	CPU       string   // the vendor's word in CPUID
	Machine   string   // beside q35
	Units     []string // IOMMUs, as QEMU's -device has them
	Arguments string   // of the kernel
	Memory    int      // in MiB; 0 is 1024
	Devices   []Device
}

// A Device is one of QEMU's, or a function that is played.
type Device struct {
	Options string    // as QEMU's -device has them; for a function, only where it is
	Plays   *Function // nil for QEMU's own
}

// Vendors' words in CPUID.
const (
	intel = "GenuineIntel"
	amd   = "AuthenticAMD"
)

var (
	intelUnit = []string{"intel-iommu,intremap=on,caching-mode=on"}
	amdUnit   = []string{"amd-iommu"}
)

// port is a root port, and the bus behind it; its name is that of the bus.
func port(name string, chassis int, options ...string) []Device {
	return own(strings.Join(append([]string{fmt.Sprintf("pcie-root-port,id=%s,chassis=%d", name, chassis)}, options...), ","))
}

// nvidia is a Quadro K4200 in a slot: a display function and its audio function.
func nvidia(bus string, slot int) []Device {
	return []Device{
		{fmt.Sprintf("bus=%s,addr=%#x.0,multifunction=on", bus, slot), &k4200},
		{fmt.Sprintf("bus=%s,addr=%#x.1", bus, slot), &k4200Audio},
	}
}

// plain is a card with drivers that work: bochs-drm and snd_hda_intel.
func plain(bus string, slot int) []Device {
	return []Device{
		{Options: fmt.Sprintf("bochs-display,bus=%s,addr=%#x.0,multifunction=on", bus, slot)},
		{Options: fmt.Sprintf("ich9-intel-hda,bus=%s,addr=%#x.1", bus, slot)},
	}
}

// Server is a machine with an IOMMU of Intel's that boots from the drive root and has the programs
// on the drive lab. It has two Quadro K4200, at 0000:01:00 and 0000:02:00, each in an IOMMU group
// of its own, and QEMU's devices beside them.
func Server(name string, memory int, devices ...string) Topology {
	t := Topology{
		Name: name, CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Memory: memory,
		Devices: slices.Concat(console(), port("rp1", 1), port("rp2", 2), nvidia("rp1", 0), nvidia("rp2", 0),
			own("virtio-blk-pci,drive=root,bootindex=0"), own("ide-hd,drive=lab")),
	}
	for _, options := range devices {
		t.Devices = append(t.Devices, own(options)...)
	}
	return t
}

// sriov is an NVMe controller that can have four virtual functions.
func sriov(bus string) []Device {
	return slices.Concat(own("nvme-subsys,id=ss0"),
		own("nvme,serial=1,bus="+bus+",subsys=ss0,sriov_max_vfs=4,sriov_vq_flexible=8,sriov_vi_flexible=4,max_ioqpairs=10,msix_qsize=8"))
}

// own is a device of QEMU's.
func own(options string) []Device {
	return []Device{{Options: options}}
}

// console is the display that a server's management controller has.
func console() []Device {
	return own("VGA,bus=pcie.0,addr=0x10")
}

// topologies are the machines that boot without a disk.
var topologies = []Topology{
	{
		Name: "intel", CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Arguments: "intel_iommu=on iommu=pt",
		Devices: slices.Concat(console(), port("rp1", 1), port("rp2", 2), nvidia("rp1", 0), plain("rp2", 0)),
	},
	{
		Name: "amd", CPU: amd, Units: amdUnit, Arguments: "iommu=pt",
		Devices: slices.Concat(console(), port("rp1", 1), port("rp2", 2), nvidia("rp1", 0), plain("rp2", 0)),
	},
	{
		Name: "no IOMMU", CPU: intel,
		Devices: slices.Concat(console(), port("rp1", 1), port("rp2", 2), nvidia("rp1", 0), plain("rp2", 0)),
	},
	{
		Name: "IOMMU off", CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Arguments: "intel_iommu=off",
		Devices: slices.Concat(console(), port("rp1", 1), port("rp2", 2), nvidia("rp1", 0), plain("rp2", 0)),
	},
	{
		Name: "conventional bridge", CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Arguments: "intel_iommu=on iommu=pt",
		Devices: slices.Concat(console(), port("rp1", 1), own("pcie-pci-bridge,id=pb,bus=rp1"),
			nvidia("pb", 1), own("e1000,bus=pb,addr=0x2"), plain("pb", 3)),
	},
	{
		Name: "root complex", CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Arguments: "intel_iommu=on iommu=pt",
		Devices: slices.Concat(console(), nvidia("pcie.0", 5), plain("pcie.0", 6), own("bochs-display,bus=pcie.0,addr=0x7"), own("ich9-intel-hda,bus=pcie.0,addr=0x8")),
	},
	{
		// Two ports in one slot that do not keep what is behind them apart.
		Name: "no ACS", CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Arguments: "intel_iommu=on iommu=pt",
		Devices: slices.Concat(console(), port("rp1", 1, "addr=0x3.0", "multifunction=on", "disable-acs=on"), port("rp2", 2, "addr=0x3.1", "disable-acs=on"),
			nvidia("rp1", 0), nvidia("rp2", 0)),
	},
	{
		Name: "switch", CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Arguments: "intel_iommu=on iommu=pt",
		Devices: slices.Concat(console(), port("rp1", 1), own("x3130-upstream,id=up,bus=rp1"),
			own("xio3130-downstream,id=down1,bus=up,chassis=2"), own("xio3130-downstream,id=down2,bus=up,chassis=3"),
			nvidia("down1", 0), nvidia("down2", 0)),
	},
	{
		// The card is the only display there is.
		Name: "boot VGA", CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Arguments: "intel_iommu=on iommu=pt",
		Devices: slices.Concat(port("rp1", 1), port("rp2", 2), nvidia("rp1", 0), plain("rp2", 0)),
	},
	{
		// Nothing is played: virtual functions come and go, each time QEMU rebuilds its memory map,
		// and with functions that are played it loses interrupts then (see Ask).
		Name: "SR-IOV", CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Arguments: "intel_iommu=on iommu=pt",
		Devices: slices.Concat(console(), port("rp1", 1), port("rp2", 2), sriov("rp2")),
	},
	{
		// A disk of an NVMe subsystem, which Linux shows by its own multipath, and a network card.
		Name: "uses", CPU: intel, Machine: "kernel-irqchip=split", Units: intelUnit, Arguments: "intel_iommu=on iommu=pt",
		Devices: slices.Concat(console(), port("rp1", 1), port("rp2", 2), own("nvme-subsys,id=ss0"), own("nvme,id=nvme0,serial=1,bus=rp1,subsys=ss0"),
			own("nvme-ns,drive=data,bus=nvme0,nsid=1"), own("e1000e,bus=rp2")),
	},
}
