package views

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma/rdmacheck"
)

// RDMACheck is the output of rdma check (docs/json.md).
type RDMACheck struct {
	Check
	// Reboot is whether the record of rdma prepare takes effect only at the next boot, or after a
	// restart of gpustack-boot.service; null if it cannot be read.
	Reboot host.Bool `json:"reboot_required"`
}

// NewRDMACheck returns the report of a check of the machine below root.
func NewRDMACheck(root host.Root, c rdmacheck.Checked, testable bool) RDMACheck {
	r := RDMACheck{newCheck("rdma", host.Value(host.ReadHostname(root)), c.Verdict, c.Findings, c.Warnings), c.Observed.RebootRequired()}
	r.Metrics = checklist.Metrics("rdma check", r.Findings, r.Verdict, r.Reboot)
	switch {
	case r.Verdict == checklist.Ready && testable: // on the machine itself: rdma test accepts no --root
		r.Next = host.NewNext(host.NewCommand("rdma test").Elsewhere())
		r.Line = host.Textf("'%s' sends data, here or between two machines", r.Next.Command)
	case r.Verdict == checklist.Ready:
		r.Line = host.Plain("programs and guests can use verbs")
	}
	return r
}
