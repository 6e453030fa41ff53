// Package find reads the rows that gpustack judges, with everything that a verdict depends on,
// from the databases of all cells. [RowsAndPools] judges them for a report, [Judge] again within a
// transaction, [Allocations] those of Placement. It compares names of hosts as the database does.
//
// It only reads: cleanup decides, cleanup/repair writes.
package find
