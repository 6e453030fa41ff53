package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"

	"gpustack/cmd/gpustack/term"
)

// commandLine is a command line split into commands, flags and arguments. Users may write flags
// anywhere ("gpustack --root DIR host scan", "gpustack host snapshot FILE --root DIR"), but
// urfave/cli v2 accepts only the order command, flags, arguments; it would treat a flag after an
// argument as an argument and ignore it.
type commandLine struct {
	app    *cli.App
	faults *faults // unknown commands and flags

	path      []string // names of the command and its parents
	command   *cli.Command
	flags     [][]string // each with its value, if the value is a separate word
	arguments []string
	help      bool   // help is requested, which takes precedence over errors in flags and arguments
	unknown   bool   // a command is unknown: there is no help to print
	format    string // of the output: the value of --output, of any command, or ""
	root      string // the value of --root, or ""
}

// parseLine splits a command line, whose first word is the program's name.
func parseLine(a *cli.App, args []string) *commandLine {
	line := &commandLine{app: a, faults: &faults{}}
	for rest := args[min(1, len(args)):]; len(rest) > 0; {
		rest = line.take(rest)
	}
	line.faults.command = strings.Join(append([]string{a.Name}, line.path...), " ")
	line.format, line.root = line.last("output", "o"), line.last("root")
	line.check()
	return line
}

// take consumes one word, and the value of a flag, and returns the remaining words.
func (l *commandLine) take(words []string) (rest []string) {
	word, rest := words[0], words[1:]
	switch {
	case word == "--":
		l.arguments = append(l.arguments, rest...)
		return nil
	case len(word) > 1 && word[0] == '-':
		return l.takeFlag(word, rest)
	case len(l.arguments) > 0 || len(l.subcommands()) == 0:
		l.arguments = append(l.arguments, word)
	case word == "help":
		l.help = true
	default:
		l.descend(word)
	}
	return rest
}

// subcommands returns the commands that may follow.
func (l *commandLine) subcommands() []*cli.Command {
	if l.command == nil {
		return l.app.Commands
	}
	return l.command.Subcommands
}

// known returns the flags of the command.
func (l *commandLine) known() []cli.Flag {
	if l.command == nil {
		return l.app.Flags
	}
	return l.command.Flags
}

// open returns the flag whose value the next word is, or nil.
func (l *commandLine) open() cli.Flag {
	if len(l.flags) == 0 || len(l.arguments) > 0 {
		return nil
	}
	last := l.flags[len(l.flags)-1]
	name, _, hasValue := cutFlag(last[0])
	if flag := l.ownFlag(name); flag != nil && takesValue(flag) && len(last) == 1 && !hasValue {
		return flag
	}
	return nil
}

func (l *commandLine) descend(name string) {
	subcommands := l.subcommands()
	for _, c := range subcommands {
		if c.HasName(name) {
			l.path = append(l.path, name)
			l.command = c
			return
		}
	}
	if len(l.faults.all) > 0 {
		return // words after an unknown command are not checked
	}
	l.unknown = true
	known := names(subcommands)
	l.faults.add(&usageError{
		"unknown command " + strconv.Quote(strings.Join(append(l.path, name), " ")),
		l.suggest(name, known) + "the commands are " + term.Listed(known, "and"),
	})
}

// suggest returns a question that names the command which an unknown name may mean, or "". A name
// that has its right group elsewhere ("gpustack scan" for host scan) is suggested with each of its
// groups, before a similar name of the same group.
func (l *commandLine) suggest(name string, known []string) string {
	var same, leaves []string
	paths := map[string][]string{}
	for path, c := range visibleCommands(l.app.Commands) {
		if c.HasName(name) {
			same = append(same, path)
		}
		leaves = append(leaves, c.Name)
		paths[c.Name] = append(paths[c.Name], path)
	}
	if len(same) > 0 {
		return "did you mean " + term.Listed(same, "or") + "? "
	}
	if best := closest(name, known); best != "" {
		return "did you mean " + best + "? "
	}
	if best := closest(name, leaves); best != "" {
		return "did you mean " + term.Listed(paths[best], "or") + "? "
	}
	return ""
}

// takeFlag consumes a flag. Its command may still be unknown, but a flag has a value in all
// commands or in none, so its name is enough to decide whether a value follows.
func (l *commandLine) takeFlag(word string, rest []string) []string {
	name, _, hasValue := cutFlag(word)
	if name == "help" || name == "h" {
		l.help = true
		return rest
	}
	flag := l.anyFlag(name)
	if flag == nil && !strings.HasPrefix(word, "--") {
		if short := l.anyFlag(word[1:2]); short != nil && takesValue(short) { // -ojson
			l.flags = append(l.flags, []string{word[:2], word[2:]})
			return rest
		}
	}
	if flag != nil && takesValue(flag) && !hasValue && len(rest) > 0 {
		l.flags = append(l.flags, []string{word, rest[0]})
		return rest[1:]
	}
	l.flags = append(l.flags, []string{word})
	return rest
}

func cutFlag(word string) (name, value string, hasValue bool) {
	return strings.Cut(strings.TrimLeft(word, "-"), "=")
}

func (l *commandLine) anyFlag(name string) cli.Flag {
	if flag := findFlag(l.app.Flags, name); flag != nil {
		return flag
	}
	for _, c := range commands(l.app.Commands) {
		if flag := findFlag(c.Flags, name); flag != nil {
			return flag
		}
	}
	return nil
}

func findFlag(flags []cli.Flag, name string) cli.Flag {
	for _, flag := range flags {
		if slices.Contains(flag.Names(), name) {
			return flag
		}
	}
	return nil
}

func takesValue(flag cli.Flag) bool {
	documented, ok := flag.(cli.DocGenerationFlag)
	return ok && documented.TakesValue()
}

// last returns the last value of a flag, also if the command has no such flag: a program that asks
// for a document gets one that says so.
func (l *commandLine) last(names ...string) (last string) {
	for _, words := range l.flags {
		name, value, hasValue := cutFlag(words[0])
		if !slices.Contains(names, name) {
			continue
		}
		if !hasValue && len(words) > 1 {
			value = words[1]
		}
		last = value
	}
	return last
}

// check adds errors for flags that the command does not have or whose values are missing, and
// removes these flags.
func (l *commandLine) check() {
	if len(l.faults.all) > 0 || len(l.subcommands()) > 0 && l.command != nil {
		l.flags = nil // an unknown or incomplete command has no flags to check
		return
	}
	var known []string
	for _, flag := range l.known() {
		known = append(known, "--"+flag.Names()[0])
	}
	l.flags = slices.DeleteFunc(l.flags, func(words []string) bool {
		name, _, hasValue := cutFlag(words[0])
		switch flag := findFlag(l.known(), name); {
		case flag == nil:
			l.faults.add(&usageError{"unknown flag " + words[0], didYouMean("--"+name, known) + l.faults.seeHelp()})
			return true
		case takesValue(flag) && len(words) == 1 && !hasValue:
			l.faults.add(&usageError{words[0] + ": missing value", l.faults.seeHelp()})
			return true
		}
		return false
	})
}

// didYouMean returns a question that names the closest known word, or "".
func didYouMean(word string, known []string) string {
	if best := closest(word, known); best != "" {
		return "did you mean " + best + "? "
	}
	return ""
}

// closest returns the known word that is most similar to word, or "".
func closest(word string, known []string) string {
	best, likeness := "", 0.85 // words with a lower similarity have little in common
	for _, k := range known {
		if l := smetrics.JaroWinkler(word, k, 0.7, 4); l > likeness {
			best, likeness = k, l
		}
	}
	return best
}

// arranged returns the words in the order that urfave/cli accepts.
func (l *commandLine) arranged() []string {
	line := append([]string{l.app.Name}, l.path...)
	for _, words := range l.flags {
		line = append(line, words...)
	}
	return append(append(line, "--"), l.arguments...)
}
