package node

import (
	"errors"

	"gpustack/host"
	"gpustack/host/container/containercheck"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// ReadVirtType reads the virt_type of nova-compute.
func ReadVirtType(root host.Root) machine.Look[string] {
	value, file, err := nova.ReadVirtType(root)
	return machine.Look[string]{Value: value, File: file, Err: err}
}

// OfferedGPUs returns the GPUs of a machine that its nova-compute offers to guests, with the first
// device_spec that matches each. A machine without nova.conf offers none.
func OfferedGPUs(root host.Root, devices pci.Devices) machine.Look[[]containercheck.Offered] {
	var offered []containercheck.Offered
	installations, err := nova.Installations(root, nova.Compute)
	if err != nil {
		return machine.Saw(nova.DefaultConf, offered, err)
	}
	interfaces, failed := devspec.Interfaces(root)
	hardware := devspec.NewHardware(devices, interfaces)
	for _, in := range installations {
		side, err := nova.ReadSide(root, nova.Compute, in.Files)
		if errors.Is(err, nova.ErrUnset) {
			continue
		}
		failed = errors.Join(failed, err)
		if err != nil {
			continue
		}
		lines := devspec.Lines(side.Compute().Files, nova.Newest.SpecNames())
		for i := range devices {
			d := &devices[i]
			if !d.IsNVIDIAGPU() {
				continue
			}
			if r, ok := hardware.First(lines, d); ok {
				_, byAddress := r.Spec.Object["address"]
				offered = append(offered, containercheck.Offered{
					Address: d.Address, Spec: conf.Written(r.Spec.Object), File: r.Line.File, Line: r.Line.Option.Line(), ByAddress: byAddress,
				})
			}
		}
	}
	return machine.Saw(nova.DefaultConf, offered, failed)
}
