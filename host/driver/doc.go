// Package driver binds PCI functions of the running machine to drivers, now and until its next
// boot. It is the one package that writes to sysfs, and a kind of change of host/change.
//
// A write that the kernel accepts proves nothing: its effect is read back. A write may also block
// in the kernel for ever: each is made by a process of its own, which gpustack abandons when its
// time is over.
//
// It does not choose functions or drivers and refuses none (host/selection, host/bind), and does
// not start programs itself (host).
package driver
