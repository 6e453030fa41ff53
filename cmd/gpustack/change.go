package main

import (
	"context"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
	"gpustack/nova/cloud"
	"gpustack/operate/node"
)

// newRunner returns what starts programs of the machine below root. A second signal ends them.
func newRunner(u *term.UI, root host.Root) host.Runner {
	r := host.Runner{Root: root, Talk: u.Talk, Stop: u.Run.Stop}
	if u.Quiet {
		r.Talk = nil
	}
	return r
}

// newNode returns the machine below root, for a command that --allow lets take these functions.
func newNode(u *term.UI, root host.Root, allow ...pci.Address) node.Node {
	return node.Node{Root: root, Runner: newRunner(u, root), Origin: newOrigin(u), Version: programVersion(), Warn: u.Warn, Allow: allow}
}

// originIn returns the origin of changes of this run in a cloud.
func originIn(u *term.UI, c cloud.Options) change.Origin {
	origin := newOrigin(u)
	origin.Cloud = recordedCloud(c)
	return origin
}

// newOrigin returns the origin of changes of this run.
func newOrigin(u *term.UI) change.Origin {
	return change.NewOrigin(programVersion(), u.Words)
}

// recoverEntries determines whether earlier runs were interrupted, and recovers their changes.
// Every command that changes something calls it first. except is an entry that is not recovered, or
// 0.
func recoverEntries(ctx context.Context, u *term.UI, e change.Engine, o given, except int) error {
	purpose := change.ToRecover
	if o.dryRun {
		purpose = change.ToLook
	}
	plan, err := e.PlanRecovery(ctx, purpose, except)
	if err != nil || len(plan.Entries) == 0 {
		return err
	}
	if o.dryRun {
		u.Warn(plan.Warnings...)
		return nil
	}
	if !o.yes {
		question, summaries := views.RecoveryQuestion(plan.Entries)
		if err := confirmRecovery(u, o, question, summaries); err != nil {
			return err
		}
	}
	if err := u.Run.Begin(views.RemedyOf(plan.Entries[len(plan.Entries)-1].Changes)); err != nil {
		return err
	}
	defer u.Run.End()
	recovered, err := e.Recover(ctx, plan.IDs())
	for _, r := range recovered {
		if r.Text != "" {
			u.Note("entry %d %s", r.Entry.ID, r.Text)
		}
	}
	return err
}

// confirmRecovery asks whether to recover interrupted entries, below the summary of each.
func confirmRecovery(u *term.UI, o given, question string, summaries []string) error {
	if o.format == term.FormatTable {
		for _, summary := range summaries {
			u.Printf("%s\n", u.Paint(term.Bold, term.Printable(summary)))
		}
	}
	return u.Confirm(question, o.format)
}

// applyWork makes a change, records it and completes its report.
func applyWork(ctx context.Context, u *term.UI, e change.Engine, format string, work change.Work, r reporter) error {
	if err := u.Run.Begin(views.RemedyOf(work.Change.Kind())); err != nil {
		return err
	}
	entry, err := e.Apply(ctx, work)
	completeReport(ctx, r, err)
	if entry.ID != 0 {
		r.Common().Entry = &entry.ID
	}
	if err == nil && format == term.FormatTable {
		noteRecorded(u, entry.ID)
	}
	return err
}
