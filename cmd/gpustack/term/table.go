package term

import (
	"fmt"
	"slices"
	"strings"
)

// This file arranges text in columns, by the rule of the width of lines in wrap.go. Where a page is
// too narrow for a table, columns that can be missed are left out, and cells are continued on
// further lines, broken between words. A table that is still too wide has each cell in a line of its
// own. Where a page has no width, nothing is narrowed.

// leastNeeded are the columns that are left out, the first ones first. The first column of a table,
// by which a line is known, is always there.
func leastNeeded() []string {
	return []string{"NUMA", "NAME", "USER", "FIRMWARE", "VFS", "RATE", "TYPE", "ALIAS", "NETDEV", "LINK", "ID"}
}

// gap is the number of spaces between columns.
const gap = 2

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
		if from > 1 {
			u.Printf("\n")
		}
		width, to := natural(all, 0), from
		for to < len(header) && (to == from || u.Page.Width <= 0 || width+gap+natural(all, to) <= u.Page.Width) {
			width += gap + natural(all, to)
			to++
		}
		part := make([][]string, len(all))
		for i, row := range all {
			part[i] = append([]string{row[0]}, row[from:min(to, len(row))]...)
		}
		u.Table(part[0], part[1:])
		from = to
	}
}

// Layout arranges rows, whose first one has the titles, in columns, and returns the lines of each.
func (p Page) Layout(rows [][]string) [][]string {
	for i := range rows {
		rows[i] = slices.Clone(rows[i])
		for j := range rows[i] {
			rows[i][j] = strings.ReplaceAll(OneLine(rows[i][j]), "\t", " ")
		}
	}
	widths := p.fitted(rows)
	all := make([][]string, len(rows))
	for i, row := range rows {
		switch {
		case widths != nil:
			all[i] = lay(row, widths)
		case i > 0:
			all[i] = p.list(rows[0], row)
		}
	}
	return all
}

// fitted returns the width of each column, -1 of one that is left out, nil if the table does not fit.
func (p Page) fitted(rows [][]string) []int {
	titles := rows[0]
	widths, least, most := make([]int, len(titles)), make([]int, len(titles)), make([]int, len(titles))
	for j := range titles {
		most[j] = natural(rows, j)
		least[j] = longest(rows, j, unbroken)
		switch j {
		case 0:
			least[j] = most[j]
		case len(titles) - 1: // longer words reach beyond it
			least[j] = min(least[j], leastEnd)
		}
		widths[j] = min(most[j], max(least[j], leastEnd))
	}
	if p.Width <= 0 {
		return most
	}
	for _, title := range leastNeeded() {
		if j := slices.Index(titles, title); j > 0 && total(widths) > p.Width {
			widths[j], least[j], most[j] = -1, -1, -1
		}
	}
	if total(widths) > p.Width {
		widths = least
	}
	if total(widths) > p.Width {
		return nil
	}
	for j := range slices.Backward(widths) { // texts are at the end
		widths[j] += max(min(p.Width-total(widths), most[j]-widths[j]), 0)
	}
	return widths
}

// total returns the width of a table.
func total(widths []int) int {
	n := -gap
	for _, w := range widths {
		if w >= 0 {
			n += w + gap
		}
	}
	return n
}

// lay returns the lines of a row.
func lay(row []string, widths []int) []string {
	lines := []string{""}
	at := 0 // where the column begins
	for j, cell := range row {
		if widths[j] < 0 {
			continue
		}
		parts := []string{cell}
		if length(cell) > widths[j] {
			parts = wrap(cell, widths[j], widths[j])
		}
		for k, part := range parts {
			if k == len(lines) {
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

// list returns the lines of a row whose cells stand one below the other.
func (p Page) list(titles, row []string) []string {
	width, text := 0, row[0]
	for _, title := range titles[1:] {
		width = max(width, length(title))
	}
	for j, cell := range row[1:] {
		if cell != "" {
			text += fmt.Sprintf("\n  %-*s  %s", width, titles[j+1], cell)
		}
	}
	return strings.Split(p.Fold(text), "\n")
}

// natural returns the length of the longest cell of a column.
func natural(rows [][]string, j int) int {
	return longest(rows, j, func(cell string) []string { return []string{cell} })
}

// longest returns the length of the longest part of the cells of a column.
func longest(rows [][]string, j int, parts func(cell string) []string) (n int) {
	for _, row := range rows {
		if j < len(row) {
			for _, part := range parts(row[j]) {
				n = max(n, length(part))
			}
		}
	}
	return n
}
