package rdmaprepare

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Options are what the operator asks for.
type Options struct {
	Add      []pci.Address // physical functions to prepare, in addition to the recorded ones
	VFs      int           // of each of Devices; 0 with Whole
	Whole    bool          // the functions themselves, without VFs
	Use      rdma.Use      // "" for guests, or as recorded
	GUIDBase *rdma.GUID
	Netns    rdma.NetnsMode // "" for as recorded
	Remove   []pci.Address
	None     bool
	Allow    []pci.Address
}

// Errors of options that the machine cannot satisfy.
var (
	// errNotRecorded is the error of --remove for an adapter that is not recorded.
	errNotRecorded = host.WithHint(errors.New("is not recorded"), host.Textf("'%s' shows what is", host.NewCommand("rdma prepare").Flag("dry-run")))
	// errIsVF is the error of a VF where a physical function is wanted.
	errIsVF = host.WithHint(errors.New("is a VF"), "name its physical function, of which --vfs makes VFs")
	// errMLX4 is the error of ConnectX-3 and older, whose VFs are made when the driver is loaded.
	errMLX4 = host.WithHint(errors.New("mlx4_core makes VFs when it is loaded, by its parameters num_vfs and probe_vf: sriov_numvfs cannot be written with it"),
		"'modinfo -p mlx4_core' describes them; set them in /etc/modprobe.d, regenerate the initramfs and reboot, or use --whole")
	// errNoIPoIB is the error of an InfiniBand adapter of whose VFs nothing can set the GUIDs.
	errNoIPoIB = host.WithHint(errors.New("no installed kernel has the module ib_ipoib, through whose interface the kernel sets the GUIDs of VFs"),
		"install the kernel's package of extra modules, or MLNX_OFED")
	// errNoIOMMU is the error of VFs for guests on a machine whose IOMMU is off.
	errNoIOMMU = host.WithHint(errors.New("the IOMMU is off, so no guest can have a device"),
		host.Textf("switch it on in the firmware and on Intel with the kernel argument intel_iommu=on, and reboot; '%s' does so for GPUs",
			host.NewCommand("host prepare")))
	// errUnnamed is the error of options that name no adapter, where none is recorded.
	errUnnamed = host.WithHint(errors.New("no adapter is named, and none is recorded"),
		host.Textf("%s; %s", host.NewCommand("rdma prepare").Flag("device", "ADDRESS").Flag("vfs", "NUMBER"), pci.ListAdapters().Hint()))
	// errNoVFIO is the error of a machine without vfio-pci.
	errNoVFIO = host.WithHint(errors.New("no installed kernel has the module vfio-pci"), "install a kernel that has it")
)

// Unnamed returns an error if options name no adapter, and none is recorded.
func (o Options) Unnamed(m Observed) error {
	if m.Recorded != nil || len(o.Add)+len(o.Remove) > 0 || o.None {
		return nil
	}
	return errUnnamed
}

// Want is the wanted record, without the files, and what the operator has to know about it.
type Want struct {
	Record   rdma.Record
	Warnings []string
}

// NewWant returns the record that the options ask for. Its error names everything that prevents it.
func NewWant(m Observed, o Options) (Want, error) {
	w := wanting{Observed: m, Options: o}
	w.Record = rdma.Record{Adapters: []rdma.Prepared{}, Files: []rdma.File{}}
	if m.Recorded != nil && !o.None {
		w.Record.Netns, w.Record.Adapters = m.Recorded.Netns, append(w.Record.Adapters, m.Recorded.Adapters...)
	}
	switch o.Netns {
	case rdma.NetnsExclusive:
		w.Record.Netns = rdma.NetnsExclusive
	case rdma.NetnsShared:
		w.Record.Netns = ""
	}
	if o.None && m.Recorded != nil {
		for _, a := range m.Recorded.Adapters {
			w.leave(&a, nil)
		}
	}
	for _, a := range pci.Unique(o.Remove) {
		w.remove(a)
	}
	for _, a := range pci.Unique(o.Add) {
		w.add(a)
	}
	w.fail(gate.Lost(gate.Records{RDMA: m.Recorded}, gate.Records{Containers: w.Containers, RDMA: &w.Record})...)
	if len(w.Record.Adapters) == 0 {
		w.Record.Netns = ""
	}
	slices.SortFunc(w.Record.Adapters, func(a, b rdma.Prepared) int { return a.Address.Compare(b.Address) })
	w.recordAllowed()
	if !o.None {
		w.collisions()
	}
	accepted := len(w.errs) == 0
	for _, a := range o.Allow {
		switch {
		case m.Devices.At(a) == nil:
			w.fail(fmt.Errorf("--allow: %w", w.noFunction(a)))
		case accepted && w.Record.Of(a) == nil && w.Recorded.Of(a) == nil:
			w.fail(gate.Refuse(a, gate.ErrStays))
		}
	}
	return w.Want, errors.Join(w.errs...)
}

// wanting builds a Want.
type wanting struct {
	Observed
	Options
	Want
	lifted []pci.Address // adapters that leave the host, or whose VFs do, because --allow names them
	errs   []error
}

func (w *wanting) fail(errs ...error) { w.errs = append(w.errs, errs...) }

func (w *wanting) noFunction(a pci.Address) error {
	return w.Devices.NotFound(fmt.Errorf("%s: there is no such PCI function", a), pci.SelectorOf(a), pci.ListAdapters())
}

// remove removes an adapter from the record.
func (w *wanting) remove(a pci.Address) {
	recorded := w.Recorded.At(a)
	if recorded == nil {
		w.fail(fmt.Errorf("%s: %w", a, errNotRecorded))
		return
	}
	w.leave(recorded, nil)
	w.Record.Adapters = slices.DeleteFunc(w.Record.Adapters, func(p rdma.Prepared) bool { return p.Address == a })
}

// recordAllowed records the adapters that --allow has named, now and before.
func (w *wanting) recordAllowed() {
	w.Record.Allowed = []pci.Address{}
	if w.Recorded != nil {
		w.lifted = append(w.lifted, w.Recorded.Allowed...)
	}
	w.Record.Allowed = append(w.Record.Allowed, host.Filter(pci.Unique(w.lifted), func(a pci.Address) bool {
		return w.Record.At(a) != nil
	})...)
}

// add adds an adapter to the record, or changes its record.
func (w *wanting) add(a pci.Address) {
	adapter, d := w.Stack.At(a), w.Devices.At(a)
	switch {
	case d == nil:
		w.fail(w.noFunction(a))
		return
	case d.IsVF():
		w.fail(fmt.Errorf("%s: %w", a, errIsVF))
		return
	case adapter == nil:
		w.bound(a)
		return
	case adapter.Name == "" && (w.Whole || w.bonded(a) == nil):
		w.fail(fmt.Errorf("%s: %w", a, rdma.NoDevice(adapter, d)))
		return
	case d.VendorID == nil || d.ProductID == nil:
		w.fail(fmt.Errorf("%s: its ids cannot be read", a))
		return
	}
	recorded := w.Recorded.At(a)
	p := rdma.Prepared{
		Address: a, VendorID: *d.VendorID, ProductID: *d.ProductID, SubsystemVendorID: d.SubsystemVendorID, SubsystemID: d.SubsystemID,
		Path:   append([]pci.Address{}, w.Devices.Path(d)...),
		Driver: adapter.Driver, LinkLayer: w.linkLayer(*adapter), Whole: w.Whole, Use: w.useOf(a, w.Options), GUIDBase: w.GUIDBase, VFs: []rdma.PreparedVF{},
	}
	if recorded != nil {
		p.Eswitch = recorded.Eswitch
		if p.GUIDBase == nil {
			p.GUIDBase = recorded.GUIDBase
		}
	}
	errs := len(w.errs)
	planned, before := p, recorded
	if planned.VFs = w.planned(p); p.Whole {
		before = nil // it is the host's until it is bound
	}
	w.leave(before, &planned)
	if p.Whole {
		w.whole(p, d)
	} else {
		w.vfs(&p, d)
	}
	w.claimed(p)
	if p.Use == rdma.ForGuests {
		w.forGuests()
	}
	if vfs := w.vfsOf(a); len(vfs) > 0 && recorded == nil {
		w.Warnings = append(w.Warnings, fmt.Sprintf("%s has %d VFs that gpustack did not make: they are replaced at the next boot; "+
			"one program has to own them: %s", a, len(vfs), rdma.FindOwners))
	}
	if len(w.errs) > errs {
		return
	}
	w.Record.Adapters = append(slices.DeleteFunc(w.Record.Adapters, func(x rdma.Prepared) bool { return x.Address == a }), p)
}

// bound keeps the record of a whole adapter that has no RDMA device because it is bound to vfio-pci
// already, and changes what it is for.
func (w *wanting) bound(a pci.Address) {
	recorded := w.Record.At(a)
	if recorded == nil || !recorded.Whole || !w.Whole {
		err := rdma.NoDevice(nil, w.Devices.At(a))
		if recorded != nil && recorded.Whole {
			err = host.WithHint(err, host.Textf("return it to its driver first: %s", host.NewCommand("rdma prepare").Flag("remove", a.String())))
		}
		w.fail(fmt.Errorf("%s: %w", a, err))
		return
	}
	if w.Use != "" && w.Use != recorded.Use {
		before := *recorded
		recorded.Use = w.Use
		w.leave(&before, recorded)
	}
}

// bonded returns the adapter with the RDMA device of the bond of which an adapter is a slave, or
// nil. An unreadable bond is an error of Leave.
func (w *wanting) bonded(a pci.Address) *rdma.Adapter {
	bond := w.Bonds[a]
	if of, _ := bond.Value.Device(); bond.Seen() && of != nil {
		return w.Stack.At(*of)
	}
	return nil
}

// linkLayer returns the link layer of an adapter: InfiniBand if one of its ports has it, since its
// VFs need GUIDs then. Of a slave without an RDMA device it is that of its bond's.
func (w *wanting) linkLayer(a rdma.Adapter) string {
	if of := w.bonded(*a.Address); a.Name == "" && of != nil {
		a = *of
	}
	layer := ""
	for _, port := range a.Ports {
		if layer != rdma.LinkInfiniBand && port.LinkLayer != "" {
			layer = port.LinkLayer
		}
	}
	return layer
}

// whole refuses an adapter that the host uses. For containers, nothing changes for the host.
func (w *wanting) whole(p rdma.Prepared, d *pci.Device) {
	if p.Use == rdma.ForContainers {
		return
	}
	if d.IOMMUGroup == nil {
		return // without an IOMMU, forGuests refuses
	}
	for _, other := range d.GroupMembers {
		member := w.Devices.At(other)
		if other == p.Address || member == nil || member.IsBridge() || w.wants(other) || w.Contract.At(other) != nil {
			continue
		}
		both := host.NewCommand("host prepare").Flag("device", p.Address.String()).Flag("allow", other.String())
		if w.Stack.At(other) != nil {
			both = host.NewCommand("rdma prepare").Flag("device", p.Address.String()).Flag("device", other.String()).Flag("whole")
		}
		w.fail(&gate.Refusal{Address: other, Absolute: true, Code: host.CodeGroup,
			Reason: fmt.Sprintf("shares IOMMU group %d with %s, so a guest can have %s only together with it: '%s' accepts both",
				*d.IOMMUGroup, p.Address, p.Address, both)})
	}
}

// wants reports whether a function is, or will be, recorded as a whole.
func (w *wanting) wants(a pci.Address) bool {
	p := w.Record.At(a)
	return p != nil && p.Whole || w.Whole && slices.Contains(w.Add, a)
}

// vfs adds the VFs of an adapter. Its own uses by the host go on.
func (w *wanting) vfs(p *rdma.Prepared, d *pci.Device) {
	f := w.Functions[p.Address]
	if p.Driver == mlx4 {
		w.fail(fmt.Errorf("%s: %w", p.Address, errMLX4))
		return
	}
	if err := p.TooMany(w.VFs, d); err != nil {
		w.fail(err)
		return
	}
	if p.LinkLayer == rdma.LinkInfiniBand && !f.GUIDFiles && !w.anyKernel("ib_ipoib") {
		w.fail(fmt.Errorf("%s: %w", p.Address, errNoIPoIB))
	}
	if f.Offset == nil || f.Stride == nil {
		w.fail(fmt.Errorf("%s: the addresses of its VFs cannot be determined: %s shows no sriov_offset or sriov_stride",
			p.Address, machine.AttributeFile(p.Address, "")))
		return
	}
	for index := range w.VFs {
		vf := rdma.PreparedVF{Index: index, Driver: vfDriver(*p), ProductID: host.Or(f.VFDevice, p.ProductID)}
		var err error
		if vf.Address, err = vfAddress(p.Address, *f.Offset, *f.Stride, index); err == nil {
			err = w.identify(&vf, *p, f)
		}
		if err != nil {
			w.fail(fmt.Errorf("%s: %w", p.Address, err))
			return // the other VFs have the same error
		}
		p.VFs = append(p.VFs, vf)
	}
}

// planned returns the VFs of an adapter as far as they are known before all is read: as many as
// asked for, at the addresses of those that exist, with the driver for their use.
func (w *wanting) planned(p rdma.Prepared) []rdma.PreparedVF {
	vfs := make([]rdma.PreparedVF, w.VFs)
	for i, a := range w.vfsOf(p.Address) {
		if i < len(vfs) {
			vfs[i] = rdma.PreparedVF{Address: a, Driver: vfDriver(p)}
		}
	}
	return vfs
}

// vfDriver returns the driver of an adapter's VFs.
func vfDriver(p rdma.Prepared) string {
	if p.Use == rdma.ForGuests {
		return machine.VFIO
	}
	return p.Driver
}

// vfAddress returns the address of a VF: the routing id of the PF, plus the offset of the first VF,
// plus the stride for each before it (PCI Express Base Specification, "First VF Offset" and "VF
// Stride").
func vfAddress(pf pci.Address, offset, stride, index int) (pci.Address, error) {
	id := int(pf.Bus)<<8 | int(pf.Slot)<<3 | int(pf.Function)
	id += offset + stride*index
	if id > 0xffff {
		return pci.Address{}, fmt.Errorf("VF %d is beyond the last bus of its PCI domain", index)
	}
	return pci.ParseAddress(fmt.Sprintf("%04x:%02x:%02x.%d", pf.Domain, id>>8, id>>3&0x1f, id&7))
}

// identify gives a VF its identity: GUIDs on InfiniBand, a MAC address on Ethernet, from which the
// driver makes the node GUID (Linux, 23898c763f4f).
func (w *wanting) identify(vf *rdma.PreparedVF, p rdma.Prepared, f Function) error {
	switch p.LinkLayer {
	case rdma.LinkInfiniBand:
		adapter := w.Stack.At(p.Address)
		if adapter.NodeGUID == nil && p.GUIDBase == nil {
			return errors.New("its node GUID cannot be read, from which those of its VFs are derived")
		}
		node, port, err := rdma.DeriveGUIDs(host.Value(adapter.NodeGUID), p.GUIDBase, vf.Index)
		vf.NodeGUID, vf.PortGUID = &node, &port
		return err
	case rdma.LinkEthernet:
		if f.MAC == nil {
			return errors.New("the MAC address of its interface cannot be read, from which those of its VFs are derived")
		}
		mac, err := rdma.DeriveMAC(f.MAC, vf.Index)
		vf.MAC = mac.String()
		return err
	}
	return nil
}

// claimed refuses functions that the records of host prepare and container prepare claim.
func (w *wanting) claimed(p rdma.Prepared) {
	w.fail(gate.Records{Guests: w.Contract, Containers: w.Containers, RDMA: &rdma.Record{Adapters: []rdma.Prepared{p}}}.Conflicts(w.Devices)...)
}

// forGuests fails if guests can have no devices here. Kernel arguments that host prepare has
// recorded switch the IOMMU on at the next boot.
func (w *wanting) forGuests() {
	once := func(err error) {
		if !slices.ContainsFunc(w.errs, func(e error) bool { return errors.Is(e, err) }) {
			w.fail(err)
		}
	}
	if on := w.IOMMU.Enabled; on == host.No && w.Contract == nil {
		once(errNoIOMMU)
	}
	if !w.anyKernel(machine.VFIO) {
		once(errNoVFIO)
	}
}

// collisions fails for identities that two functions would have, among those of the machine and
// those that are recorded.
func (w *wanting) collisions() {
	taken := w.identities()
	at := host.By(w.Record.Adapters, func(p rdma.Prepared) (pci.Address, string) { return p.Address, "adapter " + p.Address.String() })
	for _, p := range w.Record.Adapters {
		for _, vf := range p.VFs {
			who := fmt.Sprintf("VF %d of %s", vf.Index, p.Address)
			if other, ok := at[vf.Address]; ok {
				w.fail(host.WithHint(fmt.Errorf("%s: its address %s is that of %s", who, vf.Address, other),
					"fewer VFs (--vfs) of one of the adapters do not overlap"))
				break
			}
			at[vf.Address] = who
			if errs := taken.give(vf, who); len(errs) > 0 {
				w.fail(errs...)
				break // those of its other VFs collide too
			}
		}
	}
}

// identities are functions by the GUID or MAC address that only one of them may have.
type identities map[string]string

// identities returns those of the adapters that the machine has.
func (w *wanting) identities() identities {
	taken := identities{}
	for _, a := range w.Stack.Adapters {
		if a.Address == nil || a.IsVF() {
			continue
		}
		if a.NodeGUID != nil && !a.NodeGUID.IsZero() {
			taken[a.NodeGUID.String()] = a.Address.String() // functions of one card may share it
		}
		for _, port := range a.Ports {
			if port.GUID != nil && !port.GUID.IsZero() {
				taken[port.GUID.String()] = a.Address.String()
			}
		}
		if mac := w.Functions[*a.Address].MAC; mac != nil {
			taken[mac.String()] = a.Address.String()
		}
	}
	return taken
}

// give gives a VF its identities, and returns an error for each that another function has.
func (i identities) give(vf rdma.PreparedVF, who string) (collisions []error) {
	add := func(what, value string) {
		if other, ok := i[value]; ok && other != who {
			collisions = append(collisions, host.WithHint(fmt.Errorf("%s: %s %s is that of %s already", who, what, value, other),
				"--guid-base gives another GUID to derive those of an adapter's VFs from; MAC addresses change with that of the adapter"))
			return
		}
		i[value] = who
	}
	if vf.NodeGUID != nil {
		add("node GUID", vf.NodeGUID.String())
	}
	if vf.PortGUID != nil && *vf.PortGUID != *vf.NodeGUID {
		add("port GUID", vf.PortGUID.String())
	}
	if vf.MAC != "" {
		add("MAC address", vf.MAC)
	}
	return collisions
}
