// Package find reads the rows that gpustack judges, with everything that a verdict depends on,
// from the databases of all cells: RowsAndPools for a report, Judge again within a
// transaction. Allocations judges what Placement has for PCI devices. It compares names of hosts
// as the database does. ListNotReporting compares rows with Placement.
package find
