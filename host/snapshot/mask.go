package snapshot

import (
	"bytes"
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

// Secrets of boot configuration: GRUB's hashes (GRUB manual, "password_pbkdf2"; user.cfg of RHEL
// has one in GRUB2_PASSWORD) and passwords in plain text, arguments and mount options that are
// named like a secret (rd.iscsi.password=, inst.rootpw=, systemd.set_credential=), and what stands
// before the @ of an address (netroot=iscsi:user:password@host of dracut.cmdline(7),
// http://user:password@host). A value may be in quotes, which GRUB escapes within others, or be in
// quotes with its name.
var (
	grubHash  = lazy(`grub\.pbkdf2\.[^\s"']+`)
	grubPlain = lazy(`\b(password(?:_pbkdf2)?[ \t]+)(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\\.|[^;\n"'\\])*(?:["'][^\n]*)?`)
	quoted    = lazy(`(?im)((?:^|[ \t])["']` + sensitive + `)[^"'\n]*`)
	argument  = lazy(`(?i)(` + sensitive + `)(?:\\"[^"\n]*"|"[^"\n]*"|'[^'\n]*'|[^\s"'][^\s]*[^\s"';\\]|[^\s"';\\])`)
	option    = lazy(`(?i)(` + sensitive + `)(?:\\"[^"\n]*"|"[^"\n]*"|'[^'\n]*'|[^\s,"'\\]+)`)
	percent   = lazy(`(?i)(\buser(?:name)?=[^\s,%]*%)[^\s,]+`)
	address   = lazy(`((?:\biscsi:|//)|[^\s"'/#=:]+:)[^\s"'/@][^\s"']*@`)
)

// sensitive matches the name of an option with a secret. That of iommu.passthrough is none.
const sensitive = `[\w.-]*(?:passw[\w.-]*|passphrase|secret[\w.-]*|token|cred[\w.-]*|pass|pwd?|key|psk)=`

// lazy returns a function that compiles an expression at its first call.
func lazy(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// MaskBoot hides the passwords of GRUB and of kernel arguments and mounts.
func MaskBoot(name string, data []byte) []byte {
	if strings.HasPrefix(name, "sys/") || strings.Contains(name, "lib/modules/") {
		return data // attributes of the kernel, lists of modules
	}
	hide := func(in func() *regexp.Regexp, with string) { data = in().ReplaceAll(data, []byte(with)) }
	size := len(data)
	if strings.Contains(name, "grub") || strings.HasPrefix(name, "boot/") {
		hide(grubPlain, "${1}"+hidden)
	}
	hide(grubHash, "grub.pbkdf2."+hidden)
	hide(quoted, "${1}"+hidden)
	if strings.HasSuffix(name, "mounts") || strings.HasSuffix(name, "fstab") || path.Ext(name) == ".json" {
		hide(option, "${1}"+hidden)
		hide(percent, "${1}"+hidden)
	} else {
		hide(argument, "${1}"+hidden)
	}
	hide(address, "${1}"+hidden+"@")
	if path.Base(name) == "grubenv" && len(data) != size { // GRUB accepts the block in its size only
		data = bytes.TrimRight(data, "#")
		data = append(data, bytes.Repeat([]byte("#"), max(size-len(data), 0))...)
	}
	return data
}
