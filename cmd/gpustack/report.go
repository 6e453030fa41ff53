package main

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/operate/node"
)

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

// showPlan prints a plan as text, with its warnings: show prints it. With --quiet only the warnings
// of a plan that has changes are printed.
func showPlan(u *term.UI, o given, r reporter, show func(), warnings ...string) {
	if o.format != term.FormatTable || o.quiet && !r.Common().Changed {
		return
	}
	u.Warn(warnings...)
	u.InFull = func() {
		u.Full = true
		show()
		u.Full = o.full
	}
	if !o.quiet {
		show()
	}
}

// decide carries a plan out, if it has changes and the operator confirms them. act completes the
// report. Text output shows the plan, which the caller has printed, its summary, and in the end the
// next step; in the formats for programs the report is printed when the run ends.
func decide(u *term.UI, o given, question, summary string, r reporter, act func() error) error {
	u.Document.Show(r)
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
		if err := u.Confirm(question, o.format); err != nil {
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
