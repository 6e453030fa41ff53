package views

import (
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma/rdmacheck"
)

// RDMACheck is the output of rdma check (docs/json.md).
type RDMACheck struct {
	Schema int     `json:"schema"`
	Host   *string `json:"host"`
	// what the checks amount to; "drifted" if functions, vfs, identity or files failed; never "not
	// prepared"
	Verdict checklist.Verdict `json:"verdict"`
	Passed  bool              `json:"passed"` // whether no check has failed
	// Reboot is whether the record of rdma prepare takes effect only at the next boot, or after a
	// restart of gpustack-boot.service; null if it cannot be read.
	Reboot   host.Bool      `json:"reboot_required"`
	Findings []host.Finding `json:"findings"` // at least one of each check
	Warnings []string       `json:"warnings"` // files that cannot be read or parsed
	Next     *host.Next     `json:"next"`     // the next step; null for none
}

// NewRDMACheck returns the report of a check of the machine below root.
func NewRDMACheck(root host.Root, c rdmacheck.Checked, testable bool) RDMACheck {
	r := RDMACheck{
		Schema: 1, Host: host.ReadHostname(root), Verdict: c.Verdict, Passed: !host.Failed(c.Findings), Reboot: c.Machine.RebootRequired(),
		Findings: c.Findings, Warnings: c.Warnings, Next: nextOf(c.Verdict, host.NewCommand("rdma check")),
	}
	if c.Verdict == checklist.Ready && testable { // on the machine itself: rdma test accepts no --root
		r.Next = host.NewNext(host.NewCommand("rdma test").Elsewhere())
	}
	return r
}

// Checked returns what is printed for people.
func (r RDMACheck) Checked(u *term.UI) Checked {
	c := Checked{
		Machine: nameOf(r.Host), Verdict: r.Verdict, Findings: r.Findings, Warnings: r.Warnings, Next: r.Next,
		Metrics: checklist.Metrics("rdma check", r.Findings, r.Verdict, r.Reboot),
	}
	switch {
	case r.Verdict == checklist.Ready && r.Next != nil:
		c.Line = "'" + u.Command(r.Next.Command) + "' sends data, here or between two machines"
	case r.Verdict == checklist.Ready:
		c.Line = "programs and guests can use verbs"
	}
	return c
}

// nameOf returns the name of a machine, "" if it is unknown.
func nameOf(name *string) string {
	if name == nil {
		return ""
	}
	return *name
}
