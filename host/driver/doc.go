// Package driver changes which driver holds a PCI function of the running machine, now
// and until its next boot: the one package that writes to sysfs.
//
// A write that the kernel takes proves nothing: after each, what it was for is read
// back. A write that the kernel does not return from is left to a process of its own,
// which may never end; gpustack does.
//
// Does not: choose functions or drivers, or refuse any (host/prepare), or start
// programs itself (host).
package driver
