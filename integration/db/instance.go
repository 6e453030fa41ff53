package db

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

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
