// Package host is the ground everything else stands on: the root below which
// a machine's files lie, and what those files say of the machine as a whole.
//
// Every path the program reads on a machine goes through a [Root]. A live
// machine, a chroot, a mounted image, an unpacked support archive and a tree
// made by a test are the same code.
//
// Does not: know PCI, write files, or print.
package host
