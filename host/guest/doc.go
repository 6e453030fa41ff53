// Package guest makes and evaluates guest reports: which guests and processes of a machine use
// which PCI functions at this moment ([Observe]). Reports are evidence for repairs of Nova's
// database.
//
// A report never says "none" of something that it could not read. It lists every source with its
// state, and a list that depends on an unread source is null and proves nothing.
//
// A process uses a function if it has the function's VFIO group or device open by its name below
// /dev/vfio, or a vDPA device of it as vhost-vdpa-N. Device nodes with other names, and files that
// are being passed between processes through a socket, are not seen. A guest also uses the function
// of a network interface that its domain has for itself (type direct, mode passthrough), without
// any of these files.
//
// A report has the times of its host's clock. What it proves about rows of the database depends on
// the database's clock, which a token brings to the host.
//
// It does not determine what the host itself needs (host/guard), and connects neither to libvirt
// nor to Nova's database.
package guest
