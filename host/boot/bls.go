package boot

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
)

const blsDir = "/boot/loader/entries"

// BLS is GRUB with a menu of Boot Loader Specification entries, as RHEL 8 and later and
// Fedora have it. Arguments stand in each entry, or, on RHEL 8, in the variable
// kernelopts that all entries name.
//
// The entries are changed line by line, where grubby would do it: so the change can be
// shown and taken back as any other, and root= cannot move. grub2-mkconfig is not run:
// with --update-bls-cmdline it would overwrite what was set in entries alone.
type BLS struct {
	entries []typeOne
	env     environment
	cmdline *edit.File // nil: kernels installed later get the running kernel's arguments
	grub    *Grub      // what a menu that is made anew gets; nil without its file
}

// kernelOpts is the variable in which RHEL 8 keeps the arguments of all entries
// (grub2, 10_linux of RHEL 8).
const kernelOpts = "kernelopts"

// setKernelOpts is what the menu falls back on where the environment has none.
var setKernelOpts = regexp.MustCompile(`(?m)^[ \t]*set kernelopts="([^"]*)"`)

// ReadBLS reads the entries below root, and what GRUB fills in.
func ReadBLS(root host.Root) (BLS, error) {
	var b BLS
	var err error
	if b.entries, err = readEntries(root, blsDir); err != nil {
		return BLS{}, err
	}
	if newest(b.entries) == nil {
		return BLS{}, fmt.Errorf("%s: %w", blsDir, ErrNoEntries)
	}
	if b.env, err = readEnvironment(root); err != nil {
		return BLS{}, err
	}
	if _, ok := b.env.get(kernelOpts); !ok && b.uses(kernelOpts) {
		value, err := menuKernelOpts(root)
		if err != nil {
			return BLS{}, err
		}
		b.env = b.env.set(kernelOpts, value)
	}
	if b.cmdline, err = edit.Read(root, kernelCmdline); err != nil {
		return BLS{}, err
	}
	ok, err := root.Exists(grubDefault)
	if err != nil {
		return BLS{}, fmt.Errorf("%s: %w", grubDefault, host.Cause(err))
	}
	if ok {
		g, err := readGrub(root, grubAlways)
		if err != nil {
			return BLS{}, err
		}
		b.grub = &g
	}
	return b, nil
}

// menuKernelOpts returns what the menu sets the variable to by itself.
func menuKernelOpts(root host.Root) (string, error) {
	for _, menu := range []string{menuGrub2, menuGrub2EFI} {
		data, err := root.ReadFile(menu)
		if err != nil && !host.IsAbsent(err) {
			return "", fmt.Errorf("%s: %w", menu, host.Cause(err))
		}
		if m := setKernelOpts.FindSubmatch(data); m != nil {
			return string(m[1]), nil
		}
	}
	return "", fmt.Errorf("%s: %w: entries name %s, which is set nowhere", grubEnv, ErrNotInEffect, kernelOpts)
}

// names tells whether an entry's options name a variable.
func (e typeOne) names(variable string) bool {
	for _, m := range envReference.FindAllStringSubmatch(e.all("options"), -1) {
		if m[1]+m[2] == variable {
			return true
		}
	}
	return false
}

func (b BLS) uses(variable string) bool {
	for _, e := range b.entries {
		if !e.isRescue() && e.names(variable) {
			return true
		}
	}
	return false
}

// args returns what a kernel gets that is started by an entry.
func (b BLS) args(e typeOne, env environment) Args {
	return ParseArgs(env.expand(e.all("options")))
}

// selected is the entry that starts unless somebody chooses: the one that GRUB keeps
// the name of, else the newest.
func (b BLS) selected() typeOne {
	saved, _ := b.env.get("saved_entry")
	for _, e := range b.entries {
		if strings.TrimSuffix(path.Base(e.name), ".conf") == saved {
			return e
		}
	}
	return *newest(b.entries)
}

// Args returns the arguments of the entry that starts unless somebody chooses. Ours are
// among them.
func (b BLS) Args() Args {
	return b.args(b.selected(), b.env)
}

// Entries returns the entries, variables filled in.
func (b BLS) Entries(host.Root) ([]Entry, error) {
	var entries []Entry
	for _, e := range b.entries {
		entries = append(entries, e.entry(b.args(e, b.env)))
	}
	return entries, nil
}

// Default returns the release of the kernel that starts unless the operator chooses another, ""
// where its entry does not tell it.
func (b BLS) Default(host.Root) (string, error) {
	return b.selected().entry(nil).release(), nil
}

// Later returns what kernel-install gives an entry (20-grub.install of grub2): what
// /etc/kernel/cmdline has, or kernelopts where the other entries name that.
func (b BLS) Later(host.Root) (*Entry, error) {
	switch value, _ := b.env.get(kernelOpts); {
	case b.uses(kernelOpts):
		return &Entry{File: grubEnv, Kernel: installedLater, Later: true, Args: ParseArgs(value)}, nil
	case b.cmdline != nil:
		return laterByCmdline(b.cmdline), nil
	}
	return nil, nil
}

// Programs returns none: the entries are the menu.
func (b BLS) Programs(_, _ bool) []host.Program {
	return nil
}

// Plan plans the change of every entry but the rescue entry, and of what entries made
// later begin with. It is an error if a variable that others write, as tuned does with
// tuned_params, would still say otherwise.
func (b BLS) Plan(root host.Root, want Want) (edit.Plan, error) {
	var plan edit.Plan
	put := func(c edit.Change, err error) error {
		plan = append(plan, c)
		return err
	}
	env := b.env
	if b.uses(kernelOpts) {
		value, _ := env.get(kernelOpts)
		if change := want.Change(ParseArgs(value)); !change.IsZero() {
			env = env.set(kernelOpts, change.edit(value))
			if err := put(env.plan(root)); err != nil {
				return nil, err
			}
		}
	}
	for _, e := range b.entries {
		if e.isRescue() {
			continue
		}
		text := string(e.file.Content)
		if change := want.Change(b.args(e, env)); !change.IsZero() {
			text = e.edit(change)
		}
		if err := put(e.plan(root, text)); err != nil {
			return nil, err
		}
		edited := typeOne{e.file, e.name, strings.SplitAfter(text, "\n")}
		after := b.args(edited, env)
		if change := want.Change(after); !change.IsZero() {
			return nil, fmt.Errorf("%s: %w: variables in %s say %s", e.name, ErrNotInEffect, grubEnv, change.Drop)
		}
		if err := asWanted(e, b.args(e, b.env), after, want); err != nil {
			return nil, err
		}
	}
	if b.cmdline != nil {
		if err := put(planCmdline(root, b.cmdline, want)); err != nil {
			return nil, err
		}
	}
	if b.grub != nil {
		more, err := b.grub.Plan(root, want)
		if err != nil {
			return nil, err
		}
		plan = append(plan, more...)
	}
	return plan, nil
}
