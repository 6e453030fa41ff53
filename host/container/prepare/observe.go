package prepare

import (
	"errors"
	"path"
	"slices"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Machine is what a plan depends on.
type Machine struct {
	Devices    pci.Devices
	Driver     nvidia.Driver
	Stack      rdma.Stack
	Folders    cdi.Folders
	Guests     *machine.Contract   // of host prepare; nil if nothing is recorded
	Recorded   *machine.Containers // nil if nothing is recorded
	RDMA       *rdma.Record        // of rdma prepare; nil if nothing is recorded
	Blacklists []modprobe.Line     // that keep NVIDIA's driver from being loaded
	Unread     []string            // warnings about files that could not be read
}

// exclusive reports whether RDMA devices belong to one network namespace each, now or from the next
// boot on.
func (m Machine) exclusive() bool {
	return m.RDMA != nil && m.RDMA.Netns == rdma.NetnsExclusive || m.Stack.Netns != nil && *m.Stack.Netns == rdma.NetnsExclusive
}

// Observe reads what a plan depends on. A file that cannot be read and might prevent a plan is an
// error.
func Observe(root host.Root) (Machine, error) {
	var m Machine
	var err error
	if m.Devices, m.Unread, err = pci.Scan(root, pci.Options{}); err != nil && !errors.Is(err, pci.ErrNoPCI) {
		return m, err
	}
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	m.Driver, err = nvidia.Read(root, m.Devices)
	keep(err)
	m.Stack, err = rdma.Read(root, m.Devices, rdma.Options{})
	keep(err)
	m.Folders, err = cdi.Read(root)
	keep(err)
	m.Guests, m.Recorded, err = machine.ReadRecord(root)
	keep(err)
	m.RDMA, err = rdma.ReadRecord(root)
	keep(err)
	conf, err := modprobe.ReadConf(root)
	keep(err)
	for _, line := range conf {
		if keepsFromLoading(line) && slices.Contains([]string{"nvidia", "nvidia_current", "nvidia_uvm", "nvidia_current_uvm"}, line.Module) {
			m.Blacklists = append(m.Blacklists, line)
		}
	}
	m.Unread = append(append(m.Unread, m.Driver.Warnings...), m.Stack.Warnings...)
	return m, errors.Join(errs...)
}

// keepsFromLoading reports whether a line keeps a module from being loaded at boot: blacklist, or
// install with a program that does nothing (modprobe.d(5)).
func keepsFromLoading(line modprobe.Line) bool {
	if line.Command == "install" && len(line.Rest) > 0 {
		program := path.Base(line.Rest[0])
		return program == "false" || program == "true"
	}
	return line.Command == "blacklist"
}
