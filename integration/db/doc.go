// Package db gives tests the databases of a Nova without the Nova: a MariaDB of its
// own with the schema that Nova's migrations make, rows that the test puts in, and an
// oracle, which is Nova's PciDevTracker asked what it would make of them.
//
// Real: the server, the schema with its keys, cell_mappings as nova-manage writes them,
// what stands in a flavor, a request or a migration context, for Nova's objects write
// it, and the tracker. Not real: the rows, as far as the test chooses them; services,
// so that nothing changes a row meanwhile. package integration/nova has all that, and
// takes minutes instead of seconds. Placement is real where a test starts one
// (placement.go); TestHistories does.
//
// The oracle does what concerns PCI devices of the first audit after nova-compute's
// start: it loads the rows, takes the hypervisor's list, allocates what instances of
// the node have claimed, and frees devices without an instance. Not what an audit does with
// migrations beside that: it neither allocates what an incoming one has claimed, nor
// marks one as error that is not the one of the migration context.
//
// Where to look: db.go is what is started, how it gets empty and what it holds, conf.go the
// nova.conf, schema.go the databases, cell.go those that a test adds; rows.go puts rows in and
// knows what belongs together; track.go asks the oracle, and oracle.go keeps it running.
package db
