package nova

import (
	"context"
	"encoding/json"
	"strings"

	"gpustack/integration/mariadb"
)

// databases are those of the services, empty to begin with.
var databases = []string{"nova_api", "nova_cell0", "nova_cell1", "keystone", "placement", "glance"}

// makeDatabases starts MariaDB for the first time, and writes the files that name it.
func (l *Lab) makeDatabases(ctx context.Context) (err error) {
	if l.Database, err = mariadb.Start(ctx, l.state("mysql"), l.log("mariadb")); err != nil {
		return err
	}
	var statements strings.Builder
	for _, name := range databases {
		statements.WriteString("CREATE DATABASE " + name + ";")
	}
	if _, err := l.Database.Query(ctx, statements.String()); err != nil {
		return err
	}
	for _, name := range []string{"keystone.conf", "placement.conf", "glance-api.conf", "glance-api-paste.ini"} {
		if err := l.write(l.state("conf", name), name, l.values()); err != nil {
			return err
		}
	}
	return l.write(l.NovaConf, "nova.conf", l.values())
}

// novaSchemas: https://docs.openstack.org/nova/zed/admin/cells.html, for one cell.
func (l *Lab) novaSchemas(ctx context.Context) error {
	return l.manage(ctx, "nova", l.NovaConf, [][]string{
		{"api_db", "sync"},
		{"cell_v2", "map_cell0", "--database_connection", l.Database.URL("nova_cell0")},
		{"cell_v2", "create_cell", "--name", "cell1"},
		{"db", "sync"},
	})
}

func (l *Lab) placementSchema(ctx context.Context) error {
	return l.manage(ctx, "placement", l.state("conf", "placement.conf"), [][]string{{"db", "sync"}})
}

func (l *Lab) glanceSchema(ctx context.Context) error {
	return l.manage(ctx, "glance", l.state("conf", "glance-api.conf"), [][]string{{"db", "sync"}})
}

// keystoneSchema: https://docs.openstack.org/keystone/zed/install/keystone-install-ubuntu.html.
func (l *Lab) keystoneSchema(ctx context.Context) error {
	owner := []string{"--keystone-user", "root", "--keystone-group", "root"}
	return l.manage(ctx, "keystone", l.state("conf", "keystone.conf"), [][]string{
		{"db_sync"},
		append([]string{"fernet_setup"}, owner...),
		append([]string{"credential_setup"}, owner...),
		{
			"bootstrap", "--bootstrap-password", l.AdminPassword, "--bootstrap-region-id", Region,
			"--bootstrap-public-url", l.KeystoneURL, "--bootstrap-internal-url", l.KeystoneURL, "--bootstrap-admin-url", l.KeystoneURL,
		},
	})
}

// manage runs commands of a project's manage program one after the other.
func (l *Lab) manage(ctx context.Context, project, conf string, commands [][]string) error {
	list, err := json.Marshal(commands)
	if err != nil {
		return err
	}
	return l.python(project+"-manage", "manage.py", project+".cmd.manage", conf, string(list)).Run(ctx)
}
