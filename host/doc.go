// Package host is the lowest layer: the root below which a machine's files lie, facts about the
// machine as a whole, and the only code that starts programs.
//
// Every path on a machine is read through a [Root], so the same code reads a running machine, a
// chroot, a mounted image, an unpacked support archive and a tree made by a test. A [Runner]
// starts programs.
//
// It does not interpret PCI devices, write files or print.
package host
