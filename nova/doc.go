// Package nova reads and plans the PCI configuration of OpenStack Nova's services: aliases, device
// specs, scheduler filters and Placement options, under the option names of each release. [NewWant]
// determines what is wanted, [NewPlan] what differs in the files. Its steps take the files as they
// were read; each returns what it sets.
//
// It does not parse or edit the text of nova.conf (nova/conf), evaluate device specs
// (nova/devspec), report findings (nova/novacheck), talk to a cloud (nova/cloud), or scan PCI
// devices (host/pci).
package nova
