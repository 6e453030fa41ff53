package rdmaprepare

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/iommu"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
)

// mlx4 is the driver of ConnectX-3 and older adapters.
const mlx4 = "mlx4_core"

// Observed is what a plan depends on.
type Observed struct {
	Devices    pci.Devices
	Stack      rdma.Stack
	Recorded   *rdma.Record        // nil if nothing is recorded
	Contract   *machine.Contract   // of host prepare; nil if nothing is recorded
	Containers *machine.Containers // of container prepare; nil if nothing is recorded
	Allowed    gate.Allowed        // by earlier commands
	Made       []pci.Address       // of [steps.Made]
	Kernels    []modprobe.Modules
	Needs      guard.Needs
	Mediated   map[pci.Address]int // number of mediated devices of each function
	Uses       machine.Uses
	Bonds      gate.Bonds // of every adapter
	IOMMU      iommu.State
	Functions  map[pci.Address]Function // of every adapter
	Files      edit.Files               // that a plan may change, besides those of the unit
	Unit       steps.UnitFiles
	Unread     []string // warnings about files that could not be read
}

// Function is what sysfs shows of an adapter's SR-IOV capability (Linux,
// Documentation/ABI/testing/sysfs-bus-pci). A field is nil if it is not shown.
type Function struct {
	Offset, Stride *int
	VFDevice       *pci.ID
	MAC            net.HardwareAddr // of its Ethernet interface, or nil
	GUIDFiles      bool             // MLNX_OFED's driver sets GUIDs of VFs by files
}

// Observe reads what a plan depends on. seen is the machine below root, observed by
// [machine.ObserveRecord]. A file that cannot be read and might prevent a plan is an
// error. What the host needs is read only if the options take something from it, existing VFs
// included: else it must not prevent returning adapters.
func Observe(root host.Root, seen machine.Machine, o Options) (Observed, error) {
	m := Observed{
		Devices: seen.Devices.Value, Unread: seen.ScanWarnings, Contract: seen.Contract.Value, Containers: seen.Containers,
		Functions: map[pci.Address]Function{},
	}
	if err := seen.Devices.Err; err != nil && !errors.Is(err, pci.ErrNoPCI) {
		return m, err
	}
	var err error
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	m.Stack, err = rdma.Read(root, m.Devices, rdma.Options{})
	keep(err)
	m.Recorded, err = rdma.ReadRecord(root)
	keep(err)
	keep(seen.Contract.Err)
	m.Allowed = gate.Records{RDMA: m.Recorded}.ReadAllowed(root)
	m.Uses, err = machine.ObserveUses(root, m.Devices, root.IsMachine())
	keep(err)
	m.Made, err = steps.Made(root)
	keep(err)
	releases, err := host.Kernels(root)
	keep(err)
	for _, release := range releases {
		names, err := modprobe.ReadNames(root, release)
		keep(err)
		m.Kernels = append(m.Kernels, names)
	}
	if m.takes(o) {
		m.Needs, err = guard.Observe(root, m.Devices)
		keep(err)
		m.Mediated, err = pci.ReadMediated(root, m.Devices)
		keep(err)
	}
	var warnings []string
	m.IOMMU, warnings = iommu.ReadState(root, m.Devices)
	m.Unread = slices.Concat(m.Unread, warnings, m.Stack.Warnings)
	for _, a := range m.Stack.Adapters {
		if a.Address == nil || a.IsVF() {
			continue
		}
		f, err := readFunction(root, *a.Address)
		keep(err)
		m.Functions[*a.Address] = f
	}
	m.Bonds = m.readBonds(root)
	m.Files = edit.Observe(root, modprobeFile, LoadFile, rdma.RecordFile)
	m.Unit = steps.ObserveUnit(root)
	return m, errors.Join(errs...)
}

// readBonds reads the bonds of adapters.
func (m Observed) readBonds(root host.Root) gate.Bonds {
	adapters := host.Map(host.Filter(m.Stack.Adapters, func(a rdma.Adapter) bool { return a.Address != nil && !a.IsVF() }),
		func(a rdma.Adapter) pci.Address { return *a.Address })
	return gate.ReadBonds(root, adapters...)
}

// useOf returns what an adapter is for with the options.
func (m Observed) useOf(a pci.Address, o Options) rdma.Use {
	var recorded rdma.Use
	if p := m.Recorded.At(a); p != nil {
		recorded = p.Use
	}
	return cmp.Or(o.Use, recorded, rdma.ForGuests)
}

// readFunction reads the SR-IOV capability of a function, and the MAC address of its interface.
func readFunction(root host.Root, a pci.Address) (f Function, err error) {
	dir := path.Join(machine.DevicesDir, a.String())
	var errs []error
	attribute := func(name string) (string, bool) {
		data, err := root.ReadFile(path.Join(dir, name))
		if err != nil {
			if !host.IsAbsent(err) {
				errs = append(errs, err)
			}
			return "", false
		}
		return strings.TrimSpace(string(data)), true
	}
	number := func(name string) *int {
		text, ok := attribute(name)
		if !ok {
			return nil
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("%s: not a number: %q", path.Join(dir, name), text))
			return nil
		}
		return &n
	}
	f.Offset, f.Stride = number("sriov_offset"), number("sriov_stride")
	if text, ok := attribute("sriov_vf_device"); ok {
		// Without leading zeros (Linux 6.1, drivers/pci/iov.c, sriov_vf_device_show).
		n, err := strconv.ParseUint(text, 16, 16)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s/sriov_vf_device: not a product id: %q", dir, text))
		} else {
			f.VFDevice = new(pci.ID(n))
		}
	}
	if f.GUIDFiles, err = root.Exists(path.Join(dir, "sriov")); err != nil {
		errs = append(errs, err)
	}
	names, err := root.ReadDir(path.Join(dir, "net"))
	if err != nil && !host.IsAbsent(err) {
		errs = append(errs, err)
	}
	slices.Sort(names)
	for _, name := range names {
		// With eswitch mode switchdev, the interfaces of VFs are there too, named pf0vf3.
		port, _ := attribute(path.Join("net", name, "phys_port_name"))
		text, ok := attribute(path.Join("net", name, "bonding_slave/perm_hwaddr"))
		if !ok { // else its address is that of the bond, which other slaves have too
			text, ok = attribute(path.Join("net", name, "address"))
		}
		if !ok || pci.IsRepresentor(port) {
			continue
		}
		mac, err := net.ParseMAC(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s/net/%s/address: %w", dir, name, err))
			continue
		}
		if len(mac) == 6 && f.MAC == nil {
			f.MAC = mac
		}
	}
	return f, errors.Join(errs...)
}

// takes reports whether options take something from the host: an adapter, or VFs of a record.
func (m Observed) takes(o Options) bool {
	removed := func(p rdma.Prepared) bool {
		leaving := gate.Leaves(m.Devices, m.Made, gate.Records{RDMA: &rdma.Record{Adapters: []rdma.Prepared{p}}}, gate.Records{})
		return slices.ContainsFunc(leaving, func(l gate.Leaving) bool { return l.Kind == gate.Removed })
	}
	return len(o.Add) > 0 || m.Recorded != nil && slices.ContainsFunc(m.Recorded.Adapters, func(p rdma.Prepared) bool {
		return (o.None || slices.Contains(o.Remove, p.Address)) && removed(p)
	})
}

// gate returns the part of the machine that determines what may leave it.
func (m Observed) gate() gate.Host {
	return gate.Host{Devices: m.Devices, Needs: m.Needs, Mediated: m.Mediated, Recorded: m.Contract, Containers: m.Containers, Bonds: m.Bonds}
}

// vfsOf returns the VFs of a function that exist now.
func (m Observed) vfsOf(a pci.Address) []pci.Address { return m.Devices.VFs()[a] }

// anyKernel reports whether at least one installed kernel has a module, loadable or built in.
func (m Observed) anyKernel(module string) bool {
	return slices.ContainsFunc(m.Kernels, func(k modprobe.Modules) bool { return k.Loadable(module) || k.Builtin(module) })
}

// Absent returns an error that names the adapters of which the machine has none, if it has none of
// those that the options name; for --if-present.
func (m Observed) Absent(o Options) error {
	var errs []error
	for _, a := range o.Add {
		if m.Stack.At(a) != nil || m.Recorded.At(a) != nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", a, rdma.NoDevice(nil, nil)))
	}
	return errors.Join(errs...)
}

// ReadPending reports whether functions that are recorded below root are not as they are after a
// boot, as [Observed.Pending]. It reads no more than that depends on.
func ReadPending(root host.Root) (bool, error) {
	var m Observed
	var err error
	if m.Devices, _, err = pci.Scan(root, pci.Options{}); err != nil && !errors.Is(err, pci.ErrNoPCI) {
		return false, err
	}
	var stackErr, recordErr error
	m.Stack, stackErr = rdma.Read(root, m.Devices, rdma.Options{})
	m.Recorded, recordErr = rdma.ReadRecord(root)
	return m.Pending(m.Recorded), errors.Join(stackErr, recordErr)
}

// Pending reports whether the functions of a record are not as they are after a boot: their VFs do
// not exist, or are bound to another driver.
func (m Observed) Pending(r *rdma.Record) bool {
	if r == nil {
		return false
	}
	isBound := func(a pci.Address, name string) bool {
		d := m.Devices.At(a)
		return d != nil && modprobe.Normal(d.DriverName()) == modprobe.Normal(name)
	}
	for _, a := range r.Adapters {
		if a.Whole && a.Use == rdma.ForGuests && !isBound(a.Address, machine.VFIO) {
			return true
		}
		if len(m.vfsOf(a.Address)) != len(a.VFs) && !a.Whole {
			return true
		}
		for _, vf := range a.VFs {
			if !isBound(vf.Address, vf.Driver) {
				return true
			}
		}
	}
	return r.Netns == rdma.NetnsExclusive && (m.Stack.Netns == nil || *m.Stack.Netns != rdma.NetnsExclusive)
}
