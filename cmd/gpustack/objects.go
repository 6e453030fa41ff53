package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
	"gpustack/nova/servertest"
)

// objectKinds returns the kinds of changes of objects of a cloud, one for each type of object.
func objectKinds(compute *cloud.Compute) []change.Kind {
	return []change.Kind{flavor.Kind{Compute: compute}, image.Kind{Compute: compute}, servertest.Kind{Compute: compute, Root: thisMachine()}}
}

// newObjectEngine returns the engine for changes of objects of a cloud, after it has recovered
// interrupted ones.
func newObjectEngine(ctx context.Context, u *term.UI, compute *cloud.Compute, d decision) (change.Engine, error) {
	store, err := change.UserStore()
	if err != nil {
		return change.Engine{}, err
	}
	engine := change.Engine{Store: store, Origin: change.NewOrigin(programVersion(), os.Args[min(1, len(os.Args)):]), Kinds: objectKinds(compute)}
	return engine, recoverEntries(ctx, u, engine, d, 0)
}

// undoObject shows and undoes a change of an object. A change that was interrupted is recovered
// first.
func undoObject(ctx context.Context, u *term.UI, opts undoOptions, store change.Store, entry change.Entry) error {
	if err := (change.Engine{Kinds: objectKinds(nil)}).Known(entry); err != nil {
		return err // without a connection
	}
	_, compute, err := connect(ctx, u, opts.cloud)
	if err != nil {
		return fmt.Errorf("%s: %w", views.EntryName(entry.ID, entry.Command), err)
	}
	engine := change.Engine{Store: store, Kinds: objectKinds(compute)}
	report, except := views.NewUndo(newReport(store.Root, newNode(u, store.Root).RebootRequired(ctx), true), entry), entry.ID
	if entry.IsOpen() {
		except = 0
		u.Document.Show(&report) // its requests are known after the recovery alone
	}
	if err := recoverEntries(ctx, u, engine, opts.decision, except); err != nil {
		return err
	}
	plan, err := engine.PlanUndo(ctx, entry.ID)
	switch {
	case entry.IsOpen() && (errors.Is(err, change.ErrNoEntry) || errors.Is(err, change.ErrUndone)):
		report.Applied = true // the recovery has already undone it
		return nil
	case err != nil:
		return err
	case plan.Entry.IsOpen() && opts.dryRun:
		return errDifferent // the warning names the reason
	}
	undone := views.UndoneObject(plan.Change)
	report.Requests, report.Warnings = append(report.Requests, undone.Requests...), append(report.Warnings, undone.Warnings...)
	showPlan(u, opts.decision, &report, func() {
		u.Printf("undoes %s at %s\n", term.Printable(views.EntryName(entry.ID, entry.Command)), term.Printable(compute.URL))
		u.Diff(undone.Diff)
		views.PrintRequests(u, undone.Requests)
	}, undone.Warnings...)
	return decide(u, opts.decision, "undo it?", undone.Summary, &report, func() error {
		return undoEntry(ctx, u, engine, opts, plan.Entry, &report)
	})
}
