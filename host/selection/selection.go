package selection

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// Options are the operator's choices, in addition to the record.
type Options struct {
	Add      []pci.Selector // added to the recorded selection; without one, the whole selection
	Vendors  []pci.ID       // GPUs of these vendors, added in the same way
	Only     []pci.Selector // the whole selection, which replaces the recorded one
	None     bool           // select nothing
	Remove   []pci.Selector
	Allow    []pci.Address     // functions that may leave the host although they are no GPUs
	Earlier  *machine.Contract // a record of which only what --allow named counts, or nil
	NVSwitch machine.NVSwitch  // "" for the recorded choice
	Driver   string            // "" for the recorded one, or vfio-pci
	Unsafe   bool              // allow_unsafe_interrupts
	TakeOver bool              // remove the selected products from ids= of others
}

// Errors of options that cannot be satisfied.
var (
	ErrNoDevice    = host.WithHint(errors.New("no such function"), host.Textf("'%s' lists all functions", host.NewCommand("host scan").Flag("all")))
	errBridge      = host.WithCode(errors.New("is a bridge and cannot be assigned to a guest"), host.CodeBridge, "")
	ErrNotSelected = errors.New("is not selected")
	ErrNothing     = errors.New("nothing is selected")
	ErrChanged     = host.WithCode(errors.New("is not the function that was recorded"), host.CodeChanged, "")
	ErrNoIDs       = host.WithCode(errors.New("vendor and product id cannot be read"), host.CodeNoIDs, "")
	ErrNoDriver    = host.WithHint(errors.New("no installed kernel has it"), "install a kernel that has it, or choose another with --driver")
	ErrNoVariant   = host.WithHint(errors.New("no installed kernel has it, and a guest cannot use this device without it"),
		"install a package of the kernel that has the module (nvgrace_gpu_vfio_pci: Linux 6.9 and later; on Ubuntu in linux-modules-extra)")
	ErrStubTwins = host.WithHint(host.WithCode(errors.New("pci-stub cannot bind one function by its address: "+
		"libvirt would return it to the host driver when a guest stops"), host.CodeIdentical, ""),
		"choose --driver vfio-pci, which can")
)

// noneOf is the ErrNoDevice of a kind of device.
type noneOf string

func (n noneOf) Error() string { return "this machine has no " + string(n) }

func (noneOf) Unwrap() error { return ErrNoDevice }

// Named reports whether the options name functions. host bind and host release then use these
// functions in place of the recorded ones.
func (o Options) Named() bool {
	return len(o.Add)+len(o.Vendors) > 0
}

// Node is the part of an observed machine that determines which functions may be assigned to
// guests.
type Node struct {
	gate.Host
	kernels []modprobe.Modules // the installed kernels; none where they are not seen
}

// NewNode returns the Node of a machine.
func NewNode(m machine.Machine) Node { return Node{Host: gate.New(m), kernels: m.Kernels.Value} }

// stays reports whether a function that is not selected itself stays as it is when its group is
// assigned: no driver has it, and no installed kernel has one for it, which VFIO accepts (Linux,
// iommu_device_claim_dma_owner in drivers/iommu/iommu.c).
func (n Node) stays(d *pci.Device) bool {
	if len(n.kernels) == 0 || n.Devices.GPUOf(d) != nil || d.Driver != nil || d.DriverUnread() {
		return false
	}
	return d.Modalias == nil || !slices.ContainsFunc(n.kernels, func(m modprobe.Modules) bool {
		return slices.ContainsFunc(m.Match(*d.Modalias), func(name string) bool {
			return m.Builtin(name) || m.Loadable(name) && !pci.LeavesAlone(name)
		})
	})
}

// members returns selected functions with the others of their cards and groups that do not stay.
func (n Node) members(selected []pci.Address) []pci.Address {
	named := host.Set(selected)
	return slices.DeleteFunc(n.Devices.Expand(selected), func(a pci.Address) bool { return !named[a] && n.stays(n.Devices.At(a)) })
}

// chooser computes a selection and collects all its errors.
type chooser struct {
	Node
	opts Options
	gate.Selection
	errs []error
}

func (c *chooser) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// Choose returns the functions that the options select. The error joins one error for each
// problem.
func (n Node) Choose(opts Options) (gate.Selection, error) {
	c := chooser{Node: n, opts: opts}
	c.start()
	c.add(opts.Add)
	c.addVendors()
	c.placeNVSwitches()
	c.remove()
	c.allow()
	c.errs = append(c.changed(), c.errs...)
	if c.errs == nil && len(c.Selected) == 0 {
		c.fail("%w", ErrNothing)
	}
	if c.errs != nil {
		return gate.Selection{}, errors.Join(c.errs...)
	}
	return c.complete(), nil
}

// start initializes the selection from the options, from the record, or with the default.
func (c *chooser) start() {
	c.NVSwitch = c.opts.NVSwitch
	if r := c.Recorded; r != nil {
		c.NVSwitch = cmp.Or(c.opts.NVSwitch, r.NVSwitch)
	}
	switch {
	case c.opts.Only != nil:
		c.add(c.opts.Only)
	case c.Recorded != nil:
		c.Selected = slices.Clone(c.Recorded.Selected)
	case !c.opts.Named() && c.opts.Remove == nil: // without a record there is nothing to remove
		c.addDefault()
	}
}

// allow adds the functions that the options allow to leave the host, and those of the records.
func (c *chooser) allow() {
	for _, a := range c.opts.Allow {
		if c.Devices.At(a) == nil {
			c.missing(pci.SelectorOf(a))
		}
	}
	c.Allowed = gate.Allowed{Functions: c.opts.Allow}
	for _, r := range []*machine.Contract{c.Recorded, c.opts.Earlier} {
		c.Allowed = c.Allowed.And(gate.Records{Guests: r}.Allowed())
	}
}

// complete returns the selection with the other functions of the selected cards and groups.
func (c *chooser) complete() gate.Selection {
	s := c.Selection
	s.Kind = gate.AtBoot
	s.Selected = pci.Unique(s.Selected)
	s.All = c.members(s.Selected)
	return s
}

// add selects the functions that selectors name.
func (c *chooser) add(selectors []pci.Selector) {
	for _, x := range selectors {
		found := false
		devices := c.Devices
		if a, ok := x.Address(); ok {
			devices = devices.Slot(a)
		}
		for i := range devices {
			if d := &devices[i]; x.Matches(d) {
				found = true
				if d.IsBridge() {
					c.errs = append(c.errs, gate.Refuse(d.Address, errBridge))
				}
				c.Selected = append(c.Selected, d.Address)
			}
		}
		if !found {
			c.missing(x)
		}
	}
}

// missing adds the error for a selector that selects no function of the machine.
func (c *chooser) missing(x pci.Selector) {
	c.errs = append(c.errs, c.Devices.NotFound(fmt.Errorf("%s: %w", x, ErrNoDevice), x, pci.ListFunctions()))
}

// addVendors selects the GPUs of vendors. Virtual functions are only selected by address or id.
func (c *chooser) addVendors() {
	for _, v := range c.opts.Vendors {
		found := c.Devices.Where(func(d *pci.Device) bool { return d.IsVendor(v) && d.IsGPU() && !d.IsVF() })
		if c.Selected = append(c.Selected, found...); found == nil {
			c.errs = append(c.errs, noneOf("GPU of vendor "+v.String()))
		}
	}
}

func (c *chooser) addDefault() {
	all := c.Devices.Defaults()
	switch c.Selected = c.Containers.Without(all); {
	case len(all) == 0:
		c.errs = append(c.errs, noneOf("NVIDIA GPU"))
	case len(c.Selected) == 0:
		c.fail("every NVIDIA GPU %w", gate.ErrForContainers)
	}
}

// placeNVSwitches applies the option --nvswitch: for guest it selects the whole board, for host it
// removes the NVSwitches that a record selects.
func (c *chooser) placeNVSwitches() {
	if c.opts.NVSwitch == "" {
		return
	}
	found := false
	remain := map[pci.Address]bool{}
	for i := range c.Devices {
		d := &c.Devices[i]
		found = found || d.IsNVSwitch() || d.VPDUnread()
		switch {
		case c.opts.NVSwitch == machine.SwitchesToGuest && (d.IsNVSwitch() || d.IsBoardGPU()):
			c.Selected = append(c.Selected, d.Address)
		case c.opts.NVSwitch == machine.SwitchesToHost && d.IsNVSwitch() && !c.names(d):
			remain[d.Address] = true
		}
	}
	c.Selected = slices.DeleteFunc(c.Selected, func(a pci.Address) bool { return remain[a] })
	if !found {
		c.errs = append(c.errs, noneOf("NVSwitch"))
	}
}

// names reports whether a selector of the options names a function.
func (c *chooser) names(d *pci.Device) bool {
	return slices.ContainsFunc(slices.Concat(c.opts.Add, c.opts.Only), func(x pci.Selector) bool { return x.Matches(d) })
}

// remove removes functions from the selection. A function that is removed and added by the same
// name is recorded again with its current properties. Each selector must match a function that no
// earlier one has removed.
func (c *chooser) remove() {
	added := host.Set(c.opts.Add)
	byAddress := map[pci.Address][]int{} // indices in the options
	var products []int
	for i, x := range c.opts.Remove {
		if a, ok := x.Address(); ok {
			byAddress[a] = append(byAddress[a], i)
		} else {
			products = append(products, i)
		}
	}
	found := make([]bool, len(c.opts.Remove))
	c.Selected = slices.DeleteFunc(c.Selected, func(a pci.Address) bool {
		matching := byAddress[a]
		if d := c.Devices.At(a); d != nil && len(products) > 0 {
			matching = slices.Concat(matching, host.Filter(products, func(i int) bool { return c.opts.Remove[i].Matches(d) }))
			slices.Sort(matching)
		}
		return slices.ContainsFunc(matching, func(i int) bool {
			found[i] = true
			return !added[c.opts.Remove[i]]
		})
	})
	for i, x := range c.opts.Remove {
		if !found[i] {
			c.fail("%s: %w", x, ErrNotSelected)
		}
	}
}

// changed returns an error for each recorded function whose address now has another function or
// none, unless the devices that it was recorded with are no longer selected.
func (c *chooser) changed() (errs []error) {
	if c.Recorded == nil {
		return nil
	}
	remaining := host.Set(c.Selected)
	for _, x := range c.opts.Remove {
		if a, ok := x.Address(); ok {
			delete(remaining, a)
		}
	}
	recordedFor := recordedFor(c.Recorded)
	for _, f := range c.Recorded.Functions {
		// Without one of those that it was recorded for, it is returned to the host.
		selected := func(a pci.Address) bool { return remaining[a] }
		if !f.IsAt(c.Devices) && slices.ContainsFunc(recordedFor(f), selected) {
			errs = append(errs, gate.Refuse(f.Address, fmt.Errorf("%w (%s)", ErrChanged, described(f))))
		}
	}
	return errs
}

// recordedFor returns a function that returns the selected functions of the record because of which
// a function was recorded: those of its card, or else of its group, or else all.
func recordedFor(r *machine.Contract) func(machine.Function) []pci.Address {
	cards := map[pci.Address][]pci.Address{}
	for _, a := range r.Selected {
		cards[a.Card()] = append(cards[a.Card()], a)
	}
	return func(f machine.Function) []pci.Address {
		if found := cards[f.Address.Card()]; len(found) > 0 {
			return found
		}
		var found []pci.Address
		members := map[pci.Address]bool{}
		for _, a := range f.Members {
			if card := a.Card(); !members[card] {
				members[card] = true
				found = append(found, cards[card]...)
			}
		}
		if len(found) > 0 {
			return found
		}
		return r.Selected
	}
}

// Absent returns an error if the machine has none of the functions that the options name, or no
// GPU if the options name none and nothing is recorded. It returns nil if ids that cannot be read
// may hide such a function.
func Absent(m machine.Machine, opts Options) error {
	n := NewNode(m)
	if !m.Devices.Seen() || !m.Contract.Seen() || opts.None || n.Recorded != nil && !opts.Named() && opts.Only == nil {
		return nil
	}
	if n.Devices.Where(func(d *pci.Device) bool { return d.VendorID == nil || d.ProductID == nil || d.Class == nil }) != nil {
		return nil
	}
	c := chooser{Node: n, opts: opts}
	if opts.Named() || opts.Only != nil {
		c.add(slices.Concat(opts.Only, opts.Add))
		c.addVendors()
	} else {
		c.addDefault()
	}
	if len(c.Selected) > 0 {
		return nil
	}
	return errors.Join(c.errs...)
}

// described returns the properties that identify a recorded function.
func described(f machine.Function) string {
	if f.By == machine.ByIDs {
		return f.IDs()
	}
	return f.IDs() + " below " + cmp.Or(pci.Joined(f.Path, " "), "the root bus")
}
