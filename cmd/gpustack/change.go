package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
	"gpustack/nova/cloud"
	clouds "gpustack/operate/cloud"
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
	return u.Confirm(question)
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

// newHead returns the head of a document of this run.
func newHead(dir, kind string) views.Head {
	head := views.Head{Kind: kind, Version: programVersion(), Time: reportTime()}
	if root, err := host.NewRoot(cmp.Or(dir, "/")); err == nil {
		head.Host = host.ReadHostname(root)
	}
	return head
}

// newReport returns the report of a plan that is made now for the machine below root. reboot is
// what [check.RebootRequired] returns for that machine.
func newReport(root host.Root, reboot host.Bool, changed bool, warnings ...string) views.Report {
	return views.Report{
		Schema: 1, Time: reportTime(), Changed: changed,
		RebootRequired: reboot, Warnings: warnings, Root: root,
	}
}

// reportTime returns the time of a report that is made now.
func reportTime() time.Time {
	return time.Now().UTC().Truncate(time.Second)
}

// completeReport completes a report after a change that ended with err.
func completeReport(ctx context.Context, r reporter, err error) {
	c := r.Common()
	c.Applied = err == nil
	if errors.Is(err, host.ErrStuck) {
		c.RebootRequired = host.Yes
		return
	}
	c.RebootRequired = node.RebootRequired(context.WithoutCancel(ctx), c.Root)
}

// reporter is a pointer to a report of a command.
type reporter interface{ Common() *views.Report }

// addWarnings prints warnings and adds them to the report.
func addWarnings(u *term.UI, r reporter, warnings ...string) {
	u.Warn(warnings...)
	r.Common().Warnings = append(r.Common().Warnings, warnings...)
}

// given is what the flags say that many commands have: the machine or cloud that a command is
// about, the format of its report, and the operator's answer in advance, by --yes or --dry-run.
type given struct {
	root               host.Root // not of commands that are only about a cloud
	cloud              cloud.Options
	format             string
	dryRun, yes, quiet bool
	full               bool   // --diff
	command            string // the command line, for the journal
}

// repeated returns the flags that hints repeat.
func (o given) repeated() []string {
	if o.dryRun {
		return []string{"dry-run"}
	}
	return nil
}

// showReport prints the report of a command that judges: show prints it as text. It returns
// errDifferent unless the report is that all is well.
func showReport(u *term.UI, format string, report any, show func(), passed bool) error {
	u.Document.Show(report)
	if format == term.FormatTable {
		show()
	}
	if !passed {
		return errDifferent
	}
	return nil
}

// decide shows a plan, and carries it out if it has changes and the operator confirms them. act
// completes the report. Text output shows the warnings, the plan, as show prints it, its summary, and
// in the end the next step; with --quiet neither the plan nor anything of one without changes. In the
// formats for programs the report is printed when the run ends.
func decide(u *term.UI, o given, r reporter, question, summary string, show func(), act func() error, warnings ...string) error {
	u.Document.Show(r)
	if o.format == term.FormatTable && (r.Common().Changed || !o.quiet) {
		u.Warn(warnings...)
		u.InFull = func() {
			u.Full = true
			show()
			u.Full = o.full
		}
	}
	if o.format == term.FormatTable && !o.quiet {
		show()
	}
	if o.format == term.FormatTable && r.Common().Changed {
		if !o.quiet {
			u.Printf("\n")
		}
		u.Printf("%s\n", u.Paint(term.Bold, term.Printable(summary)))
	}
	switch {
	case !r.Common().Changed:
		return nil
	case o.dryRun:
		return errDifferent
	}
	if !o.yes {
		if err := u.Confirm(question); err != nil {
			return err
		}
	}
	u.CatchUp() // print the plan before programs print anything
	if err := u.Run.Begin(nil); err != nil {
		return err
	}
	if err := act(); err != nil {
		return err
	}
	if next := r.Common().Next; next != nil && o.format == term.FormatTable && !o.quiet {
		u.Note("next: %s", next.Sentence(u.Command))
	}
	return nil
}

// nothingPresent prints that a machine has none of the devices, which is not an error. report
// returns the document of an empty plan with a warning.
func nothingPresent(u *term.UI, o given, absent error, report func(why string) any) error {
	why := strings.ReplaceAll(absent.Error(), "\n", "; ")
	if o.format != term.FormatTable {
		u.Document.Show(report(why))
	} else if !o.quiet {
		u.Printf("nothing to do: %s\n", term.Printable(why))
	}
	return nil
}

// noteRecorded prints that a change was made and recorded.
func noteRecorded(u *term.UI, entry int) {
	u.Note("done, recorded as entry %d: '%s' undoes it", entry, u.Command(views.UndoCommand(entry)))
}

// objects is a cloud whose objects a command changes.
type objects struct {
	given
	compute *cloud.Compute
	engine  change.Engine
}

// openObjects connects to a cloud, and recovers interrupted changes of its objects.
func openObjects(ctx context.Context, u *term.UI, o given) (objects, error) {
	compute, err := cloud.ConnectCompute(ctx, o.cloud)
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
	return decide(u, o.given, r, p.question, p.summary, p.show, func() error {
		if err := applyWork(ctx, u, o.engine, o.format, p.work, r); err != nil {
			return err
		}
		done := p.done()
		if o.format == term.FormatTable {
			u.Note("%s", done)
		}
		return nil
	}, r.Common().Warnings...)
}

// undoObject shows and undoes a change of an object. A change that was interrupted is recovered
// first.
func undoObject(ctx context.Context, u *term.UI, o given, store change.Store, entry change.Entry) error {
	if err := clouds.Known(entry); err != nil {
		return err
	}
	compute, err := cloud.ConnectCompute(ctx, o.cloud)
	if err != nil {
		return fmt.Errorf("%s: %w", views.EntryName(entry), err)
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
	return decide(u, o, &report, "undo it?", undone.Summary, func() { views.PrintUndoneObject(u, entry, compute.URL, undone) }, func() error {
		return undoEntry(ctx, u, in.engine, o, plan.Entry, &report)
	}, undone.Warnings...)
}
