package boot

import (
	"path"
	"slices"
	"strings"
	"unicode/utf16"

	"gpustack/host"
)

// UnifiedDefault returns an error of type *Unsupported if systemd-boot may boot a unified kernel
// image by default, because such an image contains the kernel's arguments. want is the arguments
// that the kernel needs, for the error's command.
//
// systemd-boot sorts an image before text file entries of the same system, whatever their versions,
// since the image has no machine ID (systemd, src/boot/efi/boot.c, config_entry_compare). So a text
// file entry is only certain to boot if the variable LoaderEntryDefault or loader.conf selects it.
func UnifiedDefault(root host.Root, want Args) error {
	p := probe{root: root}
	images, entries, conf := p.menuOfSystemdBoot()
	if p.err != nil || len(images) == 0 {
		return p.err
	}
	if p.startsEntry(images, entries, conf) && p.err == nil {
		return nil
	}
	if p.err != nil {
		return p.err
	}
	command := "add " + want.String() + " to /etc/kernel/cmdline, " + reinstallKernels
	if e := newest(entries); e != nil && p.variable("LoaderInfo") != "" {
		command = "bootctl set-default " + path.Base(e.name) + " selects an entry that gpustack can change; or " + command
	}
	u := &Unsupported{What: "unified kernel images (" + strings.Join(images, ", ") + ")", Command: command, edits: true,
		running: ParseArgs(p.text("/proc/cmdline"))}
	if u.file, u.args = p.arguments(kernelCmdline); p.err != nil {
		return p.err
	}
	return u
}

// menuOfSystemdBoot returns the menu of systemd-boot: unified kernel images, and entries of this
// system that boot a kernel. It also returns the value of default in loader.conf (loader.conf(5)).
func (p *probe) menuOfSystemdBoot() (images []string, entries []typeOne, conf string) {
	for _, partition := range partitionsOf(p.root) {
		dir := path.Join(partition, "EFI/Linux")
		names, err := p.root.ReadDir(dir)
		p.keep(err)
		for _, name := range names {
			if strings.EqualFold(path.Ext(name), ".efi") {
				images = append(images, path.Join(dir, name))
			}
		}
		dir = path.Join(partition, "loader/entries")
		all, err := readAllEntries(p.root, dir)
		p.keep(err)
		for _, e := range all {
			switch program := strings.ToLower(e.get("efi")); {
			case e.get("linux") != "":
				entries = append(entries, e)
			case e.get("uki") != "" || e.get("uki-url") != "" || strings.HasPrefix(program, "/efi/linux/"):
				images = append(images, e.name)
			}
		}
		name := path.Join(partition, "loader/loader.conf")
		data, err := p.root.ReadFile(name)
		p.keep(err)
		for line := range strings.Lines(string(data)) {
			if f := parseField(line); f.key == "default" && f.value != "" {
				conf = f.value
			}
		}
	}
	entries, err := ofThisSystem(p.root, entries)
	p.keep(err)
	return images, entries, conf
}

// startsEntry reports whether a text file entry is certain to be the default. Without LoaderInfo,
// which systemd-boot sets at each boot, the EFI variables are not available, so nothing is certain.
func (p *probe) startsEntry(images []string, entries []typeOne, conf string) bool {
	if p.variable("LoaderInfo") == "" {
		return false
	}
	selects := func(pattern string, name string) bool {
		id := bootCounter().ReplaceAllString(strings.ToLower(path.Base(name)), "$1")
		// Before systemd 250, IDs have no suffix.
		for _, id := range []string{id, strings.TrimSuffix(id, path.Ext(id))} {
			if ok, err := path.Match(strings.ToLower(pattern), id); ok && err == nil {
				return true
			}
		}
		return false
	}
	ofImage := func(pattern string) bool {
		return slices.ContainsFunc(images, func(name string) bool { return selects(pattern, name) })
	}
	ofEntry := func(pattern string) bool {
		return slices.ContainsFunc(entries, func(e typeOne) bool { return selects(pattern, e.name) })
	}
	if once := p.variable("LoaderEntryOneShot"); once != "" && !ofEntry(once) {
		return false
	}
	for _, pattern := range []string{p.variable("LoaderEntryDefault"), conf} {
		if pattern == "@saved" {
			pattern = p.variable("LoaderEntryLastBooted")
		}
		switch {
		case pattern == "":
		case ofImage(pattern):
			return false
		case ofEntry(pattern):
			return true
		}
	}
	return false
}

// bootCounter matches "+LEFT-DONE", which boot assessment adds to the name of an entry
// (systemd.io/AUTOMATIC_BOOT_ASSESSMENT).
var bootCounter = host.LazyRegexp(`\+[0-9]+(?:-[0-9]+)?(\.[a-z]+)$`)

// variable returns the text of a variable of the Boot Loader Interface, or "" if it is not set. The
// file contains four bytes of attributes followed by UTF-16 text (Linux,
// Documentation/filesystems/efivarfs.rst).
func (p *probe) variable(name string) string {
	data := p.text("/sys/firmware/efi/efivars/" + name + "-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f")
	var units []uint16
	for i := 4; i+1 < len(data); i += 2 {
		units = append(units, uint16(data[i])|uint16(data[i+1])<<8)
	}
	text, _, _ := strings.Cut(string(utf16.Decode(units)), "\x00")
	return text
}
