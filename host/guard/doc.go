// Package guard tells which PCI functions the host itself needs: those that carry
// its disks, its way to the network, its console.
//
// Does not: know who else uses a function (host/guest), or refuse anything
// (host/prepare).
package guard
