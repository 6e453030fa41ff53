package views

import (
	"fmt"
	"slices"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/gate"
	"gpustack/host/guest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/operate/node"
)

// Status is the output of status (docs/json.md): what the judges of a machine say, a line each.
type Status struct {
	Schema   int               `json:"schema"`
	Verdict  checklist.Verdict `json:"verdict"`  // that of host check
	Subjects []statusLine      `json:"subjects"` // in the order of the work
	Next     *host.Next        `json:"next"`     // the next step; null if nothing is to be done
	Warnings []string          `json:"warnings"` // files that cannot be read or parsed

	machine string
}

// statusLine is what is known of one subject.
type statusLine struct {
	// Subject is "prepared", "booted", "bound", "offered", "in use", "containers", "rdma" or
	// "journal".
	Subject string      `json:"subject"`
	Status  host.Status `json:"status"` // the worst of its findings; "n/a" also where it is unknown
	Seen    string      `json:"seen"`   // for people
}

// NewStatus returns the status of a machine from its checks and its guests. rdma is nil where no
// adapter is recorded.
func NewStatus(checked node.HostChecked, c ContainerCheck, r *RDMACheck, guests guest.Report) Status {
	h, m := NewHostCheck(checked), checked.Machine
	s := Status{Schema: 1, Verdict: h.Verdict, Warnings: h.Warnings, machine: h.Machine}
	s.add("prepared", h.Findings, h.decisive())
	if others := unrecorded(m); len(others) > 0 {
		s.Subjects[0].Seen += "; GPUs that remain with the host: " + gate.Shortened(others)
	}
	s.Subjects = append(s.Subjects, booted(h.Reboot))
	s.add("bound", h.Findings, "drivers")
	s.add("offered", h.Findings, "nova")
	s.Subjects = append(s.Subjects, inUse(guests, m))
	next := h.Next
	if h.Verdict == checklist.NotPrepared && m.Containers != nil { // all that is recorded is for containers
		next = nil
	}
	if next == nil && (h.finds("initramfs", host.Fail) || !h.finds("journal", host.Pass)) {
		next = host.NewNext(host.NewCommand("host check"))
	}
	s.after("host check", h.Verdict, next)
	if m.Containers == nil {
		s.Subjects = append(s.Subjects, statusLine{"containers", host.NA, "nothing is recorded for containers"})
	} else {
		s.judged("containers", string(c.Verdict)+notPassed(c.Findings), c.Findings)
		s.after("container check", c.Verdict, c.Next)
	}
	if r == nil {
		s.Subjects = append(s.Subjects, statusLine{"rdma", host.NA, "no adapter is recorded"})
	} else {
		s.judged("rdma", string(r.Verdict)+notPassed(r.Findings), r.Findings)
		if r.Verdict != checklist.Ready {
			s.after("rdma check", r.Verdict, r.Next)
		}
	}
	s.add("journal", h.Findings, "journal")
	return s
}

// unrecorded returns the GPUs of a prepared machine that are recorded neither for guests nor for
// containers, such as one that was added later.
func unrecorded(m machine.Machine) []pci.Address {
	if m.Contract.Value == nil {
		return nil
	}
	return slices.DeleteFunc(m.Defaults(), func(a pci.Address) bool { return m.Recorded(a) != nil })
}

// after takes the next step of a check if there is none yet: the check itself, which has the
// remedies or names what cannot be read, where that is to follow them or nothing is known.
func (s *Status) after(check string, v checklist.Verdict, next *host.Next) {
	switch {
	case s.Next != nil || next == nil && v != checklist.Unknown:
	case next == nil || slices.Contains(next.Needs, host.NeedRemedies):
		s.Next = host.NewNext(host.NewCommand(check))
	default:
		s.Next = next
	}
}

// judged adds the line of a check as a whole.
func (s *Status) judged(subject, seen string, findings []host.Finding) {
	status := host.Pass
	if host.Failed(findings) {
		status = host.Fail
	}
	s.Subjects = append(s.Subjects, statusLine{subject, status, seen})
}

// add adds the line of one check of the findings: the first of the worst, and how many more.
func (s *Status) add(subject string, findings []host.Finding, check string) {
	line := statusLine{Subject: subject, Status: host.NA, Seen: "nothing is recorded"}
	for _, result := range checklist.Results(findings) {
		if result.Check == check {
			line.Status = result.Status
		}
	}
	of := host.Filter(findings, func(f host.Finding) bool { return f.Check == check && f.Status == line.Status })
	if len(of) > 0 {
		line.Seen = of[0].Seen
	}
	if len(of) > 1 {
		line.Seen += fmt.Sprintf(", and %d more", len(of)-1)
	}
	s.Subjects = append(s.Subjects, line)
}

// booted returns whether the machine was booted with what is recorded.
func booted(reboot host.Bool) statusLine {
	return map[host.Bool]statusLine{
		host.Yes:     {"booted", host.Warn, "a reboot is pending"},
		host.No:      {"booted", host.Pass, "no reboot is pending"},
		host.Unknown: {"booted", host.NA, "not shown by these files"},
	}[reboot]
}

// inUse returns how many of the functions for guests a guest has. A function that is bound for
// guests is one until it is returned, recorded or not.
func inUse(observed guest.Report, m machine.Machine) statusLine {
	users := observed.Users()
	functions := append(slices.Clone(m.Guests), host.Filter(m.Devices.Value, func(d pci.Device) bool {
		return pci.LeavesAlone(d.DriverName()) && m.Guests.At(d.Address) == nil
	})...)
	used := host.Filter(functions, func(d pci.Device) bool { return users[d.Address] != "" })
	switch {
	case !observed.Complete:
		unread := host.Map(observed.Unread(), func(s guest.Source) string { return s.Name })
		return statusLine{"in use", host.NA, "unknown: " + host.Listed(unread, "and") + " cannot be read"}
	case len(functions) == 0:
		return statusLine{"in use", host.NA, "no function is for guests"}
	}
	return statusLine{"in use", host.Pass, fmt.Sprintf("%d of %s", len(used), host.Numbered(len(functions), "function"))}
}

// PrintStatus prints a line for each subject, and the next step.
func PrintStatus(u *term.UI, s Status) {
	u.Printf("%s\n\n", term.Printable(s.machine))
	u.Table([]string{"SUBJECT", "STATUS", "SEEN"}, host.Map(s.Subjects, func(l statusLine) []string {
		return []string{l.Subject, string(l.Status), l.Seen}
	}))
	next := "nothing is to be done"
	if s.Next != nil {
		next = "next: " + s.Next.Sentence(u.Command)
	}
	u.Printf("\n%s\n", next)
}
