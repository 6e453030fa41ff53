// Package cleanup finds rows of nova.pci_devices that say a device is taken when it is
// not, or free when it is not, and tells from what: the rows of instances, migrations
// and services beside them, and what compute hosts report of their guests.
//
// The database alone proves little. That time has passed proves nothing: rows of a
// migration whose disk copy still runs look the same as those of one that died. What
// could free a device that a guest uses is unknown until the hosts have said that none
// does.
//
// Does not: read nova.conf (nova/conf), speak HTTP (nova/cloud), or print.
package cleanup
