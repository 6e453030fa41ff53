// Package pools decides which free PCI devices nova-scheduler gives a request of an alias
// ([Devices.Supports]): by the ids, the type and the tags of Nova's pools, and by their NUMA nodes.
//
// It follows nova/pci/stats.py step by step, with its names, so that a change there is found here.
// A refusal would not do: device_spec and alias are judged on machines without Nova, before
// nova-compute has any pool. It reads nothing: requests and pools are values.
package pools
