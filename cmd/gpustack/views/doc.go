// Package views has what reports of commands contain (docs/json.md), and how they are printed for
// people: one file for each report. It gets values and a terminal, and reads nothing of a machine.
package views
