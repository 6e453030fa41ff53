package host

import (
	"fmt"
	"strings"
	"unicode"
)

// Text is a text for the operator with commands of gpustack as parts: a hint or a remedy. A
// constant without a command is a Text; Textf makes one with commands. Packages that print nothing
// hand it on as it is, and compare it like a string; Render prints it.
type Text string

// A command in a Text stands between commandBegin and commandEnd, its words with their flags
// separated by the other two: control characters (ECMA-48), which no text contains.
const (
	commandBegin = "\x02"
	commandEnd   = "\x03"
	betweenWords = "\x1e"
	betweenParts = "\x1f"
)

// Textf returns a text in the format of package fmt. Each argument that is a [Command] or a Text is
// a part of it; %s is its verb. Others are made printable ([Printable]): the name of a file may be
// foreign, and must not look like a part.
func Textf(format string, args ...any) Text {
	for i, arg := range args {
		switch a := arg.(type) {
		case Command:
			args[i] = string(a.Text())
		case Text:
			args[i] = string(a)
		default:
			args[i] = foreign{a}
		}
	}
	return Text(fmt.Sprintf(format, args...))
}

// foreign is an argument of Textf that is formatted as what it is, and made printable.
type foreign struct{ value any }

// Format implements fmt.Formatter.
func (f foreign) Format(s fmt.State, verb rune) {
	fmt.Fprint(s, Printable(fmt.Sprintf(fmt.FormatString(s, verb), f.value))) //nolint:errcheck // s is the buffer of Sprintf
}

// Printable replaces control characters, which a terminal would execute, apart from line breaks and
// tabs: names and values may come from a file that another user has made.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) || r == '\n' || r == '\t' {
			return r
		}
		return '?'
	}, s)
}

// String returns the text with its commands as they are, without what a run adds to them.
func (t Text) String() string {
	return t.Render(func(plain string) string { return plain }, Command.String)
}

// MarshalText returns what String returns.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// Render returns the text for a reader, without control characters: plain returns what stands
// between commands, and line a command.
func (t Text) Render(plain func(string) string, line func(Command) string) string {
	var b strings.Builder
	for rest := string(t); rest != ""; {
		before, after, ok := strings.Cut(rest, commandBegin)
		b.WriteString(plain(Printable(before)))
		if !ok {
			break
		}
		var command string
		command, rest, _ = strings.Cut(after, commandEnd)
		b.WriteString(Printable(line(parseCommand(command))))
	}
	return b.String()
}

// Commands returns the commands of the text, in order.
func (t Text) Commands() (all []Command) {
	t.Render(func(string) string { return "" }, func(c Command) string {
		all = append(all, c)
		return ""
	})
	return all
}

// Text returns a text that is the command alone.
func (c Command) Text() Text {
	where := ""
	if c.elsewhere {
		where = "elsewhere"
	}
	words := []string{c.name + betweenParts + where}
	for _, w := range c.words {
		words = append(words, w.flag+betweenParts+Printable(w.value))
	}
	return Text(commandBegin + strings.Join(words, betweenWords) + commandEnd)
}

// parseCommand returns the command of a part of a Text.
func parseCommand(text string) Command {
	words := strings.Split(text, betweenWords)
	name, where, _ := strings.Cut(words[0], betweenParts)
	c := Command{name: name, elsewhere: where != ""}
	for _, w := range words[1:] {
		flag, value, _ := strings.Cut(w, betweenParts)
		c = c.with(word{flag, value})
	}
	return c
}
