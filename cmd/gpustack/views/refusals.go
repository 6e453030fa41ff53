package views

import (
	"errors"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/gate"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// Called is a command that selects functions, as the user called it. Hints repeat it.
type Called struct {
	Name  string   // "host prepare"
	Flags []string // the names of other flags than those of the selection
}

// remedy returns a hint that is a command, which can be copied as a whole.
func remedy(purpose string, command host.Command) host.Text {
	return host.Textf("to %s: %s", purpose, command)
}

// with returns the complete command for a selection.
func (c Called) with(o selection.Options) host.Command { return o.Command(c.Name, c.Flags...) }

// Explain adds complete commands as hints to an error of a selection.
func (c Called) Explain(err error) error {
	return c.explain(err, func(error) []host.Text { return nil })
}

// explain is [Called.Explain]. more returns the hints for errors that only this command has, or
// none.
func (c Called) explain(err error, more func(error) []host.Text) error {
	if err == nil {
		return nil
	}
	var given []host.Text
	var refused *selection.Refused
	if errors.As(err, &refused) {
		for _, w := range refused.Ways {
			if w.Live && !slices.Contains(c.Flags, "live") {
				given = append(given, remedy(w.Purpose+", and unbind now, which may hang", w.Options.Command(c.Name, append([]string{"live"}, c.Flags...)...)))
			} else {
				given = append(given, remedy(w.Purpose, c.with(w.Options)))
			}
		}
	}
	if given != nil {
		return term.Explain(err, given)
	}
	for _, leaf := range host.Split(err) {
		var refusal *gate.Refusal
		lines, hint := more(leaf), term.Hint(leaf)
		switch {
		case lines != nil:
		case errors.As(leaf, &refusal) && hint == nil:
			lines = []host.Text{remedy("list all functions", host.NewCommand("host scan").Flag("all"))}
		case errors.Is(leaf, selection.ErrNotSelected):
			shown := Called{Name: c.Name, Flags: []string{"dry-run"}}
			lines = []host.Text{remedy("show what is selected", shown.with(selection.Options{}))}
		case hint != nil:
			lines = []host.Text{hint}
		}
		for _, line := range lines {
			if !slices.ContainsFunc(given, line.Equal) {
				given = append(given, line)
			}
		}
	}
	return term.Explain(err, given)
}

// ExplainBind adds complete commands as hints to an error of host bind: each has all options that
// the error takes, and none is printed beside a refusal that no option lifts. flags are further
// flags that hints repeat.
func ExplainBind(err error, o selection.Options, mode bind.Mode, flags ...string) error {
	allowed, absolute, hangs, stop := o, false, false, false
	for _, leaf := range host.Split(err) {
		var refusal *gate.Refusal
		switch {
		case errors.Is(leaf, bind.ErrLive):
			hangs = true
		case errors.Is(leaf, bind.ErrStoppable):
			stop = true
		case !errors.As(leaf, &refusal): // its own hint says how to end it
		case refusal.Absolute:
			absolute = true
		case !slices.Contains(allowed.Allow, refusal.Address):
			allowed.Allow = append(slices.Clip(allowed.Allow), refusal.Address)
		}
	}
	now, later := boundNow(bind.Mode{Live: mode.Live || hangs || stop, StopServices: mode.StopServices || stop}, flags...), Called{Name: "host prepare"}
	return boundNow(mode, flags...).explain(err, func(leaf error) []host.Text {
		switch isLive := errors.Is(leaf, bind.ErrLive); {
		case isLive && absolute:
			return []host.Text{}
		case isLive && stop: // the command that stops services unbinds, too
			return []host.Text{remedy("bind at the next boot instead", later.with(allowed))}
		case isLive:
			return []host.Text{
				remedy("bind at the next boot instead", later.with(allowed)),
				remedy("unbind now, which may hang", now.with(allowed)),
			}
		case errors.Is(leaf, bind.ErrStoppable) && !absolute:
			return []host.Text{remedy("stop NVIDIA's services first", now.with(allowed))}
		case errors.Is(leaf, gate.ErrForContainers):
			return []host.Text{term.Hint(leaf), host.Plain("or name it with --device, to bind it until the next boot only")}
		case errors.Is(leaf, bind.ErrNoGroup) && !absolute:
			return []host.Text{remedy("turn the IOMMU on at the next boot, if the firmware's setup has it on", later.with(allowed))}
		}
		return nil
	})
}

// boundNow returns host bind as the user called it. flags are further flags.
func boundNow(mode bind.Mode, flags ...string) Called {
	c := Called{Name: "host bind"}
	if mode.Live {
		c.Flags = append(c.Flags, "live")
	}
	if mode.StopServices {
		c.Flags = append(c.Flags, "stop-services")
	}
	c.Flags = append(c.Flags, flags...)
	return c
}

// ExplainAllow adds to an error the command that is accepted with --allow, if that lifts every part
// of the error. given are the functions that --allow names already.
func ExplainAllow(err error, given []pci.Address, command host.Command, dryRun bool) error {
	var allow []pci.Address
	for _, leaf := range host.Split(err) {
		var refusal interface {
			Refusal() (host.Code, string)
		}
		if !errors.As(leaf, &refusal) {
			return err
		}
		_, lifts := refusal.Refusal()
		word, ok := strings.CutPrefix(lifts, "--allow ")
		a, parseErr := pci.ParseAddress(word)
		if !ok || parseErr != nil {
			return err
		}
		if !slices.Contains(allow, a) && !slices.Contains(given, a) {
			allow = append(allow, a)
		}
	}
	for _, a := range allow {
		command = command.Flag("allow", a.String())
	}
	if dryRun {
		command = command.Flag("dry-run")
	}
	return term.Explain(err, []host.Text{remedy("let these functions leave the host", command)})
}
