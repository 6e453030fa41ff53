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
	Schema int `json:"schema"`
	// the release of Nova: "mitaka" to "2026.2", also for a newer one, with a warning
	Release string `json:"release"`
	Passed  bool   `json:"passed"` // whether no check has failed
	// the checked files of each machine, or of this machine's services of each kind
	Configurations []Configuration `json:"configurations"`
	FileCount      int             `json:"file_count"`  // files that were read
	AliasCount     int             `json:"alias_count"` // aliases with different names
	// DeviceCount is how many functions of this machine (without --conf) and of the inventories the
	// device specs of the compute nodes offer to guests; without a compute node, those that the
	// aliases select. It is null if no hardware is known.
	DeviceCount *int `json:"device_count"`
	// these functions, by host and address; null if no hardware is known
	Offered []OfferedDevice `json:"offered" null:"zero"`
	// the results of the checks "option", "alias", "device_spec", "filters", "placement" and
	// "flavors", by file and line
	Findings []host.Finding `json:"findings"`
	Warnings []string       `json:"warnings"` // what could not be read or judged

	here bool // remedies are for the machine that the command line names
}

// Configuration is the files of one machine, or of the services of one kind on this machine.
type Configuration struct {
	Role     nova.Role `json:"role"`      // which services read the files
	RoleFrom *string   `json:"role_from"` // what the role was inferred from; null if it was given
	Files    []string  `json:"files"`     // in the order in which the services read them
}

// OfferedDevice is one of the functions that DeviceCount counts.
type OfferedDevice struct {
	Host    *string     `json:"host"`    // the hostname; null for this machine
	Address pci.Address `json:"address"` // the function
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
