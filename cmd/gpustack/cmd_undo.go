package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cleanup"
	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/check"
	"gpustack/host/driver"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/operate/node"
	"gpustack/operate/rows"
)

func newHistoryCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "history",
		Usage:     "list the changes made by gpustack on this machine",
		ArgsUsage: "[ENTRY]",
		Description: `
Lists the entries of the journal, oldest first, with the files, drivers, database rows or
API objects that each has changed. Users other than root see what they have changed through
OpenStack's APIs, and the machine's journal where they may read it.

With ENTRY, it shows that entry: when the change was made, its status, the user who called
gpustack (also by sudo), the host, the version and the command line, and then the change as
its plan showed it. The journal contains only what undo needs. If a file was changed since
by others, or the change is undone, the diff has the lines or values that are recorded, and
says so.

EXAMPLES
  gpustack history
  gpustack history 3`,
		Flags:  reading(),
		Action: action(u, entryOf, runHistory),
	}
}

// entryOf returns the only argument, the number of an entry of the journal, or 0 without one.
func entryOf(c *cli.Context, f *args.Faults) int {
	number := 0
	for i, arg := range c.Args().Slice() {
		id, err := strconv.Atoi(arg)
		switch {
		case i > 0:
			f.Add(args.UsageError("unexpected argument "+strconv.Quote(arg), f.SeeHelp()))
		case err != nil || id < 1:
			f.Add(args.UsageError("ENTRY: not a number of the journal: "+strconv.Quote(arg), host.Textf("%s lists them", host.NewCommand("history"))))
		}
		number = id
	}
	return number
}

func runHistory(_ context.Context, u *term.UI, o given, id int) error {
	all, err := change.Stores(o.root.Path("/"))
	if err != nil {
		return err
	}
	entries, err := node.ReadHistory(all, id)
	if err != nil {
		return err
	}
	report := views.NewHistory(entries)
	u.Document.Show(report)
	switch {
	case o.format != term.FormatTable:
		return nil
	case id != 0:
		return views.PrintEntry(u, report.Entries[0], entries[0])
	}
	views.PrintHistory(u, report, len(all) > 1)
	return nil
}

func newUndoCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "undo",
		Usage:     "undo a change made by gpustack",
		ArgsUsage: "[ENTRY | --all]",
		Description: `
Undoes an entry of the journal, which "gpustack history" lists: ENTRY, or without it the
latest that is not undone yet. It shows what it will do, and asks.

--all undoes every change of this machine's files, the newest first: one plan, one question.
If one file was edited since, nothing is undone. Entries of drivers, databases and objects of
OpenStack remain, and are named.

Files are restored byte for byte, with their permissions, owner and attributes, and
programs that regenerate boot menus and initramfs images run again. If a file was edited
since, undo names it and changes nothing. If a later entry changed it, that entry must be
undone first.

Other programs, such as grubby, GRUB and the packages of kernels, write to boot entries,
grubenv, /etc/kernel/cmdline, /etc/default/grub and nova.conf too. If such a file was changed
since, undo removes or restores only what gpustack has set, also in entries of kernels that
were installed since. If a kernel argument or option that gpustack has set was changed, undo
names the file, line and value and changes nothing.

After nova configure --placement, report_in_placement stays set: Nova cannot switch it off,
and nova-compute does not start without it once its devices are in Placement.

After host bind and host release, functions are bound to their former drivers again,
unless the machine was booted since, which reverted it. Services that were stopped are
started, and persistence mode is switched on again.

After rdma prepare, VFs that were made at this boot and are no longer recorded are removed.
The undo is refused while a guest, a process or a container uses one of them.

An undo that takes functions from the host is refused as the command would be that takes them,
and --allow ADDRESS lets a function leave as it does there. A disk that returns to the host
brings its labels, UUIDs and volume groups: the host may mount or assemble what a guest has
written.

After repair-migration, rows of Nova's databases and Placement's allocations are restored,
unless Nova has gone on from there. The databases are found as that command finds them. The undo
of --claim frees devices: it is refused unless guest reports (--guests) prove that no guest uses
them, or the host is off (--host-is-off).

After flavor create, the new flavor is deleted, or the changed one restored; after flavor
delete, the flavor is created again with the same id. If the flavor has changed since, undo
shows how and changes nothing. After image set, the values of the image are restored that
are still as gpustack has set them; values that were changed since stay, and undo names
them.

The cloud is the one that the entry was recorded for, if it is one of clouds.yaml; --os-cloud,
--os-region-name, --os-cacert and --insecure replace it.

If a change was interrupted, undo first determines how far it came.

EXAMPLES
  gpustack undo
  gpustack undo 3 --dry-run
  gpustack undo --all`,
		Flags: slices.Concat(changing(), []cli.Flag{
			&cli.BoolFlag{Name: "all", Usage: "undo every change of the files of this machine"},
			&cli.StringSliceFlag{Name: "allow", Usage: "let the function at `ADDRESS` leave the host (repeatable)"},
			&cli.BoolFlag{Name: "live", Usage: "of host release: also unbind drivers whose unbinding may hang"},
			novaConfFlag("of repair-migration: read nova.conf from"),
			args.DocumentsFlag("guests", "of repair-migration --claim: guest report `FILE`, which proves that no guest uses the device"),
			&cli.StringSliceFlag{Name: "host-is-off", Usage: "of repair-migration --claim: confirm that `HOST` is off and runs no guest (repeatable)"},
			&cli.StringFlag{Name: "database", Usage: "of repair-migration: one cell's database, by its `URL`"},
		}, cloudFlags(timeoutOfDatabases)),
		Action: action(u, parseUndo, runUndo),
	}
}

type undoOptions struct {
	id       int // 0: the latest
	all      bool
	rows     rows.Options
	evidence rows.Evidence // only for repair-migration --claim
	// Only for drivers:
	timeout time.Duration
	live    bool
	allow   []pci.Address // for files of records, too
}

func parseUndo(c *cli.Context, f *args.Faults) undoOptions {
	opts := undoOptions{timeout: driver.DefaultTimeout, live: c.Bool("live"),
		allow: addresses(c, f, "allow"), rows: parseRows(c), evidence: parseEvidence(c)}
	if c.IsSet("timeout") {
		opts.timeout = c.Duration("timeout") // parseCommon checks the value
	}
	opts.id, opts.all = entryOf(c, f), c.Bool("all")
	args.AddIf(f, opts.all && opts.id != 0, "--all and ENTRY cannot be combined", f.SeeHelp())
	return opts
}

func runUndo(ctx context.Context, u *term.UI, o given, opts undoOptions) error {
	root := o.root
	all, err := change.Stores(root.Path("/"))
	if err != nil {
		return err
	}
	store, entry, err := change.PickFrom(all, opts.id)
	if err != nil {
		return err
	}
	n := newNode(u, root, opts.allow...)
	engine := n.Engine(opts.timeout)
	engine.Store, engine.All = store, opts.all
	if opts.all {
		if err := recoverEntries(ctx, u, engine, o, 0); err != nil {
			return err
		}
		plan, entries, err := engine.PlanUndoAll(ctx)
		if err != nil {
			return opts.explain(err, "--all", o.dryRun)
		}
		return undoFiles(ctx, u, o, n, engine, plan, entries...)
	}
	o.cloud = orRecorded(o.cloud, entry.Origin)
	if entry.Changes == change.KindRows {
		return undoRows(ctx, u, o, opts, entry)
	}
	if entry.Changes == change.KindObjects {
		return undoObject(ctx, u, o, store, entry)
	}
	if err := engine.Known(entry); err != nil {
		return err
	}
	// A change that was interrupted half-way is rolled back. One that only waits for its programs,
	// or is being undone, can be undone as it is.
	if entry.IsOpen() && (entry.Status == change.Applying || entry.Changes == change.KindDrivers) {
		// Its plan is known to the recovery alone.
		report := views.NewUndo(newReport(root, node.RebootRequired(ctx, root), true), entry)
		u.Document.Show(&report)
		err := recoverEntries(ctx, u, engine, o, 0)
		switch {
		case err != nil || !o.dryRun:
			completeReport(ctx, &report, err)
			return err
		case entry.Changes == change.KindDrivers:
			return errDifferent // as the warning says
		}
	} else if err := recoverEntries(ctx, u, engine, o, entry.ID); err != nil {
		return err
	}
	plan, err := engine.PlanUndo(ctx, entry.ID)
	if err != nil {
		return opts.explain(err, strconv.Itoa(entry.ID), o.dryRun)
	}
	if c, ok := plan.Change.(*driver.Binding); ok {
		return undoDrivers(ctx, u, o, opts, engine, entry, c)
	}
	return undoFiles(ctx, u, o, n, engine, plan, plan.Entry)
}

// undoFiles shows and undoes changes of files, in order.
func undoFiles(ctx context.Context, u *term.UI, o given, n node.Node, engine change.Engine, plan change.UndoPlan, entries ...change.Entry) error {
	back, err := n.PlanFilesBack(ctx, plan)
	if err != nil {
		return err
	}
	report := views.NewUndoFiles(newReport(n.Root, back.Reboot, true), back)
	if report.Restart, err = nova.RestartNames(n.Root, plan.Entry.Restart); err != nil {
		return err
	}
	return decide(u, o, &report, "undo it?", views.UndoFilesSummary(report), func() { report.PrintFiles(u, entries...) }, func() error {
		for _, entry := range entries {
			if err := undoEntry(ctx, u, engine, o, entry, &report); err != nil {
				return err
			}
		}
		addWarnings(u, &report, back.Leftovers(n.Root)...)
		return nil
	}, report.Warnings...)
}

// undoEntry undoes an entry and completes the report.
func undoEntry(ctx context.Context, u *term.UI, engine change.Engine, o given, entry change.Entry, r reporter) error {
	if err := u.Run.Begin(views.RemedyOf(entry.Changes)); err != nil {
		return err
	}
	_, err := engine.Undo(ctx, entry.ID)
	completeReport(ctx, r, err)
	if err == nil && o.format == term.FormatTable {
		u.Note("entry %d is undone", entry.ID)
	}
	return err
}

// explain adds to an error the command that is accepted with --allow.
func (o undoOptions) explain(err error, entry string, dryRun bool) error {
	command := host.NewCommand("undo")
	for _, a := range o.allow {
		command = command.Flag("allow", a.String())
	}
	if o.live {
		command = command.Flag("live")
	}
	return views.ExplainAllow(err, o.allow, command.Arg(entry), dryRun)
}

// undoDrivers shows and undoes the changes of host bind or host release.
func undoDrivers(ctx context.Context, u *term.UI, o given, opts undoOptions, engine change.Engine, entry change.Entry, binding *driver.Binding) error {
	d, err := newNode(u, o.root, opts.allow...).ObserveDrivers(opts.timeout, !binding.Release())
	if err != nil {
		return err
	}
	plan, err := d.PlanBack(ctx, binding, opts.live)
	if err != nil {
		return opts.explain(err, strconv.Itoa(entry.ID), o.dryRun)
	}
	report, changed := views.NewUndoDrivers(newReport(o.root, check.RebootRequired(d.Machine), true, plan.Warnings...), entry, plan)
	if err := d.Ready(); err != nil && changed && !o.dryRun {
		return err
	}
	show, summary := func() { report.PrintDrivers(u, entry, plan.Plan.Plan, changed) }, views.DriversSummary(u, plan.Plan.Plan, d.Machine.Devices.Value)
	return decide(u, o, &report, "undo it?", summary, show, func() error {
		return undoEntry(ctx, u, engine, o, entry, &report)
	}, plan.Warnings...)
}

// undoRows shows and undoes the changes of repair-migration. If the outcome of the entry is
// unknown, the engine first determines what was written.
func undoRows(ctx context.Context, u *term.UI, o given, opts undoOptions, entry change.Entry) (err error) {
	opts.rows.Cloud = o.cloud
	session := rows.New(o.root, opts.rows)
	defer func() { err = errors.Join(err, session.Close()) }()
	plan, err := session.PlanUndo(ctx, entry, opts.evidence)
	if err != nil {
		return err
	}
	report := views.NewUndoRows(newReport(o.root, node.RebootRequired(ctx, o.root), true), entry, plan)
	var warnings []string
	if o.quiet { // else the plan shows it
		warnings = report.Warnings
	}
	return decide(u, o, &report, "undo it?", views.UndoRowsSummary(plan.Units), func() { report.PrintRows(u, entry, plan) }, func() error {
		if err := u.Run.Begin(views.RemedyOf(change.KindRows)); err != nil {
			return err
		}
		report.Repairs, err = session.Undo(ctx, plan)
		if report.Applied = err == nil; report.Applied && o.format == term.FormatTable {
			for i, unit := range report.Repairs {
				if plan.Units[i].Open() && unit.State == cleanup.Skipped { // the recovery has found nothing to undo
					u.Note("%s: %s", unit.Name(), unit.Note)
				}
			}
			u.Note("entry %d is undone", entry.ID)
		}
		return err
	}, warnings...)
}
