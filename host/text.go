package host

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Text is a text for the operator, a hint or a remedy: a list of parts, each plain text or a command
// of gpustack. [Plain] makes one without commands, [Textf] one with commands; nil is none. Packages
// that print nothing hand it on as it is; Render prints it.
type Text []Part

// Part is a part of a [Text]: a command, or plain text where there is none.
type Part struct {
	plain   string
	command Command
}

// Plain returns a text without commands.
func Plain(text string) Text {
	return Text(nil).with(Part{plain: text})
}

// Textf returns a text in the format of package fmt. The parts of each argument that is a [Command]
// or a Text are parts of it; %s is its verb.
func Textf(format string, args ...any) (t Text) {
	if !slices.ContainsFunc(args, func(arg any) bool { return partsOf(arg) != nil }) {
		return Plain(fmt.Sprintf(format, args...)) // by this line go vet checks the formats of callers
	}
	from, first, next := 0, 0, 0 // what is not formatted yet, and the argument of the next verb
	plain := func(end int) Part { return Part{plain: fmt.Sprintf(format[from:end], args[first:next]...)} }
	for i := 0; i+1 < len(format); i++ {
		if format[i] != '%' {
			continue
		}
		if i++; format[i] == '%' || next == len(args) {
			continue
		}
		parts := partsOf(args[next])
		if parts != nil {
			t = t.with(plain(i - 1)).with(parts...)
			from, first = i+1, next+1
		}
		next++
	}
	next = len(args)
	return t.with(plain(len(format)))
}

// partsOf returns the parts of an argument that is a Command or a Text, nil for one that has none.
func partsOf(arg any) Text {
	switch a := arg.(type) {
	case Command:
		return a.Text()
	case Text:
		return a
	}
	return nil
}

// with returns the text with more parts. Plain text that follows plain text is one part.
func (t Text) with(parts ...Part) Text {
	for _, p := range parts {
		last := len(t) - 1
		switch {
		case !p.command.IsZero() || p.plain != "" && (last < 0 || !t[last].command.IsZero()):
			t = append(t, p)
		case p.plain != "":
			t = append(t[:last:last], Part{plain: t[last].plain + p.plain})
		}
	}
	return t
}

// Replace returns the text with a value in place of a word, such as ADDRESS, also in its commands.
func (t Text) Replace(word, value string) (replaced Text) {
	for _, p := range t {
		p.plain = strings.ReplaceAll(p.plain, word, value)
		p.command.words = slices.Clone(p.command.words)
		for i := range p.command.words {
			p.command.words[i].value = strings.ReplaceAll(p.command.words[i].value, word, value)
		}
		replaced = append(replaced, p)
	}
	return replaced
}

// Text returns a text that is the command alone.
func (c Command) Text() Text {
	return Text{{command: c}}
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
	return t.Render(Command.String)
}

// Equal reports whether two texts read the same.
func (t Text) Equal(other Text) bool { return t.String() == other.String() }

// MarshalText returns what String returns.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText sets the text to one without commands.
func (t *Text) UnmarshalText(text []byte) error {
	*t = Plain(string(text))
	return nil
}

// Render returns the text for a reader, without control characters. line returns a command.
func (t Text) Render(line func(Command) string) string {
	var b strings.Builder
	for _, p := range t {
		if p.command.IsZero() {
			b.WriteString(Printable(p.plain))
		} else {
			b.WriteString(Printable(line(p.command)))
		}
	}
	return b.String()
}

// Commands returns the commands of the text, in order.
func (t Text) Commands() (all []Command) {
	return Map(Filter(t, func(p Part) bool { return !p.command.IsZero() }), func(p Part) Command { return p.command })
}
