package node

import (
	"gpustack/host"
	"gpustack/host/container/containercheck"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
)

// ReadVirtType reads the virt_type of nova-compute.
func ReadVirtType(root host.Root) machine.Look[string] {
	value, file, err := nova.ReadVirtType(root)
	return machine.Look[string]{Value: value, File: file, Err: err}
}

// Offered returns the functions of a machine that its nova-compute offers to guests, with the first
// device_spec that matches each. A machine without nova.conf offers none.
func Offered(root host.Root, devices pci.Devices) machine.Look[[]containercheck.Offered] {
	found, err := nova.ReadOffered(root, devices, nova.Recorded{}, nil)
	var offered []containercheck.Offered
	for _, r := range found.Functions {
		_, byAddress := r.Spec.Object["address"]
		offered = append(offered, containercheck.Offered{
			Address: r.Device.Address, Spec: conf.Written(r.Spec.Object), File: r.Line.File, Line: r.Line.Option.Line(), ByAddress: byAddress,
		})
	}
	return machine.Saw(nova.DefaultConf, offered, err)
}
