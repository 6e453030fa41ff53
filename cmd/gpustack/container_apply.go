package main

import (
	"context"
	"errors"
	"fmt"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/container/prepare"
	"gpustack/host/machine"
	"gpustack/host/startup"
	"gpustack/host/steps"
)

// isRunning reports whether a root is that of the running machine.
func isRunning(root host.Root) bool { return root.Path("/") == "/" }

// containerWork returns the work of a plan of container prepare. On the running machine gpustack
// boot --revert then brings nodes and specs in /run/cdi to what is recorded; the entry has it, so
// that undo runs it too. No entry has the contents of these specs, which each boot writes again.
func containerWork(u *term.UI, root host.Root, command string, plan prepare.Plan) change.Work {
	work := change.Work{Command: command, Change: permittedFiles(u, root, nil).New(plan.Files)}
	if isRunning(root) {
		work.Programs = []host.Program{{Kind: host.RevertBoot}}
	}
	return work
}

// applyContainers applies a plan of container prepare. If only specs differ that each boot writes,
// such as after a GPU got another minor, there is nothing to record.
func applyContainers(ctx context.Context, u *term.UI, engine change.Engine, format string, work change.Work, plan prepare.Plan, r *containerPrepareReport) error {
	if len(plan.Files.Pending()) > 0 {
		return applyWork(ctx, u, engine, format, work, r)
	}
	if err := u.Run.BeginRecorded("run: systemctl restart " + steps.Unit); err != nil {
		return err
	}
	err := revertBoot(ctx, u, r.Root)
	completeReport(ctx, u, r, err)
	return err
}

// offerDevices gives containers what is recorded for them now. What they cannot get is a warning:
// the record is as asked, and the result of the steps has it too.
func offerDevices(ctx context.Context, u *term.UI, root host.Root) error {
	containers, err := machine.ReadContainers(root)
	if err != nil {
		return err
	}
	if containers != nil {
		if err := readyForSteps(ctx, u, root); err != nil {
			return err
		}
	}
	result, err := startup.Offer(ctx, startupMachine(u, root))
	if !errors.Is(err, startup.ErrSteps) {
		return err
	}
	for _, s := range result.Steps {
		if s.OfContainers() && s.Error != "" {
			u.Warn(fmt.Sprintf("step %s: %s: %s", s.ID, s.Status, s.Error))
		}
	}
	return nil
}
