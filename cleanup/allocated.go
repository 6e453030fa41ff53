package cleanup

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/host"
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

// ClassifyAllocation judges what a consumer holds on the provider of a PCI device: as the row of the
// device that were allocated to the consumer's instance is judged by facts. moves are the migrations
// with the consumer's uuid. It returns nil for a legitimate one. recent says that it is not judged,
// because a record of the consumer has changed within allocationsQuiet.
func ClassifyAllocation(a Allocation, d Device, f Facts, moves []ContextMigration) (found *AllocationFinding, recent bool) {
	found = &AllocationFinding{Allocation: a, Case: CaseAllocated, Verdict: Suspicious, Instance: *d.Instance, Reports: []string{},
		Consequence: "Placement counts the device as used, so that no other instance gets it (pci_in_placement)"}
	f.Proof = nil // where the instance is does not depend on which guest uses the device
	row, i := Classify(d, f), f.Instance
	show := host.Textf("openstack resource provider allocation show %s", a.Consumer)
	switch over := slices.ContainsFunc(moves, func(m ContextMigration) bool { return !m.Deleted && !m.Over() }); {
	case over, row.Verdict == Busy, i != nil && !i.Deleted && inFlight(*i) != "":
		return nil, false
	case len(moves) > 0 && moves[0].CrossCell && f.Incomplete != "":
		found.Verdict, found.Case, found.Migration = Unknown, CaseLegitimate, &moves[0].ID
		found.Reason = fmt.Sprintf("%s is over, but crosses cells, and %s", moves[0], f.Incomplete)
	case len(moves) > 0:
		found.Migration, found.Reason = &moves[0].ID, fmt.Sprintf("%s is over, but still holds the allocation", moves[0])
		if moves[0].Deleted {
			found.Reason = fmt.Sprintf("%s is deleted, but still holds the allocation", moves[0])
		}
	case i == nil && f.OtherCell != "":
		found.Verdict, found.Case, found.Reason = Unknown, CaseLegitimate, "the instance is in cell "+f.OtherCell
	case row.Case == CaseOdd, row.Verdict == Unknown && i == nil:
		found.Verdict, found.Case, found.Reason = Unknown, CaseLegitimate, row.Reason
	case i == nil && !f.Purged:
		found.Verdict, found.Case, found.Instance = Unknown, CaseLegitimate, ""
		found.Reason = "no cell has an instance or a migration with this uuid: its row is purged, or the consumer is not of Nova"
	case i == nil:
		found.Reason = "the instance is deleted, and its row is purged"
	case i.Deleted && f.OtherCell != "":
		found.Verdict, found.Case, found.Reason = Unknown, CaseLegitimate, "the instance is deleted in this cell, but it is in cell "+f.OtherCell
	case i.Deleted && f.Incomplete != "":
		found.Verdict, found.Case, found.Reason = Unknown, CaseLegitimate, "the instance is deleted in this cell, but "+f.Incomplete
	case i.Deleted:
		found.Reason = "the instance is deleted"
	case row.Case == CaseElsewhere && row.Migration == nil, row.Case == CaseNode && !f.Here:
		found.Reason = fmt.Sprintf("the instance is %s, and no open migration of it is to or from %s", i.where(),
			cmp.Or(a.Host, "the compute node of the provider, which no cell has"))
	default:
		return nil, false
	}
	if last, known := changes(f, moves); known && found.Verdict == Suspicious && f.Now.Sub(last) < allocationsQuiet {
		return nil, true
	}
	found.Evidence = fmt.Sprintf("consumer %s holds %s on %s; %s", a.Consumer, resources(a.Resources), a.Name, row.Evidence)
	switch {
	case found.Verdict == Unknown:
		found.Steps = host.Textf("%s shows all that the consumer holds; do not change it before it is known what it is for", show)
	case found.Migration != nil || !i.gone():
		found.Steps = host.Textf("the instance must hold what it has on its own host, and migrations that are over nothing: see what they hold with "+
			"openstack resource provider allocation show %s, and correct it with openstack resource provider allocation set, unset and delete",
			strings.Join(slices.Compact([]string{found.Instance, a.Consumer}), ", "))
	default:
		found.Steps = host.Textf("check with %s on %s that no guest uses the device; then: %s, and openstack resource provider allocation delete %s",
			host.NewCommand("host guests").Elsewhere(), cmp.Or(a.Host, "the host"), show, a.Consumer)
	}
	return found, false
}

// gone returns whether an instance is deleted, or no database has it.
func (i *Instance) gone() bool { return i == nil || i.Deleted }

// changes returns the last change of an instance and of migrations.
func changes(f Facts, moves []ContextMigration) (last time.Time, known bool) {
	var times []*time.Time
	if f.Instance != nil {
		times = append(times, f.Instance.Changed, f.Instance.DeletedAt)
	}
	for k := range moves {
		times = append(times, &moves[k].Changed)
	}
	return latest(times...)
}

// Unproved returns why the device of an allocation must not be released, "" if it may: none of its
// rows is unknown or in use, and the report of its host proves that neither the consumer's guest nor
// any other uses it.
func (a AllocationFinding) Unproved(rows []Finding, d Device, f Facts, moves []ContextMigration) string {
	since, known := changes(f, moves)
	if !known {
		since = f.Now.Add(-time.Hour) // for records without a time of change
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
		devices = []Device{d}
	}
	return f.Unused(a.Host, a.Instance, devices, since)
}

// resources returns amounts of resource classes as the openstack command writes them.
func resources(held map[string]int) string {
	all := host.Map(slices.Sorted(maps.Keys(held)), func(class string) string { return fmt.Sprintf("%s=%d", class, held[class]) })
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
