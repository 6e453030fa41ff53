package cleanup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// CaseAllocated is the case of an allocation in Placement, not of a row.
const CaseAllocated Case = "P" // a PCI provider is allocated to a consumer that is gone, elsewhere or over

// allocationsQuiet is for how long the records of a consumer must not have changed before its
// allocations are judged: Nova changes its rows and the allocations one after the other, an
// instance's row before its allocations when it is deleted, for example
// (nova/compute/manager.py, _complete_deletion).
const allocationsQuiet = 5 * time.Minute

// Allocation is what a consumer holds on the resource provider of a PCI device.
type Allocation struct {
	// the cell of the provider's compute node; "" if no cell has it
	Cell     string `json:"cell"`
	Host     string `json:"host"`     // the host of that node; "" if no cell has it
	Node     string `json:"node"`     // the provider's compute node; "" if no cell has it
	Provider string `json:"provider"` // the provider's UUID
	// the provider's name: the node's name and the device's address
	Name string `json:"name"`
	// the UUID of the instance or migration that holds the allocation
	Consumer string `json:"consumer"`
	// what it holds on the provider: amounts by resource class
	Resources map[string]int `json:"resources"`
}

// Consumer is what Nova's databases know of a consumer in Placement.
type Consumer struct {
	Instances  []PlacedInstance   // rows of instances with its uuid, of all cells, deleted ones too
	Migrations []ContextMigration // rows of migrations with its uuid, of all cells, deleted ones too
	Open       []Migration        // migrations of these instances that are not over, and evacuations of which a host has still to read the record
	Requested  bool               // nova_api.build_requests has it: an instance that is in no cell yet
	Mapped     bool               // nova_api.instance_mappings has it
	Queued     bool               // that row says that the API has deleted the instance
	Incomplete string             // why a cell or the API database could not be read; "" if all were
	Changed    time.Time          // of the record that changed last
	Now        time.Time          // by the clock of that record's database
	Here       bool               // a live instance is on the provider's compute node
	// Odd is why Nova cannot have written the record of a live instance, or of a migration to or from
	// the compute node, like this; "" if it can.
	Odd  string
	Lost string // why it is unknown whether a live instance is: it is on that host, but on none of its live nodes; "" otherwise

	// Whole is all that the consumer holds, nil if that was not read.
	Whole *cloud.Allocations
}

// PlacedInstance is a row of instances in some cell.
type PlacedInstance struct {
	Instance
	Cell    string
	Changed time.Time
}

// AllocationFinding is the judgement of an allocation.
type AllocationFinding struct {
	Allocation
	Case    Case    `json:"case"`    // "P"; "" for unknown ones
	Verdict Verdict `json:"verdict"` // "suspicious" or "unknown"
	// the instance that the allocation is or was for; "" if unknown
	Instance string `json:"instance_uuid"`
	// the migration that is the consumer; nil if the consumer is not a migration
	Migration   *int64    `json:"migration_id"`
	Evidence    string    `json:"evidence"`    // the records it is based on
	Reason      string    `json:"reason"`      // why the verdict follows
	Consequence string    `json:"consequence"` // the effect of leaving it
	Steps       host.Text `json:"steps"`       // what the operator should do
	Reports     []string  `json:"reports"`     // the hosts whose guest reports the steps need
}

// ClassifyAllocation judges an allocation. It returns nil for a legitimate one. recent is whether
// the allocation is not judged because a record of the consumer has changed within
// allocationsQuiet, or an instance is being built.
func ClassifyAllocation(a Allocation, c Consumer) (found *AllocationFinding, recent bool) {
	f := &AllocationFinding{Allocation: a, Case: CaseAllocated, Verdict: Suspicious, Reports: []string{},
		Consequence: "Placement counts the device as used, so that no other instance gets it (pci_in_placement)"}
	switch {
	case c.judge(f):
		return nil, false
	case c.Requested, f.Verdict == Suspicious && !c.Changed.IsZero() && c.Now.Sub(c.Changed) < allocationsQuiet:
		return nil, true
	}
	f.Evidence = c.evidence(a)
	return f, false
}

// Unproved returns why the device of an allocation must not be released, "" if it may: its rows have
// been judged, none of them is unknown or in use, and the report of its host proves that neither
// the consumer's guest nor any other uses it.
func (f AllocationFinding) Unproved(rows []Finding, facts Facts, since time.Time) string {
	if since.IsZero() {
		since = facts.Now.Add(-time.Hour) // for records without a time of change
	}
	var devices []Device
	for _, row := range rows {
		if row.Verdict == Unknown || row.Verdict == Busy || row.Case == CaseInUse {
			return fmt.Sprintf("the row of %s is %s: %s", row.Device.Address, row.Verdict, row.Reason)
		}
		blocked := row.Device.Type == TypePF && slices.ContainsFunc(rows, func(vf Finding) bool { return vf.Device.partOf(row.Device) })
		if !blocked { // with the VFs of the consumer the PF is not released
			devices = append(devices, row.Device)
		}
	}
	if len(rows) == 0 {
		devices = []Device{{Address: strings.ToLower(f.Name[strings.LastIndexByte(f.Name, '_')+1:])}}
	}
	return facts.Unused(f.Host, f.Instance, devices, since)
}

// live returns the row of the instance that is not deleted, or else any row of it, nil if there is
// none.
func (c Consumer) live() *PlacedInstance {
	if len(c.Instances) == 0 {
		return nil
	}
	i := slices.IndexFunc(c.Instances, func(i PlacedInstance) bool { return !i.Deleted })
	return &c.Instances[max(0, i)]
}

// judge fills in why an allocation is wrong, and returns whether it is legitimate.
func (c Consumer) judge(f *AllocationFinding) (legitimate bool) {
	unknown := func(reason string, args ...any) {
		f.Verdict, f.Case, f.Reason = Unknown, CaseLegitimate, fmt.Sprintf(reason, args...)
		f.Steps = host.Textf("openstack resource provider allocation show %s shows all that the consumer holds; see which service made it", f.Consumer)
	}
	i := c.live()
	if i != nil {
		f.Instance = i.UUID
	}
	switch {
	case i != nil && !i.Deleted:
		if c.Odd == "" && c.placed(f, i) {
			return true
		}
		if why := cmp.Or(c.Odd, c.Lost); why != "" {
			unknown("%s", why)
			f.Steps = host.Textf("correct the instance's record, then run %s again; do not change its allocations before", again)
		}
	case len(c.Migrations) > 0:
		m := c.Migrations[0]
		f.Instance, f.Migration = m.Instance, &m.ID
		if slices.ContainsFunc(c.Migrations, func(m ContextMigration) bool { return !m.Deleted && !m.Over() }) {
			return true
		}
		if m.CrossCell && c.Incomplete != "" {
			unknown("%s is over, but crosses cells, and %s", m, c.Incomplete)
			break
		}
		f.Reason = fmt.Sprintf("%s is over, but still holds the allocation", m)
		if m.Deleted {
			f.Reason = fmt.Sprintf("%s is deleted, but still holds the allocation", m)
		}
	case c.Incomplete != "":
		unknown("the consumer was not found, or is deleted in one cell, but %s", c.Incomplete)
	case i != nil:
		f.Reason = "the instance is deleted"
	case c.Mapped && !c.Queued:
		f.Instance = f.Consumer
		unknown("the consumer is an instance that is mapped to a cell, but no cell has it")
	case c.Mapped:
		f.Instance, f.Reason = f.Consumer, "the instance is deleted, and its row is purged"
	case c.Whole != nil && ofInstance(*c.Whole):
		f.Reason = "no cell has an instance or a migration with this uuid, but it holds CPUs or memory, as these do: its row is purged"
	default:
		unknown("no cell has an instance or a migration with this uuid: its row is purged, or the consumer is not of Nova")
	}
	switch {
	case f.Verdict == Suspicious && (f.Migration != nil || i != nil && !i.Deleted):
		consumers := f.Instance
		if f.Migration != nil {
			consumers += ", " + f.Consumer
		}
		f.Steps = host.Textf("the instance must hold what it has on its own host, and migrations that are over nothing: see what they hold with "+
			"openstack resource provider allocation show %s, and correct it with openstack resource provider allocation set, unset and delete", consumers)
	case f.Verdict == Suspicious:
		f.Steps = host.Textf("check with %s on %s that no guest uses the device; then: openstack resource provider allocation show %s, "+
			"and openstack resource provider allocation delete %s",
			host.NewCommand("host guests").Elsewhere(), cmp.Or(f.Host, "the host"), f.Consumer, f.Consumer)
	}
	return false
}

// placed judges the allocation of an instance that exists.
func (c Consumer) placed(f *AllocationFinding, i *PlacedInstance) (legitimate bool) {
	if c.Here || inFlight(i.Instance) != "" || slices.ContainsFunc(c.Open, func(m Migration) bool {
		return m.CrossCell || m.touches(f.Host, f.Node) || f.Host != "" && m.SourceHost == f.Host
	}) {
		return true
	}
	where := "on no host"
	if i.Host != nil {
		where = "on " + *i.Host
	}
	f.Reason = fmt.Sprintf("the instance is %s, and no open migration of it is to or from %s", where,
		cmp.Or(f.Host, "the compute node of the provider, which no cell has"))
	return false
}

// ofInstance returns whether a consumer holds what only instances and their migrations hold on a
// compute node. Which of them it is, is unknown.
func ofInstance(a cloud.Allocations) bool {
	for _, held := range a.Providers {
		for _, class := range []string{"VCPU", "PCPU", "MEMORY_MB"} {
			if held[class] > 0 {
				return true
			}
		}
	}
	return false
}

// evidence returns the records that the verdict is based on, in one line.
func (c Consumer) evidence(a Allocation) string {
	words := []string{fmt.Sprintf("consumer %s holds %s on %s", a.Consumer, resources(a.Resources), a.Name)}
	for _, i := range c.Instances {
		words = append(words, placed(i))
	}
	for _, m := range c.Migrations {
		words = append(words, m.String())
	}
	for _, m := range c.Open {
		words = append(words, m.String())
	}
	if !c.Changed.IsZero() {
		words = append(words, "unchanged for "+age(c.Now.Sub(c.Changed)))
	}
	return strings.Join(words, "; ")
}

func placed(i PlacedInstance) string {
	text := "instance " + short(i.UUID)
	if i.Deleted {
		return text + " deleted in cell " + i.Cell
	}
	if i.VMState != nil {
		text += " " + *i.VMState
	}
	if i.Host != nil {
		text += " on " + *i.Host
	}
	return text + " in cell " + i.Cell
}

// resources returns amounts of resource classes as the openstack command writes them.
func resources(held map[string]int) string {
	var all []string
	for _, class := range slices.Sorted(maps.Keys(held)) {
		all = append(all, fmt.Sprintf("%s=%d", class, held[class]))
	}
	return strings.Join(all, ",")
}

// AllocationReport is what was found about the allocations on PCI providers.
type AllocationReport struct {
	Judged bool `json:"judged"` // whether all allocations on the selected providers were judged
	// why not all were judged: no credentials for Placement, no answer, an unreadable cell; "" if
	// they were
	Why string `json:"why"`
	// resource providers of PCI devices whose allocations were read
	Providers int `json:"providers"`
	// Recent is how many allocations were not judged, because a record of their consumer has
	// changed within five minutes, or the instance is in no cell yet.
	Recent int `json:"recent"`
	// allocations that are not legitimate, by cell, provider and consumer
	Findings []AllocationFinding `json:"findings"`
}

// Sort sorts the findings by cell, provider and consumer.
func (r *AllocationReport) Sort() {
	slices.SortFunc(r.Findings, func(a, b AllocationFinding) int {
		return cmp.Or(strings.Compare(a.Cell, b.Cell), strings.Compare(a.Name, b.Name), strings.Compare(a.Consumer, b.Consumer))
	})
}
