package node

import (
	"context"
	"errors"
	"slices"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/container/containerprepare"
	"gpustack/host/driver"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/prepare"
	"gpustack/host/rdma/rdmaprepare"
	"gpustack/host/selection"
)

// Rebuild says when programs that regenerate initramfs and menu are run.
type Rebuild int

// When programs are run.
const (
	Needed Rebuild = iota // on the running machine, those that a plan needs
	All                   // all of them, on a root elsewhere too
	Never                 // none: they are left to the operator
)

// PlanPrepare returns what host prepare plans on an observed machine, and the error with which it
// refuses. host check asks it too, so that the two commands never disagree. command is recorded.
func (n Node) PlanPrepare(m machine.Machine, options selection.Options, rebuild Rebuild, command string) (prepare.Plan, change.Work, error) {
	allowed := slices.Concat(options.Allow, host.Value(m.Contract.Value).Allowed) // --allow, now and for what is recorded
	asked, err := gate.AskKernel(n.Root, &m.Needs.Value, claim, allowed...)
	if err != nil {
		return prepare.Plan{}, change.Work{}, err
	}
	observed := prepare.Observe(n.Root, m, options)
	want, err := prepare.NewWant(observed, options)
	if err != nil {
		return prepare.Plan{}, change.Work{}, err
	}
	plan, err := prepare.NewPlan(observed, want)
	if err != nil {
		return prepare.Plan{}, change.Work{}, err
	}
	plan.Warnings = slices.Concat(asked, plan.Warnings, ofReturned(n.Root, m.Devices, plan.Files))
	if plan.None && !options.None {
		command += " --none" // so that history shows that nothing is recorded
	}
	work := change.Work{Command: command, About: &change.Topic{Subject: change.OfGuests, None: plan.None}, Change: n.files().New(plan.Files)}
	programs := plan.Programs
	if rebuild == All {
		programs = plan.AllPrograms
	}
	if rebuild == All || n.Root.IsMachine() && rebuild != Never {
		work.Programs = programs
	} else {
		work.Left = programs
	}
	if len(work.Programs) > 0 {
		err = n.Runner.Ready(work.Programs)
	}
	return plan, work, err
}

// RefusedByPrepare returns the errors with which host prepare, without options, refuses a machine
// that is not prepared. The machine was observed by [machine.ObserveCheck] with its journal.
func (n Node) RefusedByPrepare(ctx context.Context, m machine.Machine, journal change.Seen) []error {
	if !m.Contract.Seen() || m.Contract.Value != nil {
		return nil // host check asks nothing of a prepared machine
	}
	left, err := n.Engine(driver.DefaultTimeout).InterruptedIn(ctx, journal, change.ToLook)
	obstacles := host.Map(left, func(l change.Left) error { return l.Obstacle }) // nil of entries that are not Here
	if err := errors.Join(append([]error{err}, obstacles...)...); err != nil {
		return host.Split(err)
	}
	_, _, err = n.PlanPrepare(m, selection.Options{}, Needed, "")
	return host.Split(err)
}

// ObserveRDMA observes the machine below root for rdma prepare, and whether it has to be rebooted,
// as [RebootRequired].
func ObserveRDMA(ctx context.Context, root host.Root, options rdmaprepare.Options) (m rdmaprepare.Observed, reboot host.Bool, err error) {
	seen, reboot := Observe(ctx, root, true)
	m, err = rdmaprepare.Observe(root, seen, options)
	return m, reboot, err
}

// PlanRDMA returns the plan of rdma prepare and its work. On the running machine, gpustack boot
// --revert then reverts what this boot has made and the record no longer wants; it is recorded, so
// that undo runs it too. command is recorded.
func (n Node) PlanRDMA(m rdmaprepare.Observed, options rdmaprepare.Options, command string) (rdmaprepare.Plan, change.Work, error) {
	asked, err := gate.AskKernel(n.Root, &m.Needs, claim, options.Allow...)
	if err != nil {
		return rdmaprepare.Plan{}, change.Work{}, err
	}
	m.Unread = append(m.Unread, asked...)
	want, err := rdmaprepare.NewWant(m, options)
	if err != nil {
		return rdmaprepare.Plan{}, change.Work{}, err
	}
	plan, err := rdmaprepare.NewPlan(m, want)
	plan.Warnings = append(plan.Warnings, ofReturned(n.Root, machine.Saw("/sys/bus/pci/devices", m.Devices, nil), plan.Files)...)
	about := &change.Topic{Subject: change.OfAdapters, None: len(want.Record.Adapters) == 0}
	work := change.Work{Command: command, About: about, Change: n.files().New(plan.Files)}
	if n.Root.IsMachine() && len(plan.Files.Pending()) > 0 {
		work.Programs = []host.Program{{Kind: host.RevertBoot}}
		if err == nil {
			_, err = n.Steps().permit(plan.Files, gate.Allowed{Functions: n.Allow})
		}
	}
	return plan, work, err
}

// PlanContainers returns the plan of container prepare and its work. On the running machine
// gpustack boot --revert then brings nodes and specs in /run/cdi to what is recorded; the entry has
// it, so that undo runs it too. No entry has the contents of these specs, which each boot writes
// again. command is recorded.
func (n Node) PlanContainers(m containerprepare.Observed, options containerprepare.Options, command string) (containerprepare.Plan, change.Work, error) {
	want, err := containerprepare.NewWant(m, options)
	if err != nil {
		return containerprepare.Plan{}, change.Work{}, err
	}
	plan, err := containerprepare.NewPlan(m, want)
	if err != nil {
		return containerprepare.Plan{}, change.Work{}, err
	}
	about := &change.Topic{Subject: change.OfContainers, None: len(plan.Record.Functions) == 0}
	work := change.Work{Command: command, Change: n.files().New(plan.Files), About: about}
	if n.Root.IsMachine() {
		work.Programs = []host.Program{{Kind: host.RevertBoot}}
	}
	return plan, work, nil
}
