package boot

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
)

// typeOne is a text file entry of the Boot Loader Specification ("type #1",
// uapi-group.org/specifications/specs/boot_loader_specification). RHEL's and Fedora's GRUB and
// systemd-boot read such entries.
type typeOne struct {
	file  *edit.File
	name  string // on the machine
	lines []string
}

// field is a line "KEY VALUE" of an entry, with the white space that separates its parts.
type field struct {
	before, key, between, value, after string
}

var fieldForm = host.LazyRegexp(`^([ \t]*)([^ \t\r\n#][^ \t\r\n]*)([ \t]*)(.*?)([ \t]*\r?\n?)$`)

func parseField(line string) field {
	m := fieldForm().FindStringSubmatch(line)
	if m == nil {
		return field{}
	}
	return field{m[1], m[2], m[3], m[4], m[5]}
}

func (f field) String() string {
	return f.before + f.key + f.between + f.value + f.after
}

// readEntries returns the entries in a directory that boot a kernel, sorted by name. Other entries
// start an EFI program or a unified kernel image. A missing directory is not an error.
func readEntries(root host.Root, dir string) ([]typeOne, error) {
	entries, err := readAllEntries(root, dir)
	return slices.DeleteFunc(entries, func(e typeOne) bool { return e.get("linux") == "" }), err
}

// readAllEntries returns all entries in a directory, sorted by name. A missing directory is not an
// error.
func readAllEntries(root host.Root, dir string) ([]typeOne, error) {
	names, err := host.IfPresent(root.ReadDir(dir))
	if err != nil {
		return nil, err
	}
	var entries []typeOne
	for _, name := range names {
		if path.Ext(name) != ".conf" || name[0] == '.' {
			continue
		}
		name = path.Join(dir, name)
		f, err := edit.Read(root, name)
		if err != nil {
			return nil, err
		}
		if f == nil {
			continue // just removed
		}
		entries = append(entries, parseEntry(name, f))
	}
	return entries, nil
}

func parseEntry(name string, f *edit.File) typeOne {
	return typeOne{file: f, name: name, lines: slices.Collect(strings.Lines(string(f.Content)))}
}

// get returns the first value of a key, or "".
func (e typeOne) get(key string) string {
	for _, line := range e.lines {
		if f := parseField(line); f.key == key {
			return f.value
		}
	}
	return ""
}

// all returns all values of a key, joined by spaces.
func (e typeOne) all(key string) string {
	var values []string
	for _, line := range e.lines {
		if f := parseField(line); f.key == key {
			values = append(values, f.value)
		}
	}
	return strings.Join(values, " ")
}

// isRescue reports whether an entry is the distribution's rescue entry, for machines that no longer
// boot otherwise (dracut, 51-dracut-rescue.install).
func (e typeOne) isRescue() bool {
	return strings.Contains(path.Base(e.name), "-0-rescue")
}

// edit returns the entry's text with changed options: it removes arguments from all lines with
// options and appends arguments to the last one.
func (e typeOne) edit(c Change) string {
	var b strings.Builder
	last := -1
	for i, line := range e.lines {
		if parseField(line).key == "options" {
			last = i
		}
	}
	for i, line := range e.lines {
		f := parseField(line)
		if f.key != "options" {
			b.WriteString(line)
			continue
		}
		part := Change{Drop: c.Drop}
		if i == last {
			part.Add = c.Add
		}
		if f.between == "" {
			f.between = " "
		}
		f.value = part.edit(f.value)
		b.WriteString(f.String())
	}
	if last < 0 && len(c.Add) > 0 {
		if text := b.String(); text != "" && !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
		b.WriteString("options " + c.Add.String() + "\n")
	}
	return b.String()
}

// entryFiles returns the files of entries.
func entryFiles(entries []typeOne) (files []string) {
	for _, e := range entries {
		files = append(files, e.name)
	}
	return files
}

// plan plans to write text to the entry's file.
func (e typeOne) plan(files edit.Files, text string) (edit.Change, error) {
	c, err := files.Put(e.name, []byte(text), e.file.Mode, false)
	c.Transient = true
	after := parseEntry(e.name, &edit.File{Content: []byte(text)})
	c.Meaning = &edit.Meaning{Grammar: meaningEntry, Values: values(ParseArgs(e.all("options")), ParseArgs(after.all("options")))}
	return c, err
}

// known returns a plan that leaves the entry as it is, with values that it gets from elsewhere. It
// is recorded, so that undo can tell the entries of kernels that are installed later.
func (e typeOne) known(vs []edit.Value) edit.Change {
	if vs == nil {
		vs = []edit.Value{}
	}
	return edit.Change{Name: e.name, Before: e.file, After: e.file, Transient: true, Meaning: &edit.Meaning{Grammar: meaningEntry, Values: vs}}
}

func (e typeOne) entry(args Args) Entry {
	return Entry{
		File: e.name, Kernel: e.get("linux"), Release: e.get("version"),
		Args: args, Recovery: e.isRescue(),
	}
}

// newest returns the entry of the newest kernel without rescue entries, or nil.
func newest(entries []typeOne) *typeOne {
	var best *typeOne
	for i := range entries {
		e := &entries[i]
		if !e.isRescue() && (best == nil || compareVersions(e.version(), best.version()) > 0) {
			best = e
		}
	}
	return best
}

// version returns the kernel's release, or the name of the entry if it has none.
func (e typeOne) version() string {
	if v := e.get("version"); v != "" {
		return v
	}
	return strings.TrimSuffix(path.Base(e.name), ".conf")
}

var versionPart = host.LazyRegexp(`[0-9]+|[A-Za-z]+`)

// compareVersions compares versions part by part: numbers by value, letters in alphabetical order.
func compareVersions(a, b string) int {
	as, bs := versionPart().FindAllString(a, -1), versionPart().FindAllString(b, -1)
	return slices.CompareFunc(as, bs, func(a, b string) int {
		aNumber, bNumber := a[0] <= '9', b[0] <= '9'
		if aNumber && bNumber {
			a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
			if len(a) != len(b) {
				return len(a) - len(b)
			}
		}
		return strings.Compare(a, b)
	})
}

// kernelCmdline contains all arguments that kernel-install gives kernels installed later (systemd,
// kernel-install(8); grubby's 20-grub.install).
const kernelCmdline = "/etc/kernel/cmdline"

// planCmdline plans the change of that file. Lines that begin with # are comments, though not for
// every program that reads the file.
func planCmdline(files edit.Files, f *edit.File, want Want) (edit.Change, error) {
	before := cmdlineArgs(f.Content)
	content := editCmdline(f.Content, want.Change(before))
	c, err := files.Put(kernelCmdline, content, f.Mode, false)
	if err == nil && !want.Change(cmdlineArgs(c.After.Content)).IsZero() {
		err = fmt.Errorf("%s: %w", kernelCmdline, ErrNotInEffect)
	}
	c.Meaning = &edit.Meaning{Grammar: meaningCmdline, Values: values(before, cmdlineArgs(content))}
	return c, err
}

// editCmdline returns the content of that file after a change of its arguments.
func editCmdline(content []byte, change Change) []byte {
	lines := slices.Collect(strings.Lines(string(content)))
	last := -1
	for i, line := range lines {
		if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") {
			last = i
		}
	}
	var b strings.Builder
	for i, line := range lines {
		if strings.HasPrefix(line, "#") {
			b.WriteString(line)
			continue
		}
		part := Change{Drop: change.Drop}
		if i == last {
			part.Add = change.Add
		}
		text, end := line, ""
		if strings.HasSuffix(line, "\n") {
			text, end = line[:len(line)-1], "\n"
		}
		if part.IsZero() {
			b.WriteString(line)
			continue
		}
		b.WriteString(part.edit(text) + end)
	}
	if last < 0 && len(change.Add) > 0 {
		if text := b.String(); text != "" && !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(change.Add.String() + "\n")
	}
	return []byte(b.String())
}

func laterByCmdline(f *edit.File) *Entry {
	return &Entry{File: kernelCmdline, Kernel: installedLater, Later: true, Args: cmdlineArgs(f.Content)}
}

func cmdlineArgs(content []byte) Args {
	var args Args
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "#") {
			args = append(args, ParseArgs(line)...)
		}
	}
	return args
}

// ErrNoEntries is the error of a machine that boots from entries but has none.
var ErrNoEntries = host.WithHint(errors.New("no boot entries"),
	"mount the boot partition (below the root with --root), then run gpustack again")

// checkArgs returns an error unless the planned change of an entry's arguments is exactly the
// wanted one: all other arguments, root= above all, must remain.
func checkArgs(e typeOne, before, after Args, want Want) error {
	should, is := want.Change(before).Apply(before), slices.Clone(after)
	slices.Sort(should)
	slices.Sort(is)
	if !slices.Equal(should, is) {
		return fmt.Errorf("%s: %w: its kernel would get %q", e.name, ErrNotInEffect, after.String())
	}
	return nil
}
