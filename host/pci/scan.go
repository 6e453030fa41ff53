package pci

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gpustack/host"
)

// devicesDir contains a link for each function (Linux, Documentation/ABI/testing/sysfs-bus-pci).
const devicesDir = "sys/bus/pci/devices"

// ErrNoPCI means that there is no PCI bus below the root.
var ErrNoPCI = host.WithHint(errors.New("no PCI devices folder"),
	"--root is the top directory of a machine's file tree, with its sys below; leave it out on the machine itself")

// Options are the options of a scan.
type Options struct {
	// PCIIDs is the path of a pci.ids file on the machine where the program runs, read instead of the
	// one below the root.
	PCIIDs string
	// Needs returns a function that reports which of all functions the caller needs; nil if it needs
	// all. Scan reads these, NVIDIA's GPUs and all functions that share a slot or an IOMMU group with
	// one of them. Of other functions only Address, Class, the ids, Modalias, IOMMUGroup,
	// GroupMembers, Parent, Controller and the names are set.
	Needs func([]Device) func(*Device) bool
	// BARs asks for the memory regions of GPUs, which decide what firmware guests need: one more
	// file of each.
	BARs bool
	// Brief leaves out what no table shows: revision, driver override and reset methods.
	Brief bool
}

// Scan returns every function below root, ordered by address, and warnings about entries that are
// not functions. If the list itself cannot be read, it returns an error and no devices.
func Scan(root host.Root, opts Options) (devices Devices, warnings []string, err error) {
	entries, err := root.ReadDir(devicesDir)
	if err != nil {
		if host.IsAbsent(err) {
			err = ErrNoPCI
		}
		return nil, nil, host.OfFile(devicesDir, err)
	}
	devices = make([]Device, 0, len(entries))
	for _, entry := range entries {
		address, err := ParseAddress(entry)
		if err == nil && address.String() != entry {
			err = fmt.Errorf("not as the kernel writes %s", address)
		}
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("/%s/%s: %v", devicesDir, entry, err))
			continue
		}
		devices = append(devices, Device{Address: address})
	}
	slices.SortFunc(devices, func(a, b Device) int { return a.Address.Compare(b.Address) })

	dir, err := root.OpenDir(devicesDir)
	if err != nil {
		return nil, nil, host.OfFile(devicesDir, err)
	}
	defer dir.Close() //nolint:errcheck // only read from
	s := scanner{dir: dir, devices: devices, opts: opts}
	s.identify(opts.Needs == nil)
	if opts.Needs != nil {
		needs := opts.Needs(devices)
		s.complete(func(d *Device) bool { return d.IsNVIDIAGPU() || needs(d) })
	}
	names, err := readNames(root, opts.PCIIDs, devices)
	if err != nil {
		if opts.PCIIDs != "" {
			return nil, nil, host.WithHint(err, "--pci-ids names a file such as /usr/share/misc/pci.ids; without it, the one below the root is read")
		}
		warnings = append(warnings, err.Error())
	}
	for i := range devices {
		names.apply(&devices[i])
	}
	s.readNVSwitchManagers()
	devices.readFramebuffers(root)
	return devices, warnings, nil
}

// scanner reads the functions of a machine.
type scanner struct {
	dir     *host.Dir
	devices Devices
	opts    Options
}

// identify reads of each function what identifies it and its IOMMU group; of NVIDIA's GPUs, and
// with whole of all functions, everything.
func (s *scanner) identify(whole bool) {
	s.parallel(len(s.devices), func(r *reader, i int) { r.read(&s.devices[i], whole) })
	members := map[int][]Address{}
	for i := range s.devices {
		if g := s.devices[i].IOMMUGroup; g != nil {
			members[*g] = append(members[*g], s.devices[i].Address)
		}
	}
	for i := range s.devices {
		if d := &s.devices[i]; d.IOMMUGroup != nil {
			d.GroupMembers = members[*d.IOMMUGroup]
		}
	}
}

// complete reads the rest of the needed functions, and of those that share a slot or an IOMMU group
// with one of them, directly or through others: whether a function can be assigned to a guest
// depends on all of these.
func (s *scanner) complete(needs func(*Device) bool) {
	var found []int // indices, which are found in the order of addresses first
	known := make([]bool, len(s.devices))
	add := func(i int) {
		if !known[i] {
			known[i] = true
			found = append(found, i)
		}
	}
	for i := range s.devices {
		if needs(&s.devices[i]) {
			add(i)
		}
	}
	groups := map[int]bool{}
	for n := 0; n < len(found); n++ {
		i := found[n]
		d := &s.devices[i]
		first, _ := s.devices.index(d.Address.Card())
		for k := range s.devices.Slot(d.Address) {
			add(first + k)
		}
		if d.IOMMUGroup == nil || groups[*d.IOMMUGroup] {
			continue
		}
		groups[*d.IOMMUGroup] = true
		for _, a := range d.GroupMembers {
			if k, ok := s.devices.index(a); ok {
				add(k)
			}
		}
	}
	s.parallel(len(found), func(r *reader, n int) { r.readRest(&s.devices[found[n]]) })
}

// parallel calls read for the numbers below count. Most of a scan's time is spent opening files,
// which the kernel can do on several processors at once.
func (s *scanner) parallel(count int, read func(r *reader, n int)) {
	workers := min(runtime.GOMAXPROCS(0), 8, count)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			r := reader{devices: s.dir, opts: s.opts, buf: make([]byte, host.MaxAttribute+1)}
			for n := w; n < count; n += workers {
				read(&r, n)
			}
		})
	}
	group.Wait()
}

// Files and links that a function's folder may have (Linux,
// Documentation/ABI/testing/sysfs-bus-pci). "config" is not among them: reading it is a transaction
// on the bus.
const (
	class           = "class"
	vendor          = "vendor"
	device          = "device"
	subsystemVendor = "subsystem_vendor"
	subsystemDevice = "subsystem_device"
	revision        = "revision"
	modalias        = "modalias"
	driverOverride  = "driver_override"
	numaNode        = "numa_node"
	bootVGA         = "boot_vga"
	resetMethod     = "reset_method"
	sriovTotalVFs   = "sriov_totalvfs"
	sriovNumVFs     = "sriov_numvfs"
	driver          = "driver"
	iommuGroup      = "iommu_group"
	physfn          = "physfn"
	resource        = "resource"
)

// reader reads one function at a time.
type reader struct {
	devices *host.Dir
	opts    Options
	buf     []byte

	d      *Device   // the current function
	folder folder    // the same
	dir    *host.Dir // the same, if it is open

	there    []string // which of optional the folder has
	unlisted bool     // the folder was not listed, or could not be
}

// folder is the folder of a function.
type folder interface {
	ReadAttribute(name string, buf []byte) ([]byte, error)
	Readlink(name string) (string, error)
	Record(buf []byte, names ...string)
}

// identity contains the targets of the pointers of one Device that identify it, allocated together.
type identity struct {
	Modalias
	modalias           string
	group              int
	parent, controller Address
}

// properties contains the targets of its other pointers.
type properties struct {
	revision, driver, override string
	numaNode, totalVFs, numVFs int
	pf                         Address
	resetMethods               []string
	role                       Role
	deviceType                 DeviceType
}

// read reads what identifies a function; of NVIDIA's GPUs, and with whole of every function, the
// rest too.
func (r *reader) read(d *Device, whole bool) {
	r.d = d
	d.GroupMembers = []Address{}
	d.Warnings = []string{}
	name := d.Address.String()
	entry, err := r.devices.Entry(name)
	if err != nil {
		d.driverErr = err
		r.warn("", err)
		return
	}
	target := entry.Target()
	d.link = target
	if target != "" && path.Base(target) != name {
		r.warn("", fmt.Errorf("leads to %s", target))
	}
	identified := false
	if !whole {
		r.folder = entry
		if identified = r.identifyByModalias(target); identified && !d.IsNVIDIAGPU() {
			return
		}
	}
	dir, err := entry.Open()
	if !r.enter(dir, err) {
		return
	}
	defer dir.Close() //nolint:errcheck // only read from
	if !identified {
		r.identify(target)
	}
	if whole || d.IsNVIDIAGPU() {
		r.complete()
	}
}

// readRest reads the rest of a function that read has identified.
func (r *reader) readRest(d *Device) {
	if d.whole || d.DriverUnread() { // read already, or its folder cannot be opened
		return
	}
	r.d = d
	dir, err := r.devices.EntryTo(d.Address.String(), d.link).Open()
	if !r.enter(dir, err) {
		return
	}
	defer dir.Close() //nolint:errcheck // only read from
	r.complete()
}

// enter reads from the folder of the function from now on, if it could be opened.
func (r *reader) enter(dir *host.Dir, err error) bool {
	if err != nil {
		r.d.driverErr = err
		r.warn("", err)
		return false
	}
	r.dir, r.folder = dir, dir
	return true
}

// setPlace sets the functions above the current one. target leads to its folder.
func (r *reader) setPlace(target string, v *identity) {
	d := r.d
	// The parent folder is that of the bridge above; on a root bus it is "pci0000:00" instead.
	if parent, err := ParseAddress(path.Base(path.Dir(target))); err == nil {
		v.parent = parent
		d.Parent = &v.parent
	}
	// Intel's VMD puts the devices behind it into a domain of their own. Their host bridge is a
	// folder in the controller's folder (Linux, drivers/pci/controller/vmd.c):
	// "0000:64:00.5/pci10000:00".
	if i := strings.LastIndex(target, "/pci"); i > 0 {
		if controller, err := ParseAddress(path.Base(target[:i])); err == nil {
			v.controller = controller
			d.Controller = &v.controller
		}
	}
}

// setModalias sets what a modalias contains. One file has what five others have, and opening a file
// takes longer than reading it.
func (r *reader) setModalias(v *identity) error {
	var err error
	if v.Modalias, err = ParseModalias(v.modalias); err != nil {
		return err
	}
	d := r.d
	d.Class, d.VendorID, d.ProductID = &v.Class, &v.Vendor, &v.Product
	d.SubsystemVendorID, d.SubsystemID = &v.SubsystemVendor, &v.Subsystem
	r.folder.Record(r.buf, class, vendor, device, subsystemVendor, subsystemDevice)
	return nil
}

// identifyByModalias does what identify does, if the modalias alone is enough for it, and otherwise
// returns false. Most functions of a machine need no more than this file and the link to the group.
func (r *reader) identifyByModalias(target string) bool {
	v := new(identity)
	data, err := r.folder.ReadAttribute(modalias, r.buf)
	if err != nil {
		return false
	}
	if v.modalias, err = parseText(strings.TrimSuffix(string(data), "\n")); err != nil {
		return false
	}
	if r.setModalias(v) != nil {
		return false
	}
	r.setPlace(target, v)
	r.d.Modalias = &v.modalias
	r.d.IOMMUGroup, r.d.groupUnread = link(r, iommuGroup, &v.group, parseCount)
	return true
}

// identify reads what identifies the function and its place. target leads to its folder.
func (r *reader) identify(target string) {
	d, v := r.d, new(identity)
	r.setPlace(target, v)
	d.IOMMUGroup, d.groupUnread = link(r, iommuGroup, &v.group, parseCount)
	if d.Modalias, _ = file(r, modalias, &v.modalias, parseText); d.Modalias != nil {
		err := r.setModalias(v)
		if err == nil {
			return
		}
		r.warn(modalias, err)
	}
	d.Class, _ = file(r, class, &v.Class, ParseClass)
	d.VendorID, _ = file(r, vendor, &v.Vendor, ParseID)
	d.ProductID, _ = file(r, device, &v.Product, ParseID)
	d.SubsystemVendorID, _ = file(r, subsystemVendor, &v.SubsystemVendor, ParseID)
	d.SubsystemID, _ = file(r, subsystemDevice, &v.Subsystem, ParseID)
}

// complete reads the other properties of the function.
func (r *reader) complete() {
	d, v := r.d, new(properties)
	d.whole = true
	r.there, r.unlisted = nil, true
	if d.IsGPU() || d.mayBeVGA() { // others can have at most two of them
		there, err := r.dir.Which(r.buf, optional...)
		r.there, r.unlisted = there, err != nil
	}
	if !r.opts.Brief {
		r.readUntabled(v)
	}
	if d.NUMANode, _ = file(r, numaNode, &v.numaNode, parseNUMANode); v.numaNode == noNUMANode {
		d.NUMANode = nil
	}
	if d.mayBeVGA() && r.has(bootVGA) {
		_, _ = file(r, bootVGA, &d.BootVGA, parseBool)
	}
	d.Driver, d.driverErr = readLink(r, driver, &v.driver, parseText)
	var pfUnread, totalUnread, numUnread bool
	if !d.IsBridge() { // only endpoints have or are virtual functions (Linux, sriov_init in drivers/pci/iov.c)
		if r.has(physfn) {
			d.SRIOV.PF, pfUnread = link(r, physfn, &v.pf, ParseAddress)
		}
		if r.has(sriovTotalVFs) {
			d.SRIOV.TotalVFs, totalUnread = file(r, sriovTotalVFs, &v.totalVFs, parseCount)
		}
		if d.SRIOV.TotalVFs != nil || totalUnread { // the kernel shows both files or neither
			d.SRIOV.NumVFs, numUnread = file(r, sriovNumVFs, &v.numVFs, parseCount)
		}
	}
	if v.role, v.deviceType = d.SRIOV.role(pfUnread || totalUnread); v.role != "" {
		d.SRIOV.Role, d.DeviceType = &v.role, &v.deviceType
	}
	d.mediates = d.IsGPU() && r.has(mediatedTypesDir)
	if d.IsDisplay() && !d.IsVF() {
		for _, name := range consoleEntries {
			if r.has(name) {
				d.shows = append(d.shows, name)
			}
		}
	}
	d.sriovUnread = pfUnread || totalUnread || numUnread
	d.Candidate = d.IsNVIDIAGPU() && v.role != RoleVF
}

// readUntabled reads the properties that no table shows.
func (r *reader) readUntabled(v *properties) {
	d := r.d
	d.Revision, _ = file(r, revision, &v.revision, parseRevision)
	if d.DriverOverride, _ = file(r, driverOverride, &v.override, parseText); v.override == "(null)" {
		d.DriverOverride = nil // the kernel's text for an unset override
	}
	if methods, _ := file(r, resetMethod, &v.resetMethods, parseWords); methods != nil {
		d.ResetMethods = v.resetMethods
	}
	if r.opts.BARs && d.IsGPU() {
		_, _ = file(r, resource, &d.BARs, ParseResource)
	}
}

// optional are the entries that has is asked for.
var optional = append([]string{bootVGA, physfn, sriovTotalVFs, mediatedTypesDir}, consoleEntries[:]...)

// has reports whether the function's folder may have an optional entry, which is faster than
// opening it in vain. If that cannot be determined, opening the file returns the error.
func (r *reader) has(name string) bool {
	return r.unlisted || slices.Contains(r.there, name)
}

// mayBeVGA reports whether the kernel shows boot_vga of a function of this class (Linux,
// pci_is_vga in include/linux/pci.h and pci_is_display in later releases).
func (d *Device) mayBeVGA() bool {
	const undefinedVGA Class = 0x0001 // PCI_CLASS_NOT_DEFINED_VGA
	return d.Class == nil || d.Class.IsDisplay() || *d.Class == undefinedVGA
}

// role derives a function's role in SR-IOV and its type in Nova. They are empty if not enough could
// be read.
func (s *SRIOV) role(unread bool) (Role, DeviceType) {
	switch {
	case s.PF != nil:
		return RoleVF, TypeVF
	case unread:
		return "", ""
	case s.TotalVFs == nil:
		return RoleNone, TypePCI
	case *s.TotalVFs > 0 || s.NumVFs != nil && *s.NumVFs > 0:
		return RolePF, TypePF
	}
	return RolePF, TypePCI // its driver permits no virtual functions
}

// file reads and parses one small file into value and returns value. If that fails, it returns nil
// with a warning, and unread is true; if the file does not exist, nil without one.
func file[T any](r *reader, name string, value *T, parse func(string) (T, error)) (_ *T, unread bool) {
	data, err := r.folder.ReadAttribute(name, r.buf)
	if err == nil {
		*value, err = parse(strings.TrimSuffix(string(data), "\n"))
	}
	return known(r, name, value, err)
}

// link parses the last element of a link's target in the same way.
func link[T any](r *reader, name string, value *T, parse func(string) (T, error)) (_ *T, unread bool) {
	is, err := readLink(r, name, value, parse)
	return is, err != nil
}

// readLink returns an error of which it has warned.
func readLink[T any](r *reader, name string, value *T, parse func(string) (T, error)) (*T, error) {
	target, err := r.folder.Readlink(name)
	if err == nil {
		*value, err = parse(path.Base(target))
	}
	is, unread := known(r, name, value, err)
	if !unread {
		err = nil
	}
	return is, err
}

func known[T any](r *reader, name string, value *T, err error) (_ *T, unread bool) {
	switch {
	case err == nil:
		return value, false
	case host.IsAbsent(err):
		return nil, false
	}
	r.warn(name, err)
	return nil, true
}

func (r *reader) warn(name string, err error) {
	file := strings.TrimSuffix("/"+devicesDir+"/"+r.d.Address.String()+"/"+name, "/") // ".." is above what the entry leads to
	r.d.Warnings = append(r.d.Warnings, host.OfFile(file, err).Error())
}

func parseRevision(s string) (string, error) {
	digits := strings.TrimPrefix(s, "0x")
	if len(digits) != 2 || !isHex(digits) {
		return "", fmt.Errorf("not a revision of two hexadecimal digits: %q", s)
	}
	return strings.ToLower(digits), nil
}

func parseText(s string) (string, error) {
	if s == "" {
		return "", errors.New("empty")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", fmt.Errorf("not plain text: %q", s)
	}
	return s, nil
}

func parseWords(s string) ([]string, error) {
	if s == "" {
		return []string{}, nil
	}
	_, err := parseText(s)
	return strings.Fields(s), err
}

// noNUMANode is the kernel's value for a function that is near no node.
const noNUMANode = -1

func parseNUMANode(s string) (int, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= noNUMANode {
		return n, nil
	}
	return 0, fmt.Errorf("not a NUMA node: %q", s)
}

func parseCount(s string) (int, error) {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return int(n), nil
	}
	return 0, fmt.Errorf("not a count: %q", s)
}

func parseBool(s string) (host.Bool, error) {
	switch s {
	case "0":
		return host.No, nil
	case "1":
		return host.Yes, nil
	}
	return host.Unknown, fmt.Errorf("neither 0 nor 1: %q", s)
}
