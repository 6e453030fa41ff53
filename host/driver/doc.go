// Package driver binds PCI functions of the running machine to drivers, immediately and until the
// next boot. [Binder] is a kind of change of host/change. It is the only package that writes to
// sysfs.
//
// A write that the kernel accepts proves nothing: its effect is read back. A write may also block
// in the kernel forever: each is made by a separate process, which gpustack abandons after a
// timeout. Services that keep GPUs open are stopped before and started afterwards.
//
// It does not choose functions or drivers and refuses none (host/selection, host/bind), and does
// not start programs itself (host).
package driver
