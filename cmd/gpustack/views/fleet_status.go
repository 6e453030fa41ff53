package views

import (
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/nova/drain"
)

// FleetStatus is the output of fleet status (docs/json.md).
type FleetStatus struct {
	Schema int    `json:"schema"`
	Cloud  string `json:"cloud"` // the address of Nova's API
	// the compute services that gpustack has disabled, longest ago first
	Drained      []drained `json:"drained"`
	EnabledCount int       `json:"enabled_count"` // compute services that are enabled
	// compute services that are disabled for other reasons
	DisabledCount int `json:"disabled_count"`
	// hosts whose cell does not answer; before microversion 2.69 they are missing from all lists
	UnknownHosts []string `json:"unknown_hosts"`
}

// drained is a compute service that gpustack has disabled.
type drained struct {
	NovaHost string `json:"nova_host"` // the host's name in Nova
	Up       bool   `json:"up"`        // whether nova-compute reports to Nova
	// when the service was disabled; the first time, if undo of nova enable disabled it again
	Since   time.Time `json:"since"`
	DrainID string    `json:"drain_id"` // 8 hexadecimal digits, new each time a service is disabled
	Step    string    `json:"step"`     // the text of the reason: why, or at which step
}

// NewFleetStatus returns the report of a cloud's services.
func NewFleetStatus(c *cloud.Compute, s drain.Status) FleetStatus {
	r := FleetStatus{Schema: 1, Cloud: c.URL, EnabledCount: s.Enabled, DisabledCount: s.Others, UnknownHosts: s.Unknown}
	for _, d := range s.Drained {
		r.Drained = append(r.Drained, drained{d.Host, d.Up, d.Since, d.ID, d.Text})
	}
	return r
}

// Print prints the report as text.
func (r FleetStatus) Print(u *term.UI) {
	rows := [][]string{}
	for _, d := range r.Drained {
		state := map[bool]string{true: "up", false: "down"}[d.Up]
		rows = append(rows, []string{term.Printable(d.NovaHost), state, d.Since.Format(time.RFC3339), term.Printable(d.Step)})
	}
	if len(rows) > 0 {
		table(u, []string{"HOST", "STATE", "DISABLED SINCE", "STEP"}, rows)
	}
	for _, name := range r.UnknownHosts {
		u.Printf("unknown: %s: its cell does not answer\n", term.Printable(name))
	}
	u.Printf("%s\n", term.Sentence(host.Numbered(len(rows), "compute service")+" disabled by gpustack",
		host.Numbered(r.DisabledCount, "other")+" disabled", host.Numbered(r.EnabledCount, "other")+" enabled"))
}
