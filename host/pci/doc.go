// Package pci says which PCI functions a machine has, by reading sysfs.
//
// The list is whole: each entry of sys/bus/pci/devices becomes a [Device] or a
// warning. An attribute that the kernel does not show is nil; one that cannot be
// read or understood is nil too, with a warning that names its file. Names come
// from pci.ids below the same root, and for NVIDIA products from a table of our
// own where that file is missing or too old.
//
// Does not: read a function's configuration space (on real hardware each read is
// a bus transaction, a hundred times slower than an attribute), follow IOMMU
// groups (host/iommu), or change anything (host/driver).
package pci
