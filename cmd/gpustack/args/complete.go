package args

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
)

// This file completes a command line for all three shells: the completion of urfave/cli v2 knows no
// values, no flags after arguments, and for fish nothing that depends on the machine.

// Offer is a completion: a word with its description.
type Offer struct{ Word, Text string }

// Completion is a command line whose next word is completed.
type Completion struct {
	Line *Line
	Next string // what is typed of the value
	// machine is the root without --root.
	machine string
	values  ValueSource
}

// ValueSource returns the completions of a value by the name of its flag, or by the name that the
// help gives it, and false for a name that it does not know.
type ValueSource func(name string) (offers []Offer, ok bool)

// Kinds of paths that the shell completes itself.
const (
	filePaths = "files"
	dirPaths  = "dirs"
)

// NewCompletion returns the completion of a command line after words. machine is the root without
// --root.
func NewCompletion(a *cli.App, words []string, machine string) *Completion {
	return &Completion{Line: newLine(a, words), machine: machine}
}

// Complete returns the completions of next, and what the shell completes itself ("files", "dirs" or
// ""), after which part of next. values are the completions of values.
func (v *Completion) Complete(next string, values ValueSource) (offers []Offer, paths, before string) {
	v.Next, v.values = next, values
	line := v.Line
	flag, assigned := v.open(), ""
	if name, value, hasValue := cutFlag(next); flag == nil && hasValue && strings.HasPrefix(next, "-") {
		if flag = line.flag(name); flag == nil || !TakesValue(flag) {
			return nil, "", ""
		}
		assigned, v.Next = strings.TrimSuffix(next, value), value
	}
	switch {
	case flag != nil:
		offers, paths = v.ofFlag(flag)
	case strings.HasPrefix(next, "-"):
		offers = line.flagOffers()
	case line.Unknown:
	case len(line.at.Subcommands) > 0:
		offers = host.Map(shown(line.at.Subcommands), func(c *cli.Command) Offer { return Offer{c.Name, c.Usage} })
	case line.Command != nil:
		offers, paths = v.ofArgument(strings.Fields(line.Command.ArgsUsage))
	}
	offers = slices.DeleteFunc(offers, func(o Offer) bool { return o.Word == "" || !strings.HasPrefix(o.Word, v.Next) })
	for i := range offers {
		offers[i].Word = assigned + offers[i].Word
	}
	before = assigned
	if flag != nil && isRoleFiles(flag) {
		before += v.Next[:strings.LastIndexAny(v.Next, "=,")+1]
	}
	return offers, paths, before
}

// open returns the flag whose value the next word is, or nil.
func (v *Completion) open() cli.Flag {
	l := v.Line
	if len(l.flags) == 0 || l.flags[len(l.flags)-1][0] != l.words[len(l.words)-1] {
		return nil
	}
	name, _, hasValue := cutFlag(l.words[len(l.words)-1])
	if flag := l.flag(name); flag != nil && TakesValue(flag) && !hasValue {
		return flag
	}
	return nil
}

// ofFlag completes the value of a flag.
func (v *Completion) ofFlag(flag cli.Flag) ([]Offer, string) {
	if choice, ok := flag.(ChoiceFlag); ok {
		return WordOffers(choice.Words...), ""
	}
	if p, ok := flag.(PathFlag); ok && p.Rules().Below && v.Line.last("root") != "" {
		return v.filesBelow(), ""
	}
	if offers, ok := v.values(flag.Names()[0]); ok {
		return offers, ""
	}
	if isRoleFiles(flag) {
		offers, _ := v.values("ROLE")
		return offers, filePaths
	}
	return v.named(ValueName(flag))
}

// isRoleFiles reports whether a value of a flag is [ROLE=]FILE[,FILE].
func isRoleFiles(flag cli.Flag) bool { return strings.HasPrefix(ValueName(flag), "[ROLE=]FILE") }

// ofArgument completes an argument of the command, which has these names.
func (v *Completion) ofArgument(names []string) ([]Offer, string) {
	n := len(v.Line.arguments)
	if last := len(names) - 1; last >= 0 && strings.HasSuffix(names[last], "...") && !strings.HasSuffix(names[last], "]...") {
		n = min(n, last) // it can be repeated
	}
	if n >= len(names) {
		return nil, ""
	}
	name := strings.Trim(names[n], "[].,")
	if name == strings.ToLower(name) { // words to choose from
		return WordOffers(strings.Split(name, "|")...), ""
	}
	name, _, _ = strings.Cut(name, "[")
	return v.named(name)
}

// named completes a value by the name that the help gives it.
func (v *Completion) named(name string) ([]Offer, string) {
	switch offers, ok := v.values(name); {
	case ok:
		return offers, ""
	case strings.Contains(name, "FILE"):
		return nil, filePaths
	case strings.Contains(name, "DIR"):
		return nil, dirPaths
	}
	return nil, ""
}

// ValueName returns the name of a flag's value in the help.
func ValueName(flag cli.Flag) string {
	spelling, _ := DescribeFlag(flag)
	return spelling[strings.LastIndex(spelling, " ")+1:]
}

// WordOffers returns completions without descriptions.
func WordOffers(words ...string) []Offer {
	return host.Map(words, func(word string) Offer { return Offer{word, ""} })
}

// Dir returns the value of --root.
func (v *Completion) Dir() string { return cmp.Or(v.Line.last("root"), v.machine) }

// Root returns the machine that --root names, and false if there is none.
func (v *Completion) Root() (host.Root, bool) {
	root, err := host.NewRoot(v.Dir())
	return root, err == nil
}

// filesBelow offers files of the machine below --root, which the shell would look for on its own
// machine.
func (v *Completion) filesBelow() (offers []Offer) {
	if v.Next == "" {
		return []Offer{{"/", ""}}
	}
	root, ok := v.Root()
	dir := v.Next[:strings.LastIndex(v.Next, "/")+1]
	if !ok || !path.IsAbs(dir) {
		return nil
	}
	names, err := root.ReadDir(dir)
	if err != nil {
		return nil
	}
	return host.Map(names, func(name string) Offer {
		word := dir + name
		if _, err := root.ReadDir(word); err == nil {
			word += "/"
		}
		return Offer{word, ""}
	})
}

// flagOffers returns the flags that may follow: all of the command, without those that are given
// already and can be given only once.
func (l *Line) flagOffers() (offers []Offer) {
	for _, flag := range l.at.Flags {
		given := slices.ContainsFunc(l.flags, func(words []string) bool {
			name, _, _ := cutFlag(words[0])
			return slices.Contains(flag.Names(), name)
		})
		if given && !isRepeatable(flag) {
			continue
		}
		_, usage := DescribeFlag(flag)
		offers = append(offers, Offer{"--" + flag.Names()[0], usage})
	}
	return append(offers, Offer{"--help", "show help"})
}
