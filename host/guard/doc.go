// Package guard determines which PCI functions the host itself uses, because its file systems,
// disks, networks or console depend on them ([Needs]), and which ones its processes have open
// ([Holders]).
//
// A [Need] has the type of the use, what depends on the function, and the file that shows it.
// [Claim] is the kernel's own opinion on a disk, for the moment at which the disk leaves the host.
//
// The package does not determine which guests use a function (host/guest), and it refuses nothing:
// that is decided above it.
package guard
