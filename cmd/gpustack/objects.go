package main

import (
	"context"
	"fmt"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/nova/cloud"
	clouds "gpustack/operate/cloud"
	"gpustack/operate/node"
)

// objects is a cloud whose objects a command changes.
type objects struct {
	given
	compute *cloud.Compute
	engine  change.Engine
}

// openObjects connects to a cloud, and recovers interrupted changes of its objects.
func openObjects(ctx context.Context, u *term.UI, o given) (objects, error) {
	compute, err := connect(ctx, o.cloud)
	if err != nil {
		return objects{}, err
	}
	return recoverObjects(ctx, u, compute, o)
}

// recoverObjects recovers interrupted changes of a cloud's objects.
func recoverObjects(ctx context.Context, u *term.UI, compute *cloud.Compute, o given) (objects, error) {
	engine, err := clouds.Engine(compute, originIn(u, o.cloud))
	if err != nil {
		return objects{}, err
	}
	return objects{o, compute, engine}, recoverEntries(ctx, u, engine, o, 0)
}

// head returns the common part of the report of a plan.
func (o objects) head(ctx context.Context, changed bool, warnings ...string) views.Report {
	root := o.engine.Store.Root
	return newReport(root, node.RebootRequired(ctx, root), changed, warnings...)
}

// objectPlan is a change of an object as a command shows it and asks about it.
type objectPlan struct {
	work              change.Work
	show              func()
	question, summary string
	done              func() string // completes the report after the change, and returns what was done
}

// carryOut shows a plan, asks, and makes the change.
func (o objects) carryOut(ctx context.Context, u *term.UI, p objectPlan, r reporter) error {
	showPlan(u, o.given, r, p.show, r.Common().Warnings...)
	return decide(u, o.given, p.question, p.summary, r, func() error {
		if err := applyWork(ctx, u, o.engine, o.format, p.work, r); err != nil {
			return err
		}
		done := p.done()
		if o.format == term.FormatTable {
			u.Note("%s", done)
		}
		return nil
	})
}

// undoObject shows and undoes a change of an object. A change that was interrupted is recovered
// first.
func undoObject(ctx context.Context, u *term.UI, o given, store change.Store, entry change.Entry) error {
	if err := clouds.Known(entry); err != nil {
		return err
	}
	compute, err := connect(ctx, o.cloud)
	if err != nil {
		return fmt.Errorf("%s: %w", views.EntryName(entry.ID, entry.Command), err)
	}
	in := objects{o, compute, clouds.UndoEngine(compute, store)}
	report, except := views.NewUndo(in.head(ctx, true), entry), entry.ID
	if entry.IsOpen() {
		except = 0
		u.Document.Show(&report) // its requests are known after the recovery alone
	}
	if err := recoverEntries(ctx, u, in.engine, o, except); err != nil {
		return err
	}
	plan, recovered, err := clouds.PlanUndo(ctx, in.engine, entry)
	switch {
	case recovered:
		report.Applied = true
		return nil
	case err != nil:
		return err
	case plan.Entry.IsOpen() && o.dryRun:
		return errDifferent // the warning names the reason
	}
	undone := views.UndoneObject(compute, plan.Change)
	report.Requests, report.Warnings = append(report.Requests, undone.Requests...), append(report.Warnings, undone.Warnings...)
	showPlan(u, o, &report, func() { views.PrintUndoneObject(u, entry, compute.URL, undone) }, undone.Warnings...)
	return decide(u, o, "undo it?", undone.Summary, &report, func() error {
		return undoEntry(ctx, u, in.engine, o, plan.Entry, &report)
	})
}
