// Package guard tells which PCI functions the host itself needs, those that carry its
// disks, its way to the network, its console, and which its processes have open.
//
// Does not: know which guests use a function (host/guest), or refuse anything
// (host/prepare).
package guard
