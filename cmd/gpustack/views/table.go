package views

import "gpustack/cmd/gpustack/term"

// tableBelow prints a table below an empty line, and nothing without rows.
func tableBelow(u *term.UI, header []string, rows [][]string) {
	if len(rows) > 0 {
		u.Printf("\n")
		u.Table(header, rows)
	}
}

// rowsOf returns a row of a table for each element of a list.
func rowsOf[T any](list []T, row func(T) []string) (rows [][]string) {
	for _, of := range list {
		rows = append(rows, row(of))
	}
	return rows
}
