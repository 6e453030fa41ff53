package prepare

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/initramfs"
	"gpustack/host/iommu"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// Machine is a machine as Check sees it, whatever state it is in.
type Machine struct {
	Facts     host.Facts
	CPUVendor string // "unknown" where nothing tells
	Devices   Look[[]pci.Device]
	Inspected map[pci.Address]pci.Inspection // of functions that go to guests
	IOMMU     iommu.State
	Firmware  Look[iommu.Firmware]
	Units     Look[[]iommu.Unit]
	Types     Look[map[string]int] // groups by their type
	// Unsafe tells whether VFIO does without interrupt remapping.
	Unsafe     Look[bool]
	SecureBoot Look[bool]
	Lockdown   Look[string]
	Running    Look[boot.Args] // what the kernel was started with
	Entries    Look[[]boot.Entry]
	Kernels    Look[[]modprobe.Modules]
	Images     Look[[]Image]
	Conf       Look[modprobe.Conf] // all that modprobe is told, by us too
	Contract   Look[*Contract]     // nil where nothing is recorded
	Files      []Look[string]      // hashes of the contract's files, "" for one that is gone
	// Paths are the folders in sysfs of the functions that are bound by address.
	Paths  map[pci.Address]string
	Booted Look[time.Time]
	// Claims are the kernel's own lines of functions that it gave to our drivers, as far as
	// its log goes back.
	Claims   Look[[]string]
	Prepared Look[*time.Time]    // when the contract was written
	CutOff   Look[*change.Entry] // a run that did not come to its end
	OpenRows []change.Entry      // repairs of database rows whose outcome is not known
	// Open are the groups that some process has open; looked for where a function is
	// with a driver that a guest may have brought it to.
	Open    Look[map[int]bool]
	Fabric  Look[Fabric]
	Refused []error // why the machine cannot be prepared; of one that is not
	// Warnings name what could not be read or understood.
	Warnings []string

	// Virtualization is the CPU flag that KVM needs, "vmx" or "svm", and "" for neither.
	Virtualization Look[string]
	// KVM tells whether /dev/kvm is there, of the running machine only.
	KVM Look[bool]
	// VirtType is how Nova runs guests, by nova.conf's [libvirt] virt_type; the caller of
	// ReadMachine sets it.
	VirtType Look[string]
}

// Image is the initramfs of one kernel, and what is wrong with it.
type Image struct {
	Kernel, File string
	Err          error // what it lacks (host/initramfs), or why it could not be looked into
}

// errNoImages says that there is no initramfs to look into.
var errNoImages = errors.New("no initramfs of an installed kernel is there")

// ErrUnseen says that a machine does not show enough of itself to be judged.
var ErrUnseen = errors.New("what is to be judged cannot be seen")

// ErrNoMachine says that there is nothing of a machine below the root.
var ErrNoMachine = errors.New("no machine's file tree")

// ReadMachine looks at everything that Check judges. It changes nothing and runs no
// program. The error says that there is no machine to look at.
func ReadMachine(root host.Root) (Machine, error) {
	if err := isMachine(root); err != nil {
		return Machine{}, err
	}
	var m Machine
	var beside sync.WaitGroup // what takes long, and writes fields of its own
	beside.Go(func() { m.Kernels = readModules(root) })
	beside.Go(func() { m.Running = readArguments(root) })
	beside.Go(func() { m.Types = readTypes(root) })
	m.readRecord(root)
	if m.Contract.Value != nil {
		m.Fabric = readFabric(root)
	}
	if m.Contract.seen() && m.Contract.Value == nil {
		beside.Go(func() { m.Refused = refused(root) })
	}
	m.Facts, m.Warnings = host.ReadFacts(root)
	beside.Go(func() {
		m.Entries = readEntries(root, m.Facts, m.Contract.Value)
		m.Images = readImages(root, m.Facts, m.Contract.Value, m.Entries.Value)
	})
	devices, warnings, err := pci.Scan(root, pci.Options{})
	m.Devices = look(devicesDir, devices, scanError(err))
	m.warn(warnings...)
	for i := range devices {
		m.warn(devices[i].Warnings...)
	}
	if m.CPUVendor = text(m.Facts.CPUVendor); m.CPUVendor == "" {
		m.CPUVendor = cpuOf(devices)
	}
	flag, err := host.ReadVirtualization(root)
	m.Virtualization = look(host.CPUInfo, flag, err)
	m.KVM = readKVM(root)
	m.readIOMMU(root)
	m.readSecurity(root)
	m.Conf = readConf(root)
	m.inspect(root)
	beside.Wait()
	slices.Sort(m.Warnings)
	m.Warnings = slices.Compact(m.Warnings)
	return m, nil
}

// scanError is why there is no list of functions, without the root's own path.
func scanError(err error) error {
	if errors.Is(err, pci.ErrNoPCI) {
		return fs.ErrNotExist
	}
	return errors.Unwrap(err)
}

// readConf reads the configuration of modprobe, without the files that the hook wrote for the boot
// that runs. In a tree without its folder it is not known.
func readConf(root host.Root) Look[modprobe.Conf] {
	conf, err := modprobe.ReadConf(root, modprobe.RunFiles()...)
	if err == nil && conf == nil {
		if ok, existsErr := root.Exists(modprobeDir); !ok {
			err = cmp.Or(existsErr, fs.ErrNotExist)
		}
	}
	return look(modprobeDir, conf, err)
}

const (
	devicesDir  = "/sys/bus/pci/devices"
	cmdlineFile = "/proc/cmdline"
	unitsDir    = "/sys/class/iommu"
	groupsDir   = "/sys/kernel/iommu_groups"
	modprobeDir = "/etc/modprobe.d"
	bootTime    = "/proc/stat"
	unsafeFile  = "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
)

func isMachine(root host.Root) error {
	for _, name := range []string{devicesDir, cmdlineFile, "/etc"} {
		ok, err := root.Exists(name)
		if ok || err != nil {
			return nil // what cannot be read is said by the checks
		}
	}
	return fmt.Errorf("%s: %w", root.Path("/"), ErrNoMachine)
}

func (m *Machine) warn(warnings ...string) {
	m.Warnings = append(m.Warnings, warnings...)
}

func (m *Machine) readIOMMU(root host.Root) {
	firmware, err := iommu.ReadFirmware(root)
	m.Firmware = look(iommu.TablesDir, firmware, err)
	state, warnings := iommu.ReadState(root, m.Devices.Value)
	m.IOMMU = state
	m.warn(warnings...)
	units, warnings, err := iommu.ReadUnits(root)
	m.Units = look(unitsDir, units, err)
	m.warn(warnings...)
}

func readTypes(root host.Root) Look[map[string]int] {
	types, warnings, err := iommu.ReadTypes(root)
	if err == nil && len(types) == 0 && len(warnings) > 0 {
		err = errors.New(warnings[0])
	}
	return look(groupsDir, types, err)
}

// Where the firmware and the kernel tell how far they trust root: a variable of four
// bytes of attributes and one of value (UEFI specification, 3.3; Linux,
// Documentation/filesystems/efivarfs.rst), and a list with the mode in use in brackets
// (Linux, security/lockdown/lockdown.c).
const (
	secureBootFile = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
	lockdownFile   = "/sys/kernel/security/lockdown"
)

func (m *Machine) readSecurity(root host.Root) {
	data, err := root.ReadHead(secureBootFile, 5)
	if err == nil && len(data) != 5 {
		err = fmt.Errorf("not a variable of one byte: %q", data)
	}
	m.SecureBoot = look(secureBootFile, err == nil && data[4] == 1, err)

	data, err = root.ReadHead(lockdownFile, 128)
	_, mode, ok := bytes.Cut(data, []byte("["))
	mode, _, ok2 := bytes.Cut(mode, []byte("]"))
	if err == nil && (!ok || !ok2) {
		err = fmt.Errorf("no mode in brackets: %q", data)
	}
	m.Lockdown = look(lockdownFile, string(mode), err)

	data, err = root.ReadHead(unsafeFile, 8)
	m.Unsafe = look(unsafeFile, strings.TrimSpace(string(data)) == "Y", err)
}

func readArguments(root host.Root) Look[boot.Args] {
	data, err := root.ReadFile(cmdlineFile)
	return look(cmdlineFile, boot.ParseArgs(string(data)), err)
}

// errNoEntries says that no boot menu was found that can be read.
var errNoEntries = errors.New("no boot menu is there that gpustack reads")

// readEntries reads what can be booted next, and last what a kernel gets that is installed
// later. Of a tree that is not whole, the menu may be all that is there. A menu that the machine
// does not boot from is not read.
func readEntries(root host.Root, facts host.Facts, contract *Contract) Look[[]boot.Entry] {
	want, _ := boot.WantIOMMU(text(facts.CPUVendor))
	args := want.Args()
	if contract != nil {
		args = contract.Arguments
	}
	loader, err := ReadLoader(root, facts, args)
	var unsupported *boot.Unsupported
	var missing *boot.NotMounted
	if errors.As(err, &missing) || errors.As(err, &unsupported) && !unsupported.Menu {
		return look[[]boot.Entry]("/boot", nil, err)
	}
	if err != nil {
		entries, menuErr := boot.ReadMenus(root)
		if menuErr == nil && len(entries) > 0 {
			return look("/boot", entries, nil)
		}
		return look("/boot", entries, cmp.Or(menuErr, err))
	}
	entries, err := loader.Entries(root)
	if err == nil && len(entries) == 0 {
		err = errNoEntries
	}
	if err != nil {
		return look("/boot", entries, err)
	}
	later, err := loader.Later(root)
	if later != nil {
		entries = append(entries, *later)
	}
	return look("/boot", entries, err)
}

// readImages looks into the initramfs of each kernel: those in /boot, and those that
// entries name beside them. Where nothing is recorded, nothing is to be in one.
func readImages(root host.Root, facts host.Facts, contract *Contract, entries []boot.Entry) Look[[]Image] {
	if contract == nil {
		return look[[]Image]("/boot", nil, nil)
	}
	releases, err := host.Kernels(root)
	if err != nil {
		return look[[]Image](host.ModulesDir, nil, err)
	}
	maker, err := initramfs.MakerOf(root, text(facts.Distribution))
	if err != nil {
		return look[[]Image]("/boot", nil, err)
	}
	made, err := initramfs.Images(root, releases)
	if err != nil {
		return look[[]Image]("/boot", nil, err)
	}
	var images []Image
	for _, i := range append(made, imagesOf(entries)...) {
		if i.Name != "" && slices.Contains(releases, i.Release) {
			images = append(images, Image{Kernel: i.Release, File: i.Name})
		}
	}
	if len(images) == 0 {
		return look[[]Image]("/boot", nil, errNoImages)
	}
	var beside sync.WaitGroup
	for i := range images {
		beside.Go(func() {
			image := &images[i]
			content, err := initramfs.Read(root, image.File, initramfs.Wanted)
			if err == nil {
				err = contract.verifyImage(root, maker, image.Kernel, content)
			}
			image.Err = err
		})
	}
	beside.Wait()
	return look("/boot", images, nil)
}

// readModules reads what each installed kernel has.
func readModules(root host.Root) Look[[]modprobe.Modules] {
	releases, err := host.Kernels(root)
	if err == nil && len(releases) == 0 {
		err = ErrNoKernel
	}
	kernels := make([]modprobe.Modules, len(releases))
	errs := make([]error, len(releases))
	var beside sync.WaitGroup
	for i, release := range releases {
		beside.Go(func() { kernels[i], errs[i] = modprobe.ReadModules(root, release) })
	}
	beside.Wait()
	return look(host.ModulesDir, kernels, errors.Join(append(errs, err)...))
}

// readRecord reads what gpustack has written down, and what became of it.
func (m *Machine) readRecord(root host.Root) {
	contract, err := ReadContract(root)
	m.Contract = look(ContractFile, contract, err)
	entries, err := change.List(root)
	open, openErr := change.Machine(root).Open()
	var cutOff *change.Entry
	for i, e := range open {
		switch {
		case openErr != nil: // locked
		case e.Kind == change.KindFiles || e.Kind == change.KindDrivers:
			cutOff = &open[i]
		default:
			m.OpenRows = append(m.OpenRows, e)
		}
	}
	m.CutOff = look(change.Dir, cutOff, openErr)
	m.Prepared = look(change.Dir, writtenAt(entries), err)
	if contract == nil {
		return
	}
	for _, f := range contract.Files {
		file, err := edit.Read(root, f.Name)
		m.Files = append(m.Files, look(f.Name, file.Hash(), err))
	}
	m.Paths = map[pci.Address]string{}
	for _, f := range contract.Functions {
		if f.SysfsPath == "" {
			continue
		}
		if place, err := root.Real(fileOf(f.Address, "")); err == nil { // else the function is gone
			m.Paths[f.Address] = place
		}
	}
	m.Booted = readBootTime(root)
	lines, file, err := host.KernelLog(root, contract.claims()...)
	m.Claims = look(file, lines, err)
}

// claims are what the kernel's lines say of functions that a driver takes: by its ids
// (Linux, drivers/vfio/pci/vfio_pci.c, vfio_pci_fill_ids), or each (drivers/pci/pci-stub.c).
func (c Contract) claims() []string {
	var words []string
	for _, f := range c.Functions {
		words = append(words, "vfio_pci: add ["+f.ids(), "pci-stub "+f.Address.String()+": claimed by stub")
	}
	return words
}

// writtenAt is when the contract was last written, and all that goes with it: its
// entry's end.
func writtenAt(entries []change.Entry) *time.Time {
	for _, e := range slices.Backward(entries) {
		if e.Status == change.Done && slices.ContainsFunc(e.Files, func(f change.File) bool { return f.Name == ContractFile }) {
			return e.Ended
		}
	}
	return nil
}

// readBootTime reads when the machine was started (proc_stat(5), btime).
func readBootTime(root host.Root) Look[time.Time] {
	data, err := root.ReadFile(bootTime)
	if err != nil {
		return look(bootTime, time.Time{}, err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "btime "); ok {
			seconds, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return look(bootTime, time.Unix(seconds, 0).UTC(), err)
		}
	}
	return look(bootTime, time.Time{}, errors.New("has no btime"))
}

// inspect looks closer at the functions that go to guests, or would.
func (m *Machine) inspect(root host.Root) {
	m.Inspected = map[pci.Address]pci.Inspection{}
	borrowed := false
	for _, d := range m.forGuests() {
		i, err := pci.Inspect(root, d.Address)
		if err != nil {
			m.warn(strings.Split(err.Error(), "\n")...)
		}
		m.Inspected[d.Address] = i
		f := m.recorded(d.Address)
		borrowed = borrowed || f != nil && mayBeBorrowed(*f, d)
	}
	if !borrowed {
		return
	}
	// A function that a guest's manager has taken to another driver of VFIO's is back
	// when the guest stops.
	report := guest.Observe(root, guest.NovaConf{}, time.Now())
	m.Open = look("/proc", map[int]bool{}, nil)
	for _, s := range report.Unread() {
		if s.Name == "processes" || s.Name == "vfio" {
			m.Open.Err = errors.New(s.Detail)
		}
	}
	for _, h := range report.Holders {
		if h.Group != nil {
			m.Open.Value[*h.Group] = true
		}
	}
}

// refused is what host prepare would say of the machine as it is.
func refused(root host.Root) []error {
	n, err := Observe(root, guard.Running{})
	s, selErr := n.choose(Options{})
	refusals, _ := n.refusals(s)
	return slices.Concat(split(err), split(selErr), refusals, n.shared(s))
}

// split takes joined errors apart.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, split(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// recorded is what the contract says of an address, or nil.
func (m *Machine) recorded(a pci.Address) *Function {
	if m.Contract.Value == nil {
		return nil
	}
	for i := range m.Contract.Value.Functions {
		if f := &m.Contract.Value.Functions[i]; f.Address == a {
			return f
		}
	}
	return nil
}

// device is the function at an address, or nil.
func (m *Machine) device(a pci.Address) *pci.Device {
	return Node{Devices: m.Devices.Value}.device(a)
}

// forGuests are the functions that are recorded, or, where nothing is, those that host
// prepare selects by itself.
func (m *Machine) forGuests() []pci.Device {
	var devices []pci.Device
	for _, d := range m.Devices.Value {
		if m.Contract.Value != nil && m.recorded(d.Address) != nil {
			devices = append(devices, d)
		}
	}
	if m.Contract.Value != nil {
		return devices
	}
	n := Node{Devices: m.Devices.Value}
	for _, a := range n.expand(n.candidates()) {
		devices = append(devices, *n.device(a))
	}
	return devices
}

// fileOf is an attribute of a function.
func fileOf(a pci.Address, attribute string) string {
	return path.Join(devicesDir, a.String(), attribute)
}
