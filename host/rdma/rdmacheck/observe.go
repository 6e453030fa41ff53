package rdmacheck

import (
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/memlock"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
)

// Observed is what the checks judge. A value that cannot be read has the error in its field.
type Observed struct {
	Devices pci.Devices
	Stack   machine.Look[rdma.Stack]
	Modules machine.Look[Modules]
	// Arguments are those of the running kernel.
	Arguments machine.Look[[]string]
	Links     map[pci.Address]pci.PCIeLink // of adapters that are physical functions
	Verbs     rdma.Verbs
	Limits    memlock.Limits
	Kernel    machine.Look[string] // the release of the running kernel
	NVIDIA    machine.Look[string] // what NVIDIA's module says of itself, "" where it is not loaded

	// Addresses are those of each interface; nil if they are unknown, as on a tree.
	Addresses  map[string][]netip.Addr
	Containers machine.Look[*machine.Containers] // nil if nothing is recorded for containers

	Record   machine.Look[*rdma.Record]  // nil if nothing is recorded
	Result   machine.Look[*steps.Result] // of a run since this boot; nil if there was none
	Boot     steps.State
	Files    []machine.Look[string] // hashes of the record's files, "" if missing
	Booted   machine.Look[time.Time]
	Prepared *time.Time // when the record was written; nil if that is unknown
	// Used are the uses of functions that leave the host at the next boot. They are read only while
	// the record has not taken effect.
	Used machine.Look[[]error]
}

// Paths that checks read and name.
const (
	modulesFile = "/proc/modules"
	cmdlineFile = "/proc/cmdline"
	uverbsDir   = "/sys/class/infiniband_verbs"
	kernelFile  = "/proc/sys/kernel/osrelease"
	nvidiaFile  = "/proc/driver/nvidia/version"
)

// Observe reads what the checks judge. devices are all functions of the machine, and journal its
// journal.
func Observe(root host.Root, devices pci.Devices, journal change.Seen) Observed {
	stack, err := rdma.Read(root, devices, rdma.Options{GIDs: true})
	m := Observed{
		Devices: devices,
		Stack:   machine.Saw("/sys/class/infiniband", stack, err),
		Modules: readModules(root),
		Links:   readLinks(root, stack),
		Verbs:   rdma.ReadVerbs(root),
		Limits:  memlock.Read(root),
	}
	cmdline, err := root.ReadFile(cmdlineFile)
	m.Arguments = machine.Saw(cmdlineFile, strings.Fields(string(cmdline)), err)
	m.Kernel, m.NVIDIA = readWord(root, kernelFile), readWord(root, nvidiaFile)
	if root.IsMachine() {
		m.Addresses, _ = guard.ReadAddresses() // no file shows them
	}
	guests, containers, err := machine.ReadRecord(root)
	m.Containers = machine.Saw(machine.ContractFile, containers, err)
	m.Boot = steps.Observe(root, machine.Machine{Contract: machine.Saw(machine.ContractFile, guests, err), Containers: containers})
	record, err := rdma.ReadRecord(root)
	m.Record = machine.Saw(rdma.RecordFile, record, err)
	result, err := steps.ReadResult(root)
	m.Result = machine.Saw(steps.ResultFile, result, err)
	if record == nil {
		return m
	}
	m.Files = append(m.Files, host.Map(record.Files, func(f rdma.File) machine.Look[string] { return machine.ReadHash(root, f.Name) })...)
	m.Booted = machine.ReadBootTime(root)
	m.Prepared = preparedAt(journal.Entries)
	if m.phase() == pending {
		used, err := readUsed(root, devices, record)
		m.Used = machine.Saw(host.ProcDir, used, err)
	}
	return m
}

// readUsed asks the gate for the functions that leave the host at the next boot: an error for each
// use that --allow has not lifted.
func readUsed(root host.Root, devices pci.Devices, record *rdma.Record) ([]error, error) {
	after := gate.Records{RDMA: record}
	made, err := steps.Made(root)
	leaving := gate.Leaves(devices, made, gate.Records{}, after)
	if err != nil || len(leaving) == 0 {
		return nil, err
	}
	h, uses, err := gate.Observe(root, devices, leaving)
	if err != nil {
		return nil, err
	}
	_, err = h.Leave(uses, after.ReadAllowed(root), leaving...)
	return host.Split(err), nil
}

// Modules are the names of loaded modules, with "_".
type Modules map[string]bool

// readModules reads which modules are loaded.
func readModules(root host.Root) machine.Look[Modules] {
	loaded := Modules{}
	data, err := root.ReadTable(modulesFile)
	for line := range strings.Lines(string(data)) {
		if name, _, ok := strings.Cut(line, " "); ok {
			loaded[name] = true
		}
	}
	return machine.Saw(modulesFile, loaded, err)
}

// readWord reads a file without the spaces around it. A missing file is "".
func readWord(root host.Root, file string) machine.Look[string] {
	data, err := root.ReadFile(file)
	if host.IsAbsent(err) {
		err = nil
	}
	return machine.Saw(file, strings.TrimSpace(string(data)), err)
}

// readLinks reads the PCIe links of adapters that are physical functions.
func readLinks(root host.Root, s rdma.Stack) map[pci.Address]pci.PCIeLink {
	var linked []pci.Device
	for _, a := range s.Adapters {
		if a.Function != nil && !a.IsVF() {
			linked = append(linked, *a.Function)
		}
	}
	return pci.ReadPCIeLinks(root, linked)
}

// preparedAt returns when the record was last written, as the journal shows it. Without the
// journal, which is for root only, phase judges by the result alone.
func preparedAt(entries []change.Entry) *time.Time {
	for _, e := range slices.Backward(entries) {
		wrote := func(f change.File) bool { return path.Clean(f.Name) == rdma.RecordFile }
		if e.Status == change.Done && slices.ContainsFunc(e.Files, wrote) {
			return e.Ended
		}
	}
	return nil
}

// phase is how far a record has taken effect.
type phase int

const (
	unrecorded phase = iota // nothing is recorded, or the record cannot be read
	pending                 // it takes effect at the next boot
	effective               // the steps of this boot were those of the record, or should have been
)

// offArgument is the kernel argument with which adapters remain as they are for one boot.
const offArgument = "gpustack=off"

// phase determines whether the steps that were carried out are those of the record.
func (m Observed) phase() phase {
	switch run := m.Result.Value; {
	case m.Record.Value == nil:
		return unrecorded
	case slices.Contains(m.Arguments.Value, offArgument), run != nil && m.Prepared != nil && run.Started.Before(*m.Prepared):
		return pending
	case run != nil, m.Booted.Seen() && m.Prepared != nil && m.Booted.Value.After(*m.Prepared):
		return effective
	}
	return pending
}

// RebootRequired reports whether the record takes effect only at the next boot, or after a run of
// gpustack-boot.service. It is Unknown if the record cannot be read.
func (m Observed) RebootRequired() host.Bool {
	if !m.Record.Seen() {
		return host.Unknown
	}
	return host.BoolOf(m.phase() == pending)
}
