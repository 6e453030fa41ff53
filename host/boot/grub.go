package boot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/templates"
)

// Files of GRUB's configuration. Debian's and Ubuntu's grub-mkconfig reads the drop-in directory,
// RHEL's and Fedora's does not; readsDropIns looks into the program.
const (
	GrubDefault = "/etc/default/grub"
	grubDropIns = "/etc/default/grub.d"
	grubOwn     = grubDropIns + "/zz-gpustack.cfg" // sorts after cloud images' and kdump's
)

// grubMkconfigs are the paths of the program that makes a menu from these files: GNU's, and that of
// RHEL, Fedora and SUSE.
var grubMkconfigs = []string{
	"/usr/sbin/grub-mkconfig", "/usr/sbin/grub2-mkconfig",
	"/usr/bin/grub-mkconfig", "/usr/bin/grub2-mkconfig",
}

// Variables with kernel arguments: those of every menu entry, and those of all but recovery entries
// (GNU GRUB manual, "Simple configuration handling"). Entries have them in this order
// (util/grub.d/10_linux.in).
const (
	grubAlways = "GRUB_CMDLINE_LINUX"
	grubNormal = "GRUB_CMDLINE_LINUX_DEFAULT"
)

// Errors of planned arguments that would not reach the kernel.
var (
	ErrNotInEffect = errors.New("the arguments would not take effect")
	// errOverruled is that of a file of GRUB's variables.
	errOverruled = host.WithHint(ErrNotInEffect, "edit that file so that it keeps the variable's previous value, or rename it to sort before zz-gpustack.cfg")
	// errForInit is that of arguments after which others are not the kernel's.
	errForInit = host.WithHint(ErrNotInEffect, "what follows -- is for init: remove it there")
	// errSetElsewhere is that of arguments that another program has set.
	errSetElsewhere = host.WithHint(ErrNotInEffect, "remove them from what sets the variable, such as tuned's profile")
)

// Grub is GRUB's configuration, evaluated without gpustack's own part of it.
type Grub struct {
	scripts  []script          // without gpustack's part, in the order in which they are read
	all      []script          // with gpustack's part
	values   map[string]string // of all variables, as scripts set them
	dropIns  bool              // grub-mkconfig reads grubDropIns
	variable string            // that gpustack's arguments are added to
	program  host.Program      // regenerates the menu
	menu     string
}

// ReadGrub reads the configuration below root. The error names the file and line that a shell does
// not accept or that cannot be evaluated without running programs.
func ReadGrub(root host.Root) (Grub, error) {
	// Debian's convention: recovery entries do not get the arguments.
	g, err := readGrub(root, grubNormal)
	if err == nil {
		g.program, g.menu, err = menuProgram(root)
	}
	return g, err
}

func readGrub(root host.Root, variable string) (Grub, error) {
	g := Grub{variable: variable}
	text, err := readConfig(root, GrubDefault)
	if err != nil {
		return Grub{}, err
	}
	g.scripts = []script{{GrubDefault, block().ReplaceAllString(text, "")}}
	g.all = []script{{GrubDefault, text}}
	names, err := root.ReadDir(grubDropIns)
	if err != nil && !host.IsAbsent(err) {
		return Grub{}, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return path.Ext(n) != ".cfg" || n[0] == '.' })
	if g.dropIns, err = readsDropIns(root, len(names) > 0); err != nil {
		return Grub{}, err
	}
	if g.dropIns {
		for _, n := range names {
			file := path.Join(grubDropIns, n)
			text, err := readConfig(root, file)
			if err != nil {
				return Grub{}, err
			}
			g.all = append(g.all, script{file, text})
			if file != grubOwn {
				g.scripts = append(g.scripts, script{file, text})
			}
		}
	}
	g.values, err = evaluate(g.scripts, grubAlways, grubNormal)
	return g, err
}

func readConfig(root host.Root, name string) (string, error) {
	data, err := root.ReadFile(name)
	return string(data), err
}

// readsDropIns reports whether grub-mkconfig, a shell script, reads the drop-in directory. Without
// a grub-mkconfig it returns some, whether the directory has files, which suggest that it is read.
func readsDropIns(root host.Root, some bool) (bool, error) {
	for _, program := range grubMkconfigs {
		if data, err := root.ReadFile(program); !host.IsAbsent(err) {
			return bytes.Contains(data, []byte("/default/grub.d/")), err
		}
	}
	return some, nil
}

// Menus, and links to them: GNU's and Debian's, that of RHEL, Fedora and SUSE, and RHEL 7's link to
// the one on the EFI system partition (grub2.spec).
const (
	MenuOfUpdateGrub = "/boot/grub/grub.cfg" // written by Debian's update-grub
	menuGrub2        = "/boot/grub2/grub.cfg"
	menuGrub2EFI     = "/etc/grub2-efi.cfg"
)

// menuProgram returns the program that regenerates the menu, and the menu. The program may be
// missing in a tree with a menu.
func menuProgram(root host.Root) (program host.Program, menu string, err error) {
	there := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			ok, existsErr := root.Exists(name)
			err = errors.Join(err, existsErr)
			return ok
		})
	}
	switch {
	case there("/usr/sbin/update-grub"):
		return host.Program{Kind: host.UpdateGrub}, MenuOfUpdateGrub, err
	case there("/usr/sbin/grub2-mkconfig", "/usr/bin/grub2-mkconfig") || !there(MenuOfUpdateGrub) && there(menuGrub2):
		menu = menuGrub2
		if there("/sys/firmware/efi") && there(menuGrub2EFI) {
			data, readErr := root.ReadFile(menuGrub2EFI)
			err = errors.Join(err, readErr)
			// Without entries, that file only includes the other menu.
			if bytes.Contains(data, []byte("menuentry ")) {
				menu = menuGrub2EFI
			}
		}
		return host.Program{Kind: host.GrubMkconfig, File: menu}, menu, err
	}
	return host.Program{Kind: host.UpdateGrub}, MenuOfUpdateGrub, err
}

// SkipsInitramfs reports whether the menu first tries to boot kernels without their initramfs
// (Ubuntu's grub.d/10_linux; Ubuntu's cloud images set the variable).
func (g Grub) SkipsInitramfs() bool {
	return g.values["GRUB_FORCE_PARTUUID"] != ""
}

// Programs returns the program that regenerates the menu, if arguments change. A new initramfs does
// not need it.
func (g Grub) Programs(arguments, _ bool) []host.Program {
	if !arguments {
		return nil
	}
	return []host.Program{g.program}
}

// Entries returns the entries of the present menu, and which of them boots. One that boots and is
// not Linux has no arguments.
func (g Grub) Entries(root host.Root) ([]Entry, error) {
	return readSelected(root, g.menu)
}

// Default returns the release of the kernel that boots by default: that of the first entry, unless
// GRUB_DEFAULT selects another (GNU GRUB manual, "Simple configuration handling"). It returns "" if
// that cannot be determined.
func (g Grub) Default(root host.Root) (string, error) {
	if selected := g.values["GRUB_DEFAULT"]; selected != "" && selected != "0" {
		return "", nil
	}
	entries, err := g.Entries(root)
	i := slices.IndexFunc(entries, func(e Entry) bool { return !e.Recovery })
	if err != nil || i < 0 {
		return "", err
	}
	return entries[i].release(), nil
}

// Later returns the entry that a regenerated menu has for any kernel.
func (g Grub) Later(host.Root) (*Entry, error) {
	values, err := evaluate(g.all, grubAlways, grubNormal)
	if err != nil {
		return nil, err
	}
	last := g.all[len(g.all)-1].name
	return &Entry{File: last, Kernel: installedLater, Later: true, Args: grubArgs(values)}, nil
}

// Args returns the arguments of a normal menu entry without gpustack's.
func (g Grub) Args() Args {
	return grubArgs(g.values)
}

func grubArgs(values map[string]string) Args {
	return append(ParseArgs(values[grubAlways]), ParseArgs(values[grubNormal])...)
}

// Files returns the files that Plan may change.
func (g Grub) Files() []string { return []string{GrubDefault, grubOwn} }

// Plan plans the change of the arguments and removes what an earlier plan added. It evaluates the
// planned files and returns an error unless they give exactly the wanted arguments and change no
// other variable.
func (g Grub) Plan(files edit.Files, want Want) (edit.Changes, error) {
	change := want.Change(g.Args())
	ours, err := g.text(change)
	if err != nil {
		return nil, err
	}
	if err := g.verify(ours, want); err != nil {
		return nil, err
	}
	own, inPlace := ours, ""
	if !g.dropIns {
		own, inPlace = "", ours
	}
	var changes edit.Changes
	// A grub-mkconfig that has started or ceased to read the drop-in directory leaves gpustack's
	// arguments in the wrong file: write one of the files and clear the other.
	text := withBlock(g.scripts[0].text, inPlace)
	c, err := files.Put(GrubDefault, []byte(text), 0o644, false)
	if err != nil {
		return nil, err
	}
	if c.Action() != edit.None {
		c.Meaning = g.meaning(text, change)
	}
	if changes = append(changes, c); own != "" {
		c, err = files.Put(grubOwn, []byte(own), 0o644, false)
		c.Purpose = cmp.Or(change.Add.String(), "kernel arguments")
	} else {
		c, err = files.Remove(grubOwn)
	}
	if err != nil {
		return nil, err
	}
	return append(changes, c), nil
}

// meaning returns the meaning of a change of /etc/default/grub to text. Its values are those of
// gpustack's part alone: a variable that it filters arguments out of has them still.
func (g Grub) meaning(text string, change Change) *edit.Meaning {
	m := partMeaning(block().FindAllString(g.all[0].text, -1), block().FindAllString(text, -1))
	m.Values = values(g.Args(), change.Apply(g.Args()))
	return m
}

// Markers around gpustack's part of a file that others own.
const (
	blockBegin = "# gpustack begin\n"
	blockEnd   = "# gpustack end\n"
)

var block = host.LazyRegexp("(?ms)^" + blockBegin + ".*?^" + blockEnd)

// withBlock appends gpustack's part, so that it is read last.
func withBlock(theirs, ours string) string {
	if ours == "" {
		return theirs
	}
	if theirs != "" && !strings.HasSuffix(theirs, "\n") {
		theirs += "\n"
	}
	return theirs + blockBegin + ours + blockEnd
}

// plain matches arguments that need no escaping between double quotes.
var plain = host.LazyRegexp(`^[A-Za-z0-9_.,:=+/-]+$`)

type grubFilter struct {
	Variable, Pattern string
}

// text returns the script that GRUB must read last, or "" for no change.
func (g Grub) text(change Change) (string, error) {
	if change.IsZero() {
		return "", nil
	}
	for _, arg := range change.Add {
		if !plain().MatchString(arg) {
			return "", fmt.Errorf("kernel argument %q: unsupported characters", arg)
		}
	}
	var filters []grubFilter
	for _, variable := range []string{grubAlways, grubNormal} {
		var patterns []string
		for word := range strings.FieldsFuncSeq(g.values[variable], isShellSpace) {
			pattern := "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
			if slices.Contains(change.Drop, strings.TrimRight(word, "\r")) && !slices.Contains(patterns, pattern) {
				patterns = append(patterns, pattern)
			}
		}
		if patterns != nil {
			filters = append(filters, grubFilter{variable, strings.Join(patterns, " | ")})
		}
	}
	var b strings.Builder
	err := template.Must(template.New("grub").Parse(templates.GrubArguments)).Execute(&b, struct {
		Filters  []grubFilter
		Variable string
		Add      string
	}{filters, g.variable, change.Add.String()})
	return b.String(), err
}

// isShellSpace reports whether a shell splits words at r. It does not at a carriage return, which
// is part of a value in files with DOS line ends.
func isShellSpace(r rune) bool {
	return r == ' ' || r == '\t' || r == '\n'
}

// verify evaluates the files together with ours, gpustack's part, and checks the resulting values.
func (g Grub) verify(ours string, wanted Want) error {
	scripts := slices.Clone(g.scripts)
	if g.dropIns {
		own := script{grubOwn, ours}
		byName := func(a, b script) int { return strings.Compare(a.name, b.name) }
		at, _ := slices.BinarySearchFunc(scripts[1:], own, byName)
		scripts = slices.Insert(scripts, 1+at, own)
	} else {
		scripts[0].text = withBlock(scripts[0].text, ours)
	}
	values, err := evaluate(scripts, grubAlways, grubNormal)
	if err != nil {
		return err
	}
	last, change := scripts[len(scripts)-1].name, wanted.Change(g.Args())
	want := change.Apply(g.Args())
	if g.variable == grubAlways { // its arguments precede those of grubNormal
		n := len(ParseArgs(g.values[grubNormal]))
		want = append(change.Apply(g.Args()[:len(g.Args())-n]), change.keep(g.Args()[len(g.Args())-n:])...)
	}
	got := grubArgs(values)
	if !wanted.Change(got).IsZero() && slices.Contains(got, "--") {
		return fmt.Errorf("%s: %w: the arguments have --", g.variable, errForInit)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: %w: the kernel would get %q instead of %q",
			last, errOverruled, got.String(), want.String())
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name != grubAlways && name != grubNormal && name != "_" && values[name] != g.values[name] {
			return fmt.Errorf("%s: %w: %s would change to %q", last, errOverruled, name, values[name])
		}
	}
	return nil
}
