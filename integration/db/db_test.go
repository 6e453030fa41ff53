package db

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/service"

	"github.com/go-sql-driver/mysql"
)

// TestSchema: the tables are there, and cell0 and another cell have those of cell1 with
// all their keys.
func TestSchema(t *testing.T) {
	reset(t)
	cell2 := database.AddCell(t, "cell2")
	tables := func(name string) string {
		var all strings.Builder
		for _, table := range database.find(t, "SELECT table_name FROM information_schema.tables WHERE table_schema = ? ORDER BY table_name", name) {
			all.WriteString(database.find(t, fmt.Sprintf("SHOW CREATE TABLE %s.`%s`", name, table[0]))[0][1] + "\n")
		}
		return regexp.MustCompile(` AUTO_INCREMENT=\d+`).ReplaceAllString(all.String(), "")
	}
	want := tables(database.Cell1.Name)
	for _, part := range []string{"CREATE TABLE `pci_devices`", "uniq_pci_devices0compute_node_id0address0deleted", "FOREIGN KEY (`compute_node_id`) REFERENCES `compute_nodes`", "CREATE TABLE `shadow_pci_devices`", "CREATE TABLE `migrations`"} {
		hosttest.ContainsIn(t, "cell1", part, want)
	}
	for _, cell := range []*Cell{database.Cell0, cell2} {
		hosttest.EqualIn(t, cell.Name, want, tables(cell.Name))
	}
	if api := tables(apiDatabase); !strings.Contains(api, "CREATE TABLE `instance_mappings`") {
		t.Error("no instance_mappings")
	}
}

// TestPassword: what stands in nova.conf is the password, once oslo.config's dollar
// signs and the URL's percent signs are read, and it opens both ways in.
func TestPassword(t *testing.T) {
	for _, test := range []struct {
		root string
		dial func(u *url.URL) (network, address string)
	}{
		{database.Root, func(u *url.URL) (string, string) { return "tcp", u.Host }},
		{database.SocketRoot, func(u *url.URL) (string, string) { return "unix", u.Query().Get("unix_socket") }},
	} {
		text := hosttest.Read(t, filepath.Join(test.root, "etc/nova/nova.conf"))
		found := regexp.MustCompile(`(?m)^connection = (.*)$`).FindAllSubmatch([]byte(text), -1)
		if len(found) != 2 {
			t.Fatalf("connections: %q", found)
		}
		for i, name := range []string{apiDatabase, cell1Database} {
			value := string(found[i][1])
			if !strings.Contains(value, "$$") || !strings.Contains(value, "%40") || strings.Contains(value, database.Password) {
				t.Errorf("%s: the password needs no reading", value)
			}
			u, err := url.Parse(strings.ReplaceAll(value, "$$", "$"))
			hosttest.NoError(t, err)
			config := mysql.NewConfig()
			config.User, config.DBName = u.User.Username(), strings.TrimPrefix(u.Path, "/")
			config.Passwd, _ = u.User.Password()
			config.Net, config.Addr = test.dial(u)
			connector, err := mysql.NewConnector(config)
			hosttest.NoError(t, err)
			conn := sql.OpenDB(connector)
			defer conn.Close()
			var got string
			if err := conn.QueryRowContext(t.Context(), "SELECT database()").Scan(&got); err != nil || got != name {
				t.Errorf("%s: %q, %v", value, got, err)
			}
		}
	}
}

// TestCells: cell0 and cell1 are as nova-manage has made them; another is as it is
// told, and Nova makes its address of a template.
func TestCells(t *testing.T) {
	reset(t)
	mappings := func() [][]string {
		return database.API.Dump(t, "cell_mappings", "name", "database_connection", "disabled")
	}
	want := [][]string{
		{"cell0", database.URL("nova_cell0"), "0"},
		{"cell1", database.URL("nova_cell1"), "0"},
	}
	hosttest.Equal(t, want, mappings())
	cell2 := database.AddCell(t, "cell2", Row{"disabled": true, "database_connection": Template("nova_cell2")})
	added := append(want, []string{"cell2", "{scheme}://{username}:{password}@{hostname}:{port}/nova_cell2?{query}", "1"})
	hosttest.Equal(t, added, mappings())
	node := cell2.Compute(t, "gpu9")
	cell2.Card(t, node, "0000:84:00.0", "available", "")
	if tracked := database.Track(t, cell2, node, cell2.Reported(t, node)); tracked.Offers["K4200"] != 1 {
		t.Errorf("%+v", tracked)
	}
	cell2.Instance(t, UUID(1), "gpu9", "active", "")
	hosttest.Equal(t, [][]string{{UUID(1), cell2.id}}, database.API.Dump(t, "instance_mappings", "instance_uuid", "cell_id"))
	reset(t)
	hosttest.Equal(t, want, mappings())
	again := database.AddCell(t, "cell2")
	if rows := again.Dump(t, "instances"); rows != nil {
		t.Errorf("a cell that was there has %q", rows)
	}
}

// TestReset: nothing is left but what makes the databases Nova's, and ids begin with 1
// again, even where the rows were taken out.
func TestReset(t *testing.T) {
	reset(t)
	fill := func() int64 {
		node := database.Cell1.Compute(t, "gpu1")
		database.Cell1.Instance(t, UUID(1), "gpu1", "active", "")
		card := database.Cell1.Card(t, node, "0000:84:00.0", "allocated", UUID(1))
		database.Cell1.Migration(t, 0, UUID(1), "migration", "error", "gpu2", "gpu1")
		return card
	}
	if id := fill(); id != 1 {
		t.Errorf("id %d", id)
	}
	if _, err := database.SQL.ExecContext(t.Context(), "DELETE FROM nova_cell1.pci_devices"); err != nil {
		t.Fatal(err)
	}
	reset(t)
	for name, tables := range database.columns {
		for table := range tables {
			rows := database.find(t, fmt.Sprintf("SELECT count(*) FROM %s.`%s`", name, table))[0][0]
			want := "0"
			switch table {
			case "alembic_version":
				want = "1"
			case "cell_mappings":
				if name == apiDatabase {
					want = "2"
				}
			}
			hosttest.EqualIn(t, name+"."+table+": rows", want, rows)
		}
	}
	if id := fill(); id != 1 {
		t.Errorf("id %d", id)
	}
}

// TestRows: what is not said is filled in, and what Nova keeps in JSON is as Nova has
// it.
func TestRows(t *testing.T) {
	reset(t)
	cell := database.Cell1
	node := cell.Compute(t, "gpu1")
	gone := cell.Compute(t, "gone", ServiceDeleted(time.Hour))
	from := cell.Card(t, node, "0000:84:00.0", "allocated", UUID(1))
	cell.Card(t, node, "0000:88:00.0", "available", "", Deleted(time.Hour))
	to := cell.Card(t, gone, "0000:84:00.0", "allocated", UUID(1), Row{"request_id": UUID(7), "numa_node": 1})
	want := [][]string{
		{"1", "1", "0", "NULL", "0000:84:00.0", "allocated", UUID(1), RequestOf(UUID(1)), "NULL", "{}", "label_10de_11b4", "pci_0000_84_00_0"},
		{"2", "1", "2", "NULL", "0000:88:00.0", "available", "NULL", "NULL", "NULL", "{}", "label_10de_11b4", "pci_0000_88_00_0"},
		{"3", "2", "0", "NULL", "0000:84:00.0", "allocated", UUID(1), UUID(7), "1", "{}", "label_10de_11b4", "pci_0000_84_00_0"},
	}
	hosttest.Equal(t, want, cell.Dump(t, "pci_devices",
		"id", "compute_node_id", "deleted", "parent_addr", "address", "status", "instance_uuid", "request_id", "numa_node", "extra_info", "label", "dev_id"))
	cell.Instance(t, UUID(1), "gpu1", "active", "resize_migrating")
	cell.Instance(t, UUID(2), "", "deleted", "", InstanceDeleted(time.Hour), Asks(""))
	want = [][]string{
		{UUID(1), "gpu1", "active", "resize_migrating", "0"},
		{UUID(2), "NULL", "deleted", "NULL", "2"},
	}
	hosttest.Equal(t, want, cell.Dump(t, "instances", "uuid", "host", "vm_state", "task_state", "deleted"))
	id := cell.Migration(t, 42, UUID(1), "resize", "migrating", "gpu1", "gone")
	cell.Context(t, UUID(1), id, []int64{from}, []int64{to})
	rows := cell.Dump(t, "instance_extra", "pci_requests", "migration_context")
	request := fmt.Sprintf(`[{"count": 1, "spec": [{"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI"}], "alias_name": "K4200", "is_new": false, "numa_policy": "legacy", "request_id": "%s", "requester_id": null}]`, RequestOf(UUID(1)))
	hosttest.Equal(t, []string{request, "[]"}, []string{rows[0][0], rows[1][0]})
	type list struct {
		Data struct {
			Objects []struct {
				Data struct {
					Node    int    `json:"compute_node_id"`
					Address string `json:"address"`
				} `json:"nova_object.data"`
			} `json:"objects"`
		} `json:"nova_object.data"`
	}
	var context struct {
		Name string `json:"nova_object.name"`
		Data struct {
			Migration int  `json:"migration_id"`
			Old       list `json:"old_pci_devices"`
			New       list `json:"new_pci_devices"`
		} `json:"nova_object.data"`
	}
	if err := json.Unmarshal([]byte(rows[0][1]), &context); err != nil {
		t.Fatalf("%s: %v", rows[0][1], err)
	}
	got := fmt.Sprint(context.Name, context.Data.Migration, context.Data.Old.Data.Objects, context.Data.New.Data.Objects)
	if got != "MigrationContext42 [{{1 0000:84:00.0}}] [{{2 0000:84:00.0}}]" {
		t.Errorf("%s\nin %s", got, rows[0][1])
	}
	hosttest.EqualIn(t, "an instance that does not move", "NULL", rows[1][1])
}

// TestDoesNotStart: a harness that cannot be had says why, and leaves nothing.
func TestDoesNotStart(t *testing.T) {
	dir, err := os.MkdirTemp("", "gpustack-db-")
	hosttest.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	hosttest.NoError(t, os.MkdirAll(filepath.Join(dir, "root/etc/nova/nova.conf"), 0o755))
	if _, err := Start(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "nova.conf: file exists") {
		t.Error(err)
	}
	if err := service.Left(dir); err != nil {
		t.Error(err)
	}
}
