package boot

import (
	"cmp"
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
	alias bool // another name of an entry of the same folder, by which the menu may choose it
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

func isOptions(line string) bool { return parseField(line).key == "options" }

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
		place, err := host.IfPresent(root.Real(name))
		if err != nil {
			return nil, err
		}
		if f == nil {
			continue // just removed
		}
		e := parseEntry(name, f)
		e.alias = place != name && path.Dir(place) == dir && path.Ext(place) == ".conf"
		entries = append(entries, e)
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
	of := host.Filter(host.Map(e.lines, parseField), func(f field) bool { return f.key == key })
	return strings.Join(host.Map(of, func(f field) string { return f.value }), " ")
}

func (e typeOne) options() Args { return ParseArgs(e.all("options")) }

// isRescue reports whether an entry is the distribution's rescue entry, for machines that no longer
// boot otherwise (dracut, 51-dracut-rescue.install).
func (e typeOne) isRescue() bool {
	return strings.Contains(path.Base(e.name), "-0-rescue")
}

// edit returns the entry's text with changed options: it removes arguments from all lines with
// options and appends arguments to the last one.
func (e typeOne) edit(c Change) string {
	return editLines(e.lines, c, lastIndex(e.lines, isOptions), "options ", func(line string, part Change) string {
		f := parseField(line)
		if f.key != "options" {
			return line
		}
		return f.before + f.key + cmp.Or(f.between, " ") + part.edit(f.value) + f.after
	})
}

// lastIndex returns the index of the last line for which is returns true, or -1.
func lastIndex(lines []string, is func(line string) bool) int {
	for i, line := range slices.Backward(lines) {
		if is(line) {
			return i
		}
	}
	return -1
}

// editLines returns the text of lines after a change of their arguments: edit removes them from a
// line and appends them to the line last. Below 0, they get a line of their own, which begins with key.
func editLines(lines []string, c Change, last int, key string, edit func(line string, part Change) string) string {
	var b strings.Builder
	for i, line := range lines {
		part := Change{Drop: c.Drop}
		if i == last {
			part.Add = c.Add
		}
		b.WriteString(edit(line, part))
	}
	if last < 0 && len(c.Add) > 0 {
		if text := b.String(); text != "" && !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(key + c.Add.String() + "\n")
	}
	return b.String()
}

// entryFiles returns the files of entries.
func entryFiles(entries []typeOne) []string {
	return host.Map(entries, func(e typeOne) string { return e.name })
}

// planEntries plans the change of every entry except rescue entries, each once. was and is return
// the arguments of an entry's kernel now and with the planned values of the variables in a file, ""
// for none.
func planEntries(files edit.Files, entries []typeOne, want Want, variables string, was, is func(typeOne) Args) (plan edit.Changes, err error) {
	for _, e := range entries {
		if e.alias {
			continue
		}
		if e.isRescue() {
			plan = append(plan, e.known(values(was(e), is(e))))
			continue
		}
		text := string(e.file.Content)
		if change := want.Change(is(e)); !change.IsZero() {
			text = e.edit(change)
		}
		c, err := e.plan(files, text)
		if err != nil {
			return nil, err
		}
		after := is(typeOne{e.file, e.name, strings.SplitAfter(text, "\n"), false})
		if c.Action() == edit.None {
			c = e.known(values(was(e), after)) // what it gets from variables
		}
		plan = append(plan, c)
		switch change := want.Change(after); {
		case change.IsZero():
		case variables != "" && len(change.Drop) > 0:
			return nil, fmt.Errorf("%s: %w: variables in %s set %s", e.name, errSetElsewhere, variables, change.Drop)
		case variables != "" && !slices.Contains(e.options(), "--"):
			return nil, fmt.Errorf("%s: %w: variables in %s have --", e.name, errForInit, variables)
		default:
			return nil, fmt.Errorf("%s: %w", e.name, errForInit)
		}
		if err := checkArgs(e, was(e), after, want); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// plan plans to write text to the entry's file.
func (e typeOne) plan(files edit.Files, text string) (edit.Change, error) {
	c, err := files.Put(e.name, []byte(text), e.file.Mode, false)
	c.Transient = true
	after := parseEntry(e.name, &edit.File{Content: []byte(text)})
	c.Meaning = &edit.Meaning{Grammar: meaningEntry, Values: values(e.options(), after.options())}
	return c, err
}

// known returns a plan that leaves the entry as it is, with values that it gets from elsewhere. It
// is recorded, so that undo can tell the entries of kernels that are installed later.
func (e typeOne) known(vs []edit.Value) edit.Change {
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
		err = fmt.Errorf("%s: %w", kernelCmdline, errForInit)
	}
	c.Meaning = &edit.Meaning{Grammar: meaningCmdline, Values: values(before, cmdlineArgs(content))}
	return c, err
}

// editCmdline returns the content of that file after a change of its arguments.
func editCmdline(content []byte, change Change) []byte {
	lines := slices.Collect(strings.Lines(string(content)))
	last := lastIndex(lines, func(line string) bool { return strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") })
	return []byte(editLines(lines, change, last, "", func(line string, part Change) string {
		if strings.HasPrefix(line, "#") || part.IsZero() {
			return line
		}
		text := strings.TrimSuffix(line, "\n")
		return part.edit(text) + line[len(text):]
	}))
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
