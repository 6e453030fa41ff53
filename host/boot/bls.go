package boot

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
)

const blsDir = "/boot/loader/entries"

// BLS is GRUB with a menu of Boot Loader Specification entries, as in RHEL 8 and later and Fedora.
// Each entry contains its arguments or, on RHEL 8, refers to the variable kernelopts.
//
// Plan edits the entries line by line instead of running grubby, so the change can be shown and
// undone like any other, and root= is never touched. It does not run grub2-mkconfig, which with
// --update-bls-cmdline would overwrite arguments that were set in single entries.
type BLS struct {
	entries []typeOne
	env     environment
	cmdline *edit.File // nil: kernels installed later get the running kernel's arguments
	grub    *Grub      // arguments of a regenerated menu; nil without /etc/default/grub
}

// kernelOpts is the variable with the arguments of all entries on RHEL 8 (grub2, 10_linux of
// RHEL 8).
const kernelOpts = "kernelopts"

// setKernelOpts matches the default that the menu sets if the environment has no such variable.
var setKernelOpts = host.LazyRegexp(`(?m)^[ \t]*set kernelopts="([^"]*)"`)

// ReadBLS reads the entries below root and the variables that they refer to.
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
		b.env = b.env.setKernelOpts(value)
	}
	if b.cmdline, err = edit.Read(root, kernelCmdline); err != nil {
		return BLS{}, err
	}
	ok, err := root.Exists(GrubDefault)
	if err != nil {
		return BLS{}, err
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

// menuKernelOpts returns the default that the menu sets kernelopts to.
func menuKernelOpts(root host.Root) (string, error) {
	for _, menu := range []string{menuGrub2, menuGrub2EFI} {
		text, err := readIfPresent(root, menu)
		if err != nil {
			return "", err
		}
		if m := setKernelOpts().FindStringSubmatch(text); m != nil {
			return m[1], nil
		}
	}
	return "", fmt.Errorf("%s: %w: the boot entries use $%s, which is not set", grubEnv, ErrNotInEffect, kernelOpts)
}

// uses reports whether an entry's options refer to a variable.
func (e typeOne) uses(variable string) bool {
	references := envReference().FindAllStringSubmatch(e.all("options"), -1)
	return slices.ContainsFunc(references, func(m []string) bool { return m[1]+m[2] == variable })
}

func (b BLS) uses(variable string) bool {
	return slices.ContainsFunc(b.entries, func(e typeOne) bool { return !e.isRescue() && e.uses(variable) })
}

// args returns the arguments of the kernel that an entry boots.
func (b BLS) args(e typeOne, env environment) Args {
	return ParseArgs(env.expand(e.all("options")))
}

// selected returns the default entry: the one named by saved_entry, otherwise the newest.
func (b BLS) selected() typeOne {
	saved, _ := b.env.get("saved_entry")
	for _, e := range b.entries {
		if strings.TrimSuffix(path.Base(e.name), ".conf") == saved {
			return e
		}
	}
	return *newest(b.entries)
}

// Args returns the arguments of the default entry, gpustack's included.
func (b BLS) Args() Args {
	return b.args(b.selected(), b.env)
}

// Entries returns the entries with variables expanded, and which of them boots: the one that
// next_entry names (grub-reboot), else the default. The last one has Unsure if that is not certain.
func (b BLS) Entries(root host.Root) ([]Entry, error) {
	next, _ := b.env.get(nextEntry)
	boots := b.selected().name
	var entries []Entry
	for _, e := range b.entries {
		if next != "" && strings.TrimSuffix(path.Base(e.name), ".conf") == next {
			boots = e.name
		}
		entries = append(entries, e.entry(b.args(e, b.env)))
	}
	for _, menu := range []string{menuGrub2, menuGrub2EFI} {
		text, err := readIfPresent(root, menu)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(text, "blscfg") {
			continue // absent, or it only loads the other one
		}
		dir, err := menuDir(root, menu)
		if err != nil {
			return nil, err
		}
		_, _, commands := parseMenu(menu, text)
		if other, err := unsure(root, menu, dir, commands); err != nil || other != nil {
			return append(entries, other...), err
		}
	}
	for i := range entries {
		entries[i].Boots = entries[i].File == boots
	}
	return entries, nil
}

// Default returns the release of the kernel that boots by default, or "" if its entry has none.
func (b BLS) Default(host.Root) (string, error) {
	return b.selected().entry(nil).release(), nil
}

// Later returns the entry that kernel-install creates for a kernel installed later
// (20-grub.install of grub2), with the arguments of /etc/kernel/cmdline, or of kernelopts if the
// other entries use that. It returns nil if neither exists.
func (b BLS) Later(host.Root) (*Entry, error) {
	switch value, _ := b.env.get(kernelOpts); {
	case b.uses(kernelOpts):
		return &Entry{File: grubEnv, Kernel: installedLater, Later: true, Args: ParseArgs(value)}, nil
	case b.cmdline != nil:
		return laterByCmdline(b.cmdline), nil
	}
	return nil, nil
}

// Programs returns no programs: the entries themselves are the menu.
func (b BLS) Programs(_, _ bool) []host.Program {
	return nil
}

// planEnvironment plans the change of kernelopts, which may only be the menu's default yet.
func (b BLS) planEnvironment(files edit.Files, env environment) (edit.Change, error) {
	before, _ := b.env.get(kernelOpts)
	after, _ := env.get(kernelOpts)
	c := edit.Change{Name: grubEnv, Before: b.env.file, After: b.env.file}
	w := &edit.Value{Name: kernelOpts, Before: []string{}, After: []string{after}}
	if before != after {
		var err error
		if c, err = env.plan(files); err != nil {
			return edit.Change{}, err
		}
	}
	if c.Before != nil {
		if there, err := parseEnvironment(grubEnv, c.Before); err == nil {
			if value, ok := there.get(kernelOpts); ok {
				w.Before = []string{value}
			}
		}
	}
	c.Meaning = &edit.Meaning{Grammar: meaningEnv, Whole: w, Values: values(ParseArgs(before), ParseArgs(after))}
	return c, nil
}

// Files returns the files that Plan may change.
func (b BLS) Files() []string {
	files := append(entryFiles(b.entries), grubEnv, kernelCmdline)
	if b.grub != nil {
		files = append(files, b.grub.Files()...)
	}
	return files
}

// Plan plans the change of every entry except the rescue entry, and of the arguments of kernels
// installed later. It is an error if a variable that other programs write, such as tuned's
// tuned_params, would still conflict.
func (b BLS) Plan(files edit.Files, want Want) (edit.Changes, error) {
	var plan edit.Changes
	put := func(c edit.Change, err error) error {
		plan = append(plan, c)
		return err
	}
	env := b.env
	if b.uses(kernelOpts) {
		value, _ := env.get(kernelOpts)
		if change := want.Change(ParseArgs(value)); !change.IsZero() {
			env = env.setKernelOpts(change.edit(value))
		}
		c, err := b.planEnvironment(files, env)
		if err := put(c, err); err != nil {
			return nil, err
		}
	}
	args := func(env environment) func(typeOne) Args { return func(e typeOne) Args { return b.args(e, env) } }
	entries, err := planEntries(files, b.entries, want, grubEnv, args(b.env), args(env))
	if err != nil {
		return nil, err
	}
	plan = append(plan, entries...)
	if b.cmdline != nil {
		if err := put(planCmdline(files, b.cmdline, want)); err != nil {
			return nil, err
		}
	}
	if b.grub != nil {
		more, err := b.grub.Plan(files, want)
		if err != nil {
			return nil, err
		}
		plan = append(plan, more...)
	}
	return plan, nil
}
