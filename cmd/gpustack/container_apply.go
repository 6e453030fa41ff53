package main

import (
	"context"
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/container/prepare"
	"gpustack/host/machine"
	"gpustack/host/startup"
)

// isRunning reports whether a root is that of the running machine.
func isRunning(root host.Root) bool { return root.Path("/") == "/" }

// containerWork returns the work of a plan of container prepare. On the running machine gpustack
// boot --revert then brings nodes and specs in /run/cdi to what is recorded; the entry has it, so
// that undo runs it too. No entry has the contents of these specs, which each boot writes again.
func (u *ui) containerWork(root host.Root, command string, plan prepare.Plan) change.Work {
	work := change.Work{Command: command, Change: u.permittedFiles(root, nil).New(plan.Files)}
	if isRunning(root) {
		work.Programs = []host.Program{{Kind: host.RevertBoot}}
	}
	return work
}

// applyContainers applies a plan of container prepare. If only specs differ that each boot writes,
// such as after a GPU got another minor, there is nothing to record.
func (u *ui) applyContainers(ctx context.Context, engine change.Engine, format string, work change.Work, plan prepare.Plan, r *containerPrepareReport) error {
	if len(plan.Files.Pending()) > 0 {
		return u.apply(ctx, engine, format, work, r)
	}
	if err := u.beginRecorded("run: systemctl restart " + startup.Unit); err != nil {
		return err
	}
	err := u.revertBoot(ctx, r.root)
	u.ended(ctx, r, err)
	return err
}

// offer gives containers what is recorded for them now. What they cannot get is a warning: the
// record is as asked, and the result of the steps has it too.
func (u *ui) offer(ctx context.Context, root host.Root) error {
	containers, err := machine.ReadContainers(root)
	if err != nil {
		return err
	}
	if containers != nil {
		if err := u.readyForSteps(ctx, root); err != nil {
			return err
		}
	}
	result, err := startup.Offer(ctx, u.startupMachine(root))
	if !errors.Is(err, startup.ErrSteps) {
		return err
	}
	for _, s := range result.Steps {
		if s.OfContainers() && s.Error != "" {
			u.warn(fmt.Sprintf("step %s: %s: %s", s.ID, s.Status, s.Error))
		}
	}
	return nil
}
