package novadb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"

	"gpustack/host"
)

// cell0 holds instances that never got a host (nova/objects/cell_mapping.py,
// CellMapping.CELL0_UUID).
const cell0 = "00000000-0000-0000-0000-000000000000"

// Where names the databases of a deployment.
type Where struct {
	API      string // URL of nova_api; "" if unknown
	Local    string // URL of the local [database], with which URLs of cells may be completed
	Database string // URL of one cell, instead of the cells that nova_api names

	// Arguments to add to the URL of nova_api, and to those of the cells that nova_api names
	// (connection_parameters).
	APIParameters, Parameters string

	Root   host.Root // files that URLs name are below it
	Limits Limits
}

// Databases are the open databases of a deployment.
type Databases struct {
	API   *sql.DB // nil if unknown
	Cells []Cell  // whose rows are judged

	others []Cell // of the same deployment, in which only instances are looked up
	unread []error
}

// Unread returns an error for each cell that does not answer. Rows of such a cell are not judged,
// and rows of other cells whose instances may be in it are unknown.
func (d *Databases) Unread() error {
	return errors.Join(d.unread...)
}

// Cell is a cell's database.
type Cell struct {
	Name string
	UUID string
	DB   *sql.DB
}

// IsCell0 returns whether the cell is cell0, which has instances only.
func (c Cell) IsCell0() bool {
	return c.UUID == cell0
}

// Errors of databases.
var (
	errNoDatabase = host.WithHint(errors.New("no database is given"), "run gpustack on a controller, whose nova.conf names the databases, or give --database")
	errNoCells    = host.WithHint(errors.New("nova_api has no cells"),
		"nova-manage cell_v2 list_cells lists the cells; check that [api_database] is the database of this cloud")
	ErrNoCell = host.WithHint(errors.New("no such cell"), "nova-manage cell_v2 list_cells lists the cells; without --cell, all cells are read")
)

// Open connects to the databases and reads a first answer from each, from all cells at
// the same time. Disabled cells are among them: disabling only keeps new guests away.
// Cells that do not answer are left out, and Unread names them; it is an error if no cell
// answers.
func Open(ctx context.Context, w Where) (*Databases, error) {
	d := &Databases{}
	err := d.open(ctx, w)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Databases) open(ctx context.Context, w Where) (err error) {
	if w.API != "" {
		if d.API, err = w.connect(ctx, "api_database", withArguments(w.API, w.APIParameters)); err != nil {
			return err
		}
	}
	if w.Database != "" {
		db, err := w.connect(ctx, "database", w.Database)
		if err != nil {
			return err
		}
		d.Cells = []Cell{{Name: "database", DB: db}}
		if d.API == nil {
			return nil
		}
		d.others, err = d.mapped(ctx, w)
		return err
	}
	if d.API == nil {
		return errNoDatabase
	}
	d.Cells, err = d.mapped(ctx, w)
	return err
}

// connect connects to the database of a URL.
func (w Where) connect(ctx context.Context, what, url string) (*sql.DB, error) {
	target, err := ParseURL(w.Root, url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, hintedURL(what, err))
	}
	return connect(ctx, what, target, w.Limits)
}

// mapping is a row of nova_api.cell_mappings.
type mapping struct{ uuid, name, url string }

// mapped connects to the cells that nova_api names.
func (d *Databases) mapped(ctx context.Context, w Where) ([]Cell, error) {
	var mappings []mapping
	err := within(ctx, w.Limits.withDefaults().Connect, func(ctx context.Context) error {
		return Query(ctx, d.API, "cell_mappings", func(rows *sql.Rows) error {
			var m mapping
			err := rows.Scan(&m.uuid, &m.name, &m.url)
			mappings = append(mappings, m)
			return err
		}, "SELECT uuid, COALESCE(name, ''), COALESCE(database_connection, '') FROM cell_mappings ORDER BY id")
	})
	if err != nil {
		return nil, Explain("nova_api", err)
	}
	if len(mappings) == 0 {
		return nil, errNoCells
	}
	named := map[string]int{}
	for _, m := range mappings {
		named[m.name]++
	}
	cells, failures := make([]Cell, len(mappings)), make([]error, len(mappings))
	var all sync.WaitGroup
	for i, m := range mappings {
		if m.name == "" || named[m.name] > 1 { // a name is optional, and need not be unique
			m.name = m.uuid
		}
		cells[i] = Cell{Name: m.name, UUID: m.uuid}
		all.Go(func() {
			url, err := fillTemplate(m.url, w.Local)
			if err != nil {
				failures[i] = fmt.Errorf("cell %s: %w", m.name, hintedURL("cell "+m.name, err))
				return
			}
			cells[i].DB, failures[i] = w.connect(ctx, "cell "+m.name, withArguments(url, w.Parameters))
		})
	}
	all.Wait()
	cells = slices.DeleteFunc(cells, func(c Cell) bool { return c.DB == nil })
	d.unread = slices.DeleteFunc(failures, func(err error) bool { return err == nil })
	if err := ctx.Err(); err != nil { // interrupted: the failures are not those of the cells
		return cells, err
	}
	if len(cells) == 0 {
		return nil, d.Unread()
	}
	return cells, nil
}

// Cell returns the cell of a name among Cells.
//
// Errors: ErrNoCell.
func (d *Databases) Cell(name string) (Cell, error) {
	for _, c := range d.Cells {
		if c.Name == name {
			return c, nil
		}
	}
	return Cell{}, fmt.Errorf("cell %s: %w", name, ErrNoCell)
}

// All returns all cells that answer: Cells, and those of the same deployment in which only
// instances are looked up.
func (d *Databases) All() []Cell {
	return slices.Concat(d.Cells, d.others)
}

// Close closes all connections.
func (d *Databases) Close() error {
	var errs []error
	if d.API != nil {
		errs = append(errs, d.API.Close())
	}
	errs = append(errs, host.Map(d.All(), func(c Cell) error { return c.DB.Close() })...)
	return errors.Join(errs...)
}
