package rdma

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gpustack/host"
	"gpustack/host/pci"
)

// Folders of the RDMA stack in sysfs (Linux, Documentation/ABI/stable/sysfs-class-infiniband).
const (
	classDir  = "/sys/class/infiniband"
	verbsDir  = "/sys/class/infiniband_verbs"
	madDir    = "/sys/class/infiniband_mad"
	cmDir     = "/sys/class/misc/rdma_cm"
	netDir    = "/sys/class/net"
	NetnsFile = "/sys/module/ib_core/parameters/netns_mode" // Y for shared
	NodesDir  = "/dev/infiniband"
)

// Options are the options of Read.
type Options struct {
	GIDs bool // read the GID tables, up to 1,024 files of each port
	// Whole are functions that are adapters even if they have no RDMA device and not the driver of
	// one: those that are assigned to guests as a whole.
	Whole []pci.Address
}

// drivers are the drivers of functions with RDMA, except those that carry it by an auxiliary driver
// only if that is loaded, such as ice: these are found by their RDMA device.
var drivers = []string{"mlx4_core", "mlx5_core", "hfi1", "efa", "ib_mthca", "ib_qib", "erdma", "usnic_verbs", "vmw_pvrdma"}

// hasDriver reports whether a function is bound to a driver that serves RDMA adapters and nothing
// else that concerns this package.
func hasDriver(d *pci.Device) bool {
	return slices.Contains(drivers, d.DriverName())
}

// Scan reads the PCI functions and the RDMA stack of a machine. A tree without PCI functions may
// have software devices; one without both has the error [pci.ErrNoPCI].
func Scan(root host.Root, opts Options) (pci.Devices, Stack, error) {
	devices, warnings, err := pci.Scan(root, pci.Options{})
	absent := errors.Is(err, pci.ErrNoPCI)
	if err != nil && !absent {
		return nil, Stack{}, err
	}
	stack, stackErr := Read(root, devices, opts)
	if stackErr != nil {
		return nil, Stack{}, stackErr
	}
	if absent && len(stack.Adapters) == 0 {
		return nil, Stack{}, err
	}
	stack.Warnings = append(warnings, stack.Warnings...)
	return devices, stack, nil
}

// NotAdapter returns the error for an address without an RDMA adapter.
func NotAdapter(a pci.Address, devices pci.Devices) error {
	d := devices.At(a)
	if d == nil {
		return devices.NotFound(fmt.Errorf("%s: no such PCI function", a), pci.SelectorOf(a), pci.ListAdapters())
	}
	what := "has no driver"
	if d.DriverName() != "" {
		what = "is bound to " + d.DriverName()
	}
	return host.WithHint(fmt.Errorf("%s: not an RDMA adapter: it has no RDMA device and %s", a, what),
		host.Textf("'%s' lists the adapters; load the adapter's driver if it is one", host.NewCommand("rdma scan")))
}

// ErrNoDevice means that a function has no RDMA device.
var ErrNoDevice = host.WithHint(errors.New("has no RDMA device"),
	host.Textf("'%s' lists the adapters; its driver has to be loaded", host.NewCommand("rdma scan")))

var errElsewhere = errors.New("has its RDMA device in another network namespace")

// Release returns how a function that is bound for guests, and not recorded, returns to its driver.
func Release(a pci.Address) host.Text {
	return host.Textf("return it to its driver first: %s", host.NewCommand("host release").Flag("device", a.String()))
}

// NoDevice returns the error of a function without an RDMA device in this network namespace. a is
// nil for one that is no adapter, d what the machine has at its address or nil.
func NoDevice(a *Adapter, d *pci.Device) error {
	switch {
	case a == nil && d != nil && pci.LeavesAlone(d.DriverName()):
		return host.WithHint(fmt.Errorf("%w: it is bound to %s", ErrNoDevice, d.DriverName()), Release(d.Address))
	case a == nil:
		return ErrNoDevice
	case a.lagAt != nil:
		return host.WithHint(fmt.Errorf("%w of its own: %s of %s serves its port", ErrNoDevice, a.Lag, a.lagAt), host.Plain("name "+a.lagAt.String()))
	case a.Elsewhere != "":
		return host.WithHint(fmt.Errorf("%w: %s", errElsewhere, a.Elsewhere), "it returns when the container that has it ends")
	case a.Driver == "":
		return host.WithHint(fmt.Errorf("%w: it is bound to no driver", ErrNoDevice), "bind the function to its host driver")
	case slices.Contains(drivers, a.Driver):
		return host.WithHint(fmt.Errorf("%w: its driver is %s", ErrNoDevice, a.Driver),
			host.Textf("%s names the modules that are missing", host.NewCommand("rdma check")))
	}
	return host.WithHint(fmt.Errorf("%w: its driver is %s", ErrNoDevice, a.Driver),
		"a function for guests has it in its guest; otherwise bind the function to its host driver")
}

// Read reads the RDMA stack. devices are all functions of the machine. Adapters are functions with
// an RDMA device, with a uverbs node, or with the driver of an adapter: the class of RDMA devices
// shows those of the reader's network namespace alone. Without a stack it returns an empty one. It
// returns an error if the list of RDMA devices cannot be read; everything else that cannot be read or
// is malformed is a warning of its adapter.
func Read(root host.Root, devices pci.Devices, opts Options) (Stack, error) {
	r := reader{root: root}
	nodes := r.readNodes() // before the devices: one that appears meanwhile is in no other namespace
	names, err := root.ReadDir(classDir)
	if err != nil && !host.IsAbsent(err) {
		return Stack{}, err
	}
	s := Stack{Adapters: make([]Adapter, len(names))}
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() { s.Adapters[i] = readAdapter(root, devices, name, opts) })
	}
	s.VerbsABI = r.number(verbsDir, "abi_version", 10)
	s.CM = r.node(cmDir, "rdma_cm")
	s.Netns = r.netns()
	interfaces := r.interfaces()
	s.Warnings = r.warnings
	group.Wait()
	if s.Netns == nil || *s.Netns == NetnsExclusive {
		s.Adapters = append(s.Adapters, elsewhere(root, devices, nodes, names)...)
	}
	s.joinParts(nodes)
	for i := range devices {
		d := &devices[i]
		if (hasDriver(d) || slices.Contains(opts.Whole, d.Address)) && !slices.ContainsFunc(s.Adapters,
			func(a Adapter) bool { return a.Address != nil && *a.Address == d.Address }) {
			s.Adapters = append(s.Adapters, Adapter{Address: &d.Address, Function: d, Driver: d.DriverName()})
		}
	}
	slices.SortStableFunc(s.Adapters, func(a, b Adapter) int {
		switch {
		case a.Address != nil && b.Address != nil:
			return cmp.Or(a.Address.Compare(*b.Address), cmp.Compare(a.Name, b.Name))
		case a.Address != nil:
			return -1
		case b.Address != nil:
			return 1
		}
		return cmp.Compare(a.Title(), b.Title())
	})
	for i := range s.Adapters {
		s.Adapters[i].addNodes(nodes)
		s.Adapters[i].addInterfaces(interfaces)
	}
	for i := range s.Adapters {
		s.addVFs(root, &s.Adapters[i], devices)
	}
	for i := range s.Adapters {
		s.addLag(root, &s.Adapters[i])
	}
	gpus := GPUs(devices)
	for i := range s.Adapters {
		s.Adapters[i].place(devices, gpus)
	}
	return s, nil
}

// elsewhere returns the adapters whose RDMA devices are in other network namespaces: the class of
// uverbs nodes shows those of all (Linux, drivers/infiniband/core: ib_class has ns_type,
// uverbs_class has none). names are the RDMA devices of this one.
func elsewhere(root host.Root, devices pci.Devices, nodes []deviceNode, names []string) (adapters []Adapter) {
	for _, n := range nodes {
		if n.class != "uverbs" || slices.Contains(names, n.device) {
			continue
		}
		a := Adapter{Elsewhere: n.device}
		folder, err := root.Real(path.Join(verbsDir, n.Name))
		if err != nil {
			a.Warnings = []string{host.OfFile(path.Join(verbsDir, n.Name), err).Error()}
		}
		if address, ok := functionOf(folder); ok {
			a.Address = &address
			if a.Function = devices.At(address); a.Function != nil {
				a.Driver = a.Function.DriverName()
			}
		}
		for _, other := range nodes {
			if other.device == n.device && other.class == "umad" {
				a.Ports = append(a.Ports, Port{Number: other.port})
			}
		}
		adapters = append(adapters, a)
	}
	return adapters
}

// joinParts removes the RDMA devices of parts of an adapter, and names them with its own: of the
// devices of one function, those without uverbs where another one has it (Linux, uverbs_main.c,
// ib_uverbs_add_one, RDMA_DEVICE_TYPE_SMI).
func (s *Stack) joinParts(nodes []deviceNode) {
	hasVerbs := func(a Adapter) bool {
		return slices.ContainsFunc(nodes, func(n deviceNode) bool { return n.class == "uverbs" && n.device == cmp.Or(a.Name, a.Elsewhere) })
	}
	for _, part := range slices.Clone(s.Adapters) {
		if part.Address == nil || part.Name == "" || hasVerbs(part) {
			continue
		}
		i := slices.IndexFunc(s.Adapters, func(a Adapter) bool { return a.Address != nil && *a.Address == *part.Address && hasVerbs(a) })
		if i >= 0 {
			s.Adapters[i].Parts = append(s.Adapters[i].Parts, part.Name)
			s.Adapters = slices.DeleteFunc(s.Adapters, func(a Adapter) bool { return a.Name == part.Name })
		}
	}
}

// addLag sets the RDMA device that serves the port of a function without one. Only functions of one
// card of mlx5 share a device.
func (s *Stack) addLag(root host.Root, a *Adapter) {
	if a.Name != "" || a.Elsewhere != "" || a.Driver != "mlx5_core" {
		return
	}
	bond, err := ReadBond(root, *a.Address)
	if err != nil {
		a.Warnings = append(a.Warnings, err.Error())
	}
	if of, name := bond.Device(); of != nil && of.Card() == a.Address.Card() {
		a.Lag, a.lagAt = name, of
	}
}

// GPUs returns the GPUs that adapters are near to or far from: physical functions, without the
// consoles of management controllers.
func GPUs(devices pci.Devices) []*pci.Device {
	var gpus []*pci.Device
	for i := range devices {
		if d := &devices[i]; d.IsGPU() && !d.IsManagementConsole() && !d.IsVF() {
			gpus = append(gpus, d)
		}
	}
	return gpus
}

// place sets what the adapter's PCI function shows, and the nearest GPU.
func (a *Adapter) place(devices pci.Devices, gpus []*pci.Device) {
	d := a.Function
	if d == nil {
		return
	}
	a.VendorID, a.ProductID, a.Product, a.NUMANode, a.Group = d.VendorID, d.ProductID, d.Product, d.NUMANode, d.IOMMUGroup
	a.PF, a.TotalVFs = d.SRIOV.PF, d.SRIOV.TotalVFs
	for _, gpu := range gpus {
		if l := devices.Link(d, gpu); a.Link == nil || l.Distance() < a.Link.Distance() {
			a.GPU, a.Link = &gpu.Address, &l
		}
	}
}

// At returns the adapter at an address, or nil.
func (s Stack) At(a pci.Address) *Adapter {
	i := slices.IndexFunc(s.Adapters, func(x Adapter) bool { return x.Address != nil && *x.Address == a })
	if i < 0 {
		return nil
	}
	return &s.Adapters[i]
}

// IsVF reports whether the adapter is a virtual function.
func (a Adapter) IsVF() bool {
	return a.Function != nil && a.Function.IsVF()
}

// Title returns the address of the adapter, or the name of a software device.
func (a Adapter) Title() string {
	if a.Address == nil {
		return cmp.Or(a.Name, a.Elsewhere)
	}
	return a.Address.String()
}

// reader reads small files and collects warnings about them.
type reader struct {
	root     host.Root
	warnings []string
}

func (r *reader) warn(file string, err error) {
	r.warnings = append(r.warnings, host.OfFile(file, err).Error())
}

// text returns the content of an attribute without spaces around it, and whether it exists. An
// attribute that cannot be read is a warning.
func (r *reader) text(dir, name string) (text string, ok bool) {
	file := path.Join(dir, name)
	data, err := r.root.ReadFile(file)
	switch {
	case host.IsAbsent(err):
		return "", false
	case err != nil:
		r.warn(file, err)
		return "", false
	}
	return strings.TrimSpace(string(data)), true
}

// number returns an attribute that is a number, or nil. Base 0 accepts "0x1".
func (r *reader) number(dir, name string, base int) *int {
	text, ok := r.text(dir, name)
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(text, base, 64)
	if err != nil {
		r.warn(path.Join(dir, name), fmt.Errorf("not a number: %q", text))
		return nil
	}
	v := int(n)
	return &v
}

// revision returns the revision of an adapter's hardware, which all drivers print in hexadecimal
// and some with 0x (Linux, drivers/infiniband/hw, hw_rev_show); nil where a driver shows none.
func revision(r *reader, folder string) *int {
	text, ok := r.text(folder, "hw_rev")
	n, err := strconv.ParseInt(strings.TrimPrefix(text, "0x"), 16, 64)
	if !ok || err != nil {
		return nil
	}
	v := int(n)
	return &v
}

// guid returns an attribute that is a GUID, or nil.
func (r *reader) guid(dir, name string) *GUID {
	text, ok := r.text(dir, name)
	if !ok {
		return nil
	}
	g, err := ParseGUID(text)
	if err != nil {
		r.warn(path.Join(dir, name), err)
		return nil
	}
	return &g
}

// netns returns how RDMA devices belong to network namespaces.
func (r *reader) netns() *NetnsMode {
	text, ok := r.text(path.Dir(NetnsFile), path.Base(NetnsFile))
	if !ok {
		return nil
	}
	mode := NetnsShared
	switch text {
	case "Y":
	case "N":
		mode = NetnsExclusive
	default:
		r.warn(NetnsFile, fmt.Errorf("neither Y nor N: %q", text))
		return nil
	}
	return &mode
}

// readAdapter reads one RDMA device. Its folder is below that of its function: names of devices may
// change at any time (rdma-core, rdma-persistent-naming.rules).
func readAdapter(root host.Root, devices pci.Devices, name string, opts Options) (a Adapter) {
	a.Name = name
	dir := path.Join(classDir, name)
	r := &reader{root: root}
	defer func() { a.Warnings = r.warnings }()
	folder, err := root.Real(dir)
	if err != nil {
		r.warn(dir, err)
		return a
	}
	// rxe has a parent. Up to Linux 5.15, its folder is below the function of its network interface.
	if text, ok := r.text(folder, "parent"); ok {
		a.Parent = text
	} else if address, ok := functionOf(folder); ok {
		a.Address = &address
		if a.Function = devices.At(address); a.Function == nil {
			r.warn(folder, fmt.Errorf("%s is not among the PCI functions", address))
		} else {
			a.Driver = a.Function.DriverName()
		}
	}
	if a.Parent == "" && strings.Contains(folder, "/pci") {
		a.at = path.Dir(path.Dir(folder)) // FUNCTION/infiniband/NAME, or SUBFUNCTION/infiniband/NAME
	}
	kind, _ := r.text(folder, "node_type")
	a.NodeType = meaning(kind)
	a.Firmware, _ = r.text(folder, "fw_ver")
	a.BoardID, _ = r.text(folder, "board_id")
	a.HCAType, _ = r.text(folder, "hca_type")
	a.HWVersion = revision(r, folder)
	a.NodeGUID, a.SysImageGUID = r.guid(folder, "node_guid"), r.guid(folder, "sys_image_guid")
	ports := path.Join(folder, "ports")
	numbers, err := root.ReadDir(ports)
	if err != nil {
		r.warn(ports, err)
	}
	for _, number := range numbers {
		n, err := strconv.Atoi(number)
		if err != nil {
			r.warn(ports, fmt.Errorf("not a port: %q", number))
			continue
		}
		a.Ports = append(a.Ports, r.port(path.Join(ports, number), n, opts))
	}
	slices.SortFunc(a.Ports, func(x, y Port) int { return x.Number - y.Number })
	return a
}

// functionOf returns the address of the function that a folder in sysfs is below.
func functionOf(folder string) (pci.Address, bool) {
	at := path.Dir(path.Dir(folder)) // FUNCTION/infiniband/NAME
	a, err := pci.ParseAddress(path.Base(at))
	return a, err == nil && strings.Contains(at, "/pci")
}

// meaning returns the name in an attribute such as "4: ACTIVE".
func meaning(text string) string {
	if number, name, ok := strings.Cut(text, ": "); ok {
		if _, err := strconv.Atoi(number); err == nil {
			return name
		}
	}
	return text
}

func (r *reader) port(dir string, n int, opts Options) Port {
	p := Port{Number: n}
	state, _ := r.text(dir, "state")
	physical, _ := r.text(dir, "phys_state")
	p.State, p.PhysState = meaning(state), meaning(physical)
	p.LinkLayer, _ = r.text(dir, "link_layer")
	p.LID, p.SMLID = r.number(dir, "lid", 0), r.number(dir, "sm_lid", 0)
	p.LMC = r.number(dir, "lid_mask_count", 10)
	if mask := r.number(dir, "cap_mask", 0); mask != nil {
		m := uint32(*mask)
		p.CapMask = &m
	}
	p.Rate, _ = r.text(dir, "rate")
	r.pkeys(path.Join(dir, "pkeys"), &p)
	r.gids(dir, &p, opts.GIDs)
	return p
}

// pkeys reads the partition keys of a port that are not empty.
func (r *reader) pkeys(folder string, p *Port) {
	dir, names, err := r.table(folder)
	if err != nil {
		if !host.IsAbsent(err) {
			r.warn(folder, err)
		}
		return
	}
	defer dir.Close() //nolint:errcheck // only read from
	buf := make([]byte, host.MaxAttribute+1)
	for _, name := range names {
		data, err := dir.ReadAttribute(name, buf)
		text := strings.TrimSpace(string(data))
		var key uint64
		if err == nil {
			key, err = strconv.ParseUint(text, 0, 16)
		}
		switch {
		case err != nil:
			r.warn(path.Join(folder, name), fmt.Errorf("not a partition key: %q (%w)", text, err))
			return
		case key != 0:
			p.PKeys = append(p.PKeys, uint16(key))
		}
	}
}

// table opens a folder whose files have numbers as names, and returns these in their order.
func (r *reader) table(folder string) (*host.Dir, []string, error) {
	names, err := r.root.ReadDir(folder)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) })
	dir, err := r.root.OpenDir(folder)
	return dir, names, err
}

// ErrGIDs means that the GID table of a port cannot be read.
var ErrGIDs = host.WithHint(errors.New("GID table cannot be read"), "dmesg names errors of the adapter's driver")
