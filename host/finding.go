package host

import "slices"

// Status is the result of a check.
type Status string

// Results of checks. A check that cannot read what it needs is NA, never Pass.
const (
	Pass Status = "pass"
	Warn Status = "warn" // needs attention, but what is checked works
	Fail Status = "fail" // what is checked does not work
	NA   Status = "n/a"  // does not apply to this machine, or cannot be determined
)

// Finding is one result of a check. Seen, Effect and Remedy are texts for people; a field that does
// not apply is empty.
type Finding struct {
	Check  string `json:"check"`  // the name of the check, which never changes
	Status Status `json:"status"` // what the check found
	File   string `json:"file"`   // where the problem is; "" if it is not in a single file
	Line   int    `json:"line"`   // 0 for the whole file
	Seen   string `json:"seen"`   // what was found, for people: its wording may change
	Effect string `json:"effect"` // the consequence, for people; "" for none
	Remedy Text   `json:"remedy"` // how to fix it, for people; "" if nothing needs to be fixed
}

// Failed reports whether any of the findings is a Fail.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Status == Fail })
}
