package main

import (
	"context"
	"errors"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/machine"
	"gpustack/host/prepare"
)

// planPrepare returns what host prepare plans on an observed machine, and the error with which it
// refuses. host check asks it too, so that the two commands never disagree.
func planPrepare(root host.Root, runner host.Runner, m machine.Machine, opts hostPrepareOptions) (prepare.Plan, change.Work, error) {
	observed := prepare.Observe(root, m, opts.prepare)
	want, err := prepare.NewWant(observed, opts.prepare)
	if err != nil {
		return prepare.Plan{}, change.Work{}, err
	}
	plan, err := prepare.NewPlan(observed, want)
	if err != nil {
		return prepare.Plan{}, change.Work{}, err
	}
	work := prepareWork(plan, opts, root)
	if len(work.Programs) > 0 {
		err = runner.Ready(work.Programs)
	}
	return plan, work, err
}

// refusedByPrepare returns the errors with which host prepare, without options, refuses a machine
// that is not prepared. The machine was observed for [machine.Check] with its journal.
func refusedByPrepare(ctx context.Context, u *term.UI, root host.Root, m machine.Machine, journal change.Seen) []error {
	if !m.Contract.Seen() || m.Contract.Value != nil {
		return nil // host check asks nothing of a prepared machine
	}
	left, err := newNode(u, root).Engine(driver.DefaultTimeout).InterruptedIn(ctx, journal, change.ToLook)
	obstacles := []error{err}
	for _, l := range left {
		if l.Here {
			obstacles = append(obstacles, l.Obstacle)
		}
	}
	if err := errors.Join(obstacles...); err != nil {
		return host.Split(err)
	}
	_, _, err = planPrepare(root, newRunner(u, root), m, hostPrepareOptions{root: root.Path("/")})
	return host.Split(err)
}
