package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	udiff "github.com/aymanbagabas/go-udiff"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
	"gpustack/nova/servertest"
)

// object is a change of an object of OpenStack's APIs, as its plan, history and undo show it.
type object struct {
	name     string // such as "flavor gpu.k4200.2"
	scope    cloud.Scope
	requests []cloud.Request
	summary  string
	diff     string
	warnings []string // of its undo
}

// objectKinds returns the kinds of changes of objects of a cloud, one for each type of object.
func objectKinds(compute *cloud.Compute) []change.Kind {
	return []change.Kind{flavor.Kind{Compute: compute}, image.Kind{Compute: compute}, servertest.Kind{Compute: compute, Root: thisMachine()}}
}

// recordedObject returns what an entry of kind objects records.
func recordedObject(e change.Entry) (object, error) {
	switch e.ObjectType() {
	case flavor.Type, "": // the latter is malformed
		r, err := flavor.ParseRecord(e)
		if err != nil {
			return object{}, err
		}
		o := flavorObject(flavor.Move{Before: r.Before, After: r.After})
		o.name, o.scope = "flavor "+r.Name(), r.Scope
		return o, nil
	case servertest.Type:
		return recordedTest(e)
	case image.Type:
		r, err := image.ParseRecord(e)
		if err != nil {
			return object{}, err
		}
		o := imageObject(r.Move)
		o.name, o.scope = "image "+r.Name, r.Scope
		return o, nil
	}
	err := fmt.Errorf("entry %d: a change of an object of type %q is not supported", e.ID, e.ObjectType())
	return object{}, host.WithHint(err, "use the release of gpustack that made the change")
}

// undoneObject returns what the undo of a change does.
func undoneObject(c change.Change) object {
	if t, ok := c.(*servertest.Change); ok {
		return undoneTest(t)
	}
	if c, ok := c.(*image.Change); ok {
		back, stays := c.Back()
		o := imageObject(back)
		for _, value := range stays {
			o.warnings = append(o.warnings, "image "+back.Name+" has changed since, and stays so: "+value)
		}
		return o
	}
	return flavorObject(c.(*flavor.Change).Inverse())
}

func flavorObject(m flavor.Move) object {
	return object{requests: m.Requests(), summary: flavorSummary(m), diff: flavorDiff(m)}
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
	report, except := newUndoReport(store.Root, newNode(u, store.Root).RebootRequired(ctx), entry), entry.ID
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
	undone := undoneObject(plan.Change)
	report.Requests, report.Warnings = append(report.Requests, undone.requests...), append(report.Warnings, undone.warnings...)
	showPlan(u, opts.decision, &report, func() {
		u.Printf("undoes %s at %s\n", term.Printable(views.EntryName(entry.ID, entry.Command)), term.Printable(compute.URL))
		u.Diff(undone.diff)
		printRequests(u, undone.requests)
	}, undone.warnings...)
	return decide(u, opts.decision, "undo it?", undone.summary, &report, func() error {
		return undoEntry(ctx, u, engine, opts, plan.Entry, &report)
	})
}

// flavorDiff returns the difference between the states of a flavor.
func flavorDiff(m flavor.Move) string {
	name := func(s *flavor.State) string {
		if s == nil {
			return "/dev/null"
		}
		return "flavor " + s.Name
	}
	return udiff.Unified(name(m.Before), name(m.After), flavor.Text(m.Before), flavor.Text(m.After))
}

// printRequests prints requests.
func printRequests(u *term.UI, requests []cloud.Request) {
	u.Printf("\nrequests:\n")
	for _, r := range requests {
		u.Printf("  %s %s\n", r.Method, term.Printable(r.Path))
	}
}
