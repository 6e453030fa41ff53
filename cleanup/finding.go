package cleanup

// Verdict is what a row is.
type Verdict string

// Verdicts. Only what is stale is repaired.
const (
	Stale      Verdict = "stale"      // proved: the device is not what the row says
	Suspicious Verdict = "suspicious" // something is wrong, and not proved to be safe to change
	Legitimate Verdict = "legitimate"
	Unknown    Verdict = "unknown" // it takes what could not be read, or the hosts' reports
)

// Case is the letter of a state in which rows are found. docs/repair.md tells of each.
type Case string

// Cases.
const (
	CaseGone       Case = "A" // the instance is gone
	CaseError      Case = "B" // kept by a migration in error
	CaseStuck      Case = "C" // kept by a migration that nothing carries on
	CaseNode       Case = "D" // the compute node is deleted
	CaseElsewhere  Case = "E" // the instance is elsewhere, and no migration is open
	CaseBlocked    Case = "F" // blocked by a relation between PF and VF that is not there
	CaseVanished   Case = "G" // taken, and gone from the host
	CaseLeftOwner  Case = "H" // free, and has an owner
	CaseNoOwner    Case = "I" // taken, and has no owner
	CaseContext    Case = "J" // the instance has the context of a migration that is over
	CaseTooMany    Case = "K" // the instance has more devices than it asks for
	CaseInUse      Case = "L" // free, and a guest uses it
	CaseStatus     Case = "M" // a status that Nova does not write
	CaseReset      Case = "S" // kept by a finished resize whose state was reset
	CaseOdd        Case = "X" // what it depends on is not what Nova writes, or is of two hosts of one name
	CaseLegitimate Case = ""
)

// Repair is a way to put a row right.
type Repair string

// Repairs.
const (
	NoRepair Repair = ""
	ByNova   Repair = "nova"    // nova-compute does it, at its next audit or when it starts
	Online   Repair = "online"  // close the migration, so that nova-compute's audit frees the device
	Offline  Repair = "offline" // write the row while nova-compute of its node is down
)

// Finding is what was found of a row.
type Finding struct {
	Cell        string  `json:"cell"`
	Host        string  `json:"host"`
	Node        string  `json:"node"`
	Device      Device  `json:"device"`
	Case        Case    `json:"case"`
	Verdict     Verdict `json:"verdict"`
	Evidence    string  `json:"evidence"`    // what it was judged by, in one line
	Reason      string  `json:"reason"`      // why that makes it so
	Consequence string  `json:"consequence"` // of leaving it; "" for legitimate ones
	Repair      Repair  `json:"repair"`
	Steps       string  `json:"steps"`  // what the repair does, or what the operator is to do
	Leaves      string  `json:"leaves"` // what stays behind after the repair
	Needs       string  `json:"needs"`  // what the repair lacks; "" for nothing
	Migration   *int64  `json:"migration_id"`
	Closes      string  `json:"closes"`     // the status that closes the migration
	Frees       []Held  `json:"frees"`      // all that nova-compute frees then
	Claims      string  `json:"claims"`     // the instance that a free device is given to
	Request     string  `json:"request_id"` // its request for it
}

// Summary counts the rows by their verdicts. Free ones that nothing speaks against are
// not looked at.
type Summary struct {
	Stale      int `json:"stale"`
	Suspicious int `json:"suspicious"`
	Unknown    int `json:"unknown"`
	Legitimate int `json:"legitimate"`
}

// Count adds a row of a verdict.
func (s *Summary) Count(v Verdict) {
	switch v {
	case Stale:
		s.Stale++
	case Suspicious:
		s.Suspicious++
	case Unknown:
		s.Unknown++
	case Legitimate:
		s.Legitimate++
	}
}
