package db

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"gpustack/integration/service"
)

const (
	apiDatabase   = "nova_api"
	cell0Database = "nova_cell0"
	cell1Database = "nova_cell1"
)

// makeDatabases makes them, empty, and the account of Nova.
func (db *DB) makeDatabases(ctx context.Context) error {
	// As for the data: what is here need not survive a loss of power, and there are
	// hundreds of tables, which the disk would else be waited for.
	if _, err := db.Server.Query(ctx, "SET GLOBAL sync_frm = OFF"); err != nil {
		return err
	}
	for _, name := range []string{apiDatabase, cell0Database, cell1Database} {
		if _, err := db.SQL.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
			return err
		}
	}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		// Only root may grant. The password has no quotes.
		if _, err := db.Server.Query(ctx, fmt.Sprintf("GRANT ALL ON `nova\\_%%`.* TO '%s'@'%s' IDENTIFIED BY '%s'", User, host, db.Password)); err != nil {
			return err
		}
	}
	return nil
}

// makeSchemas has Nova's migrations make the schema of the API database and of a cell,
// at the same time, and the cells known:
// https://docs.openstack.org/nova/zed/admin/cells.html. Cell0's is a copy.
func (db *DB) makeSchemas(ctx context.Context) error {
	list, err := json.Marshal([][][]string{
		{
			{"api_db", "sync"},
			{"cell_v2", "map_cell0", "--database_connection", db.URL(cell0Database)},
			{"cell_v2", "create_cell", "--name", "cell1"},
		},
		{{"db", "sync", "--local_cell"}},
	})
	if err != nil {
		return err
	}
	manage := service.Program{
		Name: "nova-manage",
		Argv: db.python("manage.py", db.Conf(), string(list)),
		Env:  db.environ(),
		Log:  db.log("nova-manage"),
	}
	if err := manage.Run(ctx); err != nil {
		return err
	}
	return db.copySchema(ctx, cell0Database)
}

// copySchema gives a database the tables of cell1, with their foreign keys, which
// CREATE TABLE ... LIKE would leave out.
func (db *DB) copySchema(ctx context.Context, database string) error {
	tables, err := db.rows(ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema = ?", cell1Database)
	if err != nil {
		return err
	}
	// One connection for all: the settings are those of a session.
	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// A table may come before the one that its keys speak of.
	statements := []string{"USE " + database, "SET foreign_key_checks = 0"}
	for _, table := range tables {
		made, err := db.rows(ctx, fmt.Sprintf("SHOW CREATE TABLE %s.`%s`", cell1Database, table[0]))
		if err != nil {
			return err
		}
		statements = append(statements, made[0][1])
	}
	// The version of the schema is data.
	statements = append(statements, fmt.Sprintf("INSERT INTO alembic_version SELECT * FROM %s.alembic_version", cell1Database), "SET foreign_key_checks = 1")
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", strings.SplitN(statement, "\n", 2)[0], err)
		}
	}
	return nil
}

// findCells reads what nova-manage has made.
func (db *DB) findCells(ctx context.Context) error {
	db.API = Database{Name: apiDatabase, db: db}
	mappings, err := db.rows(ctx, "SELECT id, uuid, name FROM nova_api.cell_mappings ORDER BY id")
	if err != nil {
		return err
	}
	if len(mappings) != 2 || mappings[0][2] != "cell0" || mappings[1][2] != "cell1" {
		return fmt.Errorf("cells are %q", mappings)
	}
	made := make([]*Cell, 2)
	for i, name := range []string{cell0Database, cell1Database} {
		made[i] = &Cell{Database: Database{Name: name, db: db}, UUID: mappings[i][1], id: mappings[i][0], connection: db.URL(name)}
	}
	db.Cell0, db.Cell1 = made[0], made[1]
	return db.readColumns(ctx)
}
