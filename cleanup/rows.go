package cleanup

import (
	"fmt"
	"strings"
	"time"

	"gpustack/host"
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

	// whether the row's instance is on the row's node, so that no audit of nova-compute frees the
	// row (nova/pci/manager.py, clean_usage); set in [Held.Card] only
	OnNode bool `json:"-"`
}

// LastChange returns when the row was last changed, zero if that is not recorded.
func (d Device) LastChange() time.Time {
	return host.Value(d.Updated)
}

// Node is a row of compute_nodes. A host has several with some hypervisors, and
// deleted ones of its past. Names that the database treats as equal have one spelling in all
// records.
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
	Disabled *string    `json:"-"` // the reason, which may be ""; nil if the service is enabled
}

// Off returns why nova-scheduler does not use the host of a service at a time, "" if it does
// (nova/scheduler/filters/compute_filter.py). down is service_down_time.
func (s *Service) Off(now time.Time, down time.Duration) string {
	switch {
	case s == nil:
		return "the host has no compute service"
	case s.Disabled != nil && *s.Disabled == "":
		return "nova-compute is disabled"
	case s.Disabled != nil:
		return "nova-compute is disabled: " + *s.Disabled
	case s.Forced:
		return "nova-compute is forced down"
	case !(Facts{Now: now, Down: down, Service: s}).up():
		return "nova-compute is down"
	}
	return ""
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

	Odd string `json:"-"` // why Nova cannot have written the record like this; "" if it can
}

// from returns whether a migration leaves a node.
func (m Migration) from(host, node string) bool {
	return host != "" && node != "" && m.SourceHost == host && m.SourceNode == node
}

// to returns whether a migration leads to a node.
func (m Migration) to(host, node string) bool {
	return host != "" && node != "" && m.DestHost == host && m.DestNode == node
}

// touches returns whether a migration is to or from a node, as nova/db/main/api.py,
// migration_get_in_progress_and_error_by_host_and_node, asks.
func (m Migration) touches(host, node string) bool { return m.from(host, node) || m.to(host, node) }

// Doubtful returns why it is unknown whether a migration goes to or from a node: its record is odd
// and has to do with that node, by name or by id. "" if that is known.
func (m Migration) Doubtful(n Node) string {
	if m.touches(n.Host, n.Name) || n.Host != "" && m.SourceHost == n.Host || m.DestCompute != nil && *m.DestCompute == n.ID {
		return m.Odd
	}
	return ""
}

// On returns whether the instance is on a node.
func (i Instance) On(host, node string) bool {
	return host != "" && node != "" && i.Host != nil && *i.Host == host && i.Node != nil && *i.Node == node
}

// where returns the host of the instance as part of a sentence.
func (i Instance) where() string {
	if i.Host == nil {
		return "on no host"
	}
	return "on " + *i.Host
}

// arrived returns whether the instance is on the host that a migration leads to.
func (i Instance) arrived(m Migration) bool {
	return i.Host != nil && *i.Host == m.DestHost && m.DestHost != ""
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

// KeyOf returns a uuid as Nova writes it, or a name, to compare it with others: the database
// ignores letter case and trailing blanks.
func KeyOf(text string) string {
	return strings.ToLower(strings.TrimRight(text, " "))
}
