package boot

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// Entry is a menu entry that boots a kernel.
type Entry struct {
	File     string   // that contains the entry
	Kernel   string   // the kernel's file as the boot loader names it
	Release  string   // of the kernel; "" if the entry has none
	Initrds  []string // paths of its initramfs on the machine, if not in /boot
	Args     Args     // the kernel's arguments, with variables of the boot loader expanded
	Recovery bool     // a recovery or rescue entry, which is never changed
	Later    bool     // not an entry yet, but what a kernel installed later would get
	Unsure   bool     // no entry, but File may set another default than the menu
	Boots    bool     // the one that the boot loader selects at the next boot, unless a person does
}

// ReadMenu returns the entries of a menu that grub-mkconfig has made, including those for kernels
// of other systems. Without a menu it returns none.
func ReadMenu(root host.Root, menu string) ([]Entry, error) {
	text, err := readIfPresent(root, menu)
	entries, _, _ := parseMenu(menu, text)
	return entries, err
}

// ReadMenus returns the entries of the first menu that has any, in the places of all distributions:
// for a tree whose boot loader is unknown.
func ReadMenus(root host.Root) ([]Entry, error) {
	for _, menu := range []string{MenuOfUpdateGrub, menuGrub2, menuGrub2EFI} {
		entries, err := ReadMenu(root, menu)
		if err != nil || len(entries) > 0 {
			return entries, err
		}
	}
	return nil, nil
}

// release returns the release of the kernel that an entry boots, or "" if neither the entry nor the
// name of the kernel's file contains it.
func (e Entry) release() string {
	if e.Release != "" {
		return e.Release
	}
	_, release, _ := strings.Cut(path.Base(e.Kernel), "-") // vmlinuz-RELEASE
	return release
}

// Newest returns the newest of releases, or "" if there are none.
func Newest(releases []string) string {
	if len(releases) == 0 {
		return ""
	}
	return slices.MaxFunc(releases, compareVersions)
}

// installedLater is the Kernel of an Entry with Later.
const installedLater = "a kernel installed later"

// OtherRoot is the error of a regenerated menu that boots a kernel with another root file system
// than the previous menu. grub-mkconfig writes such menus in a chroot, where it finds a loop device
// as the root file system.
type OtherRoot struct {
	Menu, Kernel string
	Before       string       // value of root=
	After        string       // value of root=; "" if the kernel's entries have none
	Program      host.Program // that regenerated the menu
}

func (e *OtherRoot) Error() string {
	return fmt.Sprintf("%s: the new menu would boot %s with %s instead of root=%s",
		e.Menu, e.Kernel, e.after(), e.Before)
}

func (e *OtherRoot) after() string {
	if e.After == "" {
		return "no root="
	}
	return "root=" + e.After
}

// Hint returns how to continue if the new menu is correct.
func (e *OtherRoot) Hint() string {
	program := e.Program.String()
	return fmt.Sprintf("if %s is right, run %s by hand, then run gpustack again; "+
		"in a chroot, use --no-rebuild and run %s on the machine itself", e.after(), program, program)
}

// CompareRoots returns an error for each kernel that the menu after boots with another root file
// system than the menu before, in the order of the menu.
//
// It compares kernels that are in both menus, not kernels that were installed or removed in
// between. File system snapshots add entries for the same kernel with other root file systems, but
// the kernel's own entry comes first: its root file system must be among those of the kernel's new
// entries. The default, which is the first entry of the new menu, must have a root file system that
// the menu before had, even if its kernel is new.
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
	if len(before) == 0 || len(after) == 0 {
		return others
	}
	first := after[0]
	if slices.ContainsFunc(before, func(b Entry) bool { return b.Kernel == first.Kernel }) {
		return others
	}
	sameRoot := func(b Entry) bool { return b.root() == first.root() }
	if root := before[0].root(); root != "" && !slices.ContainsFunc(before, sameRoot) {
		others = append(others, &OtherRoot{Menu: first.File, Kernel: first.Kernel, Before: root, After: first.root()})
	}
	return others
}

// root returns the root file system of an entry's kernel: the last value of root=.
func (e Entry) root() string {
	roots := e.Args.Values("root")
	if len(roots) == 0 {
		return ""
	}
	return roots[len(roots)-1]
}

// InEffect returns an error unless each entry of this machine has the arguments: the first entry
// and all with the same root file system, without recovery entries.
func InEffect(entries []Entry, want Args) error {
	var root []string
	for _, e := range entries {
		if e.Recovery || root != nil && !slices.Equal(root, e.Args.Values("root")) {
			continue
		}
		root = e.Args.Values("root")
		if lacking := e.Args.Lacking(want); len(lacking) > 0 {
			return fmt.Errorf("%s: %w: the entry of %s has no %s", e.File, ErrNotInEffect, e.Kernel, Args(lacking))
		}
	}
	return nil
}
