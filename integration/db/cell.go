package db

import (
	"fmt"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/uuid"
)

// A Database is one of Nova's.
type Database struct {
	Name string
	db   *DB
}

// URL returns its address with the password, as in Nova's configuration.
func (d Database) URL() string {
	return d.db.URL(d.Name)
}

// A Cell is a cell's database, and its row in cell_mappings.
type Cell struct {
	Database
	UUID string

	id         string // in cell_mappings
	connection string // there
}

// AddCell makes a cell with the database nova_NAME, up to the next Reset. Columns of
// its row in cell_mappings can be given: disabled, or database_connection, for which
// there is Template.
func (db *DB) AddCell(t testing.TB, name string, mapping ...Row) *Cell {
	t.Helper()
	cell := &Cell{Database: Database{Name: "nova_" + name, db: db}, UUID: uuid.NewString()}
	there, err := db.rows(t.Context(), "SELECT 1 FROM information_schema.schemata WHERE schema_name = ?", cell.Name)
	hosttest.NoError(t, err)
	// A database of that name is one that Reset has emptied.
	if len(there) == 0 {
		if _, err := db.SQL.ExecContext(t.Context(), "CREATE DATABASE "+cell.Name); err != nil {
			t.Fatal(err)
		}
		hosttest.NoError(t, db.copySchema(t.Context(), cell.Name))
	}
	db.columns[cell.Name] = db.columns[cell1Database]
	row := Row{"uuid": cell.UUID, "name": name, "transport_url": "none:///", "database_connection": cell.URL(), "disabled": false}
	row = row.with(mapping...)
	cell.id, cell.connection = fmt.Sprint(db.API.Insert(t, "cell_mappings", row)), fmt.Sprint(row["database_connection"])
	return cell
}

// Template is a database_connection as clouds with many controllers have it: Nova
// fills it from the [database]connection of the nova.conf at hand, see format_db_url
// in nova/objects/cell_mapping.py.
func Template(database string) string {
	return "{scheme}://{username}:{password}@{hostname}:{port}/" + database + "?{query}"
}
