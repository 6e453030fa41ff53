package main

import (
	"context"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/container/prepare"
	"gpustack/host/steps"
	"gpustack/operate/node"
)

// containerWork returns the work of a plan of container prepare. On the running machine gpustack
// boot --revert then brings nodes and specs in /run/cdi to what is recorded; the entry has it, so
// that undo runs it too. No entry has the contents of these specs, which each boot writes again.
func containerWork(n node.Node, command string, plan prepare.Plan) change.Work {
	work := change.Work{Command: command, Change: n.Files().New(plan.Files), About: &change.Topic{Subject: change.OfContainers, None: len(plan.Record.Functions) == 0}}
	if n.Root.IsMachine() {
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
	err := newNode(u, r.Root).Revert(ctx)
	completeReport(ctx, u, r, err)
	return err
}
