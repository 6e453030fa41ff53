package views

import (
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova/drain"
)

// Drained is the output of nova drain --list (docs/json.md).
type Drained struct {
	Schema int    `json:"schema"`
	Cloud  string `json:"cloud"` // the address of Nova's API
	drain.Status
}

// Print prints the report as text.
func (r Drained) Print(u *term.UI) {
	rows := rowsOf(r.Drained, func(d drain.Drained) []string {
		return []string{d.Host, map[bool]string{true: "up", false: "down"}[d.Up], d.Since.Format(time.RFC3339), d.Text}
	})
	if len(rows) > 0 {
		u.Table([]string{"HOST", "STATE", "DISABLED SINCE", "STEP"}, rows)
	}
	for _, name := range r.Unknown {
		u.Printf("unknown: %s: its cell does not answer\n", term.Printable(name))
	}
	u.Printf("%s\n", term.Sentence(host.Numbered(len(rows), "compute service")+" disabled by gpustack",
		host.Numbered(r.Others, "other")+" disabled", host.Numbered(r.Enabled, "other")+" enabled"))
}
