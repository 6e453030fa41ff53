package containercheck

import (
	"errors"
	"slices"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
)

// Observed is what the checks judge. A value that cannot be read has the error in its field.
type Observed struct {
	Devices    machine.Look[pci.Devices]
	Driver     machine.Look[nvidia.Driver]
	Specs      cdi.Folders
	Stack      machine.Look[rdma.Stack]
	Contract   machine.Look[*machine.Contract]   // nil if nothing is recorded for guests
	Containers machine.Look[*machine.Containers] // nil if nothing is recorded for containers
	Files      []machine.Look[string]            // hashes of the files of that record, "" if missing
	Offered    machine.Look[[]Offered]           // GPUs that nova.conf offers to guests
	Preventing machine.Look[[]modprobe.Line]     // what keeps NVIDIA's modules from being loaded at boot
	Toolkit    machine.Look[container.Toolkit]
	Adapters   machine.Look[*rdma.Record] // of rdma prepare; nil if nothing is recorded
	Injectors  machine.Look[[]container.Injector]
	Docker     machine.Look[Docker]
	Cgroups    machine.Look[Cgroups]
	Images     []container.Image // that the operator named
	SELinux    machine.Look[host.SELinux]
	Links      map[pci.Address]pci.PCIeLink // of GPUs that are not for guests
	Family     host.Family                  // of the distribution
	Systemd    bool                         // the machine has it
	Boot       steps.State                  // of the steps that write the specs at boot
	// Architecture is the node's, as Go names it.
	Architecture string
}

// Observe reads what the checks judge. devices are all functions of the machine, and offered those
// that nova-compute offers to guests.
func Observe(root host.Root, devices machine.Look[pci.Devices], offered machine.Look[[]Offered]) Observed {
	versions, versionsErr := host.Installed(root)
	m := Observed{
		Architecture: container.Architecture(root), Devices: devices, Offered: offered, Family: host.ReadFamily(root),
		Cgroups: readCgroups(root, versions), Docker: readDocker(root, versions),
	}
	if versionsErr != nil {
		m.Docker = machine.Saw(host.PackageFile, Docker{}, versionsErr)
	}
	injectors, err := container.ReadInjectors(root)
	m.Injectors = sawFiles("/etc", injectors, err)
	toolkit, err := container.ReadToolkit(root)
	m.Toolkit = sawFiles("/usr/bin/nvidia-ctk", toolkit, err)
	adapters, err := rdma.ReadRecord(root)
	m.Adapters = machine.Saw(rdma.RecordFile, adapters, err)
	selinux, err := host.ReadSELinux(root)
	m.SELinux = machine.Saw(host.SELinuxDir, selinux, err)
	m.Systemd, err = steps.HasSystemd(root)
	if err != nil { // a remedy for a machine with systemd
		m.Systemd = true
	}
	driver, err := nvidia.Read(root, devices.Value)
	m.Driver = machine.Saw("/proc/driver/nvidia", driver, err)
	preventing, err := modprobe.ReadPreventing(root, nvidia.Modules()...)
	m.Preventing = machine.Saw("/etc/modprobe.d", preventing, err)
	m.Specs = cdi.Read(root)
	stack, err := rdma.Read(root, devices.Value, rdma.Options{})
	m.Stack = machine.Saw("/sys/class/infiniband", stack, err)
	guests, containers, err := machine.ReadRecord(root)
	m.Contract = machine.Saw(machine.ContractFile, guests, err)
	m.Containers = machine.Saw(machine.ContractFile, containers, err)
	m.Boot = steps.Observe(root, machine.Machine{Contract: m.Contract, Containers: containers})
	m.Links = pci.ReadPCIeLinks(root, slices.DeleteFunc(slices.Clone(devices.Value), func(d pci.Device) bool {
		return !d.IsNVIDIAGPU() || d.IsVF() || guests.At(d.Address) != nil
	}))
	if containers != nil {
		for _, f := range containers.Files {
			m.Files = append(m.Files, machine.ReadHash(root, f.Name))
		}
	}
	return m
}

// sawFiles returns the Look for a value read from several files: that of the first file that could
// not be read, or else of the file that stands for them.
func sawFiles[T any](file string, value T, failed error) machine.Look[T] {
	if of := (*host.FileError)(nil); errors.As(failed, &of) {
		file, failed = of.Name, of
	}
	if failed != nil {
		value = *new(T)
	}
	return machine.Saw(file, value, failed)
}
