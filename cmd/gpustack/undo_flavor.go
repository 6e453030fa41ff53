package main

import (
	"context"
	"errors"
	"fmt"

	udiff "github.com/aymanbagabas/go-udiff"

	"gpustack/host/change"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
)

// flavorEngine returns the engine for changes of flavors of a cloud, after it has recovered
// interrupted ones.
func (u *ui) flavorEngine(ctx context.Context, compute *cloud.Compute, d decision) (change.Engine, error) {
	store, err := userStore()
	if err != nil {
		return change.Engine{}, err
	}
	engine := change.Engine{Store: store, Origin: u.origin(), Kinds: []change.Kind{flavor.Kind{Compute: compute}}}
	return engine, u.recover(ctx, engine, d, 0)
}

// undoFlavor shows and undoes a change of a flavor. A change that was interrupted is recovered
// first.
func undoFlavor(ctx context.Context, u *ui, opts undoOptions, store change.Store, entry change.Entry) error {
	_, compute, err := u.connect(ctx, opts.repair.cloud)
	if err != nil {
		return fmt.Errorf("%s: %w", entryName(entry.ID, entry.Command), err)
	}
	engine := change.Engine{Store: store, Kinds: []change.Kind{flavor.Kind{Compute: compute}}}
	report, except := newUndoReport(store.Root, u.rebootRequired(ctx, store.Root), entry), entry.ID
	if entry.IsOpen() {
		except = 0
		u.show(&report) // its requests are known after the recovery alone
	}
	if err := u.recover(ctx, engine, opts.decision, except); err != nil {
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
	move := plan.Change.(*flavor.Change).Inverse()
	report.Requests = move.Requests()
	u.plan(opts.decision, &report, func() {
		u.printf("undoes %s at %s\n", printable(entryName(entry.ID, entry.Command)), printable(compute.URL))
		u.flavorDiff(move)
		u.flavorRequests(report.Requests)
	})
	return u.decide(opts.decision, "undo it?", flavorSummary(move), &report, func() error {
		return u.undo(ctx, engine, opts, plan.Entry, &report)
	})
}

// flavorDiff prints the difference between the states of a flavor.
func (u *ui) flavorDiff(m flavor.Move) {
	name := func(s *flavor.State) string {
		if s == nil {
			return "/dev/null"
		}
		return "flavor " + s.Name
	}
	u.diff(fileChange{Diff: udiff.Unified(name(m.Before), name(m.After), flavor.Text(m.Before), flavor.Text(m.After))})
}

// flavorRequests prints requests.
func (u *ui) flavorRequests(requests []flavor.Request) {
	u.printf("\nrequests:\n")
	for _, r := range requests {
		u.printf("  %s %s\n", r.Method, printable(r.Path))
	}
}
