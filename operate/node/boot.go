package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/startup"
	"gpustack/host/steps"
)

// programLimit is the maximum time for a program of a step: nvidia-modprobe waits for the driver's
// initialization.
const programLimit = time.Minute

// Steps carries out what is recorded for every boot of a machine. Warn prints what containers do not
// get.
type Steps Node

// machine returns what carries out steps on the machine.
func (s Steps) machine() startup.Machine {
	return startup.Machine{
		Root:    s.Root,
		Settle:  settle,
		Claim:   claim,
		Version: s.Version,
		Program: func(ctx context.Context, argv []string) error {
			limited := s.Runner
			limited.Limit = programLimit
			_, err := limited.Run(ctx, argv)
			return err
		},
		Kernel: func(deadline time.Duration) driver.Requester { return driver.Live{Runner: s.Runner, Timeout: deadline} },
	}
}

// offering returns what containers are offered by the machine whose programs a runner starts.
func offering(runner host.Runner) startup.Offering {
	return startup.Offering{Root: runner.Root, Appear: settle, Program: func(ctx context.Context, argv []string) error {
		_, err := driver.Live{Runner: runner}.Run(ctx, argv)
		return err
	}}
}

// Run carries out the steps of a boot.
func (s Steps) Run(ctx context.Context) (steps.Result, error) {
	if err := s.ready(ctx); err != nil {
		return steps.Result{}, err
	}
	return startup.Run(ctx, s.machine())
}

// Revert restores what the records no longer want of what the steps of this boot have done, and
// gives containers what is recorded for them. Without a result of the steps there is nothing to
// restore, but containers may lack what was recorded since.
func (s Steps) Revert(ctx context.Context) error {
	result, err := steps.ReadResult(s.Root)
	if err == nil && result != nil {
		if err = s.ready(ctx); err == nil {
			err = startup.Revert(ctx, s.machine())
		}
	}
	if err != nil {
		return err
	}
	return s.offer(ctx)
}

// offer gives containers what is recorded for them now. What they cannot get is a warning: the
// record is as asked, and the result of the steps has it too.
func (s Steps) offer(ctx context.Context) error {
	containers, err := machine.ReadContainers(s.Root)
	if err != nil {
		return err
	}
	if containers != nil {
		if err := s.ready(ctx); err != nil {
			return err
		}
	}
	result, err := startup.Offer(ctx, s.machine())
	if !errors.Is(err, startup.ErrSteps) {
		return err
	}
	for _, r := range result.Steps {
		if r.OfContainers() && r.Error != "" {
			s.Warn(fmt.Sprintf("step %s: %s: %s", r.ID, r.Status, r.Error))
		}
	}
	return nil
}

// permit returns the error with which [Steps.Revert] would refuse the record that a plan of files
// leaves, and what is lifted of it.
func (s Steps) permit(plan edit.Changes, allowed gate.Allowed) ([]pci.Identity, error) {
	before, after, _, err := gate.Changed(s.Root, plan)
	if err != nil || before.RDMA == after.RDMA { // the plan leaves it as it is
		return nil, err
	}
	m := s.machine()
	m.Allowed = allowed
	return startup.Permit(m, after.RDMA)
}

// ready returns an error unless the root is the running machine's, and no earlier request is stuck
// in the kernel.
func (s Steps) ready(ctx context.Context) error {
	if err := driver.Ready(s.Root); err != nil {
		return err
	}
	return driver.Await(ctx, s.Root, driver.DefaultTimeout)
}
