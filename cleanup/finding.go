package cleanup

import (
	"fmt"

	"gpustack/host"
)

// Verdict is the judgement of a row.
type Verdict string

// Verdicts. Only stale rows are repaired.
const (
	Stale      Verdict = "stale"      // proved: the row does not describe the device
	Suspicious Verdict = "suspicious" // wrong, but a repair is not proved to be safe
	Busy       Verdict = "busy"       // Nova is still changing the instance's rows, or has stopped to
	Legitimate Verdict = "legitimate"
	Unknown    Verdict = "unknown" // depends on records that could not be read, or on missing reports
)

// Case is the letter of a kind of inconsistency. docs/repair.md describes each.
type Case string

// Cases.
const (
	CaseGone        Case = "A" // the instance is gone
	CaseError       Case = "B" // kept by a migration in error
	CaseStuck       Case = "C" // kept by an open migration that no process carries on
	CaseNode        Case = "D" // the compute node is deleted
	CaseElsewhere   Case = "E" // the instance is elsewhere, and no migration is open
	CaseBlocked     Case = "F" // blocked, but no related PF or VF is taken
	CaseVanished    Case = "G" // taken, but the host no longer has the device
	CaseLeftOwner   Case = "H" // free, but has an owner
	CaseNoOwner     Case = "I" // taken, but has no owner
	CaseContext     Case = "J" // the instance has the context of a migration that is over
	CaseTooMany     Case = "K" // the instance has more devices than it requests
	CaseInUse       Case = "L" // free, but a guest uses the device
	CaseStatus      Case = "M" // a status that Nova does not write
	CaseBusy        Case = "T" // the instance is in a task, being built, moved across cells, without a state, or resized without a migration
	CaseUnrequested Case = "R" // the device's request is none of the instance's
	CaseReset       Case = "S" // kept by a finished resize whose state was reset
	CaseOdd         Case = "X" // depends on records that Nova does not write, or on hosts with equal names
	CaseLegitimate  Case = ""  // nothing is wrong with the row
)

// Repair is a way to repair a row.
type Repair string

// Repairs.
const (
	NoRepair     Repair = ""        // none
	ByNova       Repair = "nova"    // nova-compute repairs the row, at its next audit or when it starts
	Online       Repair = "online"  // close the migration, so that nova-compute's audit frees the device
	Offline      Repair = "offline" // write the row while nova-compute on its host is down
	Reopen       Repair = "reopen"  // set a migration to finished again, so that Nova can confirm it
	ClearContext Repair = "context" // clear the instance's migration_context
)

// Finding is the judgement of a row, with its grounds and its repair.
type Finding struct {
	Cell string `json:"cell"` // the name of the cell
	// the host of the row's compute node; "" if there is no such node
	Host string `json:"host"`
	// the row's compute node; "" if there is no such node
	Node   string `json:"node"`
	Device Device `json:"device"` // the row of pci_devices
	// the letter in docs/repair.md; "" for legitimate ones
	Case     Case    `json:"case"`
	Verdict  Verdict `json:"verdict"`  // what the row is
	Evidence string  `json:"evidence"` // the records it is based on, in one line
	Reason   string  `json:"reason"`   // why the verdict follows
	// the effect of leaving the row; "" for legitimate ones
	Consequence string `json:"consequence"`
	Repair      Repair `json:"repair"` // which repair it has
	// what the repair does, or what the operator should do
	Steps  host.Text `json:"steps"`
	Leaves string    `json:"leaves"` // what remains after the repair
	Needs  string    `json:"needs"`  // what is missing for the repair; "" for nothing
	// the hosts whose guest reports the verdict or the repair needs
	Reports   []string `json:"reports"`
	Migration *int64   `json:"migration_id"` // the migration that keeps the device; nil for none

	// Closings are all migrations that keep devices of the instance on other nodes than its own, by
	// id, with the statuses that close them: those of all its findings, which are one repair.
	Closings []Closing `json:"closings"`
	// the devices that these migrations keep, which nova-compute frees then
	Frees []Held `json:"frees"`
	// whether closing the migrations, or the repair of the context, applies the instance's
	// migration_context: the instance is on the migration's destination
	Applies bool `json:"applies_context"`
	// whether closing the migration confirms it in place of nova-compute: the instance leaves state
	// resized
	Confirms bool `json:"confirms"`
	// the instance that a free device is assigned to, with --claim; "" for none
	Claims  string `json:"claims"`
	Request string `json:"request_id"` // the request of that instance; "" before Zed
	// what the instance of case T is busy with; nil for other cases
	Busy *Work `json:"work"`

	places Places   // of the instance
	card   []Device // the other functions of the same card
}

// HostTitle returns the name of the row's host, or which compute node it is of if that has none.
func (f Finding) HostTitle() string {
	if f.Host == "" {
		return fmt.Sprintf("compute node %d", f.Device.Node)
	}
	return f.Host
}

// Listed returns whether a report names the row.
func (f Finding) Listed() bool {
	return f.Verdict != Legitimate && (f.Verdict != Busy || f.Busy.Long)
}

// Closing is a migration with the status that closes it.
type Closing struct {
	Migration int64  `json:"migration_id"` // the migration
	Status    string `json:"status"`       // the status that closes it
}

// Summary counts the judged rows by verdict. Free rows that are consistent are not judged.
type Summary struct {
	Stale      int `json:"stale"`      // rows that a repair can free
	Suspicious int `json:"suspicious"` // rows that are wrong, but have no safe repair
	Unknown    int `json:"unknown"`    // rows that could not be judged
	Busy       int `json:"busy"`       // rows that Nova is still changing
	// those of them that are busy for longer than --busy-after, or for an unknown time
	BusyLong   int `json:"busy_long"`
	Legitimate int `json:"legitimate"` // rows that describe the device
}

// Count adds a row.
func (s *Summary) Count(f Finding) {
	switch f.Verdict {
	case Stale:
		s.Stale++
	case Suspicious:
		s.Suspicious++
	case Unknown:
		s.Unknown++
	case Busy:
		s.Busy++
		if f.Busy.Long {
			s.BusyLong++
		}
	case Legitimate:
		s.Legitimate++
	}
}

// CellSummary counts the judged rows of one cell.
type CellSummary struct {
	Cell string
	Summary
}

// Total returns the numbers of rows of all cells together.
func Total(cells []CellSummary) (s Summary) {
	for _, c := range cells {
		s.Stale += c.Stale
		s.Suspicious += c.Suspicious
		s.Unknown += c.Unknown
		s.Busy += c.Busy
		s.BusyLong += c.BusyLong
		s.Legitimate += c.Legitimate
	}
	return s
}

// Different returns whether rows need an operator or a repair.
func (s Summary) Different() bool {
	return s.Stale+s.Suspicious+s.Unknown+s.BusyLong > 0
}
