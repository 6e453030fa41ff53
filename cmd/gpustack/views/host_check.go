package views

import (
	"slices"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/metrics"
	"gpustack/operate/node"
)

// HostCheck is the output of host check (docs/json.md).
type HostCheck struct {
	Schema int `json:"schema"`
	// the host's name in Nova: the option host of nova.conf, otherwise the hostname
	NovaHost *string        `json:"nova_host"`
	System   machine.System `json:"system"` // what the machine runs
	// what the checks amount to; "drifted" if functions, drivers, groups or files failed
	Verdict checklist.Verdict `json:"verdict"`
	Passed  bool              `json:"passed"` // whether no check has failed
	// whether the record takes effect only after a reboot; null if unknown
	Reboot host.Bool  `json:"reboot_required"`
	Next   *host.Next `json:"next"` // the next step; null for none
	// at least one of each check, from the hardware up
	Findings []host.Finding `json:"findings"`
	// files that cannot be read or parsed; why the cache of initramfs images is not used
	Warnings []string         `json:"warnings"`
	Host     *string          `json:"-"` // for people: Head has it
	Metrics  []metrics.Sample `json:"-"`
}

// NewHostCheck returns the report of a check.
func NewHostCheck(c node.HostChecked) HostCheck {
	m := c.Machine
	r := HostCheck{
		Schema: 1, Host: m.Facts.Hostname, NovaHost: c.NovaHost, System: machine.NewSystem(m), Verdict: c.Verdict,
		Passed: !host.Failed(c.Findings),
		Reboot: c.Reboot, Findings: c.Findings, Warnings: m.SortedWarnings(), Metrics: c.Metrics,
		Next: nextOf(c.Verdict, host.NewCommand("host check")),
	}
	switch {
	case r.Verdict == checklist.Ready && !r.offered():
		r.Next = host.NewNext(host.NewCommand("nova configure").Flag("role", "compute"))
	case r.Verdict == checklist.PendingReboot && !r.onlyFails("reboot"):
		r.Next = host.NewNext(host.NewCommand("host check"), host.NeedRemedies, host.NeedReboot)
	case r.Verdict != checklist.NotPrepared:
	case r.onlyFails("prepared"):
		r.Next = host.NewNext(c.Plan)
	default:
		r.Next = host.NewNext(c.Plan, host.NeedRemedies)
	}
	return r
}

// Checked returns what is printed for people.
func (r HostCheck) Checked(u *term.UI) Checked {
	c := Checked{
		Machine: hostLine(r.Host, r.System), Verdict: r.Verdict, Findings: r.Findings, Warnings: r.Warnings, Next: r.Next, Metrics: r.Metrics,
	}
	switch {
	case r.Verdict == checklist.Ready && r.offered():
		c.Line = "nova.conf offers its devices to guests"
	case r.Verdict == checklist.Ready:
		c.Line = "'" + u.Command(r.Next.Command) + "' offers the devices to Nova"
	case r.Verdict != checklist.NotPrepared || !r.onlyFails("prepared"):
	case !r.preparable():
		c.Line = "whether it can be prepared is not shown by these files; '" + u.Command(r.Next.Command) + "' names what is missing"
		c.Missing = "preparable"
	default:
		c.Line = r.Next.Sentence(u.Command) + " to see the plan"
	}
	return c
}

// offered reports whether nova.conf offers all that is prepared.
func (r HostCheck) offered() bool {
	return slices.ContainsFunc(r.Findings, func(f host.Finding) bool { return f.Check == "nova" && f.Status == host.Pass })
}

// onlyFails reports whether no other check fails than the named one.
func (r HostCheck) onlyFails(check string) bool {
	return !slices.ContainsFunc(r.Findings, func(f host.Finding) bool { return f.Status == host.Fail && f.Check != check })
}

// preparable reports whether something shows that host prepare accepts the machine.
func (r HostCheck) preparable() bool {
	return slices.ContainsFunc(r.Findings, func(f host.Finding) bool { return f.Check == "preparable" && f.Status == host.Pass })
}
