package prepare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"gpustack/host/pci"
)

// Options are what the operator asks for, beside what is recorded.
type Options struct {
	Add      []pci.Selector // without a record exactly these, with one these too
	Vendors  []pci.ID       // GPUs of these, the same way
	Only     []pci.Selector // the whole selection, recorded or not
	None     bool           // the empty selection
	Remove   []pci.Selector
	Allow    []pci.Address // refusals to be lifted
	NVSwitch NVSwitch      // "" for the recorded choice
	Driver   string        // "" for the recorded one, or vfio-pci
	Unsafe   bool          // allow_unsafe_interrupts
}

// NVSwitch says which side gets the NVSwitches of a board whose GPUs go to guests.
type NVSwitch string

// The NVSwitches remain with the host, which runs NVIDIA's Fabric Manager, or go to one guest
// together with all GPUs of the board (NVIDIA Fabric Manager User Guide, "Virtualization
// Models": shared NVSwitch and full passthrough).
const (
	SwitchesToHost  NVSwitch = "host"
	SwitchesToGuest NVSwitch = "guest"
)

// Errors of a selection.
var (
	ErrNoDevice    = errors.New("no such function")
	ErrBridge      = errors.New("is a bridge and cannot be assigned to a guest")
	ErrNotSelected = errors.New("is not selected")
	ErrNothing     = errors.New("nothing is selected")
	ErrChanged     = errors.New("is not the function that was recorded")
)

// selection is what was asked for, and all that goes with it.
type selection struct {
	selected, allowed, all []pci.Address
	nvswitch               NVSwitch
}

// chooser works out a selection and collects all errors of it.
type chooser struct {
	Node
	opts Options
	selection
	errs []error
}

func (c *chooser) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// choose works out what the options select. The error names everything that is wrong with
// them, each a part of its own.
func (n Node) choose(opts Options) (selection, error) {
	c := chooser{Node: n, opts: opts, selection: selection{nvswitch: opts.NVSwitch}}
	if r := n.Recorded; r != nil {
		c.allowed = slices.Clone(r.Allowed)
		c.nvswitch = cmp.Or(opts.NVSwitch, r.NVSwitch)
	}
	switch {
	case opts.Only != nil:
		c.add(opts.Only)
	case n.Recorded != nil:
		c.selected = slices.Clone(n.Recorded.Selected)
	case !opts.named():
		c.addDefault()
	}
	c.add(opts.Add)
	c.addVendors()
	c.placeNVSwitches()
	c.remove()
	for _, a := range opts.Allow {
		if n.device(a) == nil {
			c.fail("%s: %w", a, ErrNoDevice)
		}
		c.allowed = append(c.allowed, a)
	}
	c.errs = append(c.changed(), c.errs...)
	if c.errs == nil && len(c.selected) == 0 {
		c.fail("%w", ErrNothing)
	}
	if c.errs != nil {
		return selection{}, errors.Join(c.errs...)
	}
	s := c.selection
	s.selected = unique(s.selected)
	s.all = n.expand(s.selected)
	if opts.Only != nil || opts.Remove != nil {
		// What was allowed for a function that is returned to the host is not allowed for ever.
		s.allowed = slices.DeleteFunc(s.allowed, func(a pci.Address) bool {
			d := n.device(a)
			onBoard := d != nil && (d.IsNVSwitch() || d.IsBoardGPU())
			return !slices.Contains(s.all, a) && !slices.Contains(opts.Allow, a) && !onBoard
		})
	}
	s.allowed = unique(s.allowed)
	return s, nil
}

// add selects the functions that selectors name.
func (c *chooser) add(selectors []pci.Selector) {
	for _, x := range selectors {
		found := false
		for i := range c.Devices {
			if d := &c.Devices[i]; x.Matches(d) {
				found = true
				if d.IsBridge() {
					c.errs = append(c.errs, refuse(d.Address, ErrBridge))
				}
				c.selected = append(c.selected, d.Address)
			}
		}
		if !found {
			c.fail("%s: %w", x, ErrNoDevice)
		}
	}
}

// addVendors selects the GPUs of vendors. Virtual functions are selected by name alone.
func (c *chooser) addVendors() {
	for _, v := range c.opts.Vendors {
		found := false
		for i := range c.Devices {
			if d := &c.Devices[i]; d.IsVendor(v) && d.IsGPU() && !isVF(d) {
				found = true
				c.selected = append(c.selected, d.Address)
			}
		}
		if !found {
			c.fail("GPUs of vendor %s: %w", v, ErrNoDevice)
		}
	}
}

func (c *chooser) addDefault() {
	c.selected = c.candidates()
	if len(c.selected) == 0 {
		c.fail("NVIDIA GPUs: %w", ErrNoDevice)
	}
}

// candidates returns the functions that are selected where nothing is named or recorded.
func (n Node) candidates() (addresses []pci.Address) {
	for i := range n.Devices {
		if d := &n.Devices[i]; d.Candidate {
			addresses = append(addresses, d.Address)
		}
	}
	return addresses
}

// placeNVSwitches follows a choice that the options make: all of the board is selected for one
// guest, or what was recorded of its NVSwitches is returned to the host.
func (c *chooser) placeNVSwitches() {
	if c.opts.NVSwitch == "" {
		return
	}
	found := false
	for i := range c.Devices {
		d := &c.Devices[i]
		found = found || d.IsNVSwitch() || d.VPDUnread()
		switch {
		case c.opts.NVSwitch == SwitchesToGuest && (d.IsNVSwitch() || d.IsBoardGPU()):
			c.selected = append(c.selected, d.Address)
		case c.opts.NVSwitch == SwitchesToHost && d.IsNVSwitch() && !c.names(d):
			c.selected = slices.DeleteFunc(c.selected, func(a pci.Address) bool { return a == d.Address })
		}
	}
	if !found {
		c.fail("NVSwitches: %w", ErrNoDevice)
	}
}

// names tells whether a selector of the options names a function.
func (c *chooser) names(d *pci.Device) bool {
	return slices.ContainsFunc(slices.Concat(c.opts.Add, c.opts.Only), func(x pci.Selector) bool { return x.Matches(d) })
}

// remove takes functions out of the selection. Removed and added by the same name, a function
// is selected as what it is now.
func (c *chooser) remove() {
	for _, x := range c.opts.Remove {
		found := false
		c.selected = slices.DeleteFunc(c.selected, func(a pci.Address) bool {
			d := c.device(a)
			matches := x.String() == a.String() || d != nil && x.Matches(d)
			found = found || matches
			return matches && !slices.ContainsFunc(c.opts.Add, func(y pci.Selector) bool { return y.String() == x.String() })
		})
		if !found {
			c.fail("%s: %w", x, ErrNotSelected)
		}
	}
}

// changed returns an error for each recorded function that is another one now, unless nothing
// that it was recorded for remains selected.
func (c *chooser) changed() (errs []error) {
	if c.Recorded == nil {
		return nil
	}
	for _, f := range c.Recorded.Functions {
		if !c.isAt(f) && !c.returned(f) {
			errs = append(errs, refuse(f.Address, fmt.Errorf("%w (%s)", ErrChanged, f.described())))
		}
	}
	return errs
}

// returned tells whether a recorded function is no longer to go to guests: its card, or, for
// one that shares a group, all cards in that.
func (c *chooser) returned(f Function) bool {
	removed := func(a pci.Address) bool {
		return slices.ContainsFunc(c.opts.Remove, func(x pci.Selector) bool { return x.String() == a.String() })
	}
	for _, a := range recordedFor(c.Recorded, f) {
		if slices.Contains(c.selected, a) && !removed(a) {
			return false
		}
	}
	return true
}

// recordedFor returns the recorded selected functions that a function was recorded for: those
// of its card, or else those of its group, or else all.
func recordedFor(r *Contract, f Function) []pci.Address {
	card := func(a pci.Address) bool { return a.SameSlot(f.Address) }
	group := func(a pci.Address) bool { return slices.ContainsFunc(f.Members, a.SameSlot) }
	for _, belongs := range []func(pci.Address) bool{card, group} {
		if found := slices.DeleteFunc(slices.Clone(r.Selected), func(a pci.Address) bool { return !belongs(a) }); len(found) > 0 {
			return found
		}
	}
	return r.Selected
}

// Absent returns an error if the machine has none of the functions that the options name, or
// no GPU where they name none and nothing is recorded. It returns nil where ids that cannot be
// read may hide one.
func (n Node) Absent(opts Options) error {
	if n.Devices == nil || n.recordUnread || opts.None || n.Recorded != nil && !opts.named() && opts.Only == nil {
		return nil
	}
	for i := range n.Devices {
		if d := &n.Devices[i]; d.VendorID == nil || d.ProductID == nil || d.Class == nil {
			return nil
		}
	}
	c := chooser{Node: n, opts: opts}
	if opts.named() || opts.Only != nil {
		c.add(slices.Concat(opts.Only, opts.Add))
		c.addVendors()
	} else {
		c.addDefault()
	}
	if len(c.selected) > 0 {
		return nil
	}
	return errors.Join(c.errs...)
}

func unique(addresses []pci.Address) []pci.Address {
	slices.SortFunc(addresses, pci.Address.Compare)
	return slices.Compact(append([]pci.Address{}, addresses...))
}

// ofCards returns whether a function is of the card of a selected one: of its slot. A virtual
// function, whose address may be in the slot of its physical one, is assigned alone.
func (n Node) ofCards(selected []pci.Address) func(*pci.Device) bool {
	named, slots := map[pci.Address]bool{}, map[pci.Address]bool{}
	for _, a := range selected {
		named[a] = true
		if d := n.device(a); d == nil || !isVF(d) {
			slots[a.Card()] = true
		}
	}
	return func(d *pci.Device) bool {
		return named[d.Address] || slots[d.Address.Card()] && !isVF(d)
	}
}

func isVF(d *pci.Device) bool {
	return d.SRIOV.Role != nil && *d.SRIOV.Role == pci.RoleVF
}

// expand adds all functions of each card, and the endpoints of all IOMMU groups
// that those are in. While the IOMMU is off there are no groups.
func (n Node) expand(selected []pci.Address) []pci.Address {
	groups, ofCards := map[int]bool{}, n.ofCards(selected)
	all := slices.Clone(selected)
	for i := range n.Devices {
		d := &n.Devices[i]
		if !d.IsBridge() && ofCards(d) {
			all = append(all, d.Address)
			if d.IOMMUGroup != nil {
				groups[*d.IOMMUGroup] = true
			}
		}
	}
	for i := range n.Devices {
		if d := &n.Devices[i]; !d.IsBridge() && d.IOMMUGroup != nil && groups[*d.IOMMUGroup] {
			all = append(all, d.Address)
		}
	}
	return unique(all)
}
