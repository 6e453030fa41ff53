package boot

import (
	"slices"
	"strings"
)

// Args are kernel arguments in their order, each as it is written.
type Args []string

// ParseArgs splits a command line as the kernel does: at white space outside
// double quotes (Linux, lib/cmdline.c, next_arg).
func ParseArgs(line string) Args {
	var args Args
	for _, s := range spans(line) {
		args = append(args, line[s.start:s.end])
	}
	return args
}

// span is where an argument stands in a line.
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

// name is an argument's name in the spelling in which names are compared: '-' and
// '_' are the same (Linux, kernel/params.c, dash2underscore).
func name(arg string) string {
	n, _, _ := strings.Cut(arg, "=")
	return strings.ReplaceAll(strings.Trim(n, `"`), "-", "_")
}

func value(arg string) string {
	_, v, _ := strings.Cut(arg, "=")
	return strings.Trim(v, `"`)
}

// Values returns the values of all arguments of a name, in their order.
func (a Args) Values(argName string) []string {
	var values []string
	for _, arg := range a {
		if name(arg) == name(argName) {
			values = append(values, value(arg))
		}
	}
	return values
}

// Want is what shall be among the kernel's arguments, and what not.
type Want struct {
	Flags []Flag
	// Exact are arguments that shall be there once, and no other of their name.
	Exact []string
	// Absent are arguments that contradict the others, as they are written.
	Absent []string
}

// Args returns what is wanted as arguments, for a machine that has none yet.
func (w Want) Args() Args {
	return w.Change(nil).Add
}

// Flag is a word in the comma list that a kernel parameter takes.
type Flag struct {
	Param, Word string
	Against     []string // words that say otherwise
}

// WantIOMMU is what a machine with that CPU needs for passthrough: its IOMMU on,
// and devices that stay with the host not slowed by it. The second value is false
// where the vendor is not known here. (Linux,
// Documentation/admin-guide/kernel-parameters.txt: intel_iommu, amd_iommu, iommu,
// iommu.passthrough. AMD's is on unless it is switched off.)
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

// Change is what becomes of arguments: those that are to go, each as it is
// written, and those that are to come at the end.
type Change struct {
	Drop, Add Args
}

// IsZero tells whether nothing changes.
func (c Change) IsZero() bool {
	return len(c.Drop)+len(c.Add) == 0
}

// Apply returns the arguments as the change leaves them.
func (c Change) Apply(a Args) Args {
	return append(c.keep(a), c.Add...)
}

func (c Change) keep(a Args) Args {
	return slices.DeleteFunc(slices.Clone(a), func(arg string) bool { return slices.Contains(c.Drop, arg) })
}

// edit makes the change in a line of arguments, of which every other argument stays
// as it is written, and the white space before and between them.
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

// Change returns what is to be done to arguments so that they are as wanted. All
// others stay, in their order.
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
		if slices.ContainsFunc(w.Absent, func(no string) bool { return name(no) == name(arg) && value(no) == value(arg) }) {
			c.drop(arg)
		}
	}
	return c
}

// change keeps an argument that has the word already ("intel_iommu=on,sm_on") and
// takes contradictions out of the others, whose further words stay.
func (f Flag) change(a Args, c *Change) {
	has := 0
	var others []string
	for _, arg := range a {
		if name(arg) != f.Param {
			continue
		}
		words := strings.Split(value(arg), ",")
		against := slices.ContainsFunc(words, func(w string) bool { return slices.Contains(f.Against, w) })
		switch {
		case against, slices.Contains(words, f.Word) && has > 0:
			c.drop(arg)
			for _, w := range words {
				if w != f.Word && w != "" && !slices.Contains(f.Against, w) && !slices.Contains(others, w) {
					others = append(others, w)
				}
			}
		case slices.Contains(words, f.Word):
			has++
		}
	}
	// What is dropped goes wherever it stands: a second spelling of the word may
	// have gone with the first.
	kept := slices.ContainsFunc(a, func(arg string) bool {
		return name(arg) == f.Param && slices.Contains(strings.Split(value(arg), ","), f.Word) && !slices.Contains(c.Drop, arg)
	})
	switch {
	case !kept:
		c.Add = append(c.Add, f.Param+"="+strings.Join(append([]string{f.Word}, others...), ","))
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
