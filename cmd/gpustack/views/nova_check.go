package views

import (
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova/conf"
	"gpustack/operate/cloud"
)

// NovaCheck is the output of nova check (docs/json.md).
type NovaCheck struct {
	Schema int  `json:"schema"`
	Passed bool `json:"passed"` // whether no check has failed
	cloud.Checked
}

// Elsewhere reports whether the remedies are for other machines than the one of the command line.
func (r NovaCheck) Elsewhere() bool { return !r.Here }

// NewNovaCheck returns the report of what was checked.
func NewNovaCheck(c cloud.Checked) NovaCheck {
	return NovaCheck{Schema: 1, Passed: !host.Failed(c.Findings), Checked: c}
}

// Print prints the report as text: the findings, or how much was checked.
func (r NovaCheck) Print(u *term.UI) {
	u.Warn(r.Warnings...)
	for _, c := range r.Sides {
		if c.RoleFrom != "" {
			names := host.Map(c.Files, func(f conf.Source) string { return f.Name })
			u.Printf("%s: role %s, because %s\n", term.Printable(strings.Join(names, ", ")), c.Role, term.Printable(c.RoleFrom))
		}
	}
	if len(r.Findings) > 0 {
		text := term.Elsewhere
		if r.Here {
			text = u.Text
		}
		printFindings(u, r.Findings, text)
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
