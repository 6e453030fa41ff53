package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/operate/node"
	"gpustack/operate/rows"
)

func newRepairMigrationCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "repair-migration",
		Usage: "find and repair stale PCI device records of Nova",
		Description: `
After a failed migration, rows of nova.pci_devices can mark a device as taken although
no guest uses it, or as free although one does. This command reads the rows of every
cell, each in one consistent snapshot. For each suspicious row it prints a verdict, the
evidence, the impact of leaving it and how to fix it.

Where other commands plan, ask and apply, this one changes nothing without --apply: a first
run only tells which guest reports and inventories a verdict needs, and monitoring runs it
too. A repair is a second run, with that proof and --apply.

It also compares what nova-compute has reported to the scheduler (compute_nodes.pci_stats)
with the rows, and the allocations on PCI devices in Placement with instances and
migrations, if nova.conf or the OS_ variables have credentials for Placement. It never
repairs those: each finding has the commands to do so.

Some verdicts need proof from the compute hosts: --guests reads reports that "gpustack
host guests -o json" printed there within the last ten minutes. Without these reports, a
row is unknown if its repair could free a device that a guest uses. Reports made with the
token that a dry run prints (host guests --token) are in order with the rows whatever the
clocks say; without it, the host's clock must be synchronized. --apply repairs what is
proved stale:

  online   Placement's allocations are corrected and the instance's dead migrations are
           closed, so that nova-compute's own audit frees the devices; no service is
           touched
  offline  the row is written while nova-compute on that host is down, confirmed by
           missed heartbeats and by the host's own report; --host-is-off replaces the
           report, and is refused while nova-compute of that host reports. --claim also
           assigns free devices to the guests that use them
  context  the migration context that a migration has left is cleared; no device
           changes its owner

Each repair of an instance is one transaction. It judges all rows again, changes only
values that it has read, and is recorded on this machine: "gpustack undo" undoes the
repair, unless Nova has already acted on it. If Placement or the database does not answer
whether a change was written, the outcome is unknown: the journal entry stays open, every
command warns about it, and the next --apply or undo determines the outcome and completes
or reverts the repair. Where that is impossible, --accept closes the entry and leaves rows
and allocations as they are.

--metrics also writes the numbers of rows of each verdict to a file of the textfile
collector of node_exporter (docs/monitoring.md). They are of all rows, so --database, --cell,
--host, --instance and --device are refused with it. After an error nothing is written.

The databases are those of nova.conf on a controller ([api_database], whose
cell_mappings name every cell), or --database names one cell's.

VERDICTS
  stale       proved: the row does not describe the device
  suspicious  something is wrong, but a repair is not proved to be safe
  unknown     the database alone does not prove it, or the row depends on an odd record;
              the steps name the hosts to get reports from, or the record
  busy        the instance is in a task, being built or moved across cells; never
              repaired, and listed only after --busy-after without a change, with the
              request and the hosts whose logs tell what became of it. Suspicious if
              guest reports show that nova-compute was started since the last change
  legitimate  the row is right; listed only with --all

EXAMPLES
  gpustack repair-migration
  gpustack repair-migration --instance 1f975a18-2c6e-4a6e-9d0d-3d7f4b7a8c11 --all
  ssh gpu1 gpustack host guests -o json > gpu1.json
  ssh gpu2 gpustack host guests -o json > gpu2.json
  gpustack repair-migration --guests gpu1.json --guests gpu2.json --apply
  gpustack repair-migration --metrics gpustack-repair-migration.prom
  for h in gpu1 gpu2; do ssh $h gpustack host guests -o json; done | gpustack repair-migration --guests -

EXIT STATUS
  0  every row is free, legitimate, or busy for no longer than --busy-after
  1  rows or allocations could not be read or repaired
  2  rows, pools or allocations are, or remain, stale, suspicious or unknown, or rows
     busy for longer
  130  interrupted: committed repairs remain, are listed and can be undone; nothing else was changed`,
		Flags:  repairMigrationFlags(),
		Action: action(u, parseRepairMigration, runRepairMigration),
	}
}

func repairMigrationFlags() []cli.Flag {
	return slices.Concat(reading(
		novaConfFlag("read nova.conf from"),
		&cli.StringFlag{Name: "database", Usage: "judge only the cell whose database has this SQLAlchemy `URL`"},
		&cli.StringFlag{Name: "api-database", Usage: "`URL` of nova_api, to find instances in other cells"},
		&cli.StringFlag{Name: "cell", Usage: "judge only rows of `CELL` (name or uuid)"},
		&cli.StringFlag{Name: "host", Usage: "judge only rows of `HOST`"},
		&cli.StringFlag{Name: "instance", Usage: "judge only rows of the instance `UUID`"},
		&cli.StringFlag{Name: "device", Usage: "judge only rows of the PCI `ADDRESS`"},
		&cli.BoolFlag{Name: "all", Usage: "list every row, legitimate and busy ones too"},
		&cli.DurationFlag{Name: "busy-after", Value: cleanup.BusyAfter, Usage: "list rows whose instance has been busy for longer than `TIME`"},
		args.DocumentsFlag("guests", "guest report `FILE` from 'gpustack host guests -o json'"),
		inventoryFlag("compare rows with `FILE` from 'gpustack host scan --all -o json'"),
		&cli.StringSliceFlag{Name: "host-is-off", Usage: "confirm that `HOST` is off and runs no guest (repeatable)"},
		&cli.BoolFlag{Name: "claim", Usage: "also assign free devices to the guests that use them by their hosts' reports"},
		&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "change nothing, as without --apply"},
		&cli.BoolFlag{Name: "apply", Usage: "repair rows that are proved stale"},
		&cli.StringFlag{Name: "accept", Usage: "close the interrupted `ENTRY` with its rows and allocations as they are"},
		&cli.IntFlag{Name: "max", Value: 25, Usage: "repair nothing if more than `NUMBER` repairs are needed"},
		&cli.DurationFlag{Name: "wait", Value: 150 * time.Second,
			Usage: "wait at most `TIME` for nova-compute to free the devices, after offline repairs up to 30s for one that starts"},
		metricsFlag(),
	), args.AnswerFlags(), cloudFlags(timeoutOfDatabases))
}

type repairOptions struct {
	rows     rows.Options
	evidence rows.Evidence
	apply    bool
	metrics  string // "" for none
	most     int
	wait     time.Duration
	again    host.Command // see repeated
}

func parseRepairMigration(c *cli.Context, f *args.Faults) repairOptions {
	opts := repairOptions{
		rows: parseRows(c), evidence: parseEvidence(c), apply: c.Bool("apply"),
		metrics: parseMetrics(c, f), most: c.Int("max"), wait: c.Duration("wait"),
	}
	opts.again = repeated(c)
	opts.rows.Find = find.Options{Cell: c.String("cell"), Host: c.String("host"), Instance: c.String("instance"), Claim: c.Bool("claim"),
		All: c.Bool("all"), BusyAfter: f.Positive(c, "busy-after")}
	if text := c.String("device"); text != "" {
		address, err := address(c, "device", text)
		f.AddEach("--device: ", err, host.HintOf(err))
		opts.rows.Find.Address = address.String()
	}
	args.AddIf(f, opts.rows.Database != "" && opts.rows.Find.Cell != "", "--cell cannot be combined with --database, which names one cell", "")
	excludeSelections(c, f)
	f.Exclude(c, "dry-run", "apply")
	f.Require(c, "apply", "yes", "quiet", "max", "wait", "accept")
	args.AddIf(f, opts.most < 1, "--max must be at least 1", "")
	if text := c.String("accept"); c.IsSet("accept") {
		id, err := strconv.Atoi(text)
		opts.rows.Accept = id
		args.AddIf(f, err != nil || id < 1, "--accept: not the number of an entry: "+strconv.Quote(text), listEntries)
	}
	return opts
}

// excludeSelections adds an error for each option that selects rows together with --metrics:
// numbers of some rows would look like those of all.
func excludeSelections(c *cli.Context, f *args.Faults) {
	for _, flag := range []string{"database", "cell", "host", "instance", "device"} {
		args.AddIf(f, c.IsSet(flag) && c.IsSet("metrics"), "--metrics cannot be combined with --"+flag+": the metrics are of all rows", "")
	}
}

// listEntries is the hint for a number that is no entry's.
var listEntries = host.Textf("run '%s' to list the entries", host.NewCommand("history"))

// parseRows reads the flags of commands that repair rows, or undo that. The cloud is added when its
// warnings can be printed.
func parseRows(c *cli.Context) rows.Options {
	return rows.Options{Conf: c.String("conf"), API: c.String("api-database"), Database: c.String("database")}
}

// parseEvidence reads the flags for documents by which rows are judged.
func parseEvidence(c *cli.Context) rows.Evidence {
	return rows.Evidence{Reports: documentsOf(c, "guests"), Inventories: documentsOf(c, "inventory"), Off: c.StringSlice("host-is-off")}
}

func runRepairMigration(ctx context.Context, u *term.UI, o given, opts repairOptions) (err error) {
	debug.SetGCPercent(100) // main sets more for short runs; this one may read millions of rows
	r := views.Repair{Report: newReport(o.root, node.RebootRequired(ctx, o.root), false)}
	opts.rows.Cloud, opts.rows.Origin = o.cloud, originIn(u, o.cloud)
	session := rows.New(o.root, opts.rows)
	defer func() { err = errors.Join(err, session.Close()) }()
	r.Token, err = session.Connect(ctx, opts.evidence)
	if err != nil {
		return err
	}
	if opts.apply {
		if err := recoverRows(ctx, u, o, opts.rows.Accept, session, &r); err != nil {
			u.Document.Show(&r)
			return err
		}
	} else if err := warnUnsettled(ctx, u, session, &r); err != nil {
		return err
	}
	unread := session.Unread()
	if unread != nil { // the run returns the error in the end
		r.Warnings = append(r.Warnings, host.Map(host.Split(unread), error.Error)...)
	}
	observed, err := session.Observe(ctx)
	if err != nil {
		return err
	}
	r.SetObserved(observed)
	if o.format == term.FormatTable && !o.quiet {
		views.PrintRepairs(u, observed)
	}
	if opts.apply {
		observed, err = repairRows(ctx, u, o, opts, session, observed, &r)
	} else {
		r.Next, _ = views.NextRepair(observed, opts.again)
		u.Document.Show(&r)
		if o.format == term.FormatTable {
			views.PrintNext(u, r.Token, observed, opts.again)
		}
	}
	err = errors.Join(err, unread, observed.Unread)
	if err == nil {
		err = writeMetrics(u, opts.metrics, "repair-migration", observed.Metrics())
	}
	// A row whose repair was skipped remains, whatever Nova makes of it by now.
	skipped := slices.ContainsFunc(r.Changes, func(u cleanup.Unit) bool { return u.State == cleanup.Skipped })
	if err == nil && (observed.Different() || skipped) {
		err = errDifferent
	}
	return err
}

// repeated returns the command of this run again: what it reads, its selections and its proof.
func repeated(c *cli.Context) host.Command {
	again := host.NewCommand("repair-migration")
	for _, flag := range []string{"conf", "os-cloud", "os-region-name", "os-cacert", "insecure", "timeout",
		"cell", "host", "instance", "device", "api-database", "database", "claim"} {
		switch {
		case !c.IsSet(flag):
		case flag == "claim" || flag == "insecure":
			again = again.Flag(flag)
		case flag == "api-database" || flag == "database":
			again = again.Flag(flag, "URL") // which may have a password
		default:
			again = again.Flag(flag, fmt.Sprint(c.Value(flag)))
		}
	}
	for _, flag := range []string{"inventory", "host-is-off", "guests"} {
		for _, value := range c.StringSlice(flag) {
			again = again.Flag(flag, value)
		}
	}
	return again
}

// warnUnsettled warns of interrupted repairs, and of another run that is working on rows.
func warnUnsettled(ctx context.Context, u *term.UI, session *rows.Session, r *views.Repair) error {
	open, locked, err := session.Unsettled(ctx)
	if locked != nil {
		addWarnings(u, r, locked.Error()+": some rows may be changed while they are read")
	}
	r.Warnings = append(r.Warnings, host.Map(open, change.Left.Text)...) // action has printed them
	return err
}

// recoverRows shows, asks for and makes the recovery of interrupted repairs. Nothing is repaired
// while one remains open, or after a database could not be read.
func recoverRows(ctx context.Context, u *term.UI, o given, accept int, session *rows.Session, r *views.Repair) error {
	open, err := session.Interrupted(ctx)
	if err != nil {
		return err
	}
	if err := confirmRows(u, o, accept, open); err != nil || len(open) == 0 {
		return errors.Join(session.Unread(), err)
	}
	if err := u.Run.Begin(views.RemedyOf(change.KindRows)); err != nil {
		return errors.Join(session.Unread(), err)
	}
	defer u.Run.End()
	recovered, err := session.Recover(ctx, open)
	for _, done := range recovered {
		views.PrintUnitStates(u, fmt.Sprintf("entry %d, ", done.Entry), done.Units)
		r.Recovered = append(r.Recovered, done.Units...)
	}
	return errors.Join(session.Unread(), err)
}

// confirmRows shows what the recovery of open entries does, and asks for it.
func confirmRows(u *term.UI, o given, accept int, open []change.Left) error {
	if accept != 0 && !slices.ContainsFunc(open, func(l change.Left) bool { return l.Entry.ID == accept }) {
		return args.UsageError(fmt.Sprintf("--accept: entry %d is not an interrupted repair", accept), listEntries)
	}
	if len(open) == 0 || o.yes {
		return nil
	}
	question, summaries := views.RowsQuestion(open, accept)
	return confirmRecovery(u, o, question, summaries)
}

// repairRows plans, shows and makes the repairs, and observes all rows again. It returns what was
// observed last.
func repairRows(ctx context.Context, u *term.UI, o given, opts repairOptions, session *rows.Session, observed rows.Observed, r *views.Repair) (
	rows.Observed, error,
) {
	plan, err := session.Plan(ctx, observed.Findings, opts.most)
	if plan.Placement != nil {
		addWarnings(u, r, "Placement cannot be reached: "+plan.Placement.Error())
	}
	if err != nil {
		return observed, err
	}
	r.Changed, r.Changes = plan.Changes(), plan.Units
	show := func() { views.PrintRepairPlan(u, plan.Units) }
	err = decide(u, o, r, "make these repairs?", views.RepairSummary(plan.Units), show, func() error {
		err := applyRepairs(ctx, u, opts.wait, session, plan, r)
		if err != nil && ctx.Err() != nil {
			return err // interrupted: the report keeps the earlier findings
		}
		again, againErr := session.Observe(context.WithoutCancel(ctx))
		if againErr != nil {
			again.Unread = observed.Unread // what the first look could not read is not known now either
		}
		observed = again
		r.SetObserved(again)
		return errors.Join(err, againErr)
	})
	return observed, err
}

// applyRepairs makes the repairs, records them and completes the report.
func applyRepairs(ctx context.Context, u *term.UI, wait time.Duration, session *rows.Session, plan rows.Plan, r *views.Repair) error {
	if err := u.Run.Begin(views.RemedyOf(change.KindRows)); err != nil {
		return err
	}
	applied, err := session.Apply(ctx, plan, rows.Applying{Command: "repair-migration --apply", Wait: wait, Waits: func(left int) {
		u.Waits("waiting for nova-compute to free the devices of %d repair(s), for at most %s", left, wait)
	}})
	r.Changes = applied.Units
	views.PrintUnitStates(u, "", applied.Units)
	u.Note("%s", views.RepairedSummary(applied.Units))
	if applied.Entry != 0 {
		r.Entry = &applied.Entry
		if applied.Written() {
			u.Note("recorded as entry %d: '%s' undoes it, unless Nova has already acted on it", applied.Entry, u.Command(views.UndoCommand(applied.Entry)))
		}
	}
	if err != nil {
		return err
	}
	r.Applied = applied.Entry != 0
	if !applied.Offline() {
		return nil
	}
	settling := min(wait, 30*time.Second)
	u.Waits("checking in %s that no nova-compute was started meanwhile", settling)
	return session.Settle(ctx, applied, settling)
}
