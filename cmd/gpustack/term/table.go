package term

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// This file arranges text in columns, for all tables, findings and help texts, by the rule of the
// width of lines in wrap.go. Where a page has no width, nothing is narrowed.

// fit is what happens to a column of a table that is wider than the page.
type fit int

const (
	whole   fit = iota // addresses, and names that are typed in commands: never narrowed
	spare              // left out first
	cut                // shortened with an ellipsis, and left out where that is not enough
	dropped            // left out where wrapping other columns is not enough
	wrapped            // continued on further lines, broken between words
)

// column is a column of a table.
type column struct {
	title string
	fit   fit
	rank  int // of two columns that can be narrower, the one with the lower rank is narrowed first
}

// narrowable are the columns of all tables that may be narrower than their cells or left out, the
// least important first: NUMA is left out, then NAME is shortened or left out, then columns are
// wrapped, and then those that can be dropped are. The first column of a table, by which a line is
// known, DRIVER and STATE are always there. A table that is still too wide has its last column
// below each row, and if that is not enough, each column in a line of its own.
var narrowable = []struct {
	title string
	fit   fit
}{
	{"NUMA", spare},
	{"NAME", cut},
	{"USER", dropped},
	{"FIRMWARE", dropped},
	{"VFS", dropped},
	{"RATE", dropped},
	{"TYPE", dropped},
	{"ALIAS", dropped},
	{"NETDEV", dropped},
	{"LINK", dropped},
	{"ID", dropped},
	{"OTHER PROPERTIES", wrapped},
	{"COMMAND", wrapped},
	{"ACCESS", wrapped},
	{"FUNCTIONS", wrapped},
	{"CHANGED", wrapped},
	{"INTERRUPTS", wrapped},
	{"CAN BE MET", wrapped},
	{"NODE AND PORT GUID, OR MAC", wrapped},
	{"NEAREST GPU", wrapped},
	{"WHAT", wrapped},
	{"PURPOSE", wrapped},
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
	belowRow = 4  // by which a column below its row is indented
)

// Table prints a header and rows in columns.
func (u *UI) Table(header []string, rows [][]string) {
	for i, lines := range u.Page.Layout(append([][]string{header}, rows...)) {
		for _, line := range lines {
			if i == 0 {
				line = u.Paint(Bold, line)
			}
			u.Raw(spaced(line) + "\n")
		}
	}
}

// Matrix prints a header and rows in columns, of which the first one names the rows. Where the page
// is too narrow, it prints one table below the other, each with as many columns as fit.
func (u *UI) Matrix(header []string, rows [][]string) {
	all := append([][]string{header}, rows...)
	for from := 1; from < len(header); {
		width, to := natural(all, 0), from
		for to < len(header) && (to == from || u.Page.Width <= 0 || width+gap+natural(all, to) <= u.Page.Width) {
			width += gap + natural(all, to)
			to++
		}
		part := make([][]string, len(all))
		for i, row := range all {
			part[i] = append([]string{row[0]}, row[from:min(to, len(row))]...)
		}
		if from > 1 {
			u.Printf("\n")
		}
		u.Table(part[0], part[1:])
		from = to
	}
}

// Layout arranges rows, whose first one has the titles, in columns, and returns the lines of each.
func (p Page) Layout(rows [][]string) [][]string {
	return p.arrange(columns(rows[0]), rows)
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
	l := p.fitted(columns, rows)
	all := make([][]string, len(rows))
	for i, row := range rows {
		switch {
		case !l.listed:
			all[i] = p.lay(columns, l, row)
		case i > 0:
			all[i] = p.list(columns, row)
		}
	}
	return all
}

// layout is how a table fits the page.
type layout struct {
	widths []int // of each column; -1 if it is left out
	below  bool  // cells of the last column that do not fit stand below their row
	listed bool  // each cell has a line of its own, behind the title of its column
}

// lay returns the lines of a row.
func (p Page) lay(columns []column, l layout, row []string) []string {
	var lines []string
	at := 0 // where the column begins
	for j, cell := range row {
		width := l.widths[j]
		if width < 0 {
			continue // left out
		}
		if l.below && j == len(columns)-1 && at+length(cell) > p.Width {
			before := trunk(row[0])
			before += strings.Repeat(" ", max(belowRow-length(before), 0))
			for _, part := range wrap(cell, p.Width-length(before), p.Width-length(before)) {
				lines = append(lines, before+part)
			}
			break
		}
		parts := []string{cell}
		switch {
		case length(cell) <= width:
		case columns[j].fit == cut:
			parts[0] = p.shortened(cell, width)
		case columns[j].fit == wrapped:
			parts = wrap(cell, width, width)
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
		at += width + gap
	}
	for k := range lines {
		lines[k] = strings.TrimRight(lines[k], " ")
	}
	return lines
}

// list returns the lines of a row whose columns stand one below the other.
func (p Page) list(columns []column, row []string) (lines []string) {
	titles := 0
	for _, c := range columns[1:] {
		titles = max(titles, length(c.title))
	}
	for j, cell := range row {
		before := ""
		switch {
		case j > 0 && cell == "":
			continue
		case j > 0:
			before = fmt.Sprintf("  %-*s  ", titles, columns[j].title)
		}
		width := p.Width - length(before)
		for k, part := range wrap(cell, width, width) {
			if k > 0 {
				before = strings.Repeat(" ", length(before))
			}
			lines = append(lines, strings.TrimRight(before+part, " "))
		}
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

// fitted returns how a table fits the page, as [narrowable] says.
func (p Page) fitted(columns []column, rows [][]string) layout {
	f := fitting{columns: columns, rows: rows, page: p.Width, widths: make([]int, len(columns)), order: make([]int, len(columns))}
	for j := range columns {
		f.widths[j], f.order[j] = natural(rows, j), j
	}
	if p.Width <= 0 || f.over() <= 0 {
		return layout{widths: f.widths}
	}
	slices.SortStableFunc(f.order, func(a, b int) int { return cmp.Compare(columns[a].rank, columns[b].rank) })
	f.narrow()
	f.widen()
	last := len(columns) - 1
	switch {
	case f.over() <= 0:
		return layout{widths: f.widths}
	case columns[last].fit == wrapped && f.over() <= f.widths[last]+gap:
		return layout{widths: f.widths, below: true}
	}
	return layout{listed: true}
}

// fitting is a table whose columns are being fitted to a page.
type fitting struct {
	columns []column
	rows    [][]string
	page    int   // the width of the page
	widths  []int // of the columns as they are for now; -1 if one is left out
	order   []int // of the columns, by rank
}

// over returns by how many characters the table is too wide.
func (f fitting) over() int {
	n := -gap - f.page
	for _, w := range f.widths {
		if w >= 0 {
			n += w + gap
		}
	}
	return n
}

// narrow makes columns narrower and leaves columns out until the table fits, if it can.
func (f fitting) narrow() {
	for _, j := range f.order {
		if f.columns[j].fit == wrapped {
			f.widths[j] = min(f.widths[j], max(f.least(j), leastEnd))
		}
	}
	for _, j := range f.order {
		fit := f.columns[j].fit
		if fit == cut {
			f.narrowTo(j, max(leastCut, length(f.columns[j].title)))
		}
		if (fit == cut || fit == spare) && f.over() > 0 {
			f.widths[j] = -1
		}
	}
	for _, j := range f.order {
		if f.columns[j].fit == wrapped {
			f.narrowTo(j, f.least(j))
		}
	}
	for _, j := range f.order {
		if f.columns[j].fit == dropped && f.over() > 0 {
			f.widths[j] = -1
		}
	}
}

// narrowTo makes a column as much narrower as the table is too wide, down to a width.
func (f fitting) narrowTo(j, width int) {
	f.widths[j] -= min(max(f.over(), 0), max(f.widths[j]-width, 0))
}

// least returns the least width of a wrapped column.
func (f fitting) least(j int) int {
	words := leastEnd
	if j < len(f.columns)-1 {
		words = max(length(f.columns[j].title), longestWord(f.rows, j))
	}
	return min(words, natural(f.rows, j))
}

// widen gives the room that is left to the columns that are there, the most important first.
func (f fitting) widen() {
	for _, j := range slices.Backward(f.order) {
		if back := min(-f.over(), natural(f.rows, j)-f.widths[j]); f.widths[j] >= 0 && back > 0 {
			f.widths[j] += back
		}
	}
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

// longestWord returns the length of the longest word of a column that is not broken.
func longestWord(rows [][]string, j int) (n int) {
	for _, row := range rows {
		if j < len(row) {
			for _, word := range unbroken(row[j]) {
				n = max(n, length(word))
			}
		}
	}
	return n
}

// shortened returns the beginning of a text with an ellipsis.
func (p Page) shortened(s string, width int) string {
	ellipsis := "..."
	if p.Unicode {
		ellipsis = "…"
	}
	return strings.TrimRight(string([]rune(s)[:max(width-length(ellipsis), 0)]), " ") + ellipsis
}
