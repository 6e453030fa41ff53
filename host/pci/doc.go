// Package pci lists the PCI functions of a machine from sysfs: [Scan].
//
// The list is complete: each entry of sys/bus/pci/devices becomes a [Device] or a warning. An
// attribute that the kernel does not show is nil; one that cannot be read or parsed is nil too,
// with a warning that names its file. Names come from pci.ids below the same root, and for NVIDIA
// products from a built-in table if that file is missing or too old.
//
// It does not read a function's configuration space (on real hardware each read is a bus
// transaction, a hundred times slower than an attribute), compute IOMMU groups (host/iommu), or
// change anything (host/driver).
package pci
