package views

import (
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
)

// narrowPage is the width of pages on which the domain 0000 of addresses is left out.
const narrowPage = 80

// address matches a PCI address with its domain, apart from those in names and paths.
var address = host.LazyRegexp(`(^|[ (,])([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b`)

// table prints a table. On a narrow page, its addresses have no domain if all domains are 0:
// commands accept such addresses.
func table(u *term.UI, header []string, rows [][]string) {
	u.Table(header, shortAddresses(u.Page, rows))
}

// tableBelow prints a table below an empty line, and nothing without rows.
func tableBelow(u *term.UI, header []string, rows [][]string) {
	if len(rows) > 0 {
		u.Printf("\n")
		table(u, header, rows)
	}
}

// rowsOf returns a row of a table for each element of a list.
func rowsOf[T any](list []T, row func(T) []string) (rows [][]string) {
	for _, of := range list {
		rows = append(rows, row(of))
	}
	return rows
}

// shortAddresses returns the rows of a table as [table] prints them.
func shortAddresses(p term.Page, rows [][]string) [][]string {
	if p.Width <= 0 || p.Width >= narrowPage {
		return rows
	}
	for _, row := range rows {
		for _, cell := range row {
			for _, found := range address().FindAllStringSubmatch(cell, -1) {
				if strings.Trim(found[2], "0") != "" {
					return rows
				}
			}
		}
	}
	short := make([][]string, len(rows))
	for i, row := range rows {
		for _, cell := range row {
			short[i] = append(short[i], address().ReplaceAllString(cell, "$1$3"))
		}
	}
	return short
}
