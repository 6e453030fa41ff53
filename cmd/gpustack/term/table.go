package term

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
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
	fit, widths := len(header), longest(append([][]string{header}, rows...), whole)
	for fit > 2 && u.Page.Width > 0 && total(widths[:fit]) > u.Page.Width {
		fit--
	}
	u.Table(header[:fit], host.Map(rows, func(row []string) []string { return row[:fit] }))
	if fit < len(header) {
		rest := func(row []string) []string { return slices.Concat(row[:1], row[fit:]) }
		u.Printf("\n")
		u.Matrix(rest(header), host.Map(rows, rest))
	}
}

// Layout arranges rows, whose first one has the titles, in columns, and returns the lines of each.
func (p Page) Layout(rows [][]string) [][]string {
	rows = host.Map(rows, func(row []string) []string {
		return host.Map(row, func(cell string) string { return strings.ReplaceAll(OneLine(cell), "\t", " ") })
	})
	widths := p.fitted(rows)
	all := make([][]string, len(rows))
	for i, row := range rows {
		switch {
		case widths != nil:
			all[i] = lay(row, widths)
		case i > 0:
			all[i] = p.list(rows[0], row)
		}
		if !p.Unicode {
			all[i] = host.Map(all[i], ascii.Replace)
		}
	}
	return all
}

// fitted returns the width of each column, -1 of one that is left out, nil if the table does not fit.
func (p Page) fitted(rows [][]string) []int {
	most := longest(rows, whole)
	if p.Width <= 0 {
		return most
	}
	least, widths := longest(rows, unbroken), make([]int, len(most))
	least[len(least)-1] = min(least[len(least)-1], leastEnd) // longer words reach beyond it
	least[0] = most[0]
	for j := range widths {
		widths[j] = min(most[j], max(least[j], leastEnd))
	}
	for _, title := range leastNeeded() {
		if j := slices.Index(rows[0], title); j > 0 && total(widths) > p.Width {
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
	return host.Map(lines, func(line string) string { return strings.TrimRight(line, " ") })
}

// list returns the lines of a row whose cells stand one below the other.
func (p Page) list(titles, row []string) []string {
	width, text := slices.Max(append(host.Map(titles[1:], length), 0)), row[0]
	for j, cell := range row[1:] {
		if cell != "" {
			text += fmt.Sprintf("\n  %-*s  %s", width, titles[j+1], cell)
		}
	}
	return strings.Split(p.Fold(text), "\n")
}

// longest returns for each column the length of the longest part of its cells.
func longest(rows [][]string, parts func(cell string) []string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for j, cell := range row {
			for _, part := range parts(cell) {
				widths[j] = max(widths[j], length(part))
			}
		}
	}
	return widths
}

// whole returns a cell that is not broken.
func whole(cell string) []string { return []string{cell} }
