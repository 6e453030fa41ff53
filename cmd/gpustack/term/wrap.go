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
	return strings.Join(host.Map(strings.Split(text, "\n"), p.fold), "\n")
}

// fold breaks a line.
func (p Page) fold(line string) string {
	if p.Width <= 0 || length(line) <= p.Width {
		return line
	}
	text := strings.TrimLeft(line, " ")
	before := line[:len(line)-len(text)]
	hang := len(before) + hanging
	if name, _, ok := strings.Cut(text, "  "); ok { // a list
		if rest := strings.TrimLeft(text[len(name):], " "); length(line)-length(rest) <= p.Width-leastEnd/2 {
			before, text = line[:len(line)-len(rest)], rest
			hang = length(before)
		}
	}
	return before + strings.Join(wrap(text, p.Width-length(before), p.Width-hang), "\n"+strings.Repeat(" ", hang))
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
func unbroken(s string) []string {
	return host.Map(units().FindAllString(s, -1), strings.TrimSpace)
}

// units matches a quotation, which ends before a space, or a word.
var units = host.LazyRegexp(`\(*'.*?'[,.;:)]*(?:\s|$)|\S+`)

// ascii makes the strokes of trees and brackets those of a locale without others.
var ascii = strings.NewReplacer("├─", "|-", "└─", "`-", "│", "|", "┌", "/", "└", "\\")

// trunk returns what stands below a cell on further lines of its row: the strokes of its bracket or
// tree that go on.
func trunk(cell string) string {
	strokes := cell[:len(cell)-len(strings.TrimLeft(cell, "┌│├└─ "))]
	return strings.TrimRight(strings.NewReplacer("┌", "│", "├", "│", "└", " ", "─", " ").Replace(strokes), " ")
}
