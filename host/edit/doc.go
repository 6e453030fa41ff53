// Package edit changes a machine's files: a change is planned as a value, shown
// as a diff, and applied so that at any moment the file is either what it was or
// what it shall be.
//
// Does not: decide what a file should hold (the packages of its grammar), or
// remember what was done (host/journal).
package edit
