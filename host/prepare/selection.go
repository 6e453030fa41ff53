package prepare

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/pci"
)

// Options are what the operator asks for, beside what is recorded.
type Options struct {
	Add     []pci.Selector
	Vendors []pci.ID // display functions of these
	Remove  []pci.Selector
	Allow   []pci.Address // refusals to be lifted
	Driver  string        // "" for the recorded one, or vfio-pci
	Unsafe  bool          // allow_unsafe_interrupts
}

// Errors of a selection.
var (
	ErrNoDevice    = errors.New("no such function")
	ErrBridge      = errors.New("is a bridge, and cannot be given to a guest")
	ErrNotSelected = errors.New("is not selected")
	ErrNothing     = errors.New("nothing is selected")
	ErrChanged     = errors.New("is not the function that was recorded")
)

// Refusal is a function that cannot go to a guest, and why. It can be allowed,
// unless it is absolute.
type Refusal struct {
	Address  pci.Address
	Reason   string
	Absolute bool
	Together string // the product to select too: the function belongs to what is selected
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: %s", r.Address, r.Reason)
}

// selection is what was asked for, and all that goes with it.
type selection struct {
	selected, allowed, all []pci.Address
}

// sel works out the selection. All faults of it are in the error.
func (n Node) sel(opts Options) (selection, error) {
	s, err := n.choose(opts)
	if err != nil {
		return selection{}, err
	}
	return s, errors.Join(n.refusals(s)...)
}

// choose works out the selection, whoever needs a part of it.
func (n Node) choose(opts Options) (selection, error) {
	var s selection
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r := n.Recorded; r != nil {
		s.selected, s.allowed = slices.Clone(r.Selected), slices.Clone(r.Allowed)
		// What goes, with its whole card, need not be what it was.
		removed := func(a pci.Address) bool {
			return slices.ContainsFunc(r.Selected, func(s pci.Address) bool {
				return s.SameSlot(a) && slices.ContainsFunc(opts.Remove, func(x pci.Selector) bool { return x.String() == s.String() })
			})
		}
		for _, f := range r.Functions {
			if !removed(f.Address) && !n.isAt(f) {
				fail("%s: %w (%s)", f.Address, ErrChanged, f.described())
			}
		}
	}
	for _, x := range opts.Add {
		found := false
		for i := range n.Devices {
			if d := &n.Devices[i]; x.Matches(d) {
				found = true
				if d.IsBridge() {
					fail("%s: %w", d.Address, ErrBridge)
				}
				s.selected = append(s.selected, d.Address)
			}
		}
		if !found {
			fail("%s: %w", x, ErrNoDevice)
		}
	}
	for _, v := range opts.Vendors {
		found := false
		for i := range n.Devices {
			if d := &n.Devices[i]; d.IsVendor(v) && d.IsGPU() {
				found = true
				s.selected = append(s.selected, d.Address)
			}
		}
		if !found {
			fail("display functions of vendor %s: %w", v, ErrNoDevice)
		}
	}
	if n.Recorded == nil && len(opts.Add)+len(opts.Vendors) == 0 {
		for i := range n.Devices {
			if d := &n.Devices[i]; d.Candidate {
				s.selected = append(s.selected, d.Address)
			}
		}
		if len(s.selected) == 0 {
			fail("NVIDIA display functions: %w", ErrNoDevice)
		}
	}
	for _, x := range opts.Remove {
		before := len(s.selected)
		s.selected = slices.DeleteFunc(s.selected, func(a pci.Address) bool {
			d := n.device(a)
			return x.String() == a.String() || d != nil && x.Matches(d)
		})
		if len(s.selected) == before {
			fail("%s: %w", x, ErrNotSelected)
		}
	}
	for _, a := range opts.Allow {
		if n.device(a) == nil {
			fail("%s: %w", a, ErrNoDevice)
		}
		s.allowed = append(s.allowed, a)
	}
	if errs == nil && len(s.selected) == 0 {
		fail("%w", ErrNothing)
	}
	if errs != nil {
		return selection{}, errors.Join(errs...)
	}
	s.selected, s.allowed = unique(s.selected), unique(s.allowed)
	s.all = n.expand(s.selected)
	return s, nil
}

func unique(addresses []pci.Address) []pci.Address {
	slices.SortFunc(addresses, pci.Address.Compare)
	return slices.Compact(append([]pci.Address{}, addresses...))
}

// sameCard tells of which functions a function is of one card: those of its slot. A
// virtual function, whose address may fall into the slot of its physical one, is given
// away alone.
func (n Node) sameCard(d *pci.Device) func(pci.Address) bool {
	return func(a pci.Address) bool {
		if a == d.Address {
			return true
		}
		o := n.device(a)
		return a.SameSlot(d.Address) && !isVF(d) && (o == nil || !isVF(o))
	}
}

func isVF(d *pci.Device) bool {
	return d.SRIOV.Role != nil && *d.SRIOV.Role == pci.RoleVF
}

// expand adds all functions of each card, and the endpoints of all IOMMU groups
// that those are in. While the IOMMU is off there are no groups.
func (n Node) expand(selected []pci.Address) []pci.Address {
	groups := map[int]bool{}
	all := slices.Clone(selected)
	for i := range n.Devices {
		d := &n.Devices[i]
		if !d.IsBridge() && slices.ContainsFunc(selected, n.sameCard(d)) {
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

// refusals are the functions that must not go to a guest.
func (n Node) refusals(s selection) []error {
	var errs []error
	refuse := func(a pci.Address, absolute bool, reason string) {
		if absolute || !slices.Contains(s.allowed, a) {
			errs = append(errs, &Refusal{Address: a, Reason: reason, Absolute: absolute})
		}
	}
	separated := func(d *pci.Device, reason string) {
		if !slices.Contains(s.allowed, d.Address) {
			r := &Refusal{Address: d.Address, Reason: reason}
			if d.ProductID != nil {
				r.Together = d.VendorID.String() + ":" + d.ProductID.String()
			}
			errs = append(errs, r)
		}
	}
	for _, need := range n.Needs {
		if slices.Contains(s.all, need.Address) {
			refuse(need.Address, need.Absolute, "the host needs it: "+need.Reason)
		}
	}
	for _, a := range s.all {
		d := n.device(a)
		needed := slices.ContainsFunc(n.Needs, func(need guard.Need) bool { return need.Address == a })
		if !needed && !slices.ContainsFunc(s.selected, n.sameCard(d)) {
			refuse(a, false, fmt.Sprintf("is no part of a selected card, but in IOMMU group %d with one", *d.IOMMUGroup))
		}
	}
	// GPUs and the switches between them work together or not at all.
	gpus, switches := false, false
	for _, a := range s.all {
		d := n.device(a)
		gpus = gpus || d.IsVendor(pci.NVIDIA) && d.IsGPU()
		switches = switches || d.IsNVSwitch()
	}
	for i := range n.Devices {
		d := &n.Devices[i]
		if slices.Contains(s.all, d.Address) {
			continue
		}
		if gpus && d.IsNVSwitch() {
			separated(d, "is an NVSwitch, and would be separated from GPUs that go to guests")
		}
		if switches && d.Candidate {
			separated(d, "is a GPU, and would be separated from NVSwitches that go to guests")
		}
	}
	return errs
}

// inUse are the functions that somebody has open now, of those that are not recorded yet:
// whoever it is would miss them after the next boot. What cannot be seen of that is
// warned of, since a boot ends every use.
func (n Node) inUse(root host.Root, s selection) (refusals []error, warnings []string) {
	asked := func(a pci.Address) bool {
		recorded := n.Recorded != nil && slices.ContainsFunc(n.Recorded.Functions, func(f Function) bool { return f.Address == a })
		return !recorded && !slices.Contains(s.allowed, a)
	}
	if !slices.ContainsFunc(s.all, asked) {
		return nil, nil
	}
	uses, err := ObserveUses(root, n.Devices, false)
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("who has devices open cannot be told: %v", err))
	}
	for _, a := range s.all {
		if !asked(a) {
			continue
		}
		var by *InUse
		if guest := uses.guest(a); guest != nil {
			by = guest
		} else if i := slices.IndexFunc(uses.Holders, func(h guard.Holder) bool { return h.Address == a }); i >= 0 {
			h := uses.Holders[i]
			by = &InUse{Address: h.Address, PID: h.PID, Command: h.Command, File: h.File, Unit: h.Unit}
		}
		if by != nil {
			refusals = append(refusals, &Refusal{Address: a, Reason: "is in use: " + by.who()})
		}
	}
	return refusals, warnings
}
