// Package cleanup judges live rows of nova.pci_devices: it finds rows that call a device taken
// that is free, or free that is taken, and plans their repair. [Classify] judges one row from what
// the database has about it and from what compute hosts report about their guests; [NewPlan] turns
// findings into units of repair.
//
// The database alone proves little. The age of a row proves nothing: rows of a migration whose
// disk copy still runs look the same as those of one that died. A repair that could free a device
// which a guest uses is therefore unknown until the hosts have reported that no guest uses it.
//
// Two live rows of one address on one host belong to two compute nodes, one of them deleted (case D).
// Not checked are request specs, and races that the next audit of nova-compute corrects.
//
// This package reads and writes nothing. Its folders do: novadb connects to the databases, find
// reads rows and has them judged, repair carries the plan out. None of them reads nova.conf
// (package nova), speaks HTTP (nova/cloud) or prints.
package cleanup
