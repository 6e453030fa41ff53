package db

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Reset takes all rows out of all databases but those that make them Nova's: the
// versions of the schemas, cell0 and cell1, which are enabled and where they were. Ids
// begin with 1 again. Cells that were
// added are no longer known; their databases stay, empty, for AddCell.
func (db *DB) Reset(ctx context.Context) error {
	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tables, err := db.used(ctx)
	if err != nil {
		return err
	}
	statements := []string{"SET foreign_key_checks = 0"}
	for _, table := range tables {
		statements = append(statements, "TRUNCATE TABLE "+table)
	}
	statements = append(statements,
		fmt.Sprintf("DELETE FROM nova_api.cell_mappings WHERE id NOT IN (%s, %s)", db.Cell0.id, db.Cell1.id),
		"SET foreign_key_checks = 1")
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	for _, cell := range []*Cell{db.Cell0, db.Cell1} {
		if _, err := conn.ExecContext(ctx, "UPDATE nova_api.cell_mappings SET database_connection = ?, disabled = 0 WHERE id = ?", cell.URL(), cell.id); err != nil {
			return err
		}
	}
	return nil
}

// used are the tables that have rows, or had: to empty all takes seconds.
func (db *DB) used(ctx context.Context) ([]string, error) {
	var questions []string
	for database, tables := range db.columns {
		for table := range tables {
			if !slices.Contains([]string{"alembic_version", "cell_mappings"}, table) {
				questions = append(questions, fmt.Sprintf("SELECT '%[1]s.`%[2]s`' FROM DUAL WHERE EXISTS (SELECT 1 FROM %[1]s.`%[2]s`)", database, table))
			}
		}
	}
	questions = append(questions, "SELECT concat(table_schema, '.`', table_name, '`') FROM information_schema.tables WHERE table_schema LIKE 'nova\\_%' AND table_name <> 'cell_mappings' AND auto_increment > 1")
	rows, err := db.rows(ctx, strings.Join(questions, " UNION "))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, row := range rows {
		names = append(names, row[0])
	}
	return names, nil
}
