package term

import (
	"strings"
	"unicode/utf8"

	"gpustack/host"
)

// This file has the rule of the width of lines, for all that is printed as text. On a page of a
// width, no line is wider, except where it has no place to break: a word such as a path, a command
// that is copied as a whole, and what must be shown as it is ([UI.Raw], [UI.Diff]): the line of a
// diff, a file. Lines break between words, and each line that goes on is indented by two more
// characters, or to the second column of a list.
//
// A page has the width that COLUMNS names, or else that of its terminal. A file, a pipe and a
// terminal that does not know its width have none: there, a line is as long as its text.

// noBreak stands for a space between two words that stay in one line: those of a command, by
// [UI.Text] and [UI.Command]. It is printed as a space. It is a character that looks like one, and
// that is printable (host.Printable) and no space (strings.Fields). A name or value that has it is
// printed with a space, as a table has one for a tab; documents have it as it is.
const noBreak = "\u2800" // BRAILLE PATTERN BLANK

// joined returns a command that is not broken. In an argument that has the mark itself, it is a ?,
// as characters are that cannot be printed: with a space, the command would name another file.
func joined(command string) string {
	return strings.NewReplacer(noBreak, "?", " ", noBreak).Replace(command)
}

// spaced returns a text as it is printed, once its lines are broken.
func spaced(s string) string { return strings.ReplaceAll(s, noBreak, " ") }

// Page is where text is arranged in columns and lines: a terminal or a file.
type Page struct {
	Width   int  // in characters; 0 or less if lines may be of any length
	Unicode bool // the locale has characters beyond ASCII
}

// hanging is by how many characters the lines that continue a line are indented further, and
// leastEnd the width of a text that is still worth a column of its own.
const (
	hanging  = 2
	leastEnd = 24
)

// Fold breaks the lines of a text that are wider than the page, all of them by the same rule.
func (p Page) Fold(text string) string {
	if p.Width <= 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = p.fold(line)
	}
	return strings.Join(lines, "\n")
}

// fold breaks a line. The strokes of a tree before it go on in the lines that continue it.
func (p Page) fold(line string) string {
	if length(line) <= p.Width {
		return line
	}
	strokes := " "
	if strings.ContainsAny(line, "│├└|`") {
		strokes = " │├└─|`-"
	}
	text := strings.TrimLeft(line, strokes)
	before := line[:len(line)-len(text)]
	below, hang := trunk(before), length(before)+hanging
	if name, _, ok := strings.Cut(text, "  "); ok { // a list
		if rest := strings.TrimLeft(text[len(name):], " "); length(line)-length(rest) <= p.Width-leastEnd/2 {
			before, text = line[:len(line)-len(rest)], rest
			hang = length(before)
		}
	}
	below += strings.Repeat(" ", max(hang-length(below), 0))
	return before + strings.Join(wrap(text, p.Width-length(before), p.Width-length(below)), "\n"+below)
}

// Wrap breaks a text into lines that fit the page behind an indentation. Where lines may be of any
// length it returns the text as it is.
func (p Page) Wrap(text string, indentation int) []string {
	if p.Width <= 0 {
		return []string{text}
	}
	width := max(p.Width-indentation, leastEnd)
	return wrap(text, width, width)
}

// length returns the number of characters of a text, without its colours. They are all of the same
// width in the languages that gpustack prints.
func length(s string) int {
	if strings.Contains(s, "\x1b[") {
		s = painted().ReplaceAllString(s, "")
	}
	return utf8.RuneCountInString(s)
}

// painted matches an SGR code (ECMA-48).
var painted = host.LazyRegexp("\x1b\\[[^m]*m")

// wrap breaks a text into lines, the first one and the others of a width. Words that are longer are
// not broken.
func wrap(s string, first, others int) []string {
	lines, width := []string{""}, first
	for field := range strings.SplitSeq(s, "  ") {
		between := "  " // fields are separated by two spaces, and stay so
		for _, word := range unbroken(field) {
			last := &lines[len(lines)-1]
			switch {
			case *last == "":
				*last = word
			case length(*last)+len(between)+length(word) > width:
				lines, width = append(lines, word), others
			default:
				*last += between + word
			}
			between = " "
		}
	}
	return lines
}

// unbroken returns the words of a text, with each quotation in one piece: it may be a command.
func unbroken(s string) (units []string) {
	for words := strings.Fields(s); len(words) > 0; {
		n := 1
		if strings.HasPrefix(strings.TrimLeft(words[0], "("), "'") {
			for i, word := range words {
				if word = strings.TrimRight(word, ",.;:)"); strings.HasSuffix(word, "'") && (i > 0 || length(word) > 1) {
					n = i + 1
					break
				}
			}
		}
		units = append(units, strings.Join(words[:n], " "))
		words = words[n:]
	}
	return units
}

// Strokes are the characters that draw trees and brackets.
type Strokes struct {
	Tee, Corner, Pass, None    string // a tree's branch, last branch, passing trunk, nothing
	Top, Middle, Bottom, Alone string // a bracket's parts
}

// Strokes returns the characters that the locale has.
func (p Page) Strokes() Strokes {
	if p.Unicode {
		return Strokes{Tee: "├─ ", Corner: "└─ ", Pass: "│  ", None: "   ", Top: "┌ ", Middle: "│ ", Bottom: "└ ", Alone: "  "}
	}
	return Strokes{Tee: "|- ", Corner: "`- ", Pass: "|  ", None: "   ", Top: "/ ", Middle: "| ", Bottom: "\\ ", Alone: "  "}
}

// trunk returns what stands below a cell on further lines of its row: the strokes of its bracket or
// tree that go on.
func trunk(cell string) string {
	strokes := cell[:len(cell)-len(strings.TrimLeft(cell, "┌│├|└─`- "))]
	return strings.TrimRight(strings.NewReplacer("┌", "│", "├", "│", "└", " ", "─", " ", "`", " ", "-", " ").Replace(strokes), " ")
}
