// Package servertest tests a flavor ([Test]): it boots a server, reads what the guest reports of
// its PCI devices, compares that with what the flavor requests, deletes the server and determines
// whether its devices are free again.
//
// A server is recorded before it is requested, and deleted only if its id, its name and its
// metadata are those of the record.
//
// It does not speak HTTP (nova/cloud), read databases (cleanup/find), or print.
package servertest
