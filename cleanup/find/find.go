package find

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// Options select the rows to judge, and hold what they are judged by besides the databases.
type Options struct {
	Cell      string // a cell's name or uuid; "" for all
	Host      string
	Instance  string
	Address   string
	All       bool                // whether findings of legitimate rows are wanted, apart from their number
	Down      time.Duration       // after which a silent nova-compute is down; 0 for service_down_time's default
	BusyAfter time.Duration       // after which rows of a busy instance are listed; 0 for cleanup.BusyAfter
	Proof     cleanup.Proof       // nil: no host has reported
	Token     string              // for guest reports that are made now, by Token; "" for none
	Present   map[string][]string // addresses of all devices of a host, for hosts with an inventory
	Claim     bool                // whether free devices may be assigned to the guests that use them
	Given     []Given             // the hosts that have reported, or are declared off
}

// downTime is the default of service_down_time (nova/conf/service.py), in seconds.
const downTime = 60 * time.Second

// batch is how many rows are judged at a time.
const batch = 2000

// RowsAndPools judges the rows of all cells, each in one consistent read-only snapshot, and calls emit
// for each finding, cell by cell: for legitimate rows only with Options.All, or if the options select
// some rows. It compares the pools of the compute nodes with the rows in the same snapshots, and
// returns the numbers of rows of each cell.
//
// Errors: novadb.ErrNoCell if no cell has the name of the options.
func RowsAndPools(ctx context.Context, d *novadb.Databases, o Options, emit func(cleanup.Finding)) (cells []cleanup.CellSummary,
	pools cleanup.PoolReport, err error) {
	pools = newPools(o)
	compared := &pools
	if !pools.Judged {
		compared = nil
	}
	for _, c := range d.Cells {
		if !o.selects(c) {
			continue
		}
		s := cleanup.CellSummary{Cell: c.Name}
		err := inCell(ctx, d, c, o, func(r *reader) error {
			return r.find(ctx, func(f cleanup.Finding) {
				s.Count(f)
				emit(f)
			}, func(rows int) { s.Legitimate += rows }, compared)
		})
		cells = append(cells, s)
		if err != nil {
			return cells, pools, err
		}
	}
	if len(cells) == 0 {
		err = fmt.Errorf("cell %s: %w", o.Cell, novadb.ErrNoCell)
	}
	pools.Sort()
	return cells, pools, err
}

// inCell calls act with a reader of a consistent read-only snapshot of a cell.
func inCell(ctx context.Context, d *novadb.Databases, c novadb.Cell, o Options, act func(*reader) error) error {
	tx, err := c.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return novadb.Explain("cell "+c.Name, err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	r, err := newReader(ctx, tx, d, c, o)
	if err == nil {
		err = act(r)
	}
	if err != nil {
		return fmt.Errorf("cell %s: %w", c.Name, err)
	}
	return nil
}

// find judges the rows of a cell, and its pools unless pools is nil.
func (r *reader) find(ctx context.Context, emit func(cleanup.Finding), legitimate func(rows int), pools *cleanup.PoolReport) (err error) {
	judge := func(devices []cleanup.Device) error {
		findings, err := r.judge(ctx, devices)
		if err != nil {
			return err
		}
		if err := r.explainBusy(ctx, findings); err != nil {
			return err
		}
		for _, f := range findings {
			emit(f)
		}
		return nil
	}
	var free *freeRows
	if pools != nil {
		free = newFreeRows()
	}
	if o := r.options; !o.All && o.Host == "" && o.Instance == "" && o.Address == "" {
		err = r.eachDoubtful(ctx, judge, legitimate, free)
	} else if err = r.eachOdd(ctx, judge); err == nil && pools != nil {
		err = free.read(ctx, r)
	}
	if err == nil {
		err = r.eachHeld(ctx, judge)
	}
	if err == nil && pools != nil {
		err = r.pools(ctx, free, pools)
	}
	return err
}

// eachDoubtful reads the rows that need to be judged, batch by batch, and counts the others that
// are taken, and unless free is nil, those that are free.
func (r *reader) eachDoubtful(ctx context.Context, judge func([]cleanup.Device) error, legitimate func(rows int), free *freeRows) error {
	ids, others, err := r.doubtful(ctx, free)
	if err != nil {
		return err
	}
	legitimate(others)
	for some := range slices.Chunk(ids, batch) {
		devices, err := r.devices(ctx, "id IN ("+novadb.Places(len(some))+") AND "+odd, anys(some)...)
		if err != nil {
			return err
		}
		if err := judge(devices); err != nil {
			return err
		}
	}
	return nil
}

// eachOdd reads the rows that match odd and that the options select, batch by batch.
func (r *reader) eachOdd(ctx context.Context, judge func([]cleanup.Device) error) error {
	where, args, err := r.wanted(ctx)
	if err != nil {
		return err
	}
	for after := int64(0); ; {
		devices, err := r.devices(ctx, "id > ? AND "+odd+where+fmt.Sprintf(" ORDER BY id LIMIT %d", batch), append([]any{after}, args...)...)
		if err != nil || len(devices) == 0 {
			return err
		}
		if err := judge(devices); err != nil {
			return err
		}
		after = devices[len(devices)-1].ID
	}
}

// eachHeld reads the free rows whose devices guests use by reports.
func (r *reader) eachHeld(ctx context.Context, judge func([]cleanup.Device) error) error {
	where, args, err := r.wanted(ctx)
	if err != nil {
		return err
	}
	var held []nodeAddress
	for node, uses := range r.held {
		for address := range uses {
			held = append(held, nodeAddress{node, address})
		}
	}
	return r.devicesAt(ctx, ownAddress, held, " AND NOT "+odd+where, args, judge)
}

// wanted returns the condition for rows that the options select.
func (r *reader) wanted(ctx context.Context) (where string, args []any, err error) {
	ids, err := r.hostNodes(ctx)
	if err != nil {
		return "", nil, err
	}
	if ids != nil {
		where, args = where+" AND compute_node_id IN ("+novadb.Places(len(ids))+")", append(args, ids...)
	}
	if r.options.Instance != "" {
		where, args = where+" AND instance_uuid = ?", append(args, r.options.Instance)
	}
	if r.options.Address != "" {
		where, args = where+" AND address = ?", append(args, r.options.Address)
	}
	return where, args, nil
}

// hostNodes returns the ids of the compute nodes that Options.Host selects, nil if it selects all.
func (r *reader) hostNodes(ctx context.Context) ([]any, error) {
	if r.options.Host == "" {
		return nil, nil
	}
	ids := []any{int64(0)} // no node has it
	err := r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, "SELECT id FROM compute_nodes WHERE host = ? OR hypervisor_hostname = ?", r.options.Host, r.options.Host)
	return ids, novadb.IgnoreNoName(err)
}

// Judge judges live rows of a cell by their ids, within a transaction. It returns the time by the
// database's clock, too.
func Judge(ctx context.Context, tx *sql.Tx, d *novadb.Databases, c novadb.Cell, o Options, ids []int64) ([]cleanup.Finding, time.Time, error) {
	r, err := newReader(ctx, tx, d, c, o)
	if err != nil {
		return nil, r.now, err
	}
	devices, err := r.devices(ctx, "id IN ("+novadb.Places(len(ids))+")", anys(ids)...)
	if err != nil {
		return nil, r.now, err
	}
	findings, err := r.judge(ctx, devices)
	return findings, r.now, err
}
