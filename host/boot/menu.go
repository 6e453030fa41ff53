package boot

import (
	"fmt"
	"path"
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

// release returns the release of the kernel that an entry starts, "" where neither the entry nor
// the name of the kernel's file has it.
func (e Entry) release() string {
	if e.Release != "" {
		return e.Release
	}
	_, release, _ := strings.Cut(path.Base(e.Kernel), "-") // vmlinuz-RELEASE
	return release
}

// Newest returns the newest of releases, "" of none.
func Newest(releases []string) string {
	if len(releases) == 0 {
		return ""
	}
	return slices.MaxFunc(releases, compareVersions)
}

// installedLater is what stands for the kernel of an entry that is not there yet.
const installedLater = "a kernel installed later"

// OtherRoot is the error of a menu that starts a kernel with another root file system than the
// menu before. grub-mkconfig in a chroot writes such menus: it takes a loop device for the root
// file system.
type OtherRoot struct {
	Menu, Kernel string
	Before       string // value of root=
	After        string // value of root=, "" where the kernel's entries have none
	Program      host.Program
}

func (e *OtherRoot) Error() string {
	after := "no root="
	if e.After != "" {
		after = "root=" + e.After
	}
	return fmt.Sprintf("%s: the new menu would start kernels with another root file system: %s: %s, so far root=%s", e.Menu, e.Kernel, after, e.Before)
}

// CompareRoots returns the kernels that after starts with another root file system than before,
// in the order of the menu. It compares kernels that are in both menus: a kernel that was removed
// or installed in between has no counterpart. Snapshots add entries of the same kernel with other
// root file systems, which come and go, but the menu names the kernel's own first: its root file
// system must be among those of the new entries. The kernel that the new menu names first, the
// default, must have a root file system that the menu before had, also where the kernel is new.
func CompareRoots(before, after []Entry) []*OtherRoot {
	var others []*OtherRoot
	for i, e := range before {
		same := func(o Entry) bool { return o.Kernel == e.Kernel && o.Recovery == e.Recovery }
		if e.root() == "" || slices.ContainsFunc(before[:i], same) || !slices.ContainsFunc(after, same) ||
			slices.ContainsFunc(others, func(o *OtherRoot) bool { return o.Kernel == e.Kernel }) {
			continue
		}
		if !slices.ContainsFunc(after, func(a Entry) bool { return same(a) && a.root() == e.root() }) {
			now := after[slices.IndexFunc(after, same)]
			others = append(others, &OtherRoot{Menu: e.File, Kernel: e.Kernel, Before: e.root(), After: now.root()})
		}
	}
	if len(before) == 0 || len(after) == 0 || slices.ContainsFunc(before, func(b Entry) bool { return b.Kernel == after[0].Kernel }) {
		return others
	}
	if root := before[0].root(); root != "" && !slices.ContainsFunc(before, func(b Entry) bool { return b.root() == after[0].root() }) {
		others = append(others, &OtherRoot{Menu: after[0].File, Kernel: after[0].Kernel, Before: root, After: after[0].root()})
	}
	return others
}

// root returns the root file system that the kernel of an entry mounts: of several root= the last.
func (e Entry) root() string {
	roots := e.Args.Values("root")
	if len(roots) == 0 {
		return ""
	}
	return roots[len(roots)-1]
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
