package views

import (
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/novacheck"
	"gpustack/operate/cloud"
)

// NovaCheck is the output of nova check (docs/json.md).
type NovaCheck struct {
	Schema int `json:"schema"`
	// the release of Nova: "mitaka" to "2026.2", also for a newer one, with a warning
	Release string `json:"release"`
	Passed  bool   `json:"passed"` // whether no check has failed
	// the checked files of each machine, or of this machine's services of each kind
	Configurations []nova.Side `json:"configurations"`
	novacheck.Counts
	// the results of the checks "option", "alias", "device_spec", "filters", "placement" and
	// "flavors", by file and line, then of "service"
	Findings []host.Finding `json:"findings"`
	Warnings []string       `json:"warnings"` // what could not be read or judged

	here bool // remedies are for the machine that the command line names
}

// Elsewhere reports whether the remedies are for other machines than the one of the command line.
func (r NovaCheck) Elsewhere() bool { return !r.here }

// NewNovaCheck returns the report of what was checked.
func NewNovaCheck(c cloud.Checked) NovaCheck {
	if devices := c.Counts.Devices; devices != nil {
		c.Counts.DeviceCount = new(len(devices))
	}
	return NovaCheck{
		Schema: 1, Release: c.Release.String(), Passed: !host.Failed(c.Findings), Configurations: c.Sides, Counts: c.Counts,
		Findings: c.Findings, Warnings: c.Warnings, here: c.Here,
	}
}

// Print prints the report as text: the findings, or how much was checked.
func (r NovaCheck) Print(u *term.UI) {
	u.Warn(r.Warnings...)
	for _, c := range r.Configurations {
		if c.RoleFrom != "" {
			var names []string
			for _, f := range c.Files {
				names = append(names, f.Name)
			}
			u.Printf("%s: role %s, because %s\n", term.Printable(strings.Join(names, ", ")), c.Role, term.Printable(c.RoleFrom))
		}
	}
	if len(r.Findings) > 0 {
		shown := slices.Clone(r.Findings)
		for i := range shown {
			if r.here {
				shown[i].Remedy = host.Text(u.Text(shown[i].Remedy))
			}
		}
		printFindings(u, shown)
		return
	}
	found := host.Numbered(r.Files, "file") + ", " + host.Numbered(r.Aliases, "alias")
	if r.DeviceCount != nil {
		found += ", " + host.Numbered(*r.DeviceCount, "device")
	} else {
		found += "; without --inventory, no devices"
	}
	u.Printf("Nova %s: no problems found: %s\n", r.Release, found)
}
