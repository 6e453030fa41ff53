// Package guard reads what determines whether PCI functions may leave the host ([Observe]): what the
// file systems that the host boots from need, what claims disks, which interfaces are idle and what
// hangs below the functions of a card. [Holders] are the processes that have devices of functions open.
//
// [Claim] is the kernel's own opinion on a disk, for the moment at which the disk leaves the host.
//
// The package does not determine which guests use a function (host/guest), and it refuses nothing:
// that is decided above it (host/gate).
package guard
