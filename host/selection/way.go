package selection

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Refused is the error for options that cannot be satisfied: all their errors, and at most two other
// options that can be.
type Refused struct {
	Errors []error
	Ways   []Way
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
	Live    bool // host bind takes --live for it
}

// returnAll is the purpose of the empty selection, which only host prepare accepts.
const returnAll = "return all functions to the host"

// Only returns the options with functions as the whole selection.
func (n Node) Only(opts Options, functions []pci.Address) Options {
	opts.Remove, opts.Vendors, opts.Add, opts.Only = nil, nil, nil, host.Map(functions, pci.SelectorOf)
	if n.Recorded == nil { // without a record, the named functions are the selection
		opts.Add, opts.Only = opts.Only, nil
	}
	with := host.Set(n.Devices.Expand(functions))
	opts.Allow = slices.DeleteFunc(slices.Clone(opts.Allow), func(a pci.Address) bool { return !with[a] })
	return opts
}

// Refuse returns the errors of options with the commands that are accepted instead: the selection
// without the refused GPUs, if any remain, and the one with each --allow that it takes. s is the
// refused selection, or the zero value if the options do not lead to one. uses are those that were
// asked about.
func (n Node) Refuse(opts Options, s gate.Selection, uses machine.Uses, errs []error) error {
	r := &Refused{Errors: errs}
	var bad, absolute, allow []pci.Address
	divided, stays := false, false
	for _, err := range errs {
		var refusal *gate.Refusal
		var separation *gate.Separation
		switch {
		case errors.As(err, &separation):
			divided = true
		case errors.Is(err, ErrChanged) && errors.As(err, &refusal):
			rest, _ := n.Unchanged()
			if r.Ways = []Way{{Purpose: "leave out what has changed", Options: n.Only(opts, rest)}}; len(rest) == 0 {
				r.Ways = []Way{{Purpose: returnAll, Options: Options{None: true}}}
			}
			return r
		case errors.Is(err, ErrNothing):
			r.Ways = []Way{{Purpose: returnAll, Options: Options{None: true}}}
			return r
		case !errors.As(err, &refusal) || s.All == nil:
			return r // another error, whose hint says what to do
		case errors.Is(err, gate.ErrStays):
			stays = true
			opts.Allow = slices.DeleteFunc(slices.Clone(opts.Allow), func(a pci.Address) bool { return a == refusal.Address })
		case refusal.Absolute:
			absolute = append(absolute, refusal.Address)
		default:
			allow = append(allow, refusal.Address)
		}
	}
	bad = slices.Concat(absolute, allow)
	modes := [2]machine.NVSwitch{opts.NVSwitch, opts.NVSwitch}
	if divided {
		modes = [2]machine.NVSwitch{machine.SwitchesToHost, machine.SwitchesToGuest}
	}
	way := func(without, allow []pci.Address, side machine.NVSwitch) {
		rest := n.without(s, without, side)
		if len(rest) == 0 {
			return
		}
		o := opts
		if len(without) > 0 || opts.Remove != nil {
			o = n.Only(opts, rest)
		}
		if side == machine.SwitchesToGuest && !slices.ContainsFunc(rest, n.isOfBoard) {
			side = "" // it would select the board again
		}
		goes := host.Set(n.Devices.Expand(rest))
		permitted := allow != nil || side == machine.SwitchesToGuest
		allow = slices.DeleteFunc(pci.Unique(allow), func(a pci.Address) bool { return !goes[a] })
		o.NVSwitch, o.Allow = side, slices.Concat(o.Allow, allow)
		if more, ok := n.accepts(o, uses, permitted); ok {
			allow, o.Allow = append(allow, more...), append(o.Allow, more...)
			r.Ways = append(r.Ways, Way{Purpose: n.purpose(opts, s, rest, allow, side), Options: o})
		}
	}
	if len(bad) > 0 || divided || stays {
		way(bad, nil, modes[0])
	}
	if len(allow) > 0 || divided && len(bad) == 0 {
		way(absolute, allow, modes[1])
	}
	return r
}

// accepts reports whether the gate accepts what options select, with more functions that --allow has
// to name if more are permitted: a board that is assigned as a whole may add some.
func (n Node) accepts(o Options, uses machine.Uses, permitted bool) (more []pci.Address, ok bool) {
	s, err := n.Choose(o)
	if err != nil || n.Separation(s) != nil {
		return nil, false
	}
	for _, r := range n.Decide(s, uses, nil).Refused {
		if r.Absolute || !permitted {
			return nil, false
		}
		more = append(more, r.Address)
	}
	return more, true
}

// without returns the selected functions whose cards and groups contain none of the bad ones. A
// board, unless its switches remain with the host, is not divided.
func (n Node) without(s gate.Selection, bad []pci.Address, side machine.NVSwitch) []pci.Address {
	with := n.Devices.With(bad)
	stays := func(f pci.Address) bool { return len(with(f)) > 0 }
	board := side != machine.SwitchesToHost && slices.ContainsFunc(n.Devices, func(d pci.Device) bool { return d.IsNVSwitch() }) &&
		slices.ContainsFunc(s.Selected, func(f pci.Address) bool { return n.isOfBoard(f) && stays(f) })
	return slices.DeleteFunc(slices.Clone(s.Selected), func(f pci.Address) bool { return stays(f) || board && n.isOfBoard(f) })
}

// isOfBoard reports whether a function is a GPU or a switch of a board with NVSwitches.
func (n Node) isOfBoard(a pci.Address) bool {
	d := n.Devices.At(a)
	return d != nil && (d.IsBoardGPU() || d.IsNVSwitch())
}

// purpose returns a text that says how a selection differs from the refused one.
func (n Node) purpose(opts Options, s gate.Selection, rest, allow []pci.Address, side machine.NVSwitch) string {
	var parts []string
	remain := host.Set(rest)
	kept := slices.DeleteFunc(slices.Clone(s.Selected), func(f pci.Address) bool { return remain[f] })
	if len(kept) > 0 {
		parts = append(parts, "leave "+gate.Shortened(kept)+" with the host")
	}
	if labels := host.Map(allow, func(a pci.Address) string { return "the " + n.Label(n.Devices.At(a)) }); labels != nil {
		parts = append(parts, "let "+strings.Join(labels, ", ")+" leave the host")
	}
	if side != opts.NVSwitch && side != "" {
		parts = append(parts, map[machine.NVSwitch]string{
			machine.SwitchesToHost:  "keep the NVSwitches with the host",
			machine.SwitchesToGuest: "assign all GPUs and NVSwitches to one guest",
		}[side])
	}
	return cmp.Or(strings.Join(parts, ", "), "leave out --allow of functions that stay")
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

// removable replaces selectors of functions that are only assigned along with a selected device
// with the selector of that device.
func (n Node) removable(selectors []pci.Selector) (replaced []pci.Selector) {
	if n.Recorded == nil {
		return nil
	}
	selected := n.Recorded.Selected
	done := map[pci.Address]bool{}
	for _, x := range selectors {
		with := n.Devices.With(n.Devices.Where(x.Matches))
		for _, s := range selected {
			if done[s] || len(with(s)) == 0 {
				continue
			}
			done[s] = true
			replaced = append(replaced, pci.SelectorOf(s))
		}
	}
	return replaced
}

// Without returns the options of host prepare that return recorded functions to the host, with the
// selected functions because of which they are recorded, and whether host prepare accepts them.
func (n Node) Without(functions ...pci.Address) (Options, bool) {
	o := Options{Remove: n.removable(host.Map(functions, pci.SelectorOf))}
	if len(o.Remove) == 0 {
		return Options{}, false
	}
	s, err := n.Choose(o)
	if errors.Is(err, ErrNothing) {
		return Options{None: true}, true
	}
	remain := host.Set(s.All)
	if err != nil || slices.ContainsFunc(functions, func(a pci.Address) bool { return remain[a] }) {
		return Options{}, false
	}
	return o, len(n.Decide(s, machine.Uses{}, nil).Refused) == 0 && n.Separation(s) == nil
}
