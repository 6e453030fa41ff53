package boot

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
)

// menuFile is the menu that update-grub makes on Debian and Ubuntu.
const menuFile = "/boot/grub/grub.cfg"

// Entry is a menu entry that starts a kernel of this machine.
type Entry struct {
	Kernel   string
	Args     Args
	Recovery bool
}

// ReadMenu returns the entries of the menu that GRUB shows, those of other
// machines' kernels among them, and none where there is no menu.
func ReadMenu(root host.Root) ([]Entry, error) {
	data, err := root.ReadFile(menuFile)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", menuFile, host.Cause(err))
	}
	var entries []Entry
	for line := range strings.Lines(string(data)) {
		// GNU GRUB manual, "linux"; Debian's and Fedora's variants for EFI and BIOS.
		words := ParseArgs(line)
		if len(words) < 2 || !slices.Contains([]string{"linux", "linuxefi", "linux16"}, words[0]) {
			continue
		}
		entries = append(entries, Entry{words[1], words[2:], slices.Contains(words, "single") || slices.Contains(words, "recovery")})
	}
	return entries, nil
}

// Roots returns the root file system that each kernel is started with, as
// "KERNEL root=…", sorted, each once.
func Roots(entries []Entry) []string {
	var roots []string
	for _, e := range entries {
		for _, r := range e.Args.Values("root") {
			roots = append(roots, e.Kernel+" root="+r)
		}
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

// InEffect is an error unless each entry of this machine has the arguments, those
// for recovery left out: the first entry, and all with the same root file system.
// An argument counts as there where it is a word of a comma list.
func InEffect(entries []Entry, want Args) error {
	var root []string
	for _, e := range entries {
		if e.Recovery || root != nil && !slices.Equal(root, e.Args.Values("root")) {
			continue
		}
		root = e.Args.Values("root")
		for _, arg := range want {
			if !slices.ContainsFunc(e.Args.Values(name(arg)), func(v string) bool {
				return v == value(arg) || slices.Contains(strings.Split(v, ","), value(arg))
			}) {
				return fmt.Errorf("%s: %w: the entry of %s has no %s", menuFile, ErrNotInEffect, e.Kernel, arg)
			}
		}
	}
	return nil
}
