package host

import "slices"

// Status is the result of a check.
type Status string

// Results of checks. A check that cannot read what it needs is NA, never Pass.
const (
	Pass Status = "pass"
	Warn Status = "warn" // needs attention, but passthrough works
	Fail Status = "fail" // passthrough does not work
	NA   Status = "n/a"  // does not apply to this machine, or cannot be determined
)

// Finding is one result of a check, in the form that docs/json.md describes. Seen, Effect and
// Remedy are texts for people; a field that does not apply is empty.
type Finding struct {
	Check  string `json:"check"` // a stable name
	Status Status `json:"status"`
	File   string `json:"file"`   // where it was found
	Line   int    `json:"line"`   // 0: the whole file
	Seen   string `json:"seen"`   // what was found
	Effect string `json:"effect"` // its consequence
	Remedy Text   `json:"remedy"` // how to fix it
}

// Failed reports whether any of the findings is a Fail.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Status == Fail })
}
