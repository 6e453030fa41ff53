package snapshot

import (
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Mask returns the content of a file with the same lines, and without what must not leave the
// machine. It returns the content itself where it knows of nothing to hide.
type Mask func(name string, data []byte) []byte

// Masked returns a recorder of the tree that applies masks to the content of every file, and that
// leaves out processes and libvirt's domains: their arguments and definitions belong to guests.
func (t *Tree) Masked(masks ...Mask) Masked {
	return Masked{t, masks}
}

// Masked is a recorder with masks.
type Masked struct {
	tree  *Tree
	masks []Mask
}

// File implements host.Recorder.
func (m Masked) File(name string, data []byte, err error) {
	if ofGuests(name) {
		return
	}
	if err == nil && data != nil {
		for _, mask := range m.masks {
			data = mask(name, data)
		}
	}
	m.tree.File(name, data, err)
}

// Mode implements host.Recorder.
func (m Masked) Mode(name string, mode fs.FileMode) {
	if !ofGuests(name) {
		m.tree.Mode(name, mode)
	}
}

// Link implements host.Recorder.
func (m Masked) Link(name, target string, err error) {
	if !ofGuests(name) {
		m.tree.Link(name, target, err)
	}
}

// Dir implements host.Recorder.
func (m Masked) Dir(name string, names []string, err error) {
	if ofGuests(name) {
		return
	}
	var kept []string
	for _, n := range names {
		if !ofGuests(path.Join(name, n)) {
			kept = append(kept, n)
		}
	}
	m.tree.Dir(name, kept, err)
}

// ofGuests reports whether a file shows a process, or a domain of libvirt.
func ofGuests(name string) bool {
	first, rest, _ := strings.Cut(name, "/")
	if first == "proc" {
		process, _, _ := strings.Cut(rest, "/")
		_, err := strconv.Atoi(process)
		return err == nil
	}
	return strings.Contains(name+"/", "/libvirt/qemu/") || strings.Contains(name+"/", "/nova_libvirt_qemu/")
}

const hidden = "***"

// Passwords of boot configuration: GRUB's hashes (GRUB manual, "password_pbkdf2"; user.cfg of RHEL
// has one in GRUB2_PASSWORD), its passwords in plain text, and arguments and mount options with a
// password, such as rd.iscsi.password= and those of dracut's netroot= (dracut.cmdline(7)).
var (
	grubHash  = lazy(`grub\.pbkdf2\.[^\s"']+`)
	grubPlain = lazy(`(?m)^(\s*password\s+(?:--\S+\s+)*\S+\s+)\S+`)
	argument  = lazy(`(?i)(passw(?:or)?d\w*=|\bpass=)[^\s,"']+`)
	netroot   = lazy(`(iscsi:)[^\s@"']+@`)
)

// lazy returns a function that compiles an expression at its first call.
func lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// MaskBoot hides the passwords of GRUB and of kernel arguments and mounts.
func MaskBoot(name string, data []byte) []byte {
	top, _, _ := strings.Cut(name, "/")
	switch top {
	case "boot", "efi", "etc", "proc", "var":
	default:
		return data // attributes of the kernel, lists of modules
	}
	data = grubHash().ReplaceAll(data, []byte("grub.pbkdf2."+hidden))
	if strings.Contains(name, "grub") {
		data = grubPlain().ReplaceAll(data, []byte("${1}"+hidden))
	}
	data = argument().ReplaceAll(data, []byte("${1}"+hidden))
	return netroot().ReplaceAll(data, []byte("${1}"+hidden+"@"))
}
