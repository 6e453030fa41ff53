package db

import (
	"context"
	"encoding/json"
	"testing"

	"gpustack/host/hosttest"
)

// Tracked is what Nova's tracker makes of the rows of a node.
type Tracked struct {
	// Changes are to the rows, by address; none if Nova is content with them.
	Changes []Change
	// Pools are the free devices, as reported to the scheduler.
	Pools []Pool
	// Offers is by alias how many a flavor could ask for and be let on the node.
	Offers map[string]int
	// Free are the addresses of the devices in the pools.
	Free []string
	// Error is the class of the exception, if there is one, and Message its text.
	// nova-compute would raise it with each audit.
	Error, Message string
}

// A Change is to one column of one row. A row that is to be made is a change of
// its status from NULL; one that is to be deleted, a change to removed.
type Change struct {
	Address, Column, Before, After string
}

// A Pool is cards that are alike and free.
type Pool struct {
	Product string // vendor:product
	Type    string
	NUMA    *int
	Count   int
}

// Track loads a node as its nova-compute does when it starts, on a hypervisor that has
// the devices, and has it do its first audit. Nothing is written.
func (db *DB) Track(t testing.TB, cell *Cell, node int64, devices []Device) Tracked {
	t.Helper()
	return db.track(t, cell, node, devices, false)
}

// TrackAndSave is Track that writes what nova-compute would: pci_devices, and pci_stats
// of the node.
func (db *DB) TrackAndSave(t testing.TB, cell *Cell, node int64, devices []Device) Tracked {
	t.Helper()
	return db.track(t, cell, node, devices, true)
}

func (db *DB) track(t testing.TB, cell *Cell, node int64, devices []Device, save bool) Tracked {
	t.Helper()
	tracked, err := db.audit(t.Context(), cell, node, devices, save)
	hosttest.NoError(t, err)
	return tracked
}

// audit is Track or TrackAndSave for a caller that is no test.
func (db *DB) audit(ctx context.Context, cell *Cell, node int64, devices []Device, save bool) (tracked Tracked, err error) {
	answer, err := db.oracle.ask(ctx, map[string]any{
		"ask": "track", "database": cell.connection, "compute_node_id": node, "save": save,
		"devices": append([]Device{}, devices...), // never nil, which would not be a list
	})
	if err != nil {
		return tracked, err
	}
	return tracked, json.Unmarshal(answer, &tracked)
}
