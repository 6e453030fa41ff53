// Package guest tells which guests hold which PCI functions of a machine at this
// very moment, as evidence for those who repair Nova's database, and judges such
// reports.
//
// A report never says "none" where it could not look: every source says whether it
// was read, and what rests on one that was not is null or proves nothing.
//
// Seen are what the kernel calls processes: who has a VFIO group or device open by
// its name below /dev/vfio. A device node that somebody has made under another name
// is not seen, nor is a file that is on its way between two processes.
//
// Does not: know what the host itself needs (host/guard), or speak to libvirt or
// Nova's database.
package guest
