// Package views has what reports of commands contain (docs/json.md), and how they are printed for
// people: one file for each report, with functions New… and Print…, such as [NewDrivers] and
// [PrintDrivers].
//
// It gets values and a terminal. It reads nothing of a machine and decides nothing.
package views
