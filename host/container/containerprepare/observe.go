package containerprepare

import (
	"errors"
	"slices"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/edit"
	"gpustack/host/machine"
	"gpustack/host/memlock"
	"gpustack/host/modprobe"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
)

// Observed is what a plan depends on.
type Observed struct {
	Devices    pci.Devices
	Driver     nvidia.Driver
	Stack      rdma.Stack
	Folders    cdi.Folders
	Guests     *machine.Contract   // of host prepare; nil if nothing is recorded
	Recorded   *machine.Containers // nil if nothing is recorded
	RDMA       *rdma.Record        // of rdma prepare; nil if nothing is recorded
	Blacklists []modprobe.Line     // that keep NVIDIA's driver from being loaded
	Files      edit.Files          // that a plan may change, besides those of the unit
	Unit       steps.UnitFiles
	Limits     memlock.Limits // of locked memory, without gpustack's drop-ins
	Toolkit    machine.Look[container.Toolkit]
	NodeMaker  error // of finding nvidia-modprobe, which makes nodes at boot
	SELinux    host.SELinux
	Family     host.Family // of the distribution
	Unread     []string    // warnings about files that could not be read
}

// exclusive reports whether RDMA devices belong to one network namespace each, now or from the next
// boot on.
func (m Observed) exclusive() bool {
	return m.RDMA != nil && m.RDMA.Netns == rdma.NetnsExclusive || m.Stack.Netns != nil && *m.Stack.Netns == rdma.NetnsExclusive
}

// Observe reads what a plan depends on. seen is the machine below root, observed by
// [machine.ObserveRecord]. A file that cannot be read and might prevent a plan is an error.
func Observe(root host.Root, seen machine.Machine) (Observed, error) {
	m := Observed{Devices: seen.Devices.Value, Unread: seen.ScanWarnings, Guests: seen.Contract.Value, Recorded: seen.Containers}
	if err := seen.Devices.Err; err != nil && !errors.Is(err, pci.ErrNoPCI) {
		return m, err
	}
	var err error
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	m.Driver, err = nvidia.Read(root, m.Devices)
	keep(err)
	m.Stack, err = rdma.Read(root, m.Devices, rdma.Options{})
	keep(err)
	m.Folders = cdi.Read(root)
	keep(seen.Contract.Err)
	m.RDMA, err = rdma.ReadRecord(root)
	keep(err)
	m.Blacklists, err = modprobe.ReadPreventing(root, nvidia.Modules()...)
	keep(err)
	m.Files = edit.Observe(root, slices.Concat(container.BootFiles(), memlockFiles(), []string{machine.ContractFile})...)
	m.Unit = steps.ObserveUnit(root)
	m.Limits = memlock.Read(root, memlockFiles()...)
	toolkit, err := container.ReadToolkit(root)
	m.Toolkit = machine.Saw(container.RefreshEnv, toolkit, err)
	m.Family = host.ReadFamily(root)
	m.SELinux, err = host.ReadSELinux(root)
	keep(err)
	_, m.NodeMaker = host.Runner{Root: root}.Find("nvidia-modprobe")
	m.Unread = slices.Concat(m.Unread, m.Driver.Warnings, m.Stack.Warnings)
	return m, errors.Join(errs...)
}
