package prepare

import (
	"strings"

	"gpustack/host"
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

// Observed is a machine with all that a plan depends on.
type Observed struct {
	machine.Machine
	Adapters machine.Look[*rdma.Record] // of rdma prepare: its functions are not host prepare's
	InUse    machine.Look[machine.Uses]
	Places   map[pci.Address]machine.Look[string] // where sysfs links lead of parts of GPUs' cards and of NVSwitches
	Edited   edit.Files                           // that a plan may change
	Unit     steps.UnitFiles
	// Journal is read if something is recorded, or everything is to be removed: it shows what was
	// there before.
	Journal machine.Look[[]change.Entry]
}

// Observe reads what a plan of options depends on besides a machine that was observed by
// [machine.ObservePrepare]. What cannot be read is an error of the plan that needs it.
func Observe(root host.Root, m machine.Machine, opts selection.Options) Observed {
	devices := m.Devices.Value
	o := Observed{Machine: m, Unit: steps.ObserveUnit(root), Places: map[pci.Address]machine.Look[string]{}}
	record, err := rdma.ReadRecord(root)
	o.Adapters = machine.Saw(rdma.RecordFile, record, err)
	uses, err := machine.ObserveUses(root, devices, false)
	o.InUse = machine.Look[machine.Uses]{Value: uses, File: host.ProcDir, Err: err}
	for i := range devices {
		d, a := &devices[i], devices[i].Address
		if devices.GPUOf(d) == nil && !d.IsNVSwitch() {
			continue // not bound by its address
		}
		place, err := root.Real(machine.AttributeFile(a, ""))
		o.Places[a] = machine.Saw(machine.AttributeFile(a, ""), place, err)
	}
	if opts.None || !m.Contract.Seen() || m.Contract.Value != nil {
		entries, err := change.List(root)
		o.Journal = machine.Saw(change.Dir, entries, err)
	}
	o.Edited = edit.Observe(root, o.files()...)
	return o
}

// files returns the files that a plan may change, or compares with what the journal has of them.
func (m Observed) files() []string {
	files := append(modprobe.PlanFiles(), initramfs.PlanFiles()...)
	files = append(files, machine.ContractFile, kernelCmdline)
	if m.Loader.Value != nil {
		files = append(files, m.Loader.Value.Files()...)
	}
	files = append(files, host.Map(host.Filter(m.StatedByOthers(), func(s modprobe.Stated) bool { return s.Number != 0 }),
		func(s modprobe.Stated) string { return s.File })...)
	for a := range m.Driverctl.Value {
		files = append(files, machine.DriverctlFile(a))
	}
	for _, e := range m.Journal.Value {
		for _, f := range e.Files {
			if isBootFile(f.Name) {
				files = append(files, f.Name)
			}
		}
	}
	return files
}

// isBootFile reports whether a file has kernel arguments that every program may change.
func isBootFile(name string) bool {
	return strings.HasPrefix(name, "/boot/") || strings.HasPrefix(name, "/efi/") || name == kernelCmdline
}
