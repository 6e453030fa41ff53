package boot

import (
	"slices"
	"strings"
)

// Args are kernel arguments in order, each with its original spelling and quotes.
type Args []string

// ParseArgs splits a command line as the kernel does: at white space outside double quotes (Linux,
// lib/cmdline.c, next_arg).
func ParseArgs(line string) Args {
	var args Args
	for _, s := range spans(line) {
		args = append(args, line[s.start:s.end])
	}
	return args
}

// span is the position of an argument in a line.
type span struct {
	start, end int
}

func spans(line string) []span {
	var args []span
	start, quoted := -1, false
	for i := range len(line) {
		switch c := line[i]; {
		case !quoted && isSpace(c):
			if start >= 0 {
				args = append(args, span{start, i})
			}
			start = -1
			continue
		case c == '"':
			quoted = !quoted
		}
		if start < 0 {
			start = i
		}
	}
	if start >= 0 {
		args = append(args, span{start, len(line)})
	}
	return args
}

// isSpace is the kernel's isspace for ASCII (include/linux/ctype.h).
func isSpace(c byte) bool {
	return c == ' ' || '\t' <= c && c <= '\r'
}

func (a Args) String() string {
	return strings.Join(a, " ")
}

// name returns the name of an argument, normalized for comparison: '-' and '_' are equal (Linux,
// kernel/params.c, dash2underscore).
func name(arg string) string {
	n, _, _ := strings.Cut(arg, "=")
	return strings.ReplaceAll(strings.Trim(n, `"`), "-", "_")
}

func value(arg string) string {
	_, v, _ := strings.Cut(arg, "=")
	return strings.Trim(v, `"`)
}

// Values returns the values of all arguments with a name, in order.
func (a Args) Values(argName string) []string {
	var values []string
	for _, arg := range a {
		if name(arg) == name(argName) {
			values = append(values, value(arg))
		}
	}
	return values
}

// Want is what the kernel's arguments must and must not contain.
type Want struct {
	Flags []Flag
	// Exact are arguments that must occur exactly once, without others of the same name.
	Exact []string
	// Absent are arguments that conflict with the others and must not occur.
	Absent []string
}

// Args returns the wanted arguments, for a machine that has none yet.
func (w Want) Args() Args {
	return w.Change(nil).Add
}

// Flag is an option in the comma-separated value of a kernel parameter.
type Flag struct {
	Param, Option string
	Conflicts     []string // options that must not be set with it
}

// WantIOMMU returns the arguments that passthrough needs on a machine with a CPU of that vendor:
// the IOMMU on, and without address translation for devices that remain with the host, which
// would slow them. It returns false for an unknown vendor. AMD's IOMMU is on by default (Linux,
// Documentation/admin-guide/kernel-parameters.txt: intel_iommu, amd_iommu, iommu,
// iommu.passthrough).
func WantIOMMU(cpuVendor string) (Want, bool) {
	passthrough := Flag{"iommu", "pt", []string{"nopt", "soft", "off"}}
	switch cpuVendor {
	case "intel":
		return Want{
			Flags:  []Flag{{"intel_iommu", "on", []string{"off"}}, passthrough},
			Absent: []string{"iommu.passthrough=0"},
		}, true
	case "amd", "hygon":
		return Want{
			Flags:  []Flag{passthrough},
			Absent: []string{"amd_iommu=off", "iommu.passthrough=0"},
		}, true
	case "arm":
		return Want{Exact: []string{"iommu.passthrough=1"}}, true
	}
	return Want{}, false
}

// Change is a change of arguments: those to remove, in their original spelling, and those to
// append.
type Change struct {
	Drop, Add Args
}

// IsZero reports whether nothing changes.
func (c Change) IsZero() bool {
	return len(c.Drop)+len(c.Add) == 0
}

// Apply returns the arguments after the change.
func (c Change) Apply(a Args) Args {
	return append(c.keep(a), c.Add...)
}

func (c Change) keep(a Args) Args {
	return slices.DeleteFunc(slices.Clone(a), func(arg string) bool { return slices.Contains(c.Drop, arg) })
}

// edit applies the change to a line of arguments. All other arguments, and the white space before
// and between them, remain unchanged.
func (c Change) edit(line string) string {
	var b strings.Builder
	at, kept := 0, 0
	for i, s := range spans(line) {
		if i == 0 {
			b.WriteString(line[:s.start])
			at = s.start
		}
		if !slices.Contains(c.Drop, line[s.start:s.end]) {
			if kept > 0 {
				b.WriteString(line[at:s.start])
			}
			b.WriteString(line[s.start:s.end])
			kept++
		}
		at = s.end
	}
	if len(c.Add) > 0 {
		if kept > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(c.Add.String())
	}
	return b.String()
}

// Change returns the change that makes arguments match w. All other arguments remain, in order.
func (w Want) Change(a Args) Change {
	var c Change
	for _, f := range w.Flags {
		f.change(a, &c)
	}
	for _, want := range w.Exact {
		var same []string
		for _, arg := range a {
			if name(arg) == name(want) {
				same = append(same, arg)
			}
		}
		if !slices.Equal(same, []string{want}) {
			c.drop(same...)
			c.Add = append(c.Add, want)
		}
	}
	for _, arg := range a {
		conflicts := func(no string) bool { return name(no) == name(arg) && value(no) == value(arg) }
		if slices.ContainsFunc(w.Absent, conflicts) {
			c.drop(arg)
		}
	}
	return c
}

// change adds to c what makes f set. It keeps an argument that has the option already
// ("intel_iommu=on,sm_on"), removes conflicting options from all others, and keeps their remaining
// options.
func (f Flag) change(a Args, c *Change) {
	has := 0
	var others []string
	for _, arg := range a {
		if name(arg) != f.Param {
			continue
		}
		options := strings.Split(value(arg), ",")
		conflicts := func(o string) bool { return slices.Contains(f.Conflicts, o) }
		switch {
		case slices.ContainsFunc(options, conflicts), slices.Contains(options, f.Option) && has > 0:
			c.drop(arg)
			for _, o := range options {
				if o != f.Option && o != "" && !conflicts(o) && !slices.Contains(others, o) {
					others = append(others, o)
				}
			}
		case slices.Contains(options, f.Option):
			has++
		}
	}
	// A dropped argument is removed everywhere, so a second occurrence that was to be kept may be
	// gone too.
	kept := slices.ContainsFunc(a, func(arg string) bool {
		return name(arg) == f.Param && !slices.Contains(c.Drop, arg) &&
			slices.Contains(strings.Split(value(arg), ","), f.Option)
	})
	switch {
	case !kept:
		c.Add = append(c.Add, f.Param+"="+strings.Join(append([]string{f.Option}, others...), ","))
	case len(others) > 0:
		c.Add = append(c.Add, f.Param+"="+strings.Join(others, ","))
	}
}

func (c *Change) drop(args ...string) {
	for _, arg := range args {
		if !slices.Contains(c.Drop, arg) {
			c.Drop = append(c.Drop, arg)
		}
	}
}

// Lacking returns the wanted arguments that are missing. An argument is there if each word of its
// comma-separated value is a word of one argument of the same name.
func (a Args) Lacking(want []string) []string {
	var lacking []string
	for _, arg := range want {
		name, value, _ := strings.Cut(arg, "=")
		if !slices.ContainsFunc(a.Values(name), func(have string) bool {
			words := strings.Split(have, ",")
			return !slices.ContainsFunc(strings.Split(value, ","), func(w string) bool { return !slices.Contains(words, w) })
		}) {
			lacking = append(lacking, arg)
		}
	}
	return lacking
}
