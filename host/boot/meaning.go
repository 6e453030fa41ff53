package boot

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
)

// Grammars of files with kernel arguments, as the journal names them (edit.Meaning).
const (
	meaningEntry    = "boot entry"          // of the Boot Loader Specification
	meaningCmdline  = "kernel command line" // /etc/kernel/cmdline
	meaningEnv      = "grubenv"             // the variable kernelopts of GRUB's environment block
	meaningDefaults = "grub defaults"       // gpustack's part of /etc/default/grub
)

// values returns the arguments that differ between before and after, by name.
func values(before, after Args) []edit.Value {
	changed := []edit.Value{}
	seen := map[string]bool{}
	for _, arg := range slices.Concat(before, after) {
		n := name(arg)
		if seen[n] {
			continue
		}
		seen[n] = true
		was, is := before.named(n), after.named(n)
		if !slices.Equal(was, is) {
			spelled, _, _ := strings.Cut(arg, "=")
			changed = append(changed, edit.Value{Name: spelled, Before: was, After: is})
		}
	}
	return changed
}

// named returns the arguments with a name, in order.
func (a Args) named(argName string) []string {
	return append([]string{}, host.Filter(a.ofKernel(), func(arg string) bool { return name(arg) == name(argName) })...)
}

// sameArgs reports whether two lists contain the same arguments, however often and in whatever
// order: programs that rewrite a line of arguments may repeat, reorder and quote them.
func sameArgs(a, b []string) bool {
	set := func(args []string) []string {
		var all []string
		for _, arg := range args {
			_, _, has := strings.Cut(arg, "=")
			all = append(all, fmt.Sprint(name(arg), has, value(arg)))
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return slices.Equal(set(a), set(b))
}

// revertArgs returns the change that sets arguments back to their values before, as far as now has
// those after. Arguments that already are as before remain. inherited arguments came from another
// file, so they may be missing. The other arguments were changed since.
func revertArgs(now Args, vs []edit.Value, inherited bool) (c Change, changed []*edit.ChangedValue) {
	for _, v := range vs {
		have := now.named(v.Name)
		switch {
		case sameArgs(have, v.Before), inherited && len(have) == 0:
		case sameArgs(have, v.After):
			c.drop(have...)
			c.Add = append(c.Add, v.Before...)
		default:
			changed = append(changed, &edit.ChangedValue{Now: have, Value: v})
		}
	}
	return c, changed
}

// Revert returns the content of a file of this package's grammars in which the values of a change
// are as before it, or nil if the file is to be removed. Everything else remains. inherited means
// that the file got the values from another one.
//
// Errors: all values that were changed since, each an *edit.ChangedValue.
func Revert(file string, m edit.Meaning, now []byte, inherited bool) ([]byte, error) {
	switch m.Grammar {
	case meaningEntry:
		return revertEntry(file, m, now, inherited)
	case meaningCmdline:
		return revertCmdline(file, m, now, inherited)
	case meaningEnv:
		return revertEnvironment(file, m, now)
	case meaningDefaults:
		return revertDefaults(file, m, now)
	}
	return nil, host.WithHint(fmt.Errorf("%s: unknown grammar %q", file, m.Grammar), "use the release of gpustack that made the change")
}

// at returns the errors of changed values, with the first line of content that contains the
// argument, or fallback.
func at(file string, changed []*edit.ChangedValue, fallback int, lines []string, args func(line string) Args) error {
	var errs []error
	for _, c := range changed {
		c.File, c.Line = file, fallback
		i := slices.IndexFunc(lines, func(line string) bool { return len(args(line).named(c.Name)) > 0 })
		if i >= 0 {
			c.Line = i + 1
		}
		errs = append(errs, c)
	}
	return errors.Join(errs...)
}

func revertEntry(file string, m edit.Meaning, now []byte, inherited bool) ([]byte, error) {
	e := parseEntry(file, &edit.File{Content: now})
	before := e.options()
	c, changed := revertArgs(before, m.Values, inherited)
	options := func(line string) Args {
		if f := parseField(line); f.key == "options" {
			return ParseArgs(f.value)
		}
		return nil
	}
	if changed != nil {
		return nil, at(file, changed, cmp.Or(lastIndex(e.lines, isOptions)+1, len(e.lines), 1), e.lines, options)
	}
	if c.IsZero() {
		return now, nil
	}
	text := e.edit(c)
	after := parseEntry(file, &edit.File{Content: []byte(text)})
	if err := checkReverted(file, before, after.options(), c); err != nil {
		return nil, err
	}
	others := func(e typeOne) []string {
		lines := host.Filter(e.lines, func(line string) bool { return !isOptions(line) })
		return host.Map(lines, func(line string) string { return strings.TrimSuffix(line, "\n") })
	}
	if !slices.Equal(others(e), others(after)) {
		return nil, fmt.Errorf("%s: %w", file, errNotReverted)
	}
	return []byte(text), nil
}

// errNotReverted is an error of gpustack.
var errNotReverted = host.WithHint(errors.New("undo would change more than what gpustack wrote"),
	"remove gpustack's kernel arguments by hand, and report the file as an error of gpustack")

// checkReverted returns an error unless exactly the arguments of a change differ.
func checkReverted(file string, before, after Args, c Change) error {
	if !slices.Equal(after, c.Apply(before)) {
		return fmt.Errorf("%s: %w: its arguments would be %q", file, errNotReverted, after.String())
	}
	return nil
}

func revertCmdline(file string, m edit.Meaning, now []byte, inherited bool) ([]byte, error) {
	before := cmdlineArgs(now)
	if w := m.Whole; w != nil && sameArgs(before, ParseArgs(strings.Join(w.After, " "))) {
		return whole(w.Before), nil
	}
	c, changed := revertArgs(before, m.Values, inherited)
	if changed != nil {
		return nil, at(file, changed, 1, slices.Collect(strings.Lines(string(now))), func(line string) Args { return cmdlineArgs([]byte(line)) })
	}
	if c.IsZero() {
		return now, nil
	}
	content := editCmdline(now, c)
	return content, checkReverted(file, before, cmdlineArgs(content), c)
}

// whole returns the content of a file with one value, nil for none.
func whole(text []string) []byte {
	if len(text) == 0 {
		return nil
	}
	return []byte(text[0] + "\n")
}

func revertEnvironment(file string, m edit.Meaning, now []byte) ([]byte, error) {
	env, err := parseEnvironment(grubEnv, &edit.File{Content: now})
	if err != nil {
		return nil, err
	}
	have, ok := env.get(kernelOpts)
	if !ok {
		return now, nil // entries no longer get arguments from it
	}
	if w := m.Whole; w != nil && slices.Equal(w.After, []string{have}) {
		if len(w.Before) == 0 {
			return env.withoutKernelOpts().content()
		}
		return env.setKernelOpts(w.Before[0]).content()
	}
	before := ParseArgs(have)
	c, changed := revertArgs(before, m.Values, false)
	if changed != nil {
		lines := slices.Collect(strings.Lines(string(now)))
		return nil, at(file, changed, max(lastIndex(lines, isKernelOpts)+1, 1), nil, nil)
	}
	if c.IsZero() {
		return now, nil
	}
	after := c.edit(have)
	if err := checkReverted(file, before, ParseArgs(after), c); err != nil {
		return nil, err
	}
	return env.setKernelOpts(after).content()
}

// assignment matches a line that sets one of GRUB's variables to a text without expansions, as
// grubby writes it.
var assignment = host.LazyRegexp(`^([ \t]*(?:` + grubAlways + `|` + grubNormal + `)=)(?:"([^"$` + "`" + `\\]*)"|'([^']*)'|([^ \t'"$` + "`" +
	`\\]*))([ \t]*\r?\n?)$`)

// assigned returns the parts of such a line: what is before the arguments, the arguments and what
// is after them. ok is false for other lines.
func assigned(line string) (before, args, after string, ok bool) {
	m := assignment().FindStringSubmatchIndex(line)
	if m == nil {
		return "", "", "", false
	}
	for _, i := range []int{4, 6, 8} {
		if m[i] >= 0 {
			return line[:m[i]], line[m[i]:m[i+1]], line[m[i+1]:], true
		}
	}
	return "", "", "", false
}

// inLine returns the arguments in a line of GRUB's configuration that assigns them.
func inLine(line string) Args {
	if _, value, ok := strings.Cut(line, "="); ok && strings.HasPrefix(strings.TrimSpace(line), grubAlways) {
		return ParseArgs(strings.Trim(strings.TrimSpace(value), `"'`))
	}
	return nil
}

// inBlocks returns the arguments in gpustack's part of the file.
func inBlocks(parts []string) Args {
	var args Args
	for line := range strings.Lines(strings.Join(parts, "")) {
		args = append(args, inLine(line)...)
	}
	return args
}

// revertDefaults restores gpustack's part of /etc/default/grub. grubby --update-kernel=ALL replaces
// every line that assigns GRUB_CMDLINE_LINUX, gpustack's included, by one with the value of all of
// them (grubby 8.40, grubby-bls): then gpustack's arguments are removed from the other lines too.
func revertDefaults(file string, m edit.Meaning, now []byte) ([]byte, error) {
	text := string(now)
	lines := slices.Collect(strings.Lines(text))
	ours := block().FindAllString(text, -1)
	if len(ours) > 1 {
		return nil, host.WithHint(fmt.Errorf("%s: has %d parts of gpustack", file, len(ours)),
			"remove all parts between '# gpustack begin' and '# gpustack end' but the last")
	}
	if m.Whole == nil || slices.Equal(ours, m.Whole.Before) {
		return now, nil
	}
	restored := block().ReplaceAllLiteralString(text, strings.Join(m.Whole.Before, ""))
	if slices.Equal(ours, m.Whole.After) {
		if ours == nil {
			part := strings.TrimPrefix(strings.Join(m.Whole.Before, ""), blockBegin)
			restored = withBlock(text, strings.TrimSuffix(part, blockEnd))
		}
		return []byte(restored), nil
	}
	first := max(slices.Index(lines, blockBegin), 0) // the line of gpustack's part
	if len(m.Values) == 0 {
		return nil, host.WithHint(fmt.Errorf("%s:%d: gpustack's part of the file was edited since", file, first+1),
			host.Textf("revert that edit, then run %s again", host.NewCommand("undo")))
	}
	if _, changed := revertArgs(inBlocks(ours), m.Values, false); changed != nil {
		inside := make([]string, first, len(lines)) // without the lines before the part
		return nil, at(file, changed, first+1, append(inside, slices.Collect(strings.Lines(strings.Join(ours, "")))...), inLine)
	}
	var b strings.Builder
	inside := false
	var errs []error
	for line := range strings.Lines(restored) {
		inside = inside || line == blockBegin
		before, args, after, ok := assigned(line)
		if !ok || inside {
			b.WriteString(line)
			inside = inside && line != blockEnd
			continue
		}
		c, changed := revertArgs(ParseArgs(args), m.Values, true)
		errs = append(errs, at(file, changed, 1, lines, inLine))
		b.WriteString(before + c.edit(args) + after)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return []byte(b.String()), checkDefaults(file, text, b.String(), m)
}

// partMeaning returns the meaning of a change of gpustack's part of /etc/default/grub, without
// values.
func partMeaning(before, after []string) *edit.Meaning {
	w := &edit.Value{Name: strings.TrimSpace(blockBegin), Before: append([]string{}, before...), After: append([]string{}, after...)}
	return &edit.Meaning{Grammar: meaningDefaults, Whole: w, Values: []edit.Value{}}
}

// WithoutOurs returns the change that removes gpustack's part from /etc/default/grub, and its
// arguments from lines that grubby has rewritten since. last is the meaning of the latest change of
// the part, nil if unknown.
func WithoutOurs(now *edit.File, last *edit.Meaning) (edit.Change, error) {
	c := edit.Change{Name: GrubDefault, Before: now}
	ours := block().FindAllString(string(now.Content), -1)
	content := block().ReplaceAll(now.Content, nil)
	if last != nil && last.Whole != nil && len(ours) == 1 {
		m := *last
		m.Whole = partMeaning(nil, last.Whole.After).Whole
		reverted, err := revertDefaults(GrubDefault, m, now.Content)
		var changed *edit.ChangedValue // by hand: then it is not gpustack's any more
		switch {
		case err == nil:
			content = reverted
		case !errors.As(err, &changed):
			return edit.Change{}, err
		}
	}
	c.After = now.With(content)
	if c.Action() != edit.None {
		c.Meaning = partMeaning(ours, nil)
	}
	return c, nil
}

// checkDefaults evaluates both texts, and returns an error unless the values are the only
// difference. grubby makes a shell reject gpustack's part if that sets a variable in several lines:
// then the text before is evaluated without it.
func checkDefaults(file, before, after string, m edit.Meaning) error {
	was, err := evaluate([]script{{file, before}}, grubAlways, grubNormal)
	if err != nil {
		was, err = evaluate([]script{{file, block().ReplaceAllString(before, "")}}, grubAlways, grubNormal)
	}
	if err != nil {
		return err
	}
	is, err := evaluate([]script{{file, after}}, grubAlways, grubNormal)
	if err != nil {
		return err
	}
	others := func(args Args) Args {
		return slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
			return slices.ContainsFunc(m.Values, func(v edit.Value) bool { return name(v.Name) == name(arg) })
		})
	}
	for _, n := range slices.Sorted(maps.Keys(was)) {
		switch n {
		case "_":
		case grubAlways, grubNormal:
			if a, b := others(ParseArgs(was[n])), others(ParseArgs(is[n])); !slices.Equal(a, b) {
				return host.WithHint(fmt.Errorf("%s: %s would change from %q to %q: arguments were added to gpustack's part of the file", file, n, a, b),
					host.Textf("move them out of the part between '# gpustack begin' and '# gpustack end', then run %s again", host.NewCommand("undo")))
			}
		default:
			if was[n] != is[n] {
				return fmt.Errorf("%s: %w: %s would be %q", file, errNotReverted, n, is[n])
			}
		}
	}
	args := grubArgs(is)
	for _, v := range m.Values {
		want := v.Before
		if ours := inBlocks(m.Whole.Before).named(v.Name); len(ours) > 0 {
			want = ours
		}
		if !sameArgs(args.named(v.Name), want) {
			return fmt.Errorf("%s: %w: its arguments would be %q", file, errNotReverted, args.String())
		}
	}
	return nil
}

// Known is a file with kernel arguments that a change knew, by their values. The change left it as
// it was if it is not among the changed files.
type Known struct {
	Name    string
	Meaning edit.Meaning
}

// machineOf returns what the name of an entry begins with: the machine's id or another token
// (kernel-install(8), entry-token).
func machineOf(name string) string {
	token, _, _ := strings.Cut(path.Base(name), "-")
	return path.Join(path.Dir(name), token)
}

// Since returns the boot entries of this system that are not among the known ones: those of kernels
// installed since. They got their arguments from /etc/kernel/cmdline, from GRUB's variable
// kernelopts, or from the default entry, so the values of the first of these that is known are
// those that they may contain (kernel-install(8); grub2, 20-grub.install). An unknown
// /etc/kernel/cmdline may contain them too: grub2-mkconfig creates it (grub2 of RHEL 9, 10_linux).
func Since(root host.Root, known []Known) ([]Known, error) {
	var source *Known
	var dirs []string
	rank := func(k Known) int {
		return slices.Index([]string{meaningEntry, meaningEnv, meaningCmdline}, k.Meaning.Grammar)
	}
	for i, k := range known {
		if k.Meaning.Grammar == meaningEntry {
			dirs = append(dirs, path.Dir(k.Name))
		}
		rescue := typeOne{name: k.Name}.isRescue()
		if rank(k) < 0 || rescue {
			continue
		}
		if source == nil || rank(k) > rank(*source) || rank(k) == rank(*source) && compareVersions(path.Base(k.Name), path.Base(source.Name)) > 0 {
			source = &known[i]
		}
	}
	if source == nil || len(source.Meaning.Values) == 0 {
		return nil, nil
	}
	slices.Sort(dirs)
	var since []Known
	if !slices.ContainsFunc(known, func(k Known) bool { return k.Name == kernelCmdline }) {
		since = append(since, Known{kernelCmdline, edit.Meaning{Grammar: meaningCmdline, Values: source.Meaning.Values}})
	}
	for _, dir := range slices.Compact(dirs) {
		entries, err := readEntries(root, dir)
		if err == nil {
			entries, err = ofThisSystem(root, entries)
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			// Entries of other systems on a shared partition begin with another machine's id.
			ofThisMachine := func(k Known) bool { return machineOf(k.Name) == machineOf(e.name) }
			isKnown := func(k Known) bool { return k.Name == e.name }
			if slices.ContainsFunc(known, ofThisMachine) && !slices.ContainsFunc(known, isKnown) {
				since = append(since, Known{e.name, edit.Meaning{Grammar: meaningEntry, Values: source.Meaning.Values}})
			}
		}
	}
	return since, nil
}
