package main

import (
	"errors"
	"slices"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// remedy returns a hint that is a command, which can be copied as a whole.
func remedy(purpose string, command host.Command) host.Text {
	return host.Textf("to %s: %s", purpose, command)
}

// hostCommand is a command that selects functions, as the user called it.
type hostCommand struct {
	name  string   // "host prepare"
	flags []string // the names of other flags that hints repeat
}

// with returns the complete command for a selection.
func (c hostCommand) with(o selection.Options) host.Command {
	if o.None { // only host prepare can return everything that is recorded
		c = hostCommand{name: "host prepare", flags: slices.DeleteFunc(slices.Clone(c.flags), func(f string) bool { return f == "live" })}
	}
	command := host.NewCommand(c.name)
	add := func(flag string, value ...string) { command = command.Flag(flag, value...) }
	for _, x := range o.Only {
		add("only", x.String())
	}
	for _, x := range o.Add {
		add("device", x.String())
	}
	for _, v := range o.Vendors {
		add("vendor", v.String())
	}
	for _, x := range o.Remove {
		add("remove", x.String())
	}
	if o.None {
		add("none")
	}
	if o.NVSwitch != "" {
		add("nvswitch", string(o.NVSwitch))
	}
	for _, a := range o.Allow {
		add("allow", a.String())
	}
	if o.Driver != "" {
		add("driver", o.Driver)
	}
	if o.Unsafe {
		add("allow-unsafe-interrupts")
	}
	if o.TakeOver {
		add("take-over")
	}
	for _, f := range c.flags {
		add(f)
	}
	return command
}

// explain adds complete commands as hints to an error of a selection. more returns the hints for
// errors that only this command has, or none.
func (c hostCommand) explain(err error, more func(error) []host.Text) error {
	if err == nil {
		return nil
	}
	var given []host.Text
	var refused *selection.Refused
	if errors.As(err, &refused) {
		for _, w := range refused.Ways() {
			given = append(given, remedy(w.Purpose, c.with(w.Options)))
		}
	}
	if given != nil {
		return term.Explain(err, given)
	}
	for _, leaf := range host.Split(err) {
		var refusal *gate.Refusal
		lines := more(leaf)
		switch {
		case lines != nil:
		case errors.Is(leaf, selection.ErrNoDevice), errors.As(leaf, &refusal) && term.Hints(leaf) == nil:
			lines = []host.Text{remedy("list all functions", host.NewCommand("host scan").Flag("all"))}
		case errors.Is(leaf, selection.ErrNotSelected):
			shown := hostCommand{name: c.name, flags: []string{"dry-run"}}
			lines = []host.Text{remedy("show what is selected", shown.with(selection.Options{}))}
		default:
			lines = term.Hints(leaf)
		}
		for _, line := range lines {
			if !slices.Contains(given, line) {
				given = append(given, line)
			}
		}
	}
	return term.Explain(err, given)
}

// explainNeeded adds hints to the error of an undo that would bind functions which the host needs
// now: the command that binds them nevertheless.
func (c hostCommand) explainNeeded(err error) error {
	var o selection.Options
	for _, leaf := range host.Split(err) {
		var refusal *gate.Refusal
		if !errors.As(leaf, &refusal) || refusal.Absolute || slices.Contains(o.Allow, refusal.Address) {
			continue
		}
		if selector, err := pci.ParseSelector(refusal.Address.String()); err == nil {
			o.Add, o.Allow = append(o.Add, selector), append(o.Allow, refusal.Address)
		}
	}
	return c.explain(err, func(leaf error) []host.Text {
		var refusal *gate.Refusal
		if errors.As(leaf, &refusal) && !refusal.Absolute {
			return []host.Text{remedy("bind these functions although the host needs them", c.with(o))}
		}
		return nil
	})
}
