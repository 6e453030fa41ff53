package views

import (
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/operate/cloud"
)

// NovaCheck is the output of nova check (docs/json.md).
type NovaCheck struct {
	Schema         int             `json:"schema"`
	Release        string          `json:"release"`
	Passed         bool            `json:"passed"`
	Configurations []Configuration `json:"configurations"`
	FileCount      int             `json:"file_count"`
	AliasCount     int             `json:"alias_count"`
	DeviceCount    *int            `json:"device_count"`
	Offered        []OfferedDevice `json:"offered" null:"zero"` // nil if no hardware is known
	Findings       []host.Finding  `json:"findings"`
	Warnings       []string        `json:"warnings"`

	here bool // remedies are for the machine that the command line names
}

// Configuration is the files of one machine, or of the services of one kind on this machine.
type Configuration struct {
	Role     nova.Role `json:"role"`
	RoleFrom *string   `json:"role_from"`
	Files    []string  `json:"files"`
}

// OfferedDevice is one of the functions that DeviceCount counts.
type OfferedDevice struct {
	Host    *string     `json:"host"` // nil for this machine
	Address pci.Address `json:"address"`
}

// Elsewhere reports whether the remedies are for other machines than the one of the command line.
func (r NovaCheck) Elsewhere() bool { return !r.here }

// NewNovaCheck returns the report of what was checked.
func NewNovaCheck(c cloud.Checked) NovaCheck {
	r := NovaCheck{
		Schema: 1, Release: c.Release.String(), Passed: !host.Failed(c.Findings),
		FileCount: c.Counts.Files, AliasCount: c.Counts.Aliases,
		Findings: c.Findings, Warnings: c.Warnings, here: c.Here,
	}
	if devices := c.Counts.Devices; devices != nil {
		n := len(devices)
		r.DeviceCount, r.Offered = &n, make([]OfferedDevice, 0, n)
		for _, f := range devices {
			r.Offered = append(r.Offered, OfferedDevice{Optional(f.Host), f.Address})
		}
	}
	for _, s := range c.Sides {
		r.Configurations = append(r.Configurations, newConfiguration(s))
	}
	return r
}

func newConfiguration(s nova.Side) Configuration {
	c := Configuration{Role: s.Role}
	if s.RoleFrom != "" {
		c.RoleFrom = &s.RoleFrom
	}
	for _, f := range s.Files {
		c.Files = append(c.Files, f.Name)
	}
	return c
}

// Print prints the report as text: the findings, or how much was checked.
func (r NovaCheck) Print(u *term.UI) {
	u.Warn(r.Warnings...)
	for _, c := range r.Configurations {
		if c.RoleFrom != nil {
			u.Printf("%s: role %s, because %s\n", term.Printable(strings.Join(c.Files, ", ")), c.Role, term.Printable(*c.RoleFrom))
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
	found := host.Numbered(r.FileCount, "file") + ", " + host.Numbered(r.AliasCount, "alias")
	if r.DeviceCount != nil {
		found += ", " + host.Numbered(*r.DeviceCount, "device")
	} else {
		found += "; without --inventory, no devices"
	}
	u.Printf("Nova %s: no problems found: %s\n", r.Release, found)
}
