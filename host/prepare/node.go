package prepare

import (
	"errors"
	"slices"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/initramfs"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/selection"
	"gpustack/host/steps"
)

// node is a machine of which everything that a plan depends on was read.
type node struct {
	selection.Node
	CPUVendor      string
	iommu          boot.Want // the kernel arguments that the IOMMU needs
	Virtualization *string   // the CPU flag that KVM needs, "" for neither; nil if unknown
	Kernels        []modprobe.Modules
	Default        string // release of the kernel that boots by default, or the newest if that is unknown
	Loader         machine.Loader
	Maker          initramfs.Generator
	Images         []initramfs.Image
	Conf           modprobe.Conf // the configuration of modprobe without gpustack's files
	Stated         []modprobe.Stated
	takenOver      []string // products that --take-over removes from the ids of others
	Warnings       []string
	adapters       *rdma.Record
	uses           machine.Uses
	places         map[pci.Address]machine.Look[string]
	driverctl      map[pci.Address]string // the drivers of functions that driverctl binds
	edited         edit.Files
	unit           steps.UnitFiles
	journal        machine.Look[[]change.Entry]
}

// newNode returns the machine in the form that plans need. The error names everything that could
// not be read.
func newNode(m Observed) (node, error) {
	if err := errors.Join(m.Obstacles()...); err != nil {
		return node{}, err
	}
	n := node{
		Node:      selection.NewNode(m.Machine),
		CPUVendor: m.CPUVendor, Kernels: m.Kernels.Value, Default: m.Default.Value, Loader: m.Loader.Value,
		Maker: m.Generator.Value, Images: m.Images.Value, Warnings: slices.Clone(m.Warnings), Stated: m.StatedByOthers(),
		adapters: m.Adapters.Value, uses: m.InUse.Value, places: m.Places, edited: m.Edited, driverctl: m.Driverctl.Value, unit: m.Unit, journal: m.Journal,
	}
	n.iommu, _ = m.WantIOMMU()
	if external, ok := n.Loader.(boot.External); ok {
		if external.Warning != "" {
			n.Warnings = append(n.Warnings, external.Warning)
		}
		if machine.ImagesElsewhere(n.Loader) {
			n.Maker, n.Images = "", nil
			n.Warnings = append(n.Warnings, external.What+": the initramfs is not regenerated here, so gpustack-boot.service binds all functions; "+
				"a driver of the host that the initramfs has may bind them first")
		}
	}
	if m.Virtualization.Seen() {
		n.Virtualization = &m.Virtualization.Value
	}
	n.Conf = host.Filter(m.Conf.Value, isOfOthers)
	for i := range n.Devices {
		n.Warnings = append(n.Warnings, n.Devices[i].Warnings...)
	}
	return n, nil
}

func isOfOthers(line modprobe.Line) bool { return !slices.Contains(modprobe.OwnFiles(), line.File) }

// anyKernel reports whether a condition is true for at least one installed kernel.
func (n node) anyKernel(holds func(modprobe.Modules) bool) bool {
	return slices.ContainsFunc(n.Kernels, holds)
}
