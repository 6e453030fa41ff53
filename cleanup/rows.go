package cleanup

import (
	"fmt"
	"strings"
	"time"

	"gpustack/nova/cloud"
)

// Statuses of a device's row that Nova writes (nova/objects/fields.py,
// PciDeviceStatus). Nova writes removed and deleted to no row.
const (
	StatusAvailable   = "available"
	StatusClaimed     = "claimed"
	StatusAllocated   = "allocated"
	StatusUnavailable = "unavailable"
	StatusUnclaimable = "unclaimable"
)

// Types of devices (nova/objects/fields.py, PciDeviceType).
const (
	TypePCI = "type-PCI"
	TypePF  = "type-PF"
	TypeVF  = "type-VF"

	TypeVDPA = "vdpa"
)

// Device is a live row of pci_devices.
type Device struct {
	ID       int64      `json:"id"`              // the row's id
	Node     int64      `json:"compute_node_id"` // the row's compute node
	Address  string     `json:"address"`         // the PCI address
	Vendor   string     `json:"vendor_id"`       // the function's vendor
	Product  string     `json:"product_id"`      // the function's product
	Type     string     `json:"dev_type"`        // "type-PCI", "type-PF", "type-VF" or "vdpa"
	Status   string     `json:"status"`          // such as "available", "claimed" or "allocated"
	Instance *string    `json:"instance_uuid"`   // the owner
	Request  *string    `json:"request_id"`      // the owner's request for it
	Parent   *string    `json:"parent_addr"`     // the physical function of a virtual one
	Updated  *time.Time `json:"updated_at"`      // when Nova last changed the row
}

// LastChange returns when the row was last changed, zero if that is not recorded.
func (d Device) LastChange() time.Time {
	if d.Updated == nil {
		return time.Time{}
	}
	return *d.Updated
}

// Node is a row of compute_nodes. A host has several with some hypervisors, and
// deleted ones of its past.
type Node struct {
	ID      int64  `json:"id"`
	Host    string `json:"host"`
	Name    string `json:"node"` // hypervisor_hostname
	Deleted bool   `json:"deleted"`

	Odd string `json:"-"` // why Nova cannot have written the record like this; "" if it can
}

// Service is the row of a host's nova-compute.
type Service struct {
	Host     string     `json:"host"`
	Forced   bool       `json:"forced_down"`
	LastSeen *time.Time `json:"last_seen_up"`
	Reports  int64      `json:"report_count"`
}

// Instance is a row of instances.
type Instance struct {
	UUID    string  `json:"uuid"`
	Host    *string `json:"host"`
	Node    *string `json:"node"`
	VMState *string `json:"vm_state"`
	Task    *string `json:"task_state"`
	Compute *int64  `json:"compute_id"` // of its compute node, since 2023.2; nil before, or if it has none
	Deleted bool    `json:"deleted"`
	Hidden  bool    `json:"hidden"` // the copy in the other cell of a move across cells is the one to see

	Changed   *time.Time `json:"changed"` // updated_at, or else created_at
	DeletedAt *time.Time `json:"deleted_at"`

	// Of instance_extra.
	Asked    bool      `json:"asked"` // whether pci_requests could be read
	Requests []Request `json:"requests"`
	Context  *Context  `json:"migration_context"`

	Odd string `json:"-"` // why Nova cannot have written the record like this; "" if it can
}

// Migration is a row of migrations.
type Migration struct {
	ID         int64  `json:"id"`
	UUID       string `json:"uuid"`
	Instance   string `json:"instance_uuid"`
	Type       string `json:"migration_type"`
	Status     string `json:"status"`
	SourceHost string `json:"source_compute"`
	SourceNode string `json:"source_node"`
	DestHost   string `json:"dest_compute"`
	DestNode   string `json:"dest_node"`

	DestCompute *int64 `json:"dest_compute_id"` // of the destination's compute node, since 2023.2; nil before

	CrossCell bool      `json:"cross_cell_move"`
	Resizes   bool      `json:"-"`       // the flavor changes: old_instance_type_id and new_instance_type_id differ
	Changed   time.Time `json:"changed"` // updated_at, or else created_at; zero where neither is known

	// Relative to the node of the judged row, as the database compares names.
	From     bool `json:"-"` // the node is the source
	To       bool `json:"-"` // the node is the destination
	FromHost bool `json:"-"` // the node's host is the source, whatever the source node
	Arrived  bool `json:"-"` // the instance is on the destination's host

	Odd string `json:"-"` // why Nova cannot have written the record like this; "" if it can
}

// touches returns whether a migration is to or from the row's node, as
// nova/db/main/api.py, migration_get_in_progress_and_error_by_host_and_node, asks.
func (m Migration) touches() bool {
	return m.From || m.To
}

// Doubtful returns why it is unknown whether a migration goes to or from a node: its record is odd
// and has to do with that node, by name or by id. "" if that is known.
func (m Migration) Doubtful(node int64) string {
	if m.touches() || m.FromHost || m.DestCompute != nil && *m.DestCompute == node {
		return m.Odd
	}
	return ""
}

// Over returns whether Nova counts a migration as over. All others keep their devices.
func (m Migration) Over() bool { return cloud.MigrationOver(m.Status) }

// isMove returns whether a migration moves the disk of a stopped guest: a cold migration or a
// resize.
func (m Migration) isMove() bool {
	return m.Type == "migration" || m.Type == "resize"
}

func (m Migration) String() string {
	return fmt.Sprintf("migration %d (%s) '%s' %s->%s", m.ID, m.Type, m.Status, m.SourceHost, m.DestHost)
}

// KeyOf returns a uuid as Nova writes it, to compare it with others: the database ignores letter
// case and trailing blanks.
func KeyOf(uuid string) string {
	return strings.ToLower(strings.TrimRight(uuid, " "))
}
