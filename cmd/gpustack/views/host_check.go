package views

import (
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/operate/node"
)

// HostCheck is the output of host check (docs/json.md).
type HostCheck struct {
	Check
	// the host's name in Nova: the option host of nova.conf, otherwise the hostname
	NovaHost *string        `json:"nova_host"`
	System   machine.System `json:"system"` // what the machine runs
	// whether the record takes effect only after a reboot; null if unknown
	Reboot host.Bool `json:"reboot_required"`
}

// NewHostCheck returns the report of a check.
func NewHostCheck(c node.HostChecked) HostCheck {
	m, system := c.Machine, machine.NewSystem(c.Machine)
	r := HostCheck{newCheck("host", hostLine(m.Facts.Hostname, system), c.Verdict, c.Findings, m.SortedWarnings()), c.NovaHost, system, c.Reboot}
	r.Metrics = c.Metrics
	switch {
	case r.Verdict == checklist.Ready && r.offered():
		r.Line = "nova.conf offers its devices to guests"
	case r.Verdict == checklist.Ready:
		r.Next = host.NewNext(c.Configure)
		r.Line = host.Textf("'%s' offers the devices to Nova", r.Next.Command)
	case r.Verdict == checklist.PendingReboot && !r.onlyFails("reboot"):
		r.Next = host.NewNext(host.NewCommand("host check"), host.NeedRemedies, host.NeedReboot)
	case r.Verdict != checklist.NotPrepared:
	case !r.onlyFails("prepared"):
		r.Next = host.NewNext(c.Plan, host.NeedRemedies)
	case r.preparable():
		r.Next = host.NewNext(c.Plan)
		r.Line = host.Textf("run '%s' to see the plan", c.Plan)
	default:
		r.Next, r.Missing = host.NewNext(c.Plan), "preparable"
		r.Line = host.Textf("whether it can be prepared is not shown by these files; '%s' names what is missing", c.Plan)
	}
	return r
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
