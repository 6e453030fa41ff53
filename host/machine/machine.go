package machine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
	"time"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/change"
	"gpustack/host/guard"
	"gpustack/host/initramfs"
	"gpustack/host/iommu"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// Places that several packages name.
const (
	DevicesDir  = "/sys/bus/pci/devices"
	CmdlineFile = "/proc/cmdline"
	UnitsDir    = "/sys/class/iommu"
	GroupsDir   = "/sys/kernel/iommu_groups"
	UnsafeFile  = "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"

	statFile = "/proc/stat"
)

// Machine is a machine as it is. Observe says which subject each field belongs to; fields of other
// subjects are zero, without an error.
type Machine struct {
	// Of every subject. Warnings name what could not be read or understood beside; those of single
	// functions are in their Device.
	Devices  Look[pci.Devices]
	Warnings []string

	// Of Record.
	Contract Look[*Contract] // nil where nothing is recorded

	// Of Facts.
	Facts          host.Facts
	CPUVendor      string       // as in Facts, else derived from the host bridges, else "unknown"
	Virtualization Look[string] // the CPU flag that KVM needs: "vmx", "svm", or "" for neither

	// Of IOMMU.
	IOMMU iommu.State

	// Of Boot, but for Kernels, which RunningKernel reads too.
	Kernels   Look[[]modprobe.Modules] // of every installed kernel
	Loader    Look[Loader]
	Generator Look[initramfs.Generator]
	Default   Look[string]            // release of the kernel that boots by default; the newest where that is unknown
	Images    Look[[]initramfs.Image] // of the kernels that can start
	Conf      Look[modprobe.Conf]     // the whole configuration of modprobe, but for the files of one boot

	// Of Needs; Mediated also of its own.
	Needs    Look[[]guard.Need]
	Mediated Look[map[pci.Address]int] // mediated devices, by the function that they are of

	Judged

	subjects Subject // that were read
}

// Judged is what only host check reads.
type Judged struct {
	Firmware   Look[iommu.Firmware]
	Units      Look[[]iommu.Unit]
	Types      Look[map[string]int] // groups by their type
	Unsafe     Look[bool]           // VFIO works without interrupt remapping
	SecureBoot Look[bool]
	Lockdown   Look[string]
	KVM        Look[bool]      // /dev/kvm exists; of the running machine only
	Running    Look[boot.Args] // arguments of the running kernel
	Entries    Look[[]boot.Entry]
	Initramfs  Look[[]Initramfs] // where something is recorded
	Fabric     Look[Fabric]      // where something is recorded

	Files  []Look[string]         // hashes of the contract's files, "" for a missing one
	Paths  map[pci.Address]string // folders in sysfs of functions that are bound by address
	Booted Look[time.Time]
	Claims Look[[]string] // lines of the kernel's log about functions that our drivers claimed, as far as it goes back

	Prepared      Look[*time.Time]    // when the contract was written
	CutOff        Look[*change.Entry] // a run that was interrupted
	OpenElsewhere []change.Entry      // repairs of database rows with an unknown outcome

	Inspected map[pci.Address]pci.Inspection // of functions for guests
	// Open are the groups that a process has open. It is read where a function is bound to a driver
	// that libvirt may have bound it to for a guest.
	Open Look[map[int]bool]
	// VirtType is how Nova runs guests ([libvirt] virt_type of nova.conf). The caller sets it.
	VirtType Look[string]
}

// Subject is a part of a machine that Observe reads beside its functions.
type Subject uint

// The subjects. Each command reads only what it needs: what it does not need must not fail it.
const (
	Facts         Subject = 1 << iota // the machine's names, CPU and boot loader
	IOMMU                             // whether the IOMMU is on
	Record                            // the contract
	Boot                              // the next boot: boot loader, kernels, initramfs, modprobe; includes Facts and Record
	RunningKernel                     // the modules of the running kernel alone; includes Record
	Needs                             // what the host needs; includes Mediated
	Mediated                          // mediated devices
	Check                             // everything that host check judges
)

// Options are what Observe cannot know by itself.
type Options struct {
	Running guard.Running // what only the running machine shows, for Needs
	PCI     pci.Options
}

// ErrNoMachine says that there is nothing of a machine below the root.
var ErrNoMachine = host.WithHint(errors.New("no system found below this root"), "--root takes the top of a machine's file tree; on the machine itself, leave it out")

// Find returns ErrNoMachine unless there is something of a machine below the root.
func Find(root host.Root) error {
	for _, name := range []string{DevicesDir, CmdlineFile, "/etc"} {
		ok, err := root.Exists(name)
		if ok || err != nil {
			return nil // the checks report what cannot be read
		}
	}
	return fmt.Errorf("%s: %w", root.Path("/"), ErrNoMachine)
}

// Observe reads a machine, each file once. It changes nothing and runs no program. What cannot be
// read is an error of its field.
func Observe(root host.Root, subjects Subject, opts Options) Machine {
	o := observer{root: root.Once(), live: root}
	o.subjects = subjects
	if o.reads(Record | Boot | RunningKernel | Check) {
		o.readContract()
	}
	if o.reads(Check) {
		o.subjects |= IOMMU | Boot
		if o.Contract.Seen() && o.Contract.Value == nil {
			o.subjects |= Needs // what would keep it from being prepared
		}
	}
	if o.reads(Boot) {
		o.subjects |= Facts
		o.findKernels()
	}
	var beside sync.WaitGroup // what takes long, and writes fields of its own
	var factWarnings []string
	beside.Go(func() { factWarnings = o.readFacts() })
	if o.reads(Check) {
		beside.Go(func() { o.Running = readArguments(o.root) })
		beside.Go(func() { o.Types = readTypes(o.root) })
		o.readRecord()
	}
	if o.reads(Boot) && !o.needsAliases() {
		beside.Go(func() { o.readKernels(nil) })
	}
	devices, scanWarnings, err := pci.Scan(o.root, opts.PCI)
	o.Devices = Saw(DevicesDir, devices, err)
	if o.needsAliases() {
		beside.Go(func() { o.readKernels(vendors(devices)) })
	}
	if o.reads(RunningKernel) {
		o.readRunningKernel()
	}
	var stateWarnings []string
	if o.reads(IOMMU) {
		o.IOMMU, stateWarnings = iommu.ReadState(o.root, devices)
	}
	if o.reads(Needs) {
		o.readNeeds(opts.Running)
	}
	if o.reads(Needs | Mediated) {
		mediated, err := pci.ReadMediated(o.root, devices)
		o.Mediated = Saw(DevicesDir, mediated, err)
	}
	if o.reads(Boot) {
		o.readConf()
	}
	if o.reads(Check) {
		o.readJudged()
	}
	beside.Wait()
	if o.reads(Facts) && o.CPUVendor == "" {
		o.CPUVendor = cpuOf(devices)
		o.readBoot()
	}
	o.Warnings = append(append(append(factWarnings, stateWarnings...), scanWarnings...), o.Warnings...)
	return o.Machine
}

// observer is a machine that is being read.
type observer struct {
	Machine
	root     host.Root // reads each file once
	live     host.Root
	releases []string // of installed kernels
	listErr  error    // of reading them
}

// reads reports whether one of the subjects is read.
func (o *observer) reads(one Subject) bool {
	return o.subjects&one != 0
}

func (o *observer) warn(warnings ...string) {
	o.Warnings = append(o.Warnings, warnings...)
}

// needsAliases reports whether the aliases of kernels are read: they say which drivers bind to a
// function, which what is recorded already says. Reading them takes long.
func (o *observer) needsAliases() bool {
	recorded := o.Contract.Value != nil || !o.Contract.Seen()
	return o.reads(Boot) && (!o.reads(Check) || !recorded)
}

func (o *observer) readContract() {
	contract, err := ReadContract(o.root)
	o.Contract = Saw(ContractFile, contract, err)
}

// readFacts reads the facts and, as soon as the CPU is known, what the next boot rests on.
func (o *observer) readFacts() (warnings []string) {
	if !o.reads(Facts) {
		return nil
	}
	o.Facts, warnings = host.ReadFacts(o.root)
	if o.reads(Boot) {
		flag, err := host.ReadVirtualization(o.root)
		o.Virtualization = Saw(host.CPUInfo, flag, err)
	}
	if o.CPUVendor = text(o.Facts.CPUVendor); o.CPUVendor != "" {
		o.readBoot()
	}
	return warnings
}

// readNeeds reads what the host needs.
func (o *observer) readNeeds(running guard.Running) {
	needs, err := guard.Needs(o.root, o.Devices.Value, running)
	mounts, mountsErr := o.root.Exists("/proc/mounts")
	if mountsErr == nil && !mounts {
		o.warn("/proc/mounts is missing: the host's disks are not protected")
	}
	o.Needs = Saw("/proc/mounts", needs, errors.Join(err, mountsErr))
}

// readConf reads the configuration of modprobe. In a tree without its folder it is absent.
func (o *observer) readConf() {
	conf, err := modprobe.ReadConf(o.root, modprobe.RunFiles()...)
	if err == nil && conf == nil {
		if ok, existsErr := o.root.Exists(modprobe.Dir); !ok {
			err = cmp.Or(existsErr, fs.ErrNotExist)
		}
	}
	o.Conf = Saw(modprobe.Dir, conf, err)
}

// AttributeFile returns the name of a file of a function's folder in sysfs, or with "" of the
// folder.
func AttributeFile(a pci.Address, attribute string) string {
	return path.Join(DevicesDir, a.String(), attribute)
}

// Recorded returns what the contract says of an address, or nil.
func (m *Machine) Recorded(a pci.Address) *Function {
	return m.Contract.Value.At(a)
}

// ForGuests returns the functions that are recorded, or, where nothing is, those that host prepare
// selects by itself.
func (m *Machine) ForGuests() (functions pci.Devices) {
	devices := m.Devices.Value
	if c := m.Contract.Value; c != nil {
		for _, d := range devices {
			if c.At(d.Address) != nil {
				functions = append(functions, d)
			}
		}
		return functions
	}
	for _, a := range devices.Expand(devices.Defaults()) {
		functions = append(functions, *devices.At(a))
	}
	return functions
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// SortedWarnings returns the warnings, with those of single functions, each once. It is never nil.
func (m *Machine) SortedWarnings() []string {
	warnings := append([]string{}, m.Warnings...)
	for i := range m.Devices.Value {
		warnings = append(warnings, m.Devices.Value[i].Warnings...)
	}
	slices.Sort(warnings)
	return slices.Compact(warnings)
}
