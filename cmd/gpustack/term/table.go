package term

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// This file arranges text in columns, for all tables, findings and help texts. On a terminal, lines
// are not longer than it is wide, as far as that cuts nothing which is needed whole. Elsewhere,
// nothing is shortened.

// fit is what happens to a column on a terminal that is too narrow for the table.
type fit int

const (
	whole   fit = iota // addresses, ids, and names that are typed in commands: never cut
	cut                // shortened with an ellipsis, and left out where that is not enough
	wrapped            // continued on further lines, broken between words
)

// column is a column of a table.
type column struct {
	title string
	fit   fit
	rank  int // of two columns that can be narrower, the one with the lower rank is narrowed first
}

// narrowable are the columns of all tables that may be narrower than their cells, the least
// important first. The first column of a table, by which a line is known, is always whole.
var narrowable = []struct {
	title string
	fit   fit
}{
	{"USER", cut},
	{"NAME", cut},
	{"NUMA", cut},
	{"DRIVER", cut},
	{"OTHER PROPERTIES", wrapped},
	{"COMMAND", wrapped},
	{"ACCESS", wrapped},
	{"NOVA", wrapped},
	{"FUNCTIONS", wrapped},
	{"CHANGED", wrapped},
	{"INTERRUPTS", wrapped},
	{"CAN BE MET", wrapped},
	{"AT BOOT", wrapped},
	{"STATE", wrapped},
	{"SEEN", wrapped},
	{"ADDRESSES", wrapped},
	{"IOMMU GROUPS", wrapped},
	{"GPUS OUT", wrapped},
	{"GPUS LEFT", wrapped},
	{"WHY", wrapped},
	{"INSTANCES", wrapped},
	{"NODES", wrapped},
}

// columns returns the columns of a table with these titles.
func columns(titles []string) []column {
	list := make([]column, len(titles))
	for i, title := range titles {
		list[i].title = title
		for rank, n := range narrowable {
			if i > 0 && n.title == title {
				list[i].fit, list[i].rank = n.fit, rank
			}
		}
	}
	return list
}

// Sizes of narrowed columns, in characters.
const (
	gap      = 2  // between columns
	leastCut = 8  // a shortened cell that still says something
	leastEnd = 24 // a wrapped column at the end, where longer words reach beyond it
)

// Table prints a header and rows in columns.
func (u *UI) Table(header []string, rows [][]string) {
	for i, lines := range u.Page.Layout(append([][]string{header}, rows...)) {
		for _, line := range lines {
			if i == 0 {
				line = u.Paint(Bold, line)
			}
			u.Printf("%s\n", line)
		}
	}
}

// Help prints a help text. Lines with a tab have two columns, which are aligned with those of the
// lines around them.
func (u *UI) Help(text string) {
	var rows [][]string
	flush := func() {
		for _, lines := range u.Page.arrange([]column{{}, {fit: wrapped}}, rows) {
			for _, line := range lines {
				u.Printf("%s\n", line)
			}
		}
		rows = nil
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if left, right, ok := strings.Cut(line, "\t"); ok {
			rows = append(rows, []string{left, right})
			continue
		}
		flush()
		u.Printf("%s\n", line)
	}
	flush()
}

// Page is where text is arranged in columns and lines: a terminal or a file.
type Page struct {
	Width   int  // in characters; 0 or less if lines may be of any length
	Unicode bool // the locale has characters beyond ASCII
}

// Layout arranges rows, whose first one has the titles, in columns, and returns the lines of each.
func (p Page) Layout(rows [][]string) [][]string {
	return p.arrange(columns(rows[0]), rows)
}

// Wrap breaks a text into lines that fit the page behind an indentation. Where lines may be of any
// length it returns the text as it is.
func (p Page) Wrap(text string, indentation int) []string {
	if p.Width <= 0 {
		return []string{text}
	}
	return wrap(text, max(p.Width-indentation, leastEnd))
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

// arrange arranges rows in columns and returns the lines of each.
func (p Page) arrange(columns []column, rows [][]string) [][]string {
	for i := range rows {
		rows[i] = slices.Clone(rows[i])
		for j := range rows[i] {
			rows[i][j] = strings.ReplaceAll(OneLine(rows[i][j]), "\t", " ")
		}
	}
	widths := p.fitted(columns, rows)
	all := make([][]string, len(rows))
	for i, row := range rows {
		all[i] = p.lay(columns, widths, row)
	}
	return all
}

// lay returns the lines of a row.
func (p Page) lay(columns []column, widths []int, row []string) []string {
	var lines []string
	at := 0 // where the column begins
	for j, cell := range row {
		if widths[j] < 0 {
			continue // left out
		}
		parts := []string{cell}
		switch {
		case length(cell) <= widths[j]:
		case columns[j].fit == cut:
			parts[0] = p.shortened(cell, widths[j])
		case columns[j].fit == wrapped:
			parts = wrap(cell, widths[j])
		}
		for k, part := range parts {
			switch {
			case k < len(lines):
			case k == 0:
				lines = append(lines, "")
			default:
				lines = append(lines, trunk(row[0]))
			}
			if part != "" {
				lines[k] += strings.Repeat(" ", max(at-length(lines[k]), 0)) + part
			}
		}
		at += widths[j] + gap
	}
	for k := range lines {
		lines[k] = strings.TrimRight(lines[k], " ")
	}
	return lines
}

// trunk returns what stands below a cell on further lines of its row: the strokes of its bracket or
// tree that go on.
func trunk(cell string) string {
	var below strings.Builder
	for _, r := range cell {
		switch r {
		case '┌', '│', '├':
			below.WriteRune('│')
		case '|':
			below.WriteRune('|')
		case '└', '─', '`', '-', ' ':
			below.WriteRune(' ')
		default:
			return strings.TrimRight(below.String(), " ")
		}
	}
	return strings.TrimRight(below.String(), " ")
}

// fitted returns the width of each column, so that the table fits the terminal if possible, or -1
// for one that is left out.
func (p Page) fitted(columns []column, rows [][]string) []int {
	widths, least := make([]int, len(columns)), make([]int, len(columns))
	for j, c := range columns {
		words := length(c.title)
		for _, row := range rows {
			if j >= len(row) {
				continue
			}
			widths[j] = max(widths[j], length(row[j]))
			if c.fit == wrapped {
				for _, word := range unbroken(row[j]) {
					words = max(words, length(word))
				}
			}
		}
		least[j] = widths[j]
		switch {
		case c.fit == cut:
			least[j] = min(widths[j], max(leastCut, length(c.title)))
		case c.fit == wrapped && j == len(columns)-1:
			least[j] = min(words, leastEnd, widths[j])
		case c.fit == wrapped:
			least[j] = min(words, widths[j])
		}
	}
	if p.Width <= 0 {
		return widths
	}
	over := -gap - p.Width
	for _, w := range widths {
		over += w + gap
	}
	order := make([]int, len(columns))
	for j := range order {
		order[j] = j
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(columns[a].rank, columns[b].rank) })
	for _, j := range order {
		narrower := min(max(over, 0), widths[j]-least[j])
		widths[j] -= narrower
		over -= narrower
	}
	for _, j := range order {
		if over > 0 && columns[j].fit == cut {
			over -= widths[j] + gap
			widths[j] = -1
		}
	}
	for _, j := range slices.Backward(order) { // what was left out makes room for the more important
		if back := min(-over, natural(rows, j)-widths[j]); over < 0 && widths[j] >= 0 && back > 0 {
			widths[j] += back
			over += back
		}
	}
	return widths
}

// natural returns the length of the longest cell of a column.
func natural(rows [][]string, j int) (n int) {
	for _, row := range rows {
		if j < len(row) {
			n = max(n, length(row[j]))
		}
	}
	return n
}

// length returns the number of characters of a text, which are all of the same width in the
// languages that gpustack prints.
func length(s string) int {
	return utf8.RuneCountInString(s)
}

// shortened returns the beginning of a text with an ellipsis.
func (p Page) shortened(s string, width int) string {
	ellipsis := "..."
	if p.Unicode {
		ellipsis = "…"
	}
	return strings.TrimRight(string([]rune(s)[:max(width-length(ellipsis), 0)]), " ") + ellipsis
}

// wrap breaks a text into lines of a width. Words that are longer are not broken.
func wrap(s string, width int) []string {
	lines := []string{""}
	for _, word := range unbroken(s) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case length(*last)+1+length(word) > width:
			lines = append(lines, word)
		default:
			*last += " " + word
		}
	}
	return lines
}

// unbroken returns the words of a text, with each command in one piece: a command that is copied
// from a terminal must not have a line break in it.
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

// commandWords returns how many words the command has that the first of them begins, or 0: the
// program, its subcommand, and options with their values.
func commandWords(words []string) int {
	const all = 99 // of these, every word that follows is taken to be an argument
	programs := map[string]int{"gpustack": 1, "journalctl": 0, "grubby": 0, "update-initramfs": 0, "dracut": 0, "modprobe": 1,
		"systemctl": all, "docker": all, "podman": all}
	left, known := programs[words[0]] // arguments that are no options
	if !known {
		return 0
	}
	n := 1
	for ; n < len(words) && !strings.ContainsAny(words[n-1][len(words[n-1])-1:], ",.;:"); n++ {
		option, value := strings.HasPrefix(words[n], "-"), strings.HasPrefix(words[n-1], "-")
		group := n == 1 && slices.Contains([]string{"host", "nova", "flavor"}, words[n])
		switch {
		case group:
		case option:
			left = 0
		case value:
			n += max(quotedWords(words[n:])-1, 0)
		case left > 0:
			left--
		case strings.Trim(words[n], "0123456789,.;:") == "": // the number of an entry
		default:
			return n
		}
	}
	return n
}
