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
	Schema int `json:"schema"`
	// the host's name in Nova: the option host of nova.conf, otherwise the hostname
	NovaHost *string        `json:"nova_host"`
	System   machine.System `json:"system"` // what the machine runs
	// whether the record takes effect only after a reboot; null if unknown
	Reboot host.Bool `json:"reboot_required"`
	Check
}

// NewHostCheck returns the report of a check.
func NewHostCheck(c node.HostChecked) HostCheck {
	m, system := c.Machine, machine.NewSystem(c.Machine)
	r := HostCheck{
		Schema: 1, NovaHost: c.NovaHost, System: system, Reboot: c.Reboot,
		Check: newCheck("host", hostLine(m.Facts.Hostname, system), c.Verdict, c.Findings, m.SortedWarnings()),
	}
	r.Metrics = c.Metrics
	switch {
	case r.Verdict == checklist.Ready && r.finds("nova", host.Pass):
		r.Line = host.Plain("nova.conf offers its devices to guests")
	case r.Verdict == checklist.Ready && r.finds("nova", host.NA): // nova configure refuses what nova check cannot read
		r.Next = host.NewNext(host.NewCommand("nova check"))
		i := slices.IndexFunc(r.Findings, func(f host.Finding) bool { return f.Check == "nova" && f.Status == host.NA })
		r.Line = host.Textf("whether nova.conf offers its devices is unknown: %s", r.Findings[i].Seen)
	case r.Verdict == checklist.Ready && c.Configure.HasFlag("render"):
		r.Next = host.NewNext(c.Configure)
		r.Line = host.Textf("no nova.conf is here; '%s' prints the options that offer the devices to Nova", r.Next.Command)
	case r.Verdict == checklist.Ready && slices.ContainsFunc(r.Findings, func(f host.Finding) bool {
		solves := slices.ContainsFunc(f.Remedy.Commands(), func(r host.Command) bool { return r.String() == c.Configure.String() })
		return f.Check == "nova" && f.Status == host.Warn && !solves
	}): // nova configure does not solve a finding
		r.Next = host.NewNext(host.NewCommand("host check"), host.NeedRemedies)
	case r.Verdict == checklist.Ready:
		r.Next = host.NewNext(c.Configure)
		r.Line = host.Textf("'%s' offers the devices to Nova", r.Next.Command)
	case r.Verdict == checklist.PendingReboot && (!r.onlyFails("reboot") || m.Contract.Value == nil && r.finds("nova", host.Warn)):
		r.Next = host.NewNext(host.NewCommand("host check"), host.NeedRemedies, host.NeedReboot)
	case r.Verdict != checklist.NotPrepared:
	case !r.onlyFails("prepared"):
		r.Next = host.NewNext(c.Plan, host.NeedRemedies)
	case r.finds("preparable", host.Pass): // host prepare accepts the machine
		r.Next = host.NewNext(c.Plan)
		r.Line = host.Textf("run '%s' to see the plan", c.Plan)
	default:
		r.Next, r.Missing = host.NewNext(c.Plan), "preparable"
		r.Line = host.Textf("whether it can be prepared is not shown by these files; '%s' names what is missing", c.Plan)
	}
	if r.Next != nil && len(m.Uses.Value.ByGuests()) > 0 {
		if i := slices.Index(r.Next.Needs, host.NeedReboot); i >= 0 {
			r.Next.Needs = slices.Insert(r.Next.Needs, i, host.NeedGuests)
		}
	}
	return r
}

// onlyFails reports whether no other check fails than the named one.
func (r HostCheck) onlyFails(check string) bool {
	return !slices.ContainsFunc(r.Findings, func(f host.Finding) bool { return f.Status == host.Fail && f.Check != check })
}

// decisive returns the check that shows why a machine is not prepared: the first that fails, which
// prepared is if no other does. It is prepared for any other machine.
func (r HostCheck) decisive() string {
	for _, f := range r.Findings {
		if f.Status == host.Fail && r.Verdict == checklist.NotPrepared {
			return f.Check
		}
	}
	return "prepared"
}

// finds reports whether a check has a finding with a status.
func (r HostCheck) finds(check string, status host.Status) bool {
	return slices.ContainsFunc(r.Findings, func(f host.Finding) bool { return f.Check == check && f.Status == status })
}
