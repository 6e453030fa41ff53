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
	"gpustack/host/startup"
	"gpustack/host/steps"
)

// programLimit is the maximum time for a program of a step: nvidia-modprobe waits for the driver's
// initialization.
const programLimit = time.Minute

// startup returns what carries out steps on the machine.
func (n Node) startup() startup.Machine {
	return startup.Machine{
		Root:    n.Root,
		Settle:  settle,
		Version: n.Version,
		Program: func(ctx context.Context, argv []string) error {
			limited := n.Runner
			limited.Limit = programLimit
			_, err := limited.Run(ctx, argv)
			return err
		},
		Kernel: func(deadline time.Duration) driver.Requester { return n.kernel(deadline) },
	}
}

// offering returns what containers of the machine are offered.
func (n Node) offering() startup.Offering {
	return startup.Offering{Root: n.Root, Appear: settle, Program: func(ctx context.Context, argv []string) error {
		_, err := n.kernel(0).Run(ctx, argv)
		return err
	}}
}

// Boot carries out the steps of a boot.
func (n Node) Boot(ctx context.Context) (steps.Result, error) {
	if err := n.readyForSteps(ctx); err != nil {
		return steps.Result{}, err
	}
	return startup.Run(ctx, n.startup())
}

// Revert restores what the records no longer want of what the steps of this boot have done, and
// gives containers what is recorded for them. Without a result of the steps there is nothing to
// restore, but containers may lack what was recorded since.
func (n Node) Revert(ctx context.Context) error {
	result, err := steps.ReadResult(n.Root)
	if err == nil && result != nil {
		if err = n.readyForSteps(ctx); err == nil {
			err = startup.Revert(ctx, n.startup())
		}
	}
	if err != nil {
		return err
	}
	return n.offer(ctx)
}

// offer gives containers what is recorded for them now. What they cannot get is a warning: the
// record is as asked, and the result of the steps has it too.
func (n Node) offer(ctx context.Context) error {
	containers, err := machine.ReadContainers(n.Root)
	if err != nil {
		return err
	}
	if containers != nil {
		if err := n.readyForSteps(ctx); err != nil {
			return err
		}
	}
	result, err := startup.Offer(ctx, n.startup())
	if !errors.Is(err, startup.ErrSteps) {
		return err
	}
	for _, s := range result.Steps {
		if s.OfContainers() && s.Error != "" {
			n.Warn(fmt.Sprintf("step %s: %s: %s", s.ID, s.Status, s.Error))
		}
	}
	return nil
}

// mayRevert returns the error with which [Node.Revert] would refuse the record that a plan of
// files leaves.
func (n Node) mayRevert(plan edit.Plan) error {
	_, err := n.permitRevert(plan, gate.Allowed{Functions: n.Allow})
	return err
}

// permitRevert returns the error with which [Node.Revert] would refuse the record that a plan of
// files leaves, and what is lifted of it.
func (n Node) permitRevert(plan edit.Plan, allowed gate.Allowed) ([]host.Lift, error) {
	before, after, _, err := gate.Changed(n.Root, plan)
	if err != nil || before.RDMA == after.RDMA { // the plan leaves it as it is
		return nil, err
	}
	m := n.startup()
	m.Allowed = allowed
	return startup.Permit(m, after.RDMA)
}

// readyForSteps returns an error unless the root is the running machine's, and no earlier request
// is stuck in the kernel.
func (n Node) readyForSteps(ctx context.Context) error {
	if err := n.kernel(0).Ready(); err != nil {
		return err
	}
	return driver.Await(ctx, n.Root, driver.DefaultTimeout)
}
