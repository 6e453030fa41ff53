package term

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// This file has the rule of the width of lines, for all that is printed as text. On a page of a
// width, no line is wider, except where it has no place to break: a word such as a path, a command
// that is copied as a whole, and what must be shown as it is ([UI.Raw], [UI.Diff]): the line of a
// diff, a file, a manual page. Lines break between words, and each line that goes on is indented
// by two more characters. Tables are narrowed as [narrowable] says.
//
// A page has the width that COLUMNS names, or else that of its terminal. A file, a pipe and a
// terminal that does not know its width have none: there, a line is as long as its text.

// The words of a command are joined where it is known as one ([host.Command]), by [UI.Text] and
// [UI.Command], so that it is one word until it is printed. In texts without such parts, which are
// help, warnings and notes, commands are recognized by their words ([commandWords]).

// noBreak stands for a space between two words that stay in one line. It is printed as a space. It
// is a character that looks like one, and that is printable (host.Printable) and no space
// (strings.Fields). A name or value that has it is printed with a space, as a table has one for a
// tab; documents have it as it is.
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

// hanging is by how many characters the lines that continue a line are indented further.
const hanging = 2

// Fold breaks the lines of a text that are wider than the page, all of them by the same rule.
func (p Page) Fold(text string) string {
	if p.Width <= 0 {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, ended := strings.CutSuffix(line, "\n")
		b.WriteString(strings.Join(p.lines(line), "\n"))
		if ended {
			b.WriteString("\n")
		}
	}
	return b.String()
}

// lines breaks a line. The strokes of a tree before it go on in the lines that continue it.
func (p Page) lines(line string) []string {
	if p.Width <= 0 || length(line) <= p.Width {
		return []string{line}
	}
	text := strings.TrimLeft(line, " │├└─|`-")
	before := line[:len(line)-len(text)]
	if !strings.ContainsAny(before, "│├└|`") {
		text = strings.TrimLeft(line, " ")
		before = line[:len(line)-len(text)]
	}
	below := trunk(before)
	below += strings.Repeat(" ", length(before)+hanging-length(below))
	parts := wrap(text, p.Width-length(before), p.Width-length(below))
	for i := range parts {
		if i == 0 {
			parts[i] = before + parts[i]
		} else {
			parts[i] = below + parts[i]
		}
	}
	return parts
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

// Breaks reports whether a line that is wider than the page has a place to break.
func (p Page) Breaks(line string) bool {
	return length(line) > p.Width && len(p.lines(line)) > 1
}

// length returns the number of characters of a text, without its colours. They are all of the same
// width in the languages that gpustack prints.
func length(s string) int {
	n := utf8.RuneCountInString(s)
	for {
		_, after, ok := strings.Cut(s, "\x1b[")
		if !ok {
			return n
		}
		code, rest, _ := strings.Cut(after, "m")
		n -= len("\x1b[") + len(code) + len("m")
		s = rest
	}
}

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
	return recoloured(lines)
}

// recoloured ends a colour at the end of each line and begins it again on the next one.
func recoloured(lines []string) []string {
	const end = "\x1b[0m"
	colour := ""
	for i, line := range lines {
		lines[i] = colour + line
		if at := strings.LastIndex(line, "\x1b["); at >= 0 {
			code, _, _ := strings.Cut(line[at:], "m")
			if colour = code + "m"; colour == end {
				colour = ""
			}
		}
		if colour != "" {
			lines[i] += end
		}
	}
	return lines
}

// unbroken returns the words of a text, with each quotation and each command in one piece: a
// command that is copied from a terminal must not have a line break in it.
func unbroken(s string) (units []string) {
	words := strings.Fields(s)
	for len(words) > 0 {
		n := max(quotedWords(words), commandWords(words), 1)
		units = append(units, strings.Join(words[:n], " "))
		words = words[n:]
	}
	return units
}

// quotedWords returns how many words the quotation has that the first of them begins, or 0.
func quotedWords(words []string) int {
	if !strings.HasPrefix(strings.TrimLeft(words[0], "("), "'") {
		return 0
	}
	for i, word := range words {
		if word = strings.TrimRight(word, ",.;:)"); strings.HasSuffix(word, "'") && (i > 0 || length(word) > 1) {
			return i + 1
		}
	}
	return 0
}

// commandWords returns how many words the command probably has that the first of them begins, or 0:
// the program, its subcommand, and options with their values. Words that follow may be its
// arguments, or go on with the sentence.
func commandWords(words []string) int {
	const all = 99 // of these, every word that follows an option or a verb is taken to be an argument
	programs := map[string]int{"gpustack": 1, "journalctl": 0, "grubby": 0, "update-initramfs": 0, "modprobe": 1,
		"dracut": all, "systemctl": all, "docker": all, "podman": all}
	left, known := programs[words[0]] // arguments that are no options
	if !known || left == all && !isVerb(words[1:]) {
		return 0
	}
	arguments := left == all
	n := 1
	for ; n < len(words) && !strings.ContainsAny(words[n-1][len(words[n-1])-1:], ",.;:"); n++ {
		option, value := strings.HasPrefix(words[n], "-"), strings.HasPrefix(words[n-1], "-")
		group := n == 1 && slices.Contains([]string{"host", "rdma", "container", "nova", "flavor", "image", "fleet"}, words[n])
		switch {
		case group, arguments:
		case option:
			left = 0
		case value:
			n += max(quotedWords(words[n:])-1, 0)
		case left > 0:
			left--
		default:
			return n
		}
	}
	return n
}

// isVerb reports whether words begin with an option, or with a verb of systemctl, docker or podman,
// and not with a word of a sentence about these programs.
func isVerb(words []string) bool {
	verbs := []string{"restart", "start", "stop", "enable", "disable", "reload", "daemon-reload", "status", "show", "mask", "unmask", "run", "exec",
		"info", "inspect"}
	return len(words) > 0 && (strings.HasPrefix(words[0], "-") || slices.Contains(verbs, words[0]))
}
