package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cleanup"
	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/driver"
	"gpustack/host/journal"
	"gpustack/host/prepare"
	"gpustack/nova/conf"
)

func newUndoCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:      "undo",
		Usage:     "take back what gpustack has changed",
		ArgsUsage: "[ENTRY]",
		Description: `
Puts every file of an entry of the journal back as it was, byte for byte, with its
permissions, owner and attributes, removes those that were made, and runs the
programs again that make what derives from them. Without ENTRY it takes the latest
that is not undone yet. A file that somebody has changed since is named, and then
nothing is touched.

Of nova configure --placement, report_in_placement stays set: Nova cannot switch it
off, and nova-compute does not start without it once its devices are in Placement.

Of host bind and host release it gives functions back to what held them, unless the
machine was started anew since, which did that.

Of repair-migration it restores rows of Nova's databases and Placement's
allocations, unless Nova has gone on from there. The databases are found as that
command finds them. If a repair was interrupted, undo first determines what was written.

EXAMPLES
  gpustack undo
  gpustack undo 3 --dry-run

EXIT STATUS
  0  the files are as they were
  1  they could not be put back
  2  --dry-run: there is something to put back
  130  interrupted: nothing was changed, or the entry is as it was unless the error says otherwise`,
		Flags: append([]cli.Flag{
			rootFlag(), outputFlag(formatTable, formatJSON, formatYAML), dryRunFlag(), yesFlag(),
			&cli.BoolFlag{Name: "live", Usage: "of host release: unbind drivers too that may never return from it"},
			&cli.StringFlag{Name: "conf", Value: defaultConf, Usage: "of repair-migration: the `FILE` below the root"},
			&cli.StringFlag{Name: "database", Usage: "of repair-migration: one cell's database, by its `URL`"},
		}, databaseFlags()...),
		Action: action(u, parseUndo, runUndo),
	}
}

type undoOptions struct {
	decision
	root   string
	id     int // 0: the latest
	repair repairOptions
	// Of drivers:
	timeout time.Duration
	live    bool
}

func parseUndo(c *cli.Context, f *faults) undoOptions {
	opts := undoOptions{decision: parseDecision(c, f), root: c.String("root"), timeout: driver.DefaultTimeout, live: c.Bool("live")}
	if c.IsSet("timeout") {
		opts.timeout = c.Duration("timeout") // parseCloud sees that it is a time
	}
	opts.repair = repairOptions{decision: opts.decision, root: opts.root, conf: c.String("conf"), where: cleanup.Where{Database: c.String("database")}, cloud: parseCloud(c, f)}
	for i, arg := range c.Args().Slice() {
		id, err := strconv.Atoi(arg)
		switch {
		case i > 0:
			f.add(&usageError{"unexpected argument " + quoted(arg), f.seeHelp()})
		case err != nil || id < 1:
			f.add(&usageError{"ENTRY: not a number of the journal: " + quoted(arg), "gpustack history lists them"})
		}
		opts.id = id
	}
	return opts
}

// undoReport is what undo prints, in the form that docs/json.md describes.
type undoReport struct {
	Schema         int            `json:"schema"`
	Changed        bool           `json:"changed"`
	Changes        []fileChange   `json:"changes"`
	Drivers        []driverChange `json:"drivers"`
	Repairs        []cleanup.Unit `json:"repairs"`
	Programs       []string       `json:"programs"`
	Left           []string       `json:"left"`
	RebootRequired bool           `json:"reboot_required"`
	Restart        []string       `json:"restart"`
	Applied        bool           `json:"applied"`
	Entry          int            `json:"entry"`
	Warnings       []string       `json:"warnings"`
}

func runUndo(ctx context.Context, u *ui, opts undoOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	entries, err := journal.List(root)
	if err != nil {
		return err
	}
	entry, err := journal.Pick(entries, opts.id)
	if err != nil {
		return err
	}
	switch entry.Kind {
	case journal.KindRows:
		return undoRows(ctx, u, opts, root, entry)
	case journal.KindDrivers:
		return undoDrivers(ctx, u, opts, root, entry)
	}
	runner := u.runner(root)
	// An entry that only waits for its programs, or is on its way back, can be
	// undone as it is.
	if s := entry.Status; s == journal.Applying {
		if err := u.recover(ctx, runner, opts.decision, opts.timeout); err != nil || !opts.dryRun {
			return err
		}
	}
	if err := bootMounted(root, entry); err != nil {
		return err
	}
	entry, kept, err := keepReporting(root, entries, entry)
	if err != nil {
		return err
	}
	plan, err := entry.Back(root)
	if err != nil {
		return err
	}
	for i, f := range slices.Backward(entry.Files) {
		if f.Secret {
			plan[len(plan)-1-i].Shown = conf.Masked
		}
	}
	programs, err := prepare.CurrentPrograms(root, entry.Programs)
	left, leftErr := prepare.CurrentPrograms(root, entry.Left)
	if err := errors.Join(err, leftErr); err != nil {
		return err
	}
	report := undoReport{
		Schema: 1, Changed: true, Changes: fileChanges(plan), Drivers: []driverChange{}, Repairs: []cleanup.Unit{}, Programs: commandLines(programs), Left: commandLines(left),
		RebootRequired: len(entry.Programs)+len(entry.Left) > 0, Restart: append([]string{}, entry.Restart...), Entry: entry.ID, Warnings: append([]string{}, kept...),
	}
	if err := runner.Ready(programs); len(programs) > 0 && err != nil {
		return err
	}
	contract, err := prepare.ReadContract(root)
	if err != nil {
		return err
	}
	if opts.format == formatTable {
		u.warn(kept...)
		u.printf("takes back entry %d: %s\n", entry.ID, entry.Command)
		u.diffs(report.Changes)
		u.programs(report.Programs, report.Left)
		if len(report.Restart) > 0 {
			u.printf("\nto be restarted, in this order: %s\n", strings.Join(report.Restart, ", "))
		}
	}
	return u.decide(opts.decision, true, "take it back?", &report, func() error {
		err := u.undo(ctx, runner, entry.ID)
		report.Applied = err == nil
		if err == nil {
			leftovers := prepare.Leftovers(root, contract)
			report.Warnings = append(report.Warnings, leftovers...)
			u.warn(leftovers...)
		}
		if err == nil && opts.format == formatTable {
			u.note("entry %d is undone", entry.ID)
		}
		return err
	})
}

// bootMounted returns an error if an entry changed boot entries and a boot partition is not
// mounted. The journal takes missing boot entries for those of kernels that were removed.
func bootMounted(root host.Root, e journal.Entry) error {
	if !slices.ContainsFunc(e.Files, func(f journal.File) bool { return f.Transient }) {
		return nil
	}
	return boot.Mounted(root)
}

func (u *ui) undo(ctx context.Context, runner host.Runner, id int) (err error) {
	j, err := u.openJournal(runner)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := j.Keep(id, keepReportingIn); err != nil {
		return err
	}
	_, err = j.Undo(ctx, id)
	return err
}

// undoDrivers takes back what host bind or host release has done.
func undoDrivers(ctx context.Context, u *ui, opts undoOptions, root host.Root, entry journal.Entry) error {
	record, err := driver.ParseRecord(entry)
	if err != nil {
		return err
	}
	c, err := u.observe(ctx, root, opts.decision, opts.timeout, !record.Release)
	switch {
	case err != nil:
		return err
	case entry.Status != journal.Done && opts.dryRun:
		return errDifferent // as was said
	case entry.Status != journal.Done:
		return nil // what was cut off is put right by now
	}
	plan, err := driver.Back(root, entry)
	if err != nil {
		return err
	}
	warnings, err := c.node.Refuse(plan, c.uses, opts.live)
	if err = errors.Join(err, c.node.Needed(plan)); err != nil {
		return hostCommand{name: "host bind", root: opts.root}.explainNeeded(err)
	}
	if err := c.kernel.Ready(); err != nil && len(plan.Changes) > 0 && !opts.dryRun {
		return err
	}
	report := undoReport{
		Schema: 1, Changed: true, Changes: []fileChange{}, Drivers: driverChanges(plan), Repairs: []cleanup.Unit{},
		Programs: []string{}, Left: []string{}, Restart: []string{}, Entry: entry.ID, Warnings: append([]string{}, warnings...),
	}
	if opts.format == formatTable {
		u.warn(warnings...)
		u.printf("takes back entry %d: %s\n", entry.ID, entry.Command)
		if len(plan.Changes) == 0 {
			u.printf("\nthe drivers are as before: it only ends the entry\n")
		} else {
			u.driverWrites(report.Drivers, plan.Load, plan.Groups)
		}
	}
	return u.decide(opts.decision, true, "take it back?", &report, func() error {
		err := c.binder(func(b driver.Binder) error {
			_, err := b.Undo(ctx, entry)
			return err
		})
		report.Applied = err == nil
		report.RebootRequired = errors.Is(err, host.ErrStuck)
		if err == nil && opts.format == formatTable {
			u.note("entry %d is undone", entry.ID)
		}
		return err
	})
}

// undoRows undoes what repair-migration has written. If the outcome of the entry is unknown, it
// first determines what was written.
func undoRows(ctx context.Context, u *ui, opts undoOptions, root host.Root, entry journal.Entry) (err error) {
	open, err := journal.OpenRows(root)
	if err != nil {
		return err
	}
	for _, earlier := range open {
		if earlier.ID < entry.ID {
			return &usageError{fmt.Sprintf("entry %d: entry %d (%s), before it, was interrupted, and its outcome is unknown", entry.ID, earlier.ID, earlier.Command), fmt.Sprintf("gpustack repair-migration --apply determines it, or gpustack undo %d undoes it first", earlier.ID)}
		}
	}
	r := &repairing{u: u, opts: opts.repair, root: root}
	if err := r.readConf(); err != nil {
		return err
	}
	units, err := unitsOf(entry)
	if err != nil {
		return err
	}
	if r.databases, err = cleanup.Open(ctx, r.opts.where); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.databases.Close()) }()
	if err := r.databases.Unread(); err != nil {
		return err
	}
	placement := func(unit cleanup.Unit) bool { return unit.Placement != nil && (wasWritten(unit) || unit.Open()) }
	repairer, err := r.repairer(ctx, slices.ContainsFunc(units, placement))
	if err != nil {
		return err
	}
	if err := repairer.CheckUndo(ctx, units); err != nil {
		return err
	}
	standings := make([]cleanup.Standing, len(units))
	for i := range units {
		if units[i].Open() {
			if standings[i], err = repairer.Stand(ctx, &units[i]); err != nil {
				return fmt.Errorf("entry %d, %s: %w", entry.ID, units[i].Name(), err)
			}
		}
	}
	report := undoReport{
		Schema: 1, Changed: true, Changes: []fileChange{}, Drivers: []driverChange{}, Repairs: units, Programs: []string{}, Left: []string{}, Restart: []string{}, Entry: entry.ID, Warnings: []string{},
	}
	for i, unit := range units {
		if unit.Open() {
			report.Warnings = append(report.Warnings, fmt.Sprintf("%s: the outcome is unknown: %s", unit.Name(), standingText(unit, standings[i])))
		}
	}
	if opts.format == formatTable {
		u.printf("undoes entry %d: %s\n", entry.ID, entry.Command)
		for i, unit := range units {
			u.undoPlan(unit, standings[i])
		}
	}
	return u.decide(opts.decision, true, "undo it?", &report, func() (err error) {
		j, err := u.openJournalFor(remedyRows, u.runner(root))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, j.Close()) }()
		if slices.ContainsFunc(units, cleanup.Unit.Open) {
			units, err = r.recoverEntry(ctx, j, entry, false)
			report.Repairs = units
			if err != nil {
				return fmt.Errorf("entry %d: %w", entry.ID, err)
			}
		}
		repairer.Record = func(units []cleanup.Unit) (err error) {
			entry, err = j.Update(entry, journal.Undoing, units)
			return err
		}
		err = repairer.Undo(ctx, units)
		report.Repairs = units
		_, updateErr := j.Update(entry, outcome(true, units), units)
		if err := errors.Join(err, updateErr); err != nil {
			return err
		}
		report.Applied = true
		if opts.format == formatTable {
			u.note("entry %d is undone", entry.ID)
		}
		return nil
	})
}

// undoPlan prints what undo does to one repair.
func (u *ui) undoPlan(unit cleanup.Unit, s cleanup.Standing) {
	if !wasWritten(unit) && !unit.Open() {
		return
	}
	u.printf("\n%s repair of %s\n", unit.Repair, printable(unit.Name()))
	if unit.Open() {
		u.printf("  the outcome is unknown: %s\n", standingText(unit, s))
		u.printf("  first the outcome is determined; what was written is then undone:\n")
	}
	if p := unit.Placement; p != nil {
		u.printf("  POST /allocations\n")
		back := cleanup.Booking{Consumer: p.Consumer, Before: p.After, After: p.Before}
		for _, line := range back.Lines(unit.Instance) {
			u.printf("    %s\n", printable(line))
		}
	}
	u.rows(unit.Back())
}

// standingText says where an open repair was found.
func standingText(unit cleanup.Unit, s cleanup.Standing) string {
	text := "at the moment its rows are " + s.Rows.Text()
	if unit.Placement != nil {
		text += ", and Placement's allocations " + s.Allocations.Text()
	}
	return text
}
