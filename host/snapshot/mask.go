package snapshot

import (
	"bytes"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"gpustack/host"
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
	if !ofGuests(name) {
		m.tree.Dir(name, host.Filter(names, func(n string) bool { return !ofGuests(path.Join(name, n)) }), err)
	}
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

// Secrets of configuration files: GRUB's hashes (GRUB manual, "password_pbkdf2"; user.cfg of RHEL
// has one in GRUB2_PASSWORD) and passwords in plain text, arguments, mount options, parts of URLs'
// queries and lines that are named like a secret (rd.iscsi.password=, inst.rootpw=,
// systemd.set_credential=), and what stands before the @ of an address
// (netroot=iscsi:user:password@host of dracut.cmdline(7), http://user:password@host). A value may
// be in quotes, which GRUB escapes within others, or be in quotes with its name. JSON stays JSON.
var (
	grubHash  = host.LazyRegexp(`grub\.pbkdf2\.[^\s"']+`)
	grubPlain = host.LazyRegexp(`\b(password(?:_pbkdf2)?[ \t]+)(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\\.|[^;\n"'\\])*(?:["'][^\n]*)?`)
	quoted    = host.LazyRegexp(`(?im)((?:^|[ \t])["']` + sensitive + `)[^"'\n]*`)
	argument  = host.LazyRegexp(`(?i)(` + sensitive + `)(?:\\"[^"\n]*"|"[^"\n]*"|'[^'\n]*'|[^\s"'][^\s]*[^\s"';\\]|[^\s"';\\])`)
	option    = host.LazyRegexp(`(?i)(` + sensitive + `)(?:\\"[^"\n]*"|"[^"\n]*"|'[^'\n]*'|[^\s,"'\\]+)`)
	member    = host.LazyRegexp(`(?i)("` + host.SecretNames + `"\s*:\s*)"(?:\\.|[^"\\])*"`)
	line      = host.LazyRegexp(`(?im)^([ \t]*["']?` + host.SecretNames + `["']?(?:[ \t]*:[ \t]|[ \t]*=[ \t]|[ \t]+=))[^\n]+`)
	percent   = host.LazyRegexp(`(?i)(\buser(?:name)?=[^\s,%]*%)[^\s,]+`)
	address   = host.LazyRegexp(`((?:\biscsi:|//)|[^\s"'/#=:]+:)[^\s"'/@][^\s"']*@`)
)

// sensitive matches the name of an option with a secret. That of iommu.passthrough is none.
const sensitive = host.SecretNames + `=`

// MaskBoot hides the passwords of GRUB, of kernel arguments and mounts, and of other files' options
// (host.SecretNames).
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
	switch {
	case path.Ext(name) == ".json":
		hide(member, "${1}\""+hidden+"\"")
		fallthrough
	case strings.HasSuffix(name, "mounts"), strings.HasSuffix(name, "fstab"):
		hide(option, "${1}"+hidden)
		hide(percent, "${1}"+hidden)
	default:
		hide(argument, "${1}"+hidden)
		if !strings.HasPrefix(name, "proc/") {
			hide(line, "${1}"+hidden)
		}
	}
	hide(address, "${1}"+hidden+"@")
	if path.Base(name) == "grubenv" && len(data) != size { // GRUB accepts the block in its size only
		data = bytes.TrimRight(data, "#")
		data = append(data, bytes.Repeat([]byte("#"), max(size-len(data), 0))...)
	}
	return data
}
