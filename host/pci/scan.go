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
}

// Scan returns every function below root, ordered by address, and warnings about entries that are
// not functions. If the list itself cannot be read, it returns an error and no devices.
func Scan(root host.Root, opts Options) (devices Devices, warnings []string, err error) {
	entries, err := root.ReadDir(devicesDir)
	if err != nil {
		if host.IsAbsent(err) {
			err = ErrNoPCI
		}
		return nil, nil, fmt.Errorf("%s: %w", root.Path(devicesDir), host.Cause(err))
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
		return nil, nil, fmt.Errorf("%s: %w", root.Path(devicesDir), host.Cause(err))
	}
	defer dir.Close() //nolint:errcheck // only read from
	readAll(dir, devices)

	names, err := readNames(root, opts.PCIIDs, devices)
	if err != nil {
		if opts.PCIIDs != "" {
			return nil, nil, err
		}
		warnings = append(warnings, err.Error())
	}
	members := map[int][]Address{}
	for i := range devices {
		if g := devices[i].IOMMUGroup; g != nil {
			members[*g] = append(members[*g], devices[i].Address)
		}
	}
	for i := range devices {
		d := &devices[i]
		names.apply(d)
		if d.IOMMUGroup != nil {
			d.GroupMembers = members[*d.IOMMUGroup]
		}
	}
	readNVSwitchManagers(dir, devices)
	return devices, warnings, nil
}

// readAll reads the folder of each function. Most of a scan's time is spent opening files, which
// the kernel can do on several processors at once.
func readAll(dir *host.Dir, devices []Device) {
	workers := min(runtime.GOMAXPROCS(0), 8, len(devices))
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			r := reader{devices: dir, buf: make([]byte, host.MaxAttribute+1)}
			for i := w; i < len(devices); i += workers {
				r.read(&devices[i])
			}
		})
	}
	group.Wait()
}

// attributes are the files and links that a function's folder may have (Linux,
// Documentation/ABI/testing/sysfs-bus-pci). "config" is not among them: reading it is a
// transaction on the bus.
var attributes = []string{
	class:           "class",
	vendor:          "vendor",
	device:          "device",
	subsystemVendor: "subsystem_vendor",
	subsystemDevice: "subsystem_device",
	revision:        "revision",
	modalias:        "modalias",
	driverOverride:  "driver_override",
	numaNode:        "numa_node",
	bootVGA:         "boot_vga",
	resetMethod:     "reset_method",
	sriovTotalVFs:   "sriov_totalvfs",
	sriovNumVFs:     "sriov_numvfs",
	driver:          "driver",
	iommuGroup:      "iommu_group",
	physfn:          "physfn",
	mediatedTypes:   mediatedTypesDir,
}

type attribute int

const (
	class attribute = iota
	vendor
	device
	subsystemVendor
	subsystemDevice
	revision
	modalias
	driverOverride
	numaNode
	bootVGA
	resetMethod
	sriovTotalVFs
	sriovNumVFs
	driver
	iommuGroup
	physfn
	mediatedTypes
)

// reader reads one function at a time.
type reader struct {
	devices *host.Dir
	buf     []byte

	// Values of the current function:
	d       *Device
	dir     *host.Dir
	present uint64 // bit set of the attributes that its folder lists
	unread  uint64 // bit set of those that could not be read or parsed
}

// values contains the targets of the pointers of one Device, allocated together.
type values struct {
	class                                       Class
	vendor, product, subsystemVendor, subsystem ID
	revision, driver, override, modalias        string
	group, numaNode, totalVFs, numVFs           int
	parent, controller, pf                      Address
	bootVGA                                     bool
	resetMethods                                []string
	role                                        Role
	deviceType                                  DeviceType
}

func (r *reader) read(d *Device) {
	v := new(values)
	r.d, r.present, r.unread = d, 0, 0
	d.GroupMembers = []Address{}
	d.Warnings = []string{}
	name := d.Address.String()
	dir, target, err := r.devices.Enter(name)
	if target != "" && path.Base(target) != name {
		r.warn("", fmt.Errorf("leads to %s", target))
	}
	if err == nil {
		defer dir.Close() //nolint:errcheck // only read from
		r.dir = dir
		r.present, err = dir.Lists(attributes, r.buf)
	}
	if err != nil {
		d.driverUnread = true
		r.warn("", err)
		return
	}
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
	d.Class = file(r, class, &v.class, ParseClass)
	d.VendorID = file(r, vendor, &v.vendor, ParseID)
	d.ProductID = file(r, device, &v.product, ParseID)
	d.SubsystemVendorID = file(r, subsystemVendor, &v.subsystemVendor, ParseID)
	d.SubsystemID = file(r, subsystemDevice, &v.subsystem, ParseID)
	d.Revision = file(r, revision, &v.revision, parseRevision)
	d.Modalias = file(r, modalias, &v.modalias, parseText)
	if d.DriverOverride = file(r, driverOverride, &v.override, parseText); v.override == "(null)" {
		d.DriverOverride = nil // the kernel's text for an unset override
	}
	if d.NUMANode = file(r, numaNode, &v.numaNode, parseNUMANode); v.numaNode == noNUMANode {
		d.NUMANode = nil
	}
	d.BootVGA = file(r, bootVGA, &v.bootVGA, parseBool)
	if file(r, resetMethod, &v.resetMethods, parseWords) != nil {
		d.ResetMethods = v.resetMethods
	}
	d.Driver = link(r, driver, &v.driver, parseText)
	d.IOMMUGroup = link(r, iommuGroup, &v.group, parseCount)
	d.SRIOV.PF = link(r, physfn, &v.pf, ParseAddress)
	d.SRIOV.TotalVFs = file(r, sriovTotalVFs, &v.totalVFs, parseCount)
	d.SRIOV.NumVFs = file(r, sriovNumVFs, &v.numVFs, parseCount)
	if v.role, v.deviceType = r.role(); v.role != "" {
		d.SRIOV.Role, d.DeviceType = &v.role, &v.deviceType
	}
	d.mediates = r.has(r.present, mediatedTypes)
	d.driverUnread = r.has(r.unread, driver)
	d.sriovUnread = r.has(r.unread, physfn) || r.has(r.unread, sriovTotalVFs) || r.has(r.unread, sriovNumVFs)
	d.Candidate = d.IsNVIDIAGPU() && v.role != RoleVF
}

// role derives the function's role in SR-IOV and its type in Nova from what was read. They are
// empty if not enough could be read.
func (r *reader) role() (Role, DeviceType) {
	s := &r.d.SRIOV
	switch {
	case s.PF != nil:
		return RoleVF, TypeVF
	case r.has(r.unread, physfn), r.has(r.unread, sriovTotalVFs):
		return "", ""
	case s.TotalVFs == nil:
		return RoleNone, TypePCI
	case *s.TotalVFs > 0 || s.NumVFs != nil && *s.NumVFs > 0:
		return RolePF, TypePF
	}
	return RolePF, TypePCI // its driver permits no virtual functions
}

func (r *reader) has(set uint64, a attribute) bool {
	return set&(1<<a) != 0
}

// file reads and parses one small file into value and returns value. It returns nil with a warning
// if that fails, and nil without one if the file does not exist.
func file[T any](r *reader, a attribute, value *T, parse func(string) (T, error)) *T {
	if !r.has(r.present, a) {
		return nil
	}
	data, err := r.dir.ReadAttribute(attributes[a], r.buf)
	if err == nil {
		*value, err = parse(strings.TrimSuffix(string(data), "\n"))
	}
	return known(r, a, value, err)
}

// link parses the last element of a link's target in the same way.
func link[T any](r *reader, a attribute, value *T, parse func(string) (T, error)) *T {
	if !r.has(r.present, a) {
		return nil
	}
	target, err := r.dir.Readlink(attributes[a])
	if err == nil {
		*value, err = parse(path.Base(target))
	}
	return known(r, a, value, err)
}

func known[T any](r *reader, a attribute, value *T, err error) *T {
	if err == nil {
		return value
	}
	if !host.IsAbsent(err) { // the driver may be unbound between list and read
		r.unread |= 1 << a
		r.warn(attributes[a], err)
	}
	return nil
}

func (r *reader) warn(name string, err error) {
	file := path.Join("/", devicesDir, r.d.Address.String(), name)
	r.d.Warnings = append(r.d.Warnings, fmt.Sprintf("%s: %v", file, host.Cause(err)))
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
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return "", fmt.Errorf("not plain text: %q", s)
		}
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

func parseBool(s string) (bool, error) {
	switch s {
	case "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, fmt.Errorf("neither 0 nor 1: %q", s)
}
