package selection

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Refused is the error for options that cannot be satisfied: all their errors, and other options
// that can be.
type Refused struct {
	Errors []error
	ways   func() []Way
}

// Ways returns other options, which are accepted. It plans many selections to find them, and reads
// names of disks and network interfaces: for callers that print them.
func (r *Refused) Ways() []Way {
	return r.ways()
}

func (r *Refused) Error() string {
	return errors.Join(r.Errors...).Error()
}

// Unwrap returns the errors.
func (r *Refused) Unwrap() []error {
	return r.Errors
}

// Way is a set of options that is accepted instead of refused ones.
type Way struct {
	Purpose string // "leave 0000:84:00.0 with the host"
	Options Options
}

// returnAll is the purpose of the empty selection, which only host prepare accepts.
const returnAll = "return all functions to the host"

// Search finds accepted options by trying them without side effects.
type Search struct {
	Node    Node
	Names   Names
	Options Options                               // the refused options
	Choose  func(Options) (gate.Selection, error) // returns the selection of options
	Try     func(Options) []error                 // returns the errors of options
	Exact   func([]pci.Address) Options           // returns options that select exactly these functions
}

// Only returns the options with functions as the whole selection.
func (n Node) Only(opts Options, functions []pci.Address) Options {
	opts.Remove, opts.Vendors, opts.Add, opts.Only = nil, nil, nil, nil
	for _, a := range functions {
		if selector, err := pci.ParseSelector(a.String()); err == nil {
			opts.Only = append(opts.Only, selector)
		}
	}
	if n.Recorded == nil { // without a record, the named functions are the selection
		opts.Add, opts.Only = opts.Only, nil
	}
	with := pci.Set(n.Devices.Expand(functions))
	opts.Allow = slices.DeleteFunc(slices.Clone(opts.Allow), func(a pci.Address) bool {
		d := n.Devices.At(a)
		return !with[a] && d != nil && !d.IsNVSwitch() && !d.IsBoardGPU()
	})
	return opts
}

// Refused returns the errors of the options together with accepted alternatives. s is the refused
// selection, or the zero value if the options do not lead to one.
func (a Search) Refused(s gate.Selection, errs []error) error {
	return &Refused{Errors: errs, ways: func() []Way {
		if s.All == nil {
			return a.mended(errs)
		}
		return a.ways(s, errs)
	}}
}

// mended returns alternatives for options that do not lead to a selection.
func (a Search) mended(errs []error) (ways []Way) {
	o := a.Options
	o.Add, o.Only, o.Remove = slices.Clone(o.Add), slices.Clone(o.Only), slices.Clone(o.Remove)
	purpose := ""
	for _, err := range errs {
		var r *gate.Refusal
		isRefusal := errors.As(err, &r)
		switch {
		case errors.Is(err, ErrChanged) && isRefusal:
			purpose = "leave out what has changed"
			rest, _ := a.Node.Unchanged()
			if found := a.Node.renumbered(rest); found != nil && ways == nil {
				ways = append(ways, Way{"select identical devices at other addresses", a.Exact(found)})
			}
			if len(rest) == 0 {
				purpose, o = returnAll, Options{None: true}
			} else {
				o = a.Exact(rest)
			}
		case errors.Is(err, errBridge) && isRefusal:
			purpose = "select the GPUs behind the bridge"
			o.Add = a.Node.behind(o.Add, r.Address)
			o.Only = a.Node.behind(o.Only, r.Address)
		case errors.Is(err, ErrNotSelected):
			purpose = "remove the whole device"
			o.Remove = a.Node.removable(o.Remove)
			if len(o.Remove) == 0 {
				return nil
			}
		case errors.Is(err, ErrNothing):
			return []Way{{returnAll, Options{None: true}}}
		default:
			return nil
		}
	}
	if o.None || a.leadsSomewhere(o) {
		ways = append(ways, Way{purpose, o})
	}
	return ways
}

// leadsSomewhere reports whether options lead to a selection, which may still be refused for other
// reasons.
func (a Search) leadsSomewhere(o Options) bool {
	return !slices.ContainsFunc(a.Try(o), func(err error) bool {
		return slices.ContainsFunc([]error{ErrNoDevice, errBridge, ErrNotSelected, ErrNothing, ErrChanged}, func(no error) bool { return errors.Is(err, no) })
	})
}

// Unchanged returns the recorded selection without functions that have changed, and an error for
// each of these.
func (n Node) Unchanged() (rest []pci.Address, changed []error) {
	rest = slices.Clone(n.Recorded.Selected)
	c := chooser{Node: n, Selection: gate.Selection{Selected: slices.Clone(rest)}}
	changed = c.changed()
	recordedFor := recordedFor(n.Recorded)
	gone := map[pci.Address]bool{}
	for _, err := range changed {
		var r *gate.Refusal
		if !errors.As(err, &r) {
			continue
		}
		for _, a := range recordedFor(*n.Recorded.At(r.Address)) {
			gone[a] = true
		}
	}
	return slices.DeleteFunc(rest, func(a pci.Address) bool { return gone[a] }), changed
}

// renumbered returns rest, the recorded selection without changed functions, plus identical
// devices at other addresses. It returns nil unless there are exactly as many of these as changed
// functions: otherwise it is unknown which of them were recorded.
func (n Node) renumbered(rest []pci.Address) []pci.Address {
	found := slices.Clone(rest)
	selected, remains := pci.Set(n.Recorded.Selected), pci.Set(rest)
	changed := map[string]int{} // number by product and board
	for _, f := range n.Recorded.Functions {
		if selected[f.Address] && !remains[f.Address] {
			changed[board(&f.VendorID, &f.ProductID, f.SubsystemVendorID, f.SubsystemID)]++
		}
	}
	for i := range n.Devices {
		d := &n.Devices[i]
		key := board(d.VendorID, d.ProductID, d.SubsystemVendorID, d.SubsystemID)
		if _, ok := changed[key]; ok && !remains[d.Address] {
			changed[key]--
			found = append(found, d.Address)
		}
	}
	for _, missing := range changed {
		if missing != 0 {
			return nil
		}
	}
	return found
}

// board returns a key that is the same for identical devices.
func board(ids ...*pci.ID) (key string) {
	for _, id := range ids {
		if id != nil {
			key += id.String()
		}
		key += ":"
	}
	return key
}

// behind replaces selectors of a bridge with selectors of the GPUs behind it.
func (n Node) behind(selectors []pci.Selector, bridge pci.Address) (replaced []pci.Selector) {
	for _, x := range selectors {
		if !x.Matches(n.Devices.At(bridge)) {
			replaced = append(replaced, x)
			continue
		}
		for i := range n.Devices {
			d := &n.Devices[i]
			if !d.IsGPU() || d.IsVF() || !slices.Contains(n.Devices.Path(d), bridge) {
				continue
			}
			if gpu, err := pci.ParseSelector(d.Address.String()); err == nil {
				replaced = append(replaced, gpu)
			}
		}
	}
	return replaced
}

// removable replaces selectors of functions that are only assigned along with a selected device
// with the selector of that device.
func (n Node) removable(selectors []pci.Selector) (replaced []pci.Selector) {
	if n.Recorded == nil {
		return nil
	}
	selected := n.Recorded.Selected
	done := map[pci.Address]bool{}
	for _, x := range selectors {
		var matching []pci.Address
		for i := range n.Devices {
			if d := &n.Devices[i]; x.Matches(d) {
				matching = append(matching, d.Address)
			}
		}
		with := n.Devices.With(matching)
		for _, s := range selected {
			if done[s] || len(with(s)) == 0 {
				continue
			}
			done[s] = true
			if device, err := pci.ParseSelector(s.String()); err == nil {
				replaced = append(replaced, device)
			}
		}
	}
	return replaced
}

// ways returns accepted alternatives for refused options: first those that leave the refused
// functions with the host, then those that lift the refusals.
func (a Search) ways(s gate.Selection, errs []error) []Way {
	var bad, absolute []pci.Address
	modes := []machine.NVSwitch{a.Options.NVSwitch}
	var ways []Way
	propose := func(o Options, ok bool) {
		if ok && !slices.ContainsFunc(ways, func(w Way) bool { return reflect.DeepEqual(w.Options, o) }) {
			ways = append(ways, Way{a.purpose(s, o), o})
		}
	}
	for _, err := range errs {
		var r *gate.Refusal
		var separation *gate.Separation
		switch {
		case errors.Is(err, gate.ErrSwitches):
			o := a.Options
			o.NVSwitch = machine.SwitchesToGuest
			propose(a.lift(o))
		case errors.Is(err, ErrNoDriver), errors.Is(err, ErrStubTwins):
			for _, driver := range []string{machine.VFIO, machine.Stub} {
				o := a.Options
				o.Driver = driver
				propose(o, len(a.Try(o)) == 0)
			}
		}
		switch {
		case errors.As(err, &separation):
			modes = []machine.NVSwitch{machine.SwitchesToHost, machine.SwitchesToGuest}
			if a.Options.Remove != nil {
				propose(a.removeBoard(s))
			}
		case errors.As(err, &r):
			bad = append(bad, r.Address)
			if r.Absolute {
				absolute = append(absolute, r.Address)
			}
		}
	}
	for _, mode := range modes {
		if rest := a.without(s, bad); len(bad) > 0 && len(rest) > 0 {
			o := a.Exact(rest)
			o.NVSwitch = mode
			propose(o, len(a.Try(o)) == 0)
		}
		o := a.Options
		if len(absolute) > 0 {
			rest := a.without(s, absolute)
			if len(rest) == 0 {
				continue
			}
			o = a.Exact(rest)
		}
		o.NVSwitch = mode
		propose(a.lift(o))
	}
	return ways
}

// removeBoard returns an alternative for options that remove only the GPUs or only the NVSwitches
// of a board: with --nvswitch host the GPUs remain selected without the NVSwitches, and without
// GPUs the whole board is removed.
func (a Search) removeBoard(s gate.Selection) (o Options, ok bool) {
	var rest []pci.Address
	gpus := false
	for _, f := range s.Selected {
		d := a.Node.Devices.At(f)
		gpus = gpus || d.IsBoardGPU()
		if !d.IsNVSwitch() {
			rest = append(rest, f)
		}
	}
	if len(rest) == 0 {
		return Options{None: true}, true
	}
	o = a.Exact(rest)
	if gpus {
		o.NVSwitch = machine.SwitchesToHost
	}
	return o, len(a.Try(o)) == 0
}

// without returns the selected functions whose cards and groups contain none of the bad ones.
func (a Search) without(s gate.Selection, bad []pci.Address) []pci.Address {
	with := a.Node.Devices.With(bad)
	return slices.DeleteFunc(slices.Clone(s.Selected), func(f pci.Address) bool { return len(with(f)) > 0 })
}

// lift adds the functions to Allow whose refusals can be lifted, until the options are accepted.
// It returns false if a refusal cannot be lifted.
func (a Search) lift(o Options) (Options, bool) {
	o.Allow = slices.Clone(o.Allow)
	allowed := pci.Set(o.Allow)
	for range len(a.Node.Devices) + 1 {
		errs := a.Try(o)
		if len(errs) == 0 {
			return o, true
		}
		for _, err := range errs {
			var r *gate.Refusal
			if !errors.As(err, &r) || r.Absolute {
				return o, false
			}
			if !allowed[r.Address] {
				allowed[r.Address] = true
				o.Allow = append(o.Allow, r.Address)
			}
		}
	}
	return o, false
}

// purpose returns a text that says how options differ from the requested ones.
func (a Search) purpose(s gate.Selection, o Options) string {
	if o.None {
		return returnAll
	}
	var parts []string
	if chosen, err := a.Choose(o); err == nil {
		taken := pci.Set(chosen.All)
		kept := slices.DeleteFunc(slices.Clone(s.Selected), func(f pci.Address) bool { return taken[f] })
		if len(kept) > 0 {
			parts = append(parts, "leave "+gate.Shortened(kept)+" with the host")
		}
	}
	var labels, needed []string
	allowed, ofHost := pci.Set(a.Options.Allow), a.Node.Needed()
	for _, f := range o.Allow {
		label := "the " + a.Node.label(a.Names, f)
		switch {
		case allowed[f]:
		case ofHost[f]:
			needed = append(needed, label)
		default:
			labels = append(labels, label)
		}
	}
	if labels != nil {
		parts = append(parts, "let "+strings.Join(labels, ", ")+" leave the host")
	}
	switch {
	case len(needed) == 1:
		parts = append(parts, "let "+needed[0]+" leave the host, which needs it")
	case needed != nil:
		parts = append(parts, "let "+strings.Join(needed, ", ")+" leave the host, which needs them")
	}
	if o.NVSwitch != a.Options.NVSwitch {
		parts = append(parts, map[machine.NVSwitch]string{
			machine.SwitchesToHost:  "keep the NVSwitches with the host",
			machine.SwitchesToGuest: "assign all GPUs and NVSwitches to one guest",
		}[o.NVSwitch])
	}
	if o.Driver != a.Options.Driver {
		parts = append(parts, "use "+o.Driver)
	}
	return strings.Join(parts, ", ")
}

// Without returns the options of host prepare that return recorded functions to the host, with the
// selected functions because of which they are recorded, and whether host prepare accepts them.
func (n Node) Without(functions ...pci.Address) (Options, bool) {
	var named []pci.Selector
	for _, a := range functions {
		if x, err := pci.ParseSelector(a.String()); err == nil {
			named = append(named, x)
		}
	}
	o := Options{Remove: n.removable(named)}
	if len(o.Remove) == 0 {
		return Options{}, false
	}
	s, err := n.Choose(o)
	if errors.Is(err, ErrNothing) {
		return Options{None: true}, true
	}
	remain := pci.Set(s.All)
	if err != nil || slices.ContainsFunc(functions, func(a pci.Address) bool { return remain[a] }) {
		return Options{}, false
	}
	refusals, _ := n.Refusals(s)
	return o, len(refusals)+len(n.Shared(s, nil)) == 0
}
