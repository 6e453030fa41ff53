package args

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
)

// Offer is a completion: a word with its description.
type Offer struct{ Word, Text string }

// ShellPaths is what the shell completes itself.
type ShellPaths string

// NoPaths means that the shell completes no paths.
const (
	NoPaths   ShellPaths = ""
	filePaths ShellPaths = "files"
	dirPaths  ShellPaths = "dirs"
)

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

// NewCompletion returns the completion of a command line after words. machine is the root without
// --root.
func NewCompletion(a *cli.App, words []string, machine string) *Completion {
	line := Line{app: a, faults: &Faults{}}
	for rest := words; len(rest) > 0; {
		rest = line.take(rest)
	}
	return &Completion{Line: &line, machine: machine}
}

// Complete returns the completions of next, and whether the shell completes paths, after which part
// of next. values are the completions of values.
func (v *Completion) Complete(next string, values ValueSource) (offers []Offer, paths ShellPaths, before string) {
	v.Next, v.values = next, values
	line := v.Line
	flag, assigned := line.open(), ""
	if name, value, hasValue := cutFlag(next); flag == nil && hasValue && strings.HasPrefix(next, "-") {
		if flag = line.ownFlag(name); flag == nil || !TakesValue(flag) {
			return nil, NoPaths, ""
		}
		assigned, v.Next = strings.TrimSuffix(next, value), value
	}
	switch {
	case flag != nil:
		offers, paths = v.ofFlag(flag)
	case strings.HasPrefix(next, "-"):
		offers = line.flagOffers()
	case len(line.faults.all) > 0: // the command is unknown
	case len(line.subcommands()) > 0:
		offers = commandOffers(line.subcommands())
	default:
		offers, paths = v.ofArgument()
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

// ofFlag completes the value of a flag.
func (v *Completion) ofFlag(flag cli.Flag) ([]Offer, ShellPaths) {
	if choice, ok := flag.(ChoiceFlag); ok {
		return WordOffers(choice.Words...), NoPaths
	}
	if p, ok := flag.(PathFlag); ok && p.Rules().Kind == MachineFile && v.Line.last("root") != "" {
		return v.filesBelow(), NoPaths
	}
	if offers, ok := v.values(flag.Names()[0]); ok {
		return offers, NoPaths
	}
	if isRoleFiles(flag) {
		offers, _ := v.values("ROLE")
		return offers, filePaths
	}
	return v.named(ValueName(flag))
}

// isRoleFiles reports whether a value of a flag is [ROLE=]FILE[,FILE].
func isRoleFiles(flag cli.Flag) bool { return strings.HasPrefix(ValueName(flag), "[ROLE=]FILE") }

// ofArgument completes an argument of the command.
func (v *Completion) ofArgument() ([]Offer, ShellPaths) {
	if v.Line.Command == nil {
		return nil, NoPaths
	}
	names := strings.Fields(v.Line.Command.ArgsUsage)
	n := len(v.Line.arguments)
	if len(names) == 1 && names[0] == "[COMMAND]" {
		n = 0 // all its words are one argument
	}
	if last := len(names) - 1; last >= 0 && strings.HasSuffix(names[last], "...") && !strings.HasSuffix(names[last], "]...") {
		n = min(n, last) // it can be repeated
	}
	if n >= len(names) {
		return nil, NoPaths
	}
	name := strings.Trim(names[n], "[].,")
	if name == strings.ToLower(name) { // words to choose from
		return WordOffers(strings.Split(name, "|")...), NoPaths
	}
	name, _, _ = strings.Cut(name, "[")
	return v.named(name)
}

// named completes a value by the name that the help gives it.
func (v *Completion) named(name string) ([]Offer, ShellPaths) {
	switch offers, ok := v.values(name); {
	case ok:
		return offers, NoPaths
	case strings.Contains(name, "FILE"):
		return nil, filePaths
	case strings.Contains(name, "DIR"):
		return nil, dirPaths
	}
	return nil, NoPaths
}

// ValueName returns the name of a flag's value in the help.
func ValueName(flag cli.Flag) string {
	spelling, _ := DescribeFlag(flag)
	return spelling[strings.LastIndex(spelling, " ")+1:]
}

// WordOffers returns completions without descriptions.
func WordOffers(words ...string) (offers []Offer) {
	for _, word := range words {
		offers = append(offers, Offer{word, ""})
	}
	return offers
}

// Dir returns the value of --root.
func (v *Completion) Dir() string { return cmp.Or(v.Line.last("root"), v.machine) }

// Root returns the machine that --root names, and false if there is none.
func (v *Completion) Root() (host.Root, bool) {
	root, err := host.NewRoot(v.Dir())
	return root, err == nil
}

// Commands offers the next word of a command of the manual.
func (v *Completion) Commands() []Offer {
	tree := v.Line.app.Commands
	for _, word := range v.Line.arguments {
		i := slices.IndexFunc(tree, func(c *cli.Command) bool { return c.Name == word })
		if i < 0 {
			return nil
		}
		tree = tree[i].Subcommands
	}
	return commandOffers(tree)
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
	for _, name := range names {
		word := dir + name
		if _, err := root.ReadDir(word); err == nil {
			word += "/"
		}
		offers = append(offers, Offer{word, ""})
	}
	return offers
}

// commandOffers returns the commands of a group.
func commandOffers(tree []*cli.Command) (offers []Offer) {
	for _, c := range tree {
		if !c.Hidden {
			offers = append(offers, Offer{c.Name, c.Usage})
		}
	}
	return offers
}

// flagOffers returns the flags that may follow: all of the command, without those that are given
// already and can be given only once.
func (l *Line) flagOffers() (offers []Offer) {
	given := map[string]bool{}
	for _, words := range l.flags {
		name, _, _ := cutFlag(words[0])
		if flag := l.ownFlag(name); flag != nil {
			given[flag.Names()[0]] = true
		}
	}
	for _, flag := range l.known() {
		if documented, ok := flag.(cli.DocGenerationSliceFlag); given[flag.Names()[0]] && (!ok || !documented.IsSliceFlag()) {
			continue
		}
		_, usage := DescribeFlag(flag)
		offers = append(offers, Offer{"--" + flag.Names()[0], usage})
	}
	return append(offers, Offer{"--help", "show help"})
}

// ownFlag returns a flag of the command, or else the flag of that name of another one: flags may
// stand before the command.
func (l *Line) ownFlag(name string) cli.Flag {
	if flag := FindFlag(l.known(), name); flag != nil {
		return flag
	}
	return l.anyFlag(name)
}
