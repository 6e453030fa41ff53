package db

import (
	"testing"
	"time"

	"gpustack/host/hosttest"

	"github.com/google/uuid"
)

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
