package machine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
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

// Paths that several packages use.
const (
	DevicesDir  = "/sys/bus/pci/devices"
	CmdlineFile = "/proc/cmdline"
	UnitsDir    = "/sys/class/iommu"
	GroupsDir   = "/sys/kernel/iommu_groups"
	UnsafeFile  = "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"

	statFile = "/proc/stat"
)

// Machine is the observed state of a machine. Fields that a command does not need are not read:
// they are zero, without an error.
type Machine struct {
	// Warnings name files that could not be read or parsed; warnings about single functions are in
	// their Device.
	Devices      Look[pci.Devices]
	Warnings     []string
	ScanWarnings []string // those of Warnings about listing and naming functions

	// Elsewhere is whether the root is a tree of files and not the running machine.
	Elsewhere bool

	Contract Look[*Contract] // nil if nothing is recorded
	// Containers is in the contract's file; nil if nothing is recorded for containers.
	Containers *Containers

	// Not for ObserveRecord and ObserveDrivers, unless something is recorded.
	Facts     host.Facts
	CPUVendor string // as in Facts, else derived from the host bridges, else "unknown"

	// For ObservePrepare and ObserveCheck.
	Virtualization Look[string] // the CPU flag that KVM needs: "vmx", "svm", or "" for neither
	SNP            bool         // SEV-SNP is on, or may be: it could not be read

	// For ObserveScan and ObserveCheck.
	IOMMU iommu.State

	// For ObservePrepare and ObserveCheck; Kernels for ObserveDrivers too, of the running one, and as
	// far as they matter for ObserveScan.
	Kernels   Look[[]modprobe.Modules] // of every installed kernel
	Loader    Look[Loader]
	Generator Look[initramfs.Generator]
	Default   Look[string]                 // release of the kernel that boots by default, or the newest if that is unknown
	Images    Look[[]initramfs.Image]      // of the kernels that can boot
	Conf      Look[modprobe.Conf]          // modprobe's configuration, without the files that exist for one boot only
	Stated    Look[[]modprobe.Stated]      // ids= of drivers for passthrough in files of others
	Driverctl Look[map[pci.Address]string] // the drivers to which driverctl binds functions

	// For ObserveCheck, and for ObservePrepare and ObserveDrivers with needs; Mediated and Regions for
	// ObserveScan too.
	Needs    Look[guard.Needs]
	Mediated Look[map[pci.Address]int] // number of mediated devices of each function
	Regions  Look[iommu.Regions]       // of the kernel that boots by default, or else the running one

	// For ObserveCheck while a recorded function is the host's, and where another record was in force
	// when the machine was booted: guests may have what is no longer recorded.
	Uses Look[Uses]

	Judged

	boots bool // what determines the next boot was observed
}

// Judged are values that only host check uses.
type Judged struct {
	Firmware   Look[iommu.Firmware]
	Units      Look[[]iommu.Unit]
	Types      Look[map[string]int] // number of groups of each type
	Unsafe     Look[bool]           // VFIO assigns devices without interrupt remapping
	SecureBoot Look[bool]
	Lockdown   Look[string]
	KVM        Look[bool]      // /dev/kvm exists; of the running machine only
	Running    Look[boot.Args] // arguments of the running kernel
	Entries    Look[[]boot.Entry]
	Initramfs  Look[[]Initramfs] // read only if something is or was recorded
	Fabric     Look[Fabric]      // read only if something is recorded

	Files  []Look[string]         // hashes of the contract's files, "" if missing
	Paths  map[pci.Address]string // sysfs folders of functions that are bound by address
	Booted Look[time.Time]
	Claims Look[[]string] // kernel log lines about functions that drivers for passthrough claimed

	Prepared Look[*time.Time] // when the contract was written
	// Unbooted is whether another record was in force when the machine was booted.
	Unbooted      Look[bool]
	CutOff        Look[*change.Entry] // a run that was interrupted
	OpenElsewhere []change.Entry      // repairs of database rows with an unknown outcome

	Guests    pci.Devices                    // the functions that are, or would be, assigned to guests
	Inspected map[pci.Address]pci.Inspection // of functions for guests
	Links     map[pci.Address]pci.PCIeLink   // of GPUs for guests
	// SwitchedOff are bridges above GPUs for guests without the access control that groups rely on.
	SwitchedOff []pci.Address
	// Open are the IOMMU groups that a process has open. They are read if a function is bound to a
	// driver to which libvirt may have bound it for a guest.
	Open Look[map[int]bool]
	// VirtType is the [libvirt] virt_type of nova.conf. The caller sets it.
	VirtType Look[string]
	// Nova is what was found about the functions that nova-compute offers, nil where there is nothing
	// to say. The caller sets it.
	Nova Look[[]host.Finding]
}

// ErrNoMachine means that the root has no part of a system below it.
var ErrNoMachine = host.WithHint(errors.New("no system found below this root"),
	"--root takes the top of a machine's file tree; on the machine itself, leave it out")

// Find returns ErrNoMachine unless the root has a part of a system below it.
func Find(root host.Root) error {
	for _, name := range []string{DevicesDir, CmdlineFile, "/etc"} {
		ok, err := root.Exists(name)
		if ok || err != nil {
			return nil // the checks report what cannot be read
		}
	}
	return fmt.Errorf("%s: %w", root.Path("/"), ErrNoMachine)
}

// The observations, one for what commands of a kind need, so that files of other subjects do not
// make them fail. Each reads a file once, changes nothing and runs no program. A value that cannot
// be read has the error in its field. A nil journal is read, if it is needed.

// ObserveScan observes the functions that opts names, what is recorded of them, and whether the IOMMU
// is on.
func ObserveScan(root host.Root, opts pci.Options) Machine {
	o := newObserver(root)
	o.findKernels()
	o.readFacts()
	o.scan(opts)
	o.readState()
	o.readMediated()
	o.wait()
	o.readGroups(true)
	return o.Machine
}

// ObserveRecord observes what is recorded, whether it waits for a boot, and the functions. Where
// nothing is recorded, nothing waits: only functions reads them then, and the facts are not read.
func ObserveRecord(root host.Root, journal *change.Seen, functions bool) Machine {
	o := newObserver(root)
	o.readReboot(journal)
	if o.Contract.Value == nil && !functions {
		return o.Machine
	}
	o.readFactsOfRecord()
	o.scan(pci.Options{})
	o.wait()
	return o.Machine
}

// ObserveDrivers observes what a change of drivers now needs, with needs what determines which
// functions may leave the host.
func ObserveDrivers(root host.Root, needs bool) Machine {
	o := newObserver(root)
	o.readReboot(nil)
	o.readFactsOfRecord()
	o.scan(pci.Options{})
	o.readRunningKernel()
	if needs {
		o.readNeeds()
	}
	o.wait()
	return o.Machine
}

// ObservePrepare observes what determines the next boot, with needs what determines which functions
// may leave the host too.
func ObservePrepare(root host.Root, needs bool) Machine {
	o := newObserver(root)
	o.boots = true
	o.readReboot(nil)
	o.findKernels()
	o.readFacts()
	o.scan(pci.Options{})
	o.beside.Go(o.readAliases)
	if needs {
		o.readNeeds()
	}
	o.readConf()
	o.wait()
	return o.Machine
}

// ObserveCheck observes everything that host check uses. images remembers the initramfs images that
// it unpacks, and may be nil. The caller saves it.
func ObserveCheck(root host.Root, images *initramfs.Memory, journal *change.Seen) Machine {
	o := newObserver(root)
	o.boots, o.checks, o.images = true, true, images
	o.readJournal(journal)
	o.Running = readArguments(o.root)
	o.findKernels()
	o.readFacts()
	o.beside.Go(func() { o.Types = readTypes(o.root) })
	o.readRecord()
	// Aliases show which drivers can bind to a function, which a contract records already, and
	// reading them is slow.
	recorded := o.Contract.Value != nil || !o.Contract.Seen()
	if recorded {
		o.beside.Go(o.readNames)
	}
	o.scan(pci.Options{})
	if !recorded {
		o.beside.Go(o.readAliases)
	}
	if o.isLeaving() || o.Unbooted.Value {
		uses, err := ObserveUses(o.root, o.Devices.Value, false)
		o.Uses = Saw(host.ProcDir, uses, err)
	}
	o.readState()
	o.readNeeds()
	o.readConf()
	o.readJudged()
	o.wait()
	o.readGroups(recorded)
	return o.Machine
}

// observer reads one machine.
type observer struct {
	Machine
	root     host.Root // reads each file once
	live     host.Root
	journal  change.Seen
	checks   bool           // everything that host check uses is observed
	beside   sync.WaitGroup // slow reads, each of fields of its own
	facts    bool           // they are observed
	warnings struct{ facts, state []string }
	releases []string                                    // of the installed kernels
	listErr  error                                       // error of reading the releases
	names    map[string]func() (modprobe.Modules, error) // of each release, read once
	images   *initramfs.Memory
}

// newObserver reads what is recorded.
func newObserver(root host.Root) *observer {
	o := &observer{root: root.Once(), live: root}
	o.Elsewhere = !root.IsMachine()
	contract, containers, err := ReadRecord(o.root)
	o.Contract, o.Containers = Saw(ContractFile, contract, err), containers
	return o
}

// wait ends the observation of what is read beside the rest.
func (o *observer) wait() {
	o.beside.Wait()
	if o.facts && o.CPUVendor == "" {
		o.CPUVendor = cpuOf(o.Devices.Value)
		o.readBoot()
	}
	if o.Needs.File != "" && !o.checks { // what determines which functions may leave the host
		o.readRegions(o.Devices.Value)
	}
	o.Warnings = slices.Concat(o.warnings.facts, o.warnings.state, o.ScanWarnings, o.Warnings)
}

func (o *observer) scan(opts pci.Options) {
	devices, warnings, err := pci.Scan(o.root, opts)
	o.Devices, o.ScanWarnings = Saw(DevicesDir, devices, err), warnings
}

func (o *observer) readState() {
	o.IOMMU, o.warnings.state = iommu.ReadState(o.root, o.Devices.Value)
}

func (o *observer) readMediated() {
	mediated, err := pci.ReadMediated(o.root, o.Devices.Value)
	o.Mediated = Saw(DevicesDir, mediated, err)
}

// readReboot reads what shows whether what is recorded waits for a boot.
func (o *observer) readReboot(journal *change.Seen) {
	o.readJournal(journal)
	o.readTimes()
	o.Running = readArguments(o.root)
}

// isLeaving reports whether a recorded function is the host's until the next boot.
func (o *observer) isLeaving() bool {
	return o.Contract.Value != nil && slices.ContainsFunc(o.Contract.Value.Functions, func(f Function) bool {
		d := o.Devices.Value.At(f.Address)
		return d != nil && d.DriverName() != "" && !pci.LeavesAlone(d.DriverName())
	})
}

func (o *observer) warn(warnings ...string) {
	o.Warnings = append(o.Warnings, warnings...)
}

// readJournal reads the journal, unless the caller has. It is not read through the root that reads
// each file once: an open entry is read again while its journal is locked.
func (o *observer) readJournal(seen *change.Seen) {
	if seen != nil {
		o.journal = *seen
		return
	}
	o.journal = change.Machine(o.live).Observe()
}

// readFactsOfRecord reads the facts if something is recorded.
func (o *observer) readFactsOfRecord() {
	if o.Contract.Value != nil {
		o.readFacts()
	}
}

// readFacts reads the facts and, once the CPU is known, what depends on it, beside the rest.
func (o *observer) readFacts() {
	o.facts = true
	o.beside.Go(func() { o.warnings.facts = o.factsAndBoot() })
}

func (o *observer) factsAndBoot() (warnings []string) {
	o.Facts, warnings = host.ReadFacts(o.root)
	if o.boots {
		flag, err := host.ReadVirtualization(o.root)
		o.Virtualization = Saw(host.CPUInfo, flag, err)
		if o.SNP, err = host.ReadSNP(o.root); err != nil {
			o.SNP, warnings = true, append(warnings, err.Error())
		}
	}
	if o.CPUVendor = host.Value(o.Facts.CPUVendor); o.CPUVendor != "" {
		o.readBoot()
	}
	return warnings
}

// readNeeds determines which functions the host needs.
func (o *observer) readNeeds() {
	needs, err := guard.Observe(o.root, o.Devices.Value)
	o.Needs = Saw("/proc/mounts", needs, err)
	o.readMediated()
}

// readRegions reads the regions that the firmware wants mapped 1:1, of the groups of devices.
func (o *observer) readRegions(devices pci.Devices) {
	release := o.Default.Value
	if release == "" {
		running, err := o.root.ReadHead("/proc/sys/kernel/osrelease", host.MaxAttribute)
		if err != nil && !host.IsAbsent(err) {
			o.warn(err.Error())
		}
		release = string(running)
	}
	regions, err := iommu.ReadRegions(o.root, devices, release)
	o.Regions = Saw(GroupsDir, regions, err)
}

// readConf reads the configuration of modprobe. It is absent in a tree without its folder.
func (o *observer) readConf() {
	conf, err := modprobe.ReadConf(o.root, modprobe.RunFiles()...)
	if err == nil && conf == nil {
		if ok, existsErr := o.root.Exists(modprobe.Dir); !ok {
			err = cmp.Or(existsErr, fs.ErrNotExist)
		}
	}
	o.Conf = Saw(modprobe.Dir, conf, err)
	stated, err := modprobe.ReadStated(o.root, conf)
	o.Stated = Saw(modprobe.Dir, stated, err)
	drivers, err := readDriverctl(o.root)
	o.Driverctl = Saw(DriverctlDir, drivers, err)
}

// WantIOMMU returns the kernel arguments that the machine's IOMMU needs, and false for an unknown CPU.
// Where the operator sets them, the translation mode is not among them: nothing requires it.
func (m *Machine) WantIOMMU() (boot.Want, bool) {
	_, external := m.Loader.Value.(boot.External)
	asked := slices.ContainsFunc(m.Conf.Value.Options("kvm_amd", "sev_snp"), func(o modprobe.Option) bool { return boot.IsTrue(o.Value) })
	return boot.WantIOMMU(m.CPUVendor, m.SNP || asked || external)
}

// StatedByOthers returns the ids= in files of others, without those of an initramfs generator that
// the machine does not use: nothing reads them.
func (m *Machine) StatedByOthers() []modprobe.Stated {
	unused := map[initramfs.Generator]string{initramfs.Tools: "/dracut", initramfs.Dracut: "/initramfs-tools"}[m.Generator.Value]
	return slices.DeleteFunc(slices.Clone(m.Stated.Value), func(s modprobe.Stated) bool { return unused != "" && strings.Contains(s.File, unused) })
}

// AttributeFile returns the path of an attribute in a function's sysfs folder, or with "" that of
// the folder.
func AttributeFile(a pci.Address, attribute string) string {
	return path.Join(DevicesDir, a.String(), attribute)
}

// Recorded returns the record of the function at an address, or nil.
func (m *Machine) Recorded(a pci.Address) *Function {
	return m.Contract.Value.At(a)
}

// Defaults returns the functions that host prepare selects if nothing is recorded and the options
// name none.
func (m *Machine) Defaults() []pci.Address {
	return m.Containers.Without(m.Devices.Value.Defaults())
}

// forGuests returns the recorded functions or, if nothing is recorded, the functions that host
// prepare selects by default.
func (m *Machine) forGuests() pci.Devices {
	devices := m.Devices.Value
	if c := m.Contract.Value; c != nil {
		return devices.AtEach(c.Addresses())
	}
	return devices.AtEach(devices.Expand(m.Defaults()))
}

// SortedWarnings returns all warnings, those of single functions included, sorted and each once.
// It is never nil.
func (m *Machine) SortedWarnings() []string {
	warnings := append([]string{}, m.Warnings...)
	for i := range m.Devices.Value {
		warnings = append(warnings, m.Devices.Value[i].Warnings...)
	}
	slices.Sort(warnings)
	return slices.Compact(warnings)
}
