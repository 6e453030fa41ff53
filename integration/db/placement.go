package db

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"gpustack/integration/service"
)

//go:embed conf/placement.conf
var placementConf string

// placementDatabase is the database of Placement, on the same server as Nova's.
const placementDatabase = "placement"

// PlacementToken is the token that a Placement of these tests accepts from an administrator.
const PlacementToken = "admin"

// A Placement is a running Placement service, the one of Debian. It has no Keystone: it accepts
// PlacementToken.
type Placement struct {
	URL string

	db      *DB
	service *service.Service
}

// StartPlacement starts Placement with an empty database.
func (db *DB) StartPlacement(ctx context.Context) (*Placement, error) {
	ports, err := service.Ports(1)
	if err != nil {
		return nil, err
	}
	if _, err := db.SQL.ExecContext(ctx, "CREATE DATABASE "+placementDatabase); err != nil {
		return nil, err
	}
	conf := filepath.Join(db.dir, "placement")
	if err := errors.Join(os.Mkdir(conf, 0o700), writePlacementConf(filepath.Join(conf, "placement.conf"), db.Server.URL(placementDatabase))); err != nil {
		return nil, err
	}
	p := &Placement{URL: "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])), db: db}
	p.service = &service.Service{
		Program: service.Program{
			Name: "placement",
			Argv: db.python("wsgi.py", "placement.wsgi:init_application", strconv.Itoa(ports[0])),
			Env:  append(db.environ(), "OS_PLACEMENT_CONFIG_DIR="+conf),
			Log:  db.log("placement"),
		},
		Ready: p.ready,
	}
	return p, p.service.Start(ctx)
}

func writePlacementConf(file, url string) error {
	parsed, err := template.New("placement.conf").Parse(placementConf)
	if err != nil {
		return err
	}
	var text strings.Builder
	if err := parsed.Execute(&text, url); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text.String()), 0o600)
}

func (p *Placement) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// Stop ends it. Its database stays.
func (p *Placement) Stop() error { return p.service.Stop() }

// consumerTypes are those of Nova, in the order of their ids.
var consumerTypes = []string{"INSTANCE", "MIGRATION"}

// Provide makes resource providers, each with a thousand VCPUs. Their ids count from 1.
func (p *Placement) Provide(ctx context.Context, names ...string) error {
	statements := []string{
		"INSERT INTO placement.projects (id, external_id) VALUES (1, 'project')",
		"INSERT INTO placement.users (id, external_id) VALUES (1, 'user')",
	}
	for i, name := range consumerTypes {
		statements = append(statements, fmt.Sprintf("INSERT INTO placement.consumer_types (id, name) VALUES (%d, '%s')", i+1, name))
	}
	for i, name := range names {
		statements = append(statements,
			fmt.Sprintf("INSERT INTO placement.resource_providers (id, uuid, name, generation, root_provider_id) VALUES (%[1]d, '%[2]s', '%[3]s', 1, %[1]d)", i+1, UUID(900+i), name),
			// Resource class 0 is VCPU (os_resource_classes).
			fmt.Sprintf("INSERT INTO placement.inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size, allocation_ratio) VALUES (%d, 0, 1000, 0, 1, 1000, 1, 1)", i+1))
	}
	for _, statement := range statements {
		if _, err := p.db.SQL.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Allocate replaces all allocations: what each consumer, by its uuid, holds of providers by their
// names. Consumers in migrations are of that type, others are instances.
func (p *Placement) Allocate(ctx context.Context, held map[string][]string, migrations map[string]bool) error {
	statements := []string{"DELETE FROM placement.allocations", "DELETE FROM placement.consumers"}
	for consumer, providers := range held {
		if len(providers) == 0 {
			continue // Placement forgets it
		}
		kind := 1
		if migrations[consumer] {
			kind = 2
		}
		statements = append(statements, fmt.Sprintf("INSERT INTO placement.consumers (uuid, project_id, user_id, generation, consumer_type_id) VALUES ('%s', 1, 1, 1, %d)", consumer, kind))
		for _, provider := range providers {
			statements = append(statements, fmt.Sprintf("INSERT INTO placement.allocations (resource_provider_id, consumer_id, resource_class_id, used) SELECT id, '%s', 0, 8 FROM placement.resource_providers WHERE name = '%s'", consumer, provider))
		}
	}
	for _, statement := range statements {
		if _, err := p.db.SQL.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Allocated returns the names of the providers that each consumer has allocations of.
func (p *Placement) Allocated(ctx context.Context) (map[string][]string, error) {
	rows, err := p.db.rows(ctx, "SELECT a.consumer_id, p.name FROM placement.allocations a JOIN placement.resource_providers p ON p.id = a.resource_provider_id ORDER BY 1, 2")
	held := map[string][]string{}
	for _, row := range rows {
		held[row[0]] = append(held[row[0]], row[1])
	}
	return held, err
}
