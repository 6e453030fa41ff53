package boot

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/templates"
)

// The files of GRUB's configuration. Debian's and Ubuntu's grub-mkconfig reads the
// folder too, RHEL's and Fedora's does not, so the program is asked, not a table of
// distributions.
const (
	grubDefault = "/etc/default/grub"
	grubDropIns = "/etc/default/grub.d"
	grubOwn     = grubDropIns + "/zz-gpustack.cfg" // sorts after cloud images' and kdump's
)

// grubMkconfigs are the names of the program that makes a menu of these files: GNU's,
// and that of RHEL, Fedora and SUSE.
var grubMkconfigs = []string{"/usr/sbin/grub-mkconfig", "/usr/sbin/grub2-mkconfig", "/usr/bin/grub-mkconfig", "/usr/bin/grub2-mkconfig"}

// Variables that hold kernel arguments: those of every menu entry, and those that
// the recovery entries do not have (GNU GRUB manual, "Simple configuration
// handling"; util/grub.d/10_linux.in puts them in this order).
const (
	grubAlways = "GRUB_CMDLINE_LINUX"
	grubNormal = "GRUB_CMDLINE_LINUX_DEFAULT"
)

// ErrNotInEffect says that the arguments would not reach the kernel.
var ErrNotInEffect = errors.New("the arguments would not be in effect")

// Grub is GRUB's configuration without what is ours in it.
type Grub struct {
	scripts  []script // foreign, in the order in which they are read
	whole    []script // ours among them
	values   map[string]string
	dropIns  bool   // grub.d is read
	variable string // gets our arguments
	program  host.Program
	menu     string
}

// ReadGrub reads the configuration below root. The error names file and line of
// what a shell would not take, or what cannot be known without running programs.
func ReadGrub(root host.Root) (Grub, error) {
	// On Debian the arguments belong where recovery entries do not get them.
	g, err := readGrub(root, grubNormal)
	if err == nil {
		g.program, g.menu, err = menuProgram(root)
	}
	return g, err
}

func readGrub(root host.Root, variable string) (Grub, error) {
	g := Grub{variable: variable}
	text, err := readConfig(root, grubDefault)
	if err != nil {
		return Grub{}, err
	}
	g.scripts = []script{{grubDefault, block.ReplaceAllString(text, "")}}
	g.whole = []script{{grubDefault, text}}
	names, err := root.ReadDir(grubDropIns)
	if err != nil && !host.IsAbsent(err) {
		return Grub{}, fmt.Errorf("%s: %w", grubDropIns, host.Cause(err))
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
			g.whole = append(g.whole, script{file, text})
			if file != grubOwn {
				g.scripts = append(g.scripts, script{file, text})
			}
		}
	}
	g.values, err = evaluate(g.scripts, grubAlways, grubNormal)
	return g, err
}

func readConfig(root host.Root, name string) (string, error) {
	f, err := edit.Read(root, name)
	if err != nil {
		return "", err
	}
	if f == nil {
		return "", fmt.Errorf("%s: %w", name, errors.New("no such file"))
	}
	return string(f.Content), nil
}

// readsDropIns asks grub-mkconfig, which is a shell script, whether it reads
// grub.d. Where there is none, files in the folder tell that something does.
func readsDropIns(root host.Root, some bool) (bool, error) {
	for _, program := range grubMkconfigs {
		data, err := root.ReadFile(program)
		if host.IsAbsent(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", program, host.Cause(err))
		}
		return bytes.Contains(data, []byte("/default/grub.d/")), nil
	}
	return some, nil
}

// Menus, and links to them: GNU's and Debian's, that of RHEL, Fedora and SUSE, and
// the name by which RHEL 7 finds the one on the EFI system partition (grub2.spec).
const (
	MenuOfUpdateGrub = "/boot/grub/grub.cfg" // Debian's update-grub makes it
	menuGrub2        = "/boot/grub2/grub.cfg"
	menuGrub2EFI     = "/etc/grub2-efi.cfg"
)

// menuProgram returns what makes the menu anew, and which it makes. A tree may hold
// a menu and no program.
func menuProgram(root host.Root) (program host.Program, menu string, err error) {
	there := func(names ...string) bool {
		found := false
		for _, name := range names {
			ok, existsErr := root.Exists(name)
			if existsErr != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", name, host.Cause(existsErr)))
			}
			found = found || ok
		}
		return found
	}
	switch {
	case there("/usr/sbin/update-grub"):
		return host.Program{Kind: host.UpdateGrub}, MenuOfUpdateGrub, err
	case there("/usr/sbin/grub2-mkconfig", "/usr/bin/grub2-mkconfig") || !there(MenuOfUpdateGrub) && there(menuGrub2):
		menu = menuGrub2
		if there("/sys/firmware/efi") && there(menuGrub2EFI) {
			data, readErr := root.ReadFile(menuGrub2EFI)
			if readErr != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", menuGrub2EFI, host.Cause(readErr)))
			}
			if bytes.Contains(data, []byte("menuentry ")) { // else it only leads to the other
				menu = menuGrub2EFI
			}
		}
		return host.Program{Kind: host.GrubMkconfig, File: menu}, menu, err
	}
	return host.Program{Kind: host.UpdateGrub}, MenuOfUpdateGrub, err
}

// SkipsInitramfs returns whether the menu tries to start kernels without their initramfs before it
// starts them with it (Ubuntu's grub.d/10_linux; its images for clouds set the variable).
func (g Grub) SkipsInitramfs() bool {
	return g.values["GRUB_FORCE_PARTUUID"] != ""
}

// Programs returns what makes the menu anew, which a new initramfs does not call for.
func (g Grub) Programs(arguments, _ bool) []host.Program {
	if !arguments {
		return nil
	}
	return []host.Program{g.program}
}

// Entries returns the entries of the menu as it is.
func (g Grub) Entries(root host.Root) ([]Entry, error) {
	return ReadMenu(root, g.menu)
}

// Default returns the release of the kernel that the menu starts unless the operator chooses
// another: that of its first entry, unless GRUB_DEFAULT selects another (GNU GRUB manual, "Simple
// configuration handling"). It is "" where it cannot be determined.
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

// Later returns what a menu that is made anew starts kernels with.
func (g Grub) Later(host.Root) (*Entry, error) {
	values, err := evaluate(g.whole, grubAlways, grubNormal)
	if err != nil {
		return nil, err
	}
	return &Entry{File: g.whole[len(g.whole)-1].name, Kernel: installedLater, Later: true, Args: grubArgs(values)}, nil
}

// Args returns the arguments of a normal menu entry, ours not among them.
func (g Grub) Args() Args {
	return grubArgs(g.values)
}

func grubArgs(values map[string]string) Args {
	return append(ParseArgs(values[grubAlways]), ParseArgs(values[grubNormal])...)
}

// Plan plans the change of the arguments that others have set, and takes away what
// an earlier plan added. The result is evaluated, and it is an error if it has not
// just the arguments wanted, or changes another variable.
func (g Grub) Plan(root host.Root, want Want) (edit.Plan, error) {
	change := want.Change(g.Args())
	ours, err := g.text(change)
	if err != nil {
		return nil, err
	}
	if err := g.verify(ours, change); err != nil {
		return nil, err
	}
	own, inPlace := ours, ""
	if !g.dropIns {
		own, inPlace = "", ours
	}
	var changes edit.Plan
	// Our part of a file, or the file, that another way of reading left behind
	// goes; the usual case is that there is none.
	c, err := edit.Put(root, grubDefault, []byte(withBlock(g.scripts[0].text, inPlace)), 0o644, false)
	if err != nil {
		return nil, err
	}
	if changes = append(changes, c); own != "" {
		c, err = edit.Put(root, grubOwn, []byte(own), 0o644, false)
	} else {
		c, err = edit.Remove(root, grubOwn)
	}
	if err != nil {
		return nil, err
	}
	return append(changes, c), nil
}

// Our part of a file that others own stands between these.
const (
	blockBegin = "# gpustack begin\n"
	blockEnd   = "# gpustack end\n"
)

var block = regexp.MustCompile("(?ms)^" + blockBegin + ".*?^" + blockEnd)

// withBlock puts our part at the end, where it is read last.
func withBlock(theirs, ours string) string {
	if ours == "" {
		return theirs
	}
	if theirs != "" && !strings.HasSuffix(theirs, "\n") {
		theirs += "\n"
	}
	return theirs + blockBegin + ours + blockEnd
}

// WithoutOurs returns a file of GRUB's configuration without our part of it.
func WithoutOurs(content []byte) []byte {
	return block.ReplaceAll(content, nil)
}

// plain is what an argument may be made of to be written between double quotes.
var plain = regexp.MustCompile(`^[A-Za-z0-9_.,:=+/-]+$`)

var grubArguments = template.Must(template.New("grub").Parse(templates.GrubArguments))

type grubFilter struct {
	Variable, Pattern string
}

// text is what is to be read after everything else: "" for no change.
func (g Grub) text(change Change) (string, error) {
	if change.IsZero() {
		return "", nil
	}
	for _, arg := range change.Add {
		if !plain.MatchString(arg) {
			return "", fmt.Errorf("kernel argument %q: not plain", arg)
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
	err := grubArguments.Execute(&b, struct {
		Filters  []grubFilter
		Variable string
		Add      string
	}{filters, g.variable, change.Add.String()})
	return b.String(), err
}

// isShellSpace is where a shell splits words. A carriage return, which a file with
// DOS line ends puts at the end of a value, is none.
func isShellSpace(r rune) bool {
	return r == ' ' || r == '\t' || r == '\n'
}

// verify evaluates the files with ours as their last.
func (g Grub) verify(ours string, change Change) error {
	scripts := slices.Clone(g.scripts)
	if g.dropIns {
		own := script{grubOwn, ours}
		at, _ := slices.BinarySearchFunc(scripts[1:], own, func(a, b script) int { return strings.Compare(a.name, b.name) })
		scripts = slices.Insert(scripts, 1+at, own)
	} else {
		scripts[0].text = withBlock(scripts[0].text, ours)
	}
	values, err := evaluate(scripts, grubAlways, grubNormal)
	if err != nil {
		return err
	}
	last := scripts[len(scripts)-1].name
	want := change.Apply(g.Args())
	if g.variable == grubAlways { // comes before the others
		n := len(ParseArgs(g.values[grubNormal]))
		want = append(change.Apply(g.Args()[:len(g.Args())-n]), change.keep(g.Args()[len(g.Args())-n:])...)
	}
	if got := grubArgs(values); !slices.Equal(got, want) {
		return fmt.Errorf("%s: %w: the kernel would get %q, not %q", last, ErrNotInEffect, got.String(), want.String())
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name != grubAlways && name != grubNormal && name != "_" && values[name] != g.values[name] {
			return fmt.Errorf("%s: %w: %s would change to %q", last, ErrNotInEffect, name, values[name])
		}
	}
	return nil
}
