package db

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"gpustack/host/hosttest"
)

// A Row is columns of a row with their values. nil is NULL.
type Row map[string]any

// with is a copy in which other rows have the last word.
func (r Row) with(others ...Row) Row {
	all := maps.Clone(r)
	for _, other := range others {
		maps.Copy(all, other)
	}
	return all
}

// itsID is the value of a column that is to be the row's own id.
type itsID struct{}

// Deleted are the columns of a row that Nova has deleted a while ago: Nova leaves the
// row, with its own id in the column deleted.
func Deleted(ago time.Duration) Row {
	return Row{"deleted": itsID{}, "deleted_at": Ago(ago)}
}

// Ago is a time as Nova writes it: UTC, in whole seconds.
func Ago(ago time.Duration) time.Time {
	return time.Now().UTC().Add(-ago).Truncate(time.Second)
}

// UUID is one that can be told from others in what a test prints.
func UUID(n int) string {
	return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n)
}

// orNull is nil for "".
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// Insert inserts a row into a table and returns its id. Other columns than the given ones have the
// defaults of Nova's models, as far as the schema shows them: the current time for created_at, 0
// for deleted, NULL where that is allowed, otherwise zero or an empty text.
func (d Database) Insert(t testing.TB, table string, row Row) int64 {
	t.Helper()
	id, err := d.insert(t.Context(), table, row)
	if err != nil {
		t.Fatalf("insert into %s.%s: %v", d.Name, table, err)
	}
	return id
}

func (d Database) insert(ctx context.Context, table string, row Row) (int64, error) {
	columns, ok := d.db.columns[d.Name][table]
	if !ok {
		return 0, fmt.Errorf("no such table")
	}
	all := Row{}
	for _, c := range columns {
		if value, ok := c.value(); ok {
			all[c.name] = value
		}
	}
	all = all.with(row)
	deleted := all["deleted"] == itsID{}
	if deleted {
		all["deleted"] = 0
	}
	names := slices.Sorted(maps.Keys(all))
	values := make([]any, len(names))
	for i, name := range names {
		values[i] = all[name]
	}
	result, err := d.db.SQL.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s.`%s` (`%s`) VALUES (?%s)", d.Name, table, strings.Join(names, "`, `"), strings.Repeat(", ?", len(names)-1)), values...)
	if err != nil {
		return 0, err
	}
	id, err := result.LastInsertId()
	if err != nil {
		return 0, err
	}
	if deleted {
		_, err = d.db.SQL.ExecContext(ctx, fmt.Sprintf("UPDATE %s.`%s` SET deleted = id WHERE id = ?", d.Name, table), id)
	}
	return id, err
}

// A column is what information_schema says of one.
type column struct {
	name, kind, full string // kind without a length: varchar; full with it, or with the values of an enum
	nullable         bool
	defaults         bool // has a default, or counts by itself
	key              bool // of the primary key
}

// value returns the default of a column; ok is false if the server has one.
func (c column) value() (value any, ok bool) {
	switch {
	case c.name == "created_at":
		return Ago(0), true
	case c.name == "deleted" && strings.HasSuffix(c.kind, "int"):
		// Nullable, and a row with NULL is one that Nova never sees.
		return 0, true
	case c.nullable || c.defaults:
		return nil, false
	case c.kind == "datetime":
		return Ago(0), true
	case c.kind == "enum":
		_, values, _ := strings.Cut(c.full, "('")
		first, _, _ := strings.Cut(values, "'")
		return first, true
	case strings.HasSuffix(c.kind, "char"), strings.HasSuffix(c.kind, "text"):
		return "", true
	}
	return 0, true
}

// readColumns learns what the tables are.
func (db *DB) readColumns(ctx context.Context) error {
	rows, err := db.rows(ctx, `SELECT table_schema, table_name, column_name, data_type, column_type, is_nullable, column_default IS NOT NULL OR extra LIKE '%auto_increment%', column_key
		FROM information_schema.columns WHERE table_schema IN (?, ?, ?) ORDER BY table_schema, table_name, ordinal_position`, apiDatabase, cell0Database, cell1Database)
	if err != nil {
		return err
	}
	db.columns = map[string]map[string][]column{}
	for _, r := range rows {
		tables := db.columns[r[0]]
		if tables == nil {
			tables = map[string][]column{}
			db.columns[r[0]] = tables
		}
		tables[r[1]] = append(tables[r[1]], column{name: r[2], kind: r[3], full: r[4], nullable: r[5] == "YES", defaults: r[6] == "1", key: r[7] == "PRI"})
	}
	return nil
}

// Card is a row of pci_devices: a K4200, unless other columns are given; PF and VF are
// such. Without an owner it has none; with one it has the owner's RequestOf. It returns
// the id.
func (c *Cell) Card(t testing.TB, node int64, address, status, owner string, columns ...Row) int64 {
	t.Helper()
	row := Row{
		"uuid": uuid.NewString(), "compute_node_id": node, "address": address,
		"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI",
		"status": status, "instance_uuid": orNull(owner), "extra_info": "{}",
		"created_at": Ago(24 * time.Hour), "updated_at": Ago(time.Hour),
	}
	if owner != "" {
		row["request_id"] = RequestOf(owner)
	}
	row = row.with(columns...)
	// What libvirt would say, if nothing else is given.
	names := Row{"dev_id": devID(address), "label": fmt.Sprintf("label_%s_%s", row["vendor_id"], row["product_id"])}
	return c.Insert(t, "pci_devices", names.with(row))
}

// PF are the columns of a card with SR-IOV.
func PF() Row {
	return Row{"vendor_id": "8086", "product_id": "56c0", "dev_type": "type-PF"}
}

// VF are the columns of a function of such a card.
func VF(parent string) Row {
	return Row{"vendor_id": "8086", "product_id": "56c0", "dev_type": "type-VF", "parent_addr": parent}
}

// A Device is a PCI device as Nova's libvirt driver reports it: _get_pcidev_info in
// nova/virt/libvirt/host.py of Nova 26.
type Device struct {
	Address   string `json:"address"`
	VendorID  string `json:"vendor_id"`
	ProductID string `json:"product_id"`
	Type      string `json:"dev_type"`
	Parent    string `json:"parent_addr,omitempty"`
	DevID     string `json:"dev_id"`
	Label     string `json:"label"`
	NUMANode  *int   `json:"numa_node"`
}

// K4200s are cards without SR-IOV, as Card has them.
func K4200s(addresses ...string) []Device {
	var devices []Device
	for _, address := range addresses {
		devices = append(devices, Device{
			Address: address, VendorID: "10de", ProductID: "11b4", Type: "type-PCI",
			DevID: devID(address), Label: "label_10de_11b4",
		})
	}
	return devices
}

// Reported is what the hypervisor of a node says when it says what the rows say.
func (c *Cell) Reported(t testing.TB, node int64) []Device {
	t.Helper()
	devices := []Device{}
	for _, r := range c.db.find(t, fmt.Sprintf("SELECT address, vendor_id, product_id, dev_type, coalesce(parent_addr, ''), coalesce(dev_id, ''), label, numa_node FROM %s.pci_devices WHERE compute_node_id = ? AND deleted = 0 ORDER BY address", c.Name), node) {
		device := Device{Address: r[0], VendorID: r[1], ProductID: r[2], Type: r[3], Parent: r[4], DevID: r[5], Label: r[6]}
		if r[7] != "NULL" {
			var numa int
			if _, err := fmt.Sscan(r[7], &numa); err != nil {
				t.Fatalf("numa_node of %s: %v", r[0], err)
			}
			device.NUMANode = &numa
		}
		devices = append(devices, device)
	}
	return devices
}

// devID is libvirt's name of a device.
func devID(address string) string {
	return "pci_" + strings.NewReplacer(":", "_", ".", "_").Replace(address)
}

// A HostOption makes a compute host other than one that is up.
type HostOption func(service, node Row)

// LastSeen is a host whose nova-compute last said that it lives a while ago: it is
// down, if that is longer than [DEFAULT]service_down_time.
func LastSeen(ago time.Duration) HostOption {
	return Service(Row{"last_seen_up": Ago(ago), "updated_at": Ago(ago)})
}

// ForcedDown is a host that an operator has declared down. Its nova-compute may live.
func ForcedDown() HostOption {
	return Service(Row{"forced_down": true})
}

// ServiceDeleted is a host whose service was deleted, and its node with it, as
// DELETE /os-services does both.
func ServiceDeleted(ago time.Duration) HostOption {
	return func(service, node Row) {
		LastSeen(ago)(service, node) // what it reports after that is lost
		Service(Deleted(ago))(service, node)
		Node(Deleted(ago))(service, node)
	}
}

// Service gives columns of the row in services.
func Service(columns Row) HostOption {
	return func(service, _ Row) {
		for name, value := range columns {
			service[name] = value
		}
	}
}

// Node gives columns of the row in compute_nodes.
func Node(columns Row) HostOption {
	return func(_, node Row) {
		for name, value := range columns {
			node[name] = value
		}
	}
}

// Compute is a compute host with one node of the same name, and is up. It returns the
// id of the node.
func (c *Cell) Compute(t testing.TB, host string, options ...HostOption) int64 {
	t.Helper()
	service := Row{
		"uuid": uuid.NewString(), "host": host, "binary": "nova-compute", "topic": "compute",
		// As of Nova 26.
		"version":      64,
		"report_count": 100, "disabled": false, "forced_down": false,
		"created_at": Ago(24 * time.Hour), "updated_at": Ago(0), "last_seen_up": Ago(0),
	}
	node := Row{
		"uuid": uuid.NewString(), "host": host, "hypervisor_hostname": host,
		"hypervisor_type": "QEMU", "hypervisor_version": 7002000, "cpu_info": "{}",
		"vcpus": 32, "memory_mb": 262144, "local_gb": 1000, "host_ip": "127.0.0.1",
		"mapped": 1, "created_at": Ago(24 * time.Hour), "updated_at": Ago(0),
	}
	for _, option := range options {
		option(service, node)
	}
	c.Insert(t, "services", service)
	if len(c.db.find(t, "SELECT 1 FROM "+c.Name+".services WHERE `binary` = 'nova-conductor'")) == 0 { // passes the reports on
		c.Insert(t, "services", Row{"uuid": uuid.NewString(), "host": "controller", "binary": "nova-conductor", "topic": "conductor", "version": 64,
			"report_count": 100, "disabled": false, "forced_down": false, "created_at": Ago(24 * time.Hour), "updated_at": Ago(0), "last_seen_up": Ago(0)})
	}
	id := c.Insert(t, "compute_nodes", node)
	if len(c.db.find(t, "SELECT 1 FROM nova_api.host_mappings WHERE host = ?", host)) == 0 {
		c.db.API.Insert(t, "host_mappings", Row{"cell_id": c.id, "host": host})
	}
	return id
}

// find is rows that a builder needs.
func (db *DB) find(t testing.TB, query string, args ...any) [][]string {
	t.Helper()
	rows, err := db.rows(t.Context(), query, args...)
	hosttest.NoError(t, err)
	return rows
}

// An InstanceOption makes an instance other than one that asks for one K4200.
type InstanceOption func(*instance)

// An instance is the rows of one.
type instance struct {
	row, extra Row
	spec       string
	requestIDs []string
}

// With gives columns of the row in instances.
func With(columns Row) InstanceOption {
	return func(i *instance) { i.row = i.row.with(columns) }
}

// Extra gives columns of the row in instance_extra.
func Extra(columns Row) InstanceOption {
	return func(i *instance) { i.extra = i.extra.with(columns) }
}

// InstanceDeleted is an instance that was deleted a while ago. As when Nova does it,
// its mapping stays.
func InstanceDeleted(ago time.Duration) InstanceOption {
	return func(i *instance) {
		i.row = i.row.with(Row{"terminated_at": Ago(ago)}, Deleted(ago))
		i.extra = i.extra.with(Deleted(ago))
	}
}

// Asks is an instance of a flavor with another pci_passthrough:alias, such as K4200:2,
// or none. Each alias in it makes a request; the first have the ids given.
func Asks(spec string, requestIDs ...string) InstanceOption {
	return func(i *instance) { i.spec, i.requestIDs = spec, requestIDs }
}

// RequestOf is the id of the request of an instance that asks for one card, and of the
// rows of its card.
func RequestOf(instanceUUID string) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(instanceUUID)).String()
}

// Instance is a row of instances, with its instance_extra and its mapping to this cell,
// unless it is mapped already. Host and task state may be "", for NULL.
func (c *Cell) Instance(t testing.TB, instanceUUID, host, vmState, taskState string, options ...InstanceOption) {
	t.Helper()
	i := &instance{
		row: Row{
			"uuid": instanceUUID, "host": orNull(host), "node": orNull(host), "launched_on": orNull(host),
			"vm_state": vmState, "task_state": orNull(taskState), "power_state": 1,
			"display_name": "guest", "hostname": "guest", "user_id": "user", "project_id": "project",
			"instance_type_id": 1, "vcpus": 8, "memory_mb": 32768, "root_gb": 80, "ephemeral_gb": 0,
			"hidden": false, "cleaned": 0, "locked": false, "progress": 0, "disable_terminate": false, "shutdown_terminate": false,
			"created_at": Ago(2 * time.Hour), "updated_at": Ago(time.Hour), "launched_at": Ago(2 * time.Hour),
		},
		extra:      Row{"instance_uuid": instanceUUID, "created_at": Ago(2 * time.Hour), "updated_at": Ago(time.Hour)},
		spec:       "K4200:1",
		requestIDs: []string{RequestOf(instanceUUID)},
	}
	for _, option := range options {
		option(i)
	}
	c.nameByID(t, i.row, "instances", "host", "node", "compute_id")
	var made struct {
		Flavor      string `json:"flavor"`
		PCIRequests string `json:"pci_requests"`
	}
	c.db.compose(t, map[string]any{"ask": "extra", "instance": instanceUUID, "spec": i.spec, "request_ids": append([]string{}, i.requestIDs...)}, &made)
	c.Insert(t, "instances", i.row)
	c.Insert(t, "instance_extra", Row{"flavor": made.Flavor, "pci_requests": made.PCIRequests}.with(i.extra))
	if len(c.db.find(t, "SELECT 1 FROM nova_api.instance_mappings WHERE instance_uuid = ?", instanceUUID)) == 0 {
		c.db.API.Insert(t, "instance_mappings", Row{"instance_uuid": instanceUUID, "cell_id": c.id, "project_id": "project", "user_id": "user", "queued_for_delete": i.row["deleted"] == itsID{}})
	}
}

// has reports whether the schema has a column: compute_id and dest_compute_id are since 2023.2.
func (d Database) has(table, name string) bool {
	return slices.ContainsFunc(d.db.columns[d.Name][table], func(c column) bool { return c.name == name })
}

// nameByID adds the id of the compute node that a row names by host and node, as Nova does since
// 2023.2, where the schema has a column for it and the row does not give it. A name in other
// letters than the node's is none that Nova wrote with an id.
func (c *Cell) nameByID(t testing.TB, row Row, table, host, node, id string) {
	t.Helper()
	if _, given := row[id]; given || !c.has(table, id) {
		return
	}
	same := func(a any, b string) bool { return strings.EqualFold(fmt.Sprint(a), b) }
	for _, n := range c.db.find(t, fmt.Sprintf("SELECT id, host, hypervisor_hostname FROM %s.compute_nodes ORDER BY deleted <> 0, id DESC", c.Name)) {
		if same(row[host], n[1]) && same(row[node], n[2]) {
			if row[host] == n[1] && row[node] == n[2] {
				row[id] = n[0]
			}
			return
		}
	}
}

// Migration is a row of migrations, of an instance that has a row. Its id is the next
// one if 0 is given, and returned.
func (c *Cell) Migration(t testing.TB, id int64, instanceUUID, kind, status, source, dest string, columns ...Row) int64 {
	t.Helper()
	row := Row{
		"uuid": uuid.NewString(), "instance_uuid": instanceUUID, "migration_type": kind, "status": status,
		"source_compute": source, "source_node": source, "dest_compute": dest, "dest_node": dest, "dest_host": "127.0.0.1",
		"old_instance_type_id": 1, "new_instance_type_id": 1, "hidden": false, "cross_cell_move": false,
		"user_id": "user", "project_id": "project", "created_at": Ago(time.Hour), "updated_at": Ago(time.Hour),
	}
	if id != 0 {
		row["id"] = id
	}
	row = row.with(columns...)
	c.nameByID(t, row, "migrations", "dest_compute", "dest_node", "dest_compute_id")
	return c.Insert(t, "migrations", row)
}

// Context writes the migration context of an instance, from and to cards by their ids.
func (c *Cell) Context(t testing.TB, instanceUUID string, migration int64, from, to []int64) {
	t.Helper()
	var made struct {
		Context string `json:"migration_context"`
	}
	// Never nil, which would not be a list.
	from, to = append([]int64{}, from...), append([]int64{}, to...)
	c.db.compose(t, map[string]any{
		"ask": "context", "database": c.connection, "instance": instanceUUID, "migration": migration, "old": from, "new": to,
	}, &made)
	if _, err := c.db.SQL.ExecContext(t.Context(), fmt.Sprintf("UPDATE %s.instance_extra SET migration_context = ? WHERE instance_uuid = ?", c.Name), made.Context, instanceUUID); err != nil {
		t.Fatal(err)
	}
}
