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
}

// Offers are the completions of values by the names of their flags, or by those that the help gives
// them.
type Offers map[string]func() []Offer

// NewCompletion returns the completion of the last word of a command line. machine is the root
// without --root.
func NewCompletion(a *cli.App, words []string, machine string) *Completion {
	last := len(words) - 1
	return &Completion{Line: newLine(a, words[:last]), Next: words[last], machine: machine}
}

// Complete returns the completions of the word, and what the shell completes itself ("files",
// "dirs" or ""), after which part of the word.
func (v *Completion) Complete(values Offers) (offers []Offer, paths, before string) {
	line, next, flag := v.Line, v.Next, v.Line.open()
	if name, value, hasValue := cutFlag(next); flag == nil && hasValue && strings.HasPrefix(next, "-") {
		if flag = line.flag(name); !TakesValue(flag) {
			return nil, "", ""
		}
		before, v.Next = strings.TrimSuffix(next, value), value
	}
	switch {
	case flag != nil:
		offers, paths = v.ofFlag(flag, values)
	case strings.HasPrefix(next, "-"):
		offers = line.flagOffers()
	case line.Unknown:
	case len(line.at.Subcommands) > 0:
		offers = host.Map(shown(line.at.Subcommands), func(c *cli.Command) Offer { return Offer{c.Name, c.Usage} })
	case line.Command != nil:
		offers, paths = line.ofArgument(values)
	}
	offers = host.Filter(host.Union(nil, offers...), func(o Offer) bool { return o.Word != "" && strings.HasPrefix(o.Word, v.Next) })
	for i := range offers {
		offers[i].Word = before + offers[i].Word
	}
	if flag != nil && strings.HasPrefix(ValueName(flag), "[ROLE=]FILE") { // [ROLE=]FILE[,FILE]
		before += v.Next[:strings.LastIndexAny(v.Next, "=,")+1]
	}
	return offers, paths, before
}

// open returns the flag whose value the next word is, or nil.
func (l *Line) open() cli.Flag {
	if last := len(l.flags) - 1; last >= 0 && !l.flags[last].hasValue {
		if flag := l.flag(l.flags[last].name); TakesValue(flag) {
			return flag
		}
	}
	return nil
}

// ofFlag completes the value of a flag.
func (v *Completion) ofFlag(flag cli.Flag, values Offers) ([]Offer, string) {
	if choice, ok := flag.(ChoiceFlag); ok {
		return WordOffers(choice.Words...), ""
	}
	if p, ok := flag.(PathFlag); ok && p.Rules().Below && v.Line.last("root") != "" {
		return v.filesBelow(), ""
	}
	return values.named(flag.Names()[0], ValueName(flag))
}

// ofArgument completes an argument of the command.
func (l *Line) ofArgument(values Offers) ([]Offer, string) {
	n, names := len(l.arguments), strings.Fields(l.Command.ArgsUsage)
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
	return values.named(name)
}

// named completes a value by its names.
func (o Offers) named(names ...string) ([]Offer, string) {
	for _, name := range names {
		switch of := o[name]; {
		case of != nil:
			return of(), ""
		case strings.Contains(name, "FILE"):
			return nil, "files"
		case strings.Contains(name, "DIR"):
			return nil, "dirs"
		}
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

// filesBelow offers files of the machine below --root, which the shell would look for on its own
// machine.
func (v *Completion) filesBelow() []Offer {
	if v.Next == "" {
		return WordOffers("/")
	}
	root, err := host.NewRoot(v.Dir())
	dir := v.Next[:strings.LastIndex(v.Next, "/")+1]
	if err != nil || !path.IsAbs(dir) {
		return nil
	}
	names, _ := root.ReadDir(dir) // what cannot be read has no completions
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
		given := slices.ContainsFunc(l.flags, func(o option) bool { return slices.Contains(flag.Names(), o.name) })
		if _, usage := DescribeFlag(flag); !given || isRepeatable(flag) {
			offers = append(offers, Offer{"--" + flag.Names()[0], usage})
		}
	}
	return append(offers, Offer{"--help", "show help"})
}
