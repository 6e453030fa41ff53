package boot

import (
	"slices"
	"strings"

	"gpustack/host"
)

// Args are kernel arguments in order, each with its original spelling and quotes.
type Args []string

// ParseArgs splits a command line as the kernel does: at white space outside double quotes (Linux,
// lib/cmdline.c, next_arg).
func ParseArgs(line string) Args {
	return host.Map(spans(line), func(s span) string { return line[s.start:s.end] })
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

// ofKernel returns the arguments without those after "--", which are for init (Linux,
// kernel/params.c, parse_args).
func (a Args) ofKernel() Args {
	if i := slices.Index(a, "--"); i >= 0 {
		return a[:i]
	}
	return a
}

// Values returns the values of all arguments with a name, in order.
func (a Args) Values(argName string) []string {
	return host.Map(a.named(argName), value)
}

// Want is what the kernel's arguments must and must not contain.
type Want struct {
	Flags []Flag
	// Exact are arguments that must occur exactly once, without others of the same name.
	Exact []string
	// Absent are arguments that must not occur.
	Absent []string
}

// Args returns the wanted arguments that arguments have or get: those to record.
func (w Want) Args(have Args) Args {
	args := Args{}
	for _, f := range w.Flags {
		if f = f.in(have); f.Option != "" {
			args = append(args, f.Param+"="+f.Option)
		}
	}
	return append(args, w.Exact...)
}

// Flag is an option in the comma-separated value of a kernel parameter. Without an option, there
// are only conflicting ones.
type Flag struct {
	Param, Option string
	Conflicts     []string // options that must not be set with it
	// Mode is set if the option chooses how the IOMMU translates for devices of the host. It is not
	// added to arguments that choose a mode or ask for SEV-SNP.
	Mode bool
}

// in returns the flag for arguments: without its option if that must not be added.
func (f Flag) in(a Args) Flag {
	if f.Mode && (a.Passthrough().Known() || a.asksForSNP()) && len(a.lacking([]string{f.Param + "=" + f.Option})) > 0 {
		f.Option = ""
	}
	return f
}

// Passthrough returns whether arguments choose that devices of the host access memory without
// translation, or that the IOMMU translates for them. It is Unknown if they choose neither. The last
// one is effective (Linux, Documentation/admin-guide/kernel-parameters.txt, iommu and
// iommu.passthrough).
func (a Args) Passthrough() host.Bool {
	mode := host.Unknown
	for _, arg := range a.ofKernel() {
		switch name(arg) {
		case "iommu":
			for o := range strings.SplitSeq(value(arg), ",") {
				if o == "pt" || o == "nopt" {
					mode = host.BoolOf(o == "pt")
				}
			}
		case "iommu.passthrough":
			mode = host.BoolOf(IsTrue(value(arg)))
		}
	}
	return mode
}

// asksForSNP reports whether arguments ask for SEV-SNP.
func (a Args) asksForSNP() bool { return slices.ContainsFunc(a.Values("kvm_amd.sev_snp"), IsTrue) }

// IsTrue reports whether the value of a parameter of the kernel is true (Linux, lib/kstrtox.c,
// kstrtobool; a parameter without a value is true).
func IsTrue(value string) bool {
	return value == "" || strings.ContainsAny(value[:1], "1yYtT") || strings.EqualFold(value, "on")
}

// WantIOMMU returns the arguments that passthrough needs on a machine with a CPU of that vendor: the
// IOMMU on. It returns false for an unknown vendor. Only arguments that switch the IOMMU off
// conflict: VFIO makes its own domains, whichever mode is chosen. On x86, where arguments choose no
// mode, devices that remain with the host get no translation, which would slow them, unless keep is
// set: with SEV-SNP on, that would switch it off (Linux, drivers/iommu/amd/init.c, iommu_snp_enable).
// AMD's IOMMU is on by default, and Arm's SMMU has no argument that switches it off. On Grace,
// passthrough breaks CUDA for GPUs that remain with the host (Linux before 6.11). (Documentation/
// admin-guide/kernel-parameters.txt: intel_iommu, amd_iommu, iommu, iommu.passthrough.)
func WantIOMMU(cpuVendor string, keep bool) (Want, bool) {
	mode := Flag{Param: "iommu", Option: "pt", Conflicts: []string{"off", "soft"}, Mode: true}
	if keep {
		mode.Option = ""
	}
	switch cpuVendor {
	case "intel":
		return Want{Flags: []Flag{{Param: "intel_iommu", Option: "on", Conflicts: []string{"off"}}, mode}}, true
	case "amd", "hygon":
		return Want{Flags: []Flag{{Param: "amd_iommu", Conflicts: []string{"off"}}, mode}}, true
	case "arm":
		return Want{}, true
	}
	return Want{}, false
}

// Change is a change of arguments: those to remove, in their original spelling, and those to
// append.
type Change struct {
	Drop Args `json:"drop"` // arguments to remove, because they conflict
	Add  Args `json:"add"`  // arguments to append
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
	a = a.ofKernel()
	for _, f := range w.Flags {
		f.in(a).change(a, &c)
	}
	for _, want := range w.Exact {
		if same := a.named(want); !slices.Equal(same, []string{want}) {
			c.drop(same...)
			c.Add = append(c.Add, want)
		}
	}
	c.drop(host.Filter(a, func(arg string) bool {
		return slices.ContainsFunc(w.Absent, func(no string) bool { return name(no) == name(arg) && value(no) == value(arg) })
	})...)
	return c
}

// Conflicting returns the arguments with an option that conflicts.
func (w Want) Conflicting(a Args) Args {
	return host.Filter(a.ofKernel(), func(arg string) bool {
		return slices.ContainsFunc(w.Flags, func(f Flag) bool { return name(arg) == f.Param && slices.ContainsFunc(words(arg), f.conflicts) })
	})
}

func words(arg string) []string { return strings.Split(value(arg), ",") }

func (f Flag) conflicts(option string) bool { return slices.Contains(f.Conflicts, option) }

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
		options := words(arg)
		wanted := f.Option != "" && slices.Contains(options, f.Option)
		switch {
		case slices.ContainsFunc(options, f.conflicts), wanted && has > 0:
			c.drop(arg)
			for _, o := range options {
				if o != f.Option && o != "" && !f.conflicts(o) && !slices.Contains(others, o) {
					others = append(others, o)
				}
			}
		case wanted:
			has++
		}
	}
	// A dropped argument is removed everywhere, so a second occurrence that was to be kept may be
	// gone too.
	kept := slices.ContainsFunc(a, func(arg string) bool {
		return name(arg) == f.Param && !slices.Contains(c.Drop, arg) && slices.Contains(words(arg), f.Option)
	})
	if f.Option != "" && !kept {
		others = append([]string{f.Option}, others...)
	}
	if len(others) > 0 {
		c.Add = append(c.Add, f.Param+"="+strings.Join(others, ","))
	}
}

func (c *Change) drop(args ...string) {
	c.Drop = host.Union(c.Drop, args...)
}

// Lacking returns the wanted arguments that are missing. An argument is there if each word of its
// comma-separated value is a word of one argument of the same name. A wanted mode of the IOMMU is
// not missing where the operator has chosen another.
func (a Args) Lacking(want []string) []string {
	lacking := a.lacking(want)
	if !a.Passthrough().Known() && !a.asksForSNP() {
		return lacking
	}
	return slices.DeleteFunc(lacking, func(arg string) bool { return Args{arg}.Passthrough().Known() })
}

func (a Args) lacking(want []string) []string {
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
