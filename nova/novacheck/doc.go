// Package novacheck finds errors in the PCI configuration of controllers and compute nodes: in
// their nova.conf files, in flavors, and against the hardware that inventories list. [Run] returns
// all findings.
//
// It does not read files (nova), talk to a cloud (nova/cloud), or change anything.
package novacheck
