package main

import (
	"errors"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// remedy returns a hint that is a command, which can be copied as a whole.
func remedy(purpose, command string) string {
	return "to " + purpose + ": " + command
}

// hostCommand is a command that selects functions, as the user called it.
type hostCommand struct {
	name  string // "host prepare"
	root  string
	flags []string // other flags that hints repeat
}

// with returns the complete command line for a selection.
func (c hostCommand) with(o selection.Options) string {
	if o.None { // only host prepare can return everything that is recorded
		c = hostCommand{name: "host prepare", root: c.root, flags: slices.DeleteFunc(slices.Clone(c.flags), func(f string) bool { return f == "--live" })}
	}
	words := []string{"gpustack", c.name}
	add := func(flag, value string) { words = append(words, "--"+flag, host.ShellWord(value)) }
	if c.root != "/" {
		add("root", c.root)
	}
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
		words = append(words, "--none")
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
		words = append(words, "--allow-unsafe-interrupts")
	}
	if o.TakeOver {
		words = append(words, "--take-over")
	}
	return strings.Join(append(words, c.flags...), " ")
}

// scan returns the command that lists every function of the same machine.
func (c hostCommand) scan() string {
	command := "gpustack host scan"
	if c.root != "/" {
		command += " --root " + host.ShellWord(c.root)
	}
	return command + " --all"
}

// explain adds complete commands as hints to an error of a selection. more returns the hints for
// errors that only this command has, or none.
func (c hostCommand) explain(err error, more func(error) []string) error {
	if err == nil {
		return nil
	}
	var given []string
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
			lines = []string{remedy("list all functions", c.scan())}
		case errors.Is(leaf, selection.ErrNotSelected):
			shown := hostCommand{name: c.name, root: c.root, flags: []string{"--dry-run"}}
			lines = []string{remedy("show what is selected", shown.with(selection.Options{}))}
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
	return c.explain(err, func(leaf error) []string {
		var refusal *gate.Refusal
		if errors.As(leaf, &refusal) && !refusal.Absolute {
			return []string{remedy("bind these functions although the host needs them", c.with(o))}
		}
		return nil
	})
}
