// Package machine observes a machine: which PCI functions it has, what holds them, how it boots,
// what host prepare has recorded of it and who uses what. Observe is the one observer; commands
// say which subjects they need. Each field tells apart what was read, what is absent and what
// could not be read.
//
// Does not: judge (host/check), select (host/selection) or write anything.
package machine
