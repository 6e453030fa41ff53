package boot

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
)

// Entry is a menu entry that starts a kernel.
type Entry struct {
	File     string   // where it stands
	Kernel   string   // as the boot loader calls its file
	Release  string   // of the kernel, where the entry tells, else ""
	Initrds  []string // where its initramfs lie on the machine, if that is not /boot
	Args     Args     // what the kernel gets, variables of the boot loader filled in
	Recovery bool     // is for when nothing else starts, and stays plain
	Later    bool     // is not there yet: what a kernel gets that is installed later
}

// ReadMenu returns the entries of a menu that grub-mkconfig makes, those of other
// systems' kernels among them, and none where there is no menu.
func ReadMenu(root host.Root, menu string) ([]Entry, error) {
	data, err := root.ReadFile(menu)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", menu, host.Cause(err))
	}
	var entries []Entry
	for line := range strings.Lines(string(data)) {
		// GNU GRUB manual, "linux"; Debian's and Fedora's variants for EFI and BIOS.
		words := ParseArgs(line)
		if len(words) < 2 || !slices.Contains([]string{"linux", "linuxefi", "linux16"}, words[0]) {
			continue
		}
		entries = append(entries, Entry{File: menu, Kernel: words[1], Args: words[2:], Recovery: slices.Contains(words, "single") || slices.Contains(words, "recovery")})
	}
	return entries, nil
}

// ReadMenus returns the entries of the first menu that has some, wherever a distribution
// puts it: for a tree that tells no more of itself.
func ReadMenus(root host.Root) ([]Entry, error) {
	for _, menu := range []string{MenuOfUpdateGrub, menuGrub2, menuGrub2EFI} {
		entries, err := ReadMenu(root, menu)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
	}
	return nil, nil
}

// installedLater is what stands for the kernel of an entry that is not there yet.
const installedLater = "a kernel installed later"

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
				return fmt.Errorf("%s: %w: the entry of %s has no %s", e.File, ErrNotInEffect, e.Kernel, arg)
			}
		}
	}
	return nil
}
