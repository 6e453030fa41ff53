// Package find reads the rows that gpustack judges, with everything that a verdict depends on,
// from the databases of all cells: Rows for a report, Judge again within a transaction. It
// compares names of hosts as the database does. ListNotReporting compares rows with Placement.
package find
