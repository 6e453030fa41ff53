package host

import "slices"

// Status is what came of a check.
type Status string

// With a Fail, a guest does not get its device; a Warn is worth a look. NA says that
// a check does not apply to the machine, or cannot see what it looks at: it is never
// said that something is right which was not seen.
const (
	Pass Status = "pass"
	Warn Status = "warn"
	Fail Status = "fail"
	NA   Status = "n/a"
)

// Finding is what one check says of a machine or of its files, in the form that
// docs/json.md describes. Texts are for people; what is not said is empty.
type Finding struct {
	Check  string `json:"check"` // its name, which does not change
	Status Status `json:"status"`
	File   string `json:"file"` // that shows it
	Line   int    `json:"line"` // 0: the whole file
	Seen   string `json:"seen"`
	Effect string `json:"effect"` // what follows from it
	Remedy string `json:"remedy"`
}

// Failed tells whether a check has failed.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Status == Fail })
}
