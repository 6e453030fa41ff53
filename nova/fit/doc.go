// Package fit decides as nova-scheduler does whether a compute node fits a guest
// ([Instance.Host]): its free PCI devices, and the CPUs and the memory of its NUMA nodes.
//
// It follows nova/pci/stats.py, nova/virt/hardware.py and nova/objects/numa.py step by step, with
// their names, so that a change there is found here. Integration tests compare every answer with
// Nova's own code. It reads nothing: requests and nodes are values.
package fit
