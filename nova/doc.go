// Package nova says what the services of OpenStack Nova must be told about PCI
// functions, in the words of the release that is installed, and plans the change of
// their configuration.
//
// Does not: know the grammar of nova.conf (nova/conf), talk to a cloud (nova/cloud),
// or read hardware (host/pci).
package nova
