package cleanup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/go-sql-driver/mysql"
)

// cell0 holds instances that never got a host (nova/objects/cell_mapping.py,
// CellMapping.CELL0_UUID).
const cell0 = "00000000-0000-0000-0000-000000000000"

// Where says which databases there are.
type Where struct {
	API      string // URL of nova_api; "" where it is not known
	Local    string // URL of the local [database], which cells' URLs may be filled from
	Database string // URL of one cell, in place of those that nova_api names
}

// Databases are those of a deployment, opened.
type Databases struct {
	API   *sql.DB // nil where it is not known
	Cells []Cell  // that are looked at

	others []Cell // of the same deployment, where only instances are looked for
	unread []error
}

// Unread is an error for each cell that does not answer. Its rows are not judged, and
// what others have of instances that may be its is unknown.
func (d *Databases) Unread() error {
	return errors.Join(d.unread...)
}

// Cell is a cell's database.
type Cell struct {
	Name     string
	UUID     string
	Disabled bool
	DB       *sql.DB
}

// isCell0 tells whether the cell has instances only.
func (c Cell) isCell0() bool {
	return c.UUID == cell0
}

// Errors of databases.
var (
	ErrNoDatabase = errors.New("no database is named")
	ErrNoCells    = errors.New("nova_api has no cells")
)

// Open opens the databases, and has each answer. Disabled cells are among them: to be
// disabled only keeps new guests away. Cells that do not answer are left out, as Unread
// says; if none does it is an error.
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
		if d.API, err = connect(ctx, "api_database", w.API); err != nil {
			return err
		}
	}
	if w.Database != "" {
		db, err := connect(ctx, "database", w.Database)
		if err != nil {
			return err
		}
		d.Cells = []Cell{{Name: "database", DB: db}}
		if d.API == nil {
			return nil
		}
		d.others, err = d.mapped(ctx, w.Local)
		return err
	}
	if d.API == nil {
		return ErrNoDatabase
	}
	d.Cells, err = d.mapped(ctx, w.Local)
	return err
}

// mapped opens the cells that nova_api names.
func (d *Databases) mapped(ctx context.Context, local string) (cells []Cell, err error) {
	rows, err := d.API.QueryContext(ctx, "SELECT uuid, COALESCE(name, ''), COALESCE(database_connection, '') FROM cell_mappings ORDER BY id")
	if err != nil {
		return nil, explain("nova_api.cell_mappings", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	type mapping struct{ uuid, name, url string }
	var mappings []mapping
	for rows.Next() {
		var m mapping
		if err := rows.Scan(&m.uuid, &m.name, &m.url); err != nil {
			return nil, explain("nova_api.cell_mappings", err)
		}
		mappings = append(mappings, m)
	}
	if err := rows.Err(); err != nil {
		return nil, explain("nova_api.cell_mappings", err)
	}
	if len(mappings) == 0 {
		return nil, ErrNoCells
	}
	named := map[string]int{}
	for _, m := range mappings {
		named[m.name]++
	}
	for _, m := range mappings {
		if m.name == "" || named[m.name] > 1 { // names need not be there, or be different
			m.name = m.uuid
		}
		url, err := FillTemplate(m.url, local)
		if err != nil {
			d.unread = append(d.unread, fmt.Errorf("cell %s: %w", m.name, err))
			continue
		}
		db, err := connect(ctx, "cell "+m.name, url)
		if err != nil {
			d.unread = append(d.unread, err)
			continue
		}
		cells = append(cells, Cell{Name: m.name, UUID: m.uuid, DB: db})
	}
	if len(cells) == 0 {
		return nil, d.Unread()
	}
	return cells, nil
}

// Close closes all connections.
func (d *Databases) Close() error {
	var errs []error
	if d.API != nil {
		errs = append(errs, d.API.Close())
	}
	for _, c := range slices.Concat(d.Cells, d.others) {
		errs = append(errs, c.DB.Close())
	}
	return errors.Join(errs...)
}

func connect(ctx context.Context, what, url string) (*sql.DB, error) {
	config, err := ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	db := sql.OpenDB(connector)
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(explain(what+" at "+config.Addr, err), db.Close())
	}
	return db, nil
}

// explain says which database or table an error is of.
func explain(what string, err error) error {
	return fmt.Errorf("%s: %w", what, err)
}
