package check

import (
	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Machine is what the checks judge. A value that cannot be read has the error in its field.
type Machine struct {
	Devices machine.Look[pci.Devices]
	Cgroups machine.Look[Cgroups]
}

// Observe reads what the checks judge. devices are all functions of the machine.
func Observe(root host.Root, devices machine.Look[pci.Devices]) Machine {
	root = root.Once()
	return Machine{
		Devices: devices,
		Cgroups: readCgroups(root),
	}
}
