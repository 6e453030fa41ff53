package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/cleanup/repair"
	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

func newRepairMigrationCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "repair-migration",
		Usage: "find and repair stale PCI device records in the Nova database",
		Description: `
After a failed migration, rows of nova.pci_devices can mark a device as taken although
no guest uses it, or as free although one does. This command reads the rows of every
cell, each in one consistent snapshot. For each suspicious row it prints a verdict, the
evidence, the impact of leaving it and how to fix it. Without --apply it changes nothing.

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
  gpustack repair-migration --host gpu1 -o json
  gpustack repair-migration --instance 1f975a18-2c6e-4a6e-9d0d-3d7f4b7a8c11 --all
  ssh gpu1 gpustack host guests -o json > gpu1.json
  ssh gpu2 gpustack host guests -o json > gpu2.json
  gpustack repair-migration --guests gpu1.json --guests gpu2.json --apply
  for h in gpu1 gpu2; do ssh $h gpustack host guests -o json; done | gpustack repair-migration --guests -

EXIT STATUS
  0  every row is free, legitimate, or busy for no longer than --busy-after
  1  rows or allocations could not be read or repaired
  2  rows, pools or allocations are, or remain, stale, suspicious or unknown, or rows
     busy for longer
  130  interrupted: committed repairs remain, are listed and can be undone; nothing else was changed`,
		Flags: append([]cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			novaConfFlag("read nova.conf from `FILE` below the root"),
			&cli.StringFlag{Name: "database", Usage: "judge only the cell whose database has this SQLAlchemy `URL`"},
			&cli.StringFlag{Name: "api-database", Usage: "`URL` of nova_api, to find instances in other cells"},
			&cli.StringFlag{Name: "cell", Usage: "judge only rows of `CELL` (name or uuid)"},
			&cli.StringFlag{Name: "host", Usage: "judge only rows of `HOST`"},
			&cli.StringFlag{Name: "instance", Usage: "judge only rows of the instance `UUID`"},
			&cli.StringFlag{Name: "device", Usage: "judge only rows of the PCI `ADDRESS`"},
			&cli.BoolFlag{Name: "all", Usage: "list legitimate rows and all busy rows too"},
			&cli.DurationFlag{Name: "busy-after", Value: cleanup.BusyAfter, Usage: "list rows whose instance has been busy for longer than `TIME`"},
			args.DocumentsFlag("guests", "guest report `FILE` from 'gpustack host guests -o json'"),
			inventoryFlag("compare rows with `FILE` from 'gpustack host scan --all -o json'"),
			&cli.StringSliceFlag{Name: "host-is-off", Usage: "confirm that `HOST` is off and runs no guest (repeatable)"},
			&cli.BoolFlag{Name: "claim", Usage: "also assign free devices to the guests that use them by their hosts' reports"},
			&cli.BoolFlag{Name: "dry-run", Usage: "change nothing, as without --apply"},
			&cli.BoolFlag{Name: "apply", Usage: "repair rows that are proved stale"},
			&cli.StringFlag{Name: "accept", Usage: "close the interrupted `ENTRY` with its rows and allocations as they are"},
			&cli.IntFlag{Name: "max", Value: 25, Usage: "repair nothing if more than `NUMBER` repairs are needed"},
			&cli.DurationFlag{Name: "wait", Value: 150 * time.Second, Usage: "wait at most `TIME` for nova-compute to free the devices"},
			&cli.DurationFlag{Name: "settle", Value: 30 * time.Second, Usage: "after offline repairs, wait `TIME` and check that no nova-compute was started"},
			args.YesFlag(), args.QuietFlag(),
		}, databaseFlags()...),
		Action: action(u, parseRepairMigration, runRepairMigration),
	}
}

type repairOptions struct {
	decision
	root, conf  string
	where       novadb.Where
	find        find.Options
	all, apply  bool
	guests      []string
	inventories []string
	off         []string
	most        int
	accept      int // the entry to close as it is; 0 for none
	wait        time.Duration
	settle      time.Duration
	cloud       cloudOptions
}

func parseRepairMigration(c *cli.Context, f *args.Faults) repairOptions {
	f.Arguments(c)
	opts := repairOptions{
		decision: parseDecision(c, f), root: c.String("root"), conf: c.String("conf"),
		where: novadb.Where{API: c.String("api-database"), Database: c.String("database")},
		find: find.Options{Cell: c.String("cell"), Host: c.String("host"), Instance: c.String("instance"), Claim: c.Bool("claim"),
			BusyAfter: c.Duration("busy-after")},
		all:    c.Bool("all"),
		apply:  c.Bool("apply"),
		guests: c.StringSlice("guests"), inventories: c.StringSlice("inventory"), off: c.StringSlice("host-is-off"),
		most: c.Int("max"), wait: c.Duration("wait"), settle: c.Duration("settle"), cloud: parseCloud(c, f),
	}
	if text := c.String("device"); text != "" {
		address, err := pci.ParseAddress(text)
		addEach(f, "--device: ", err, "")
		opts.find.Address = address.String()
	}
	if opts.where.Database != "" && opts.find.Cell != "" {
		f.Add(args.UsageError("--cell cannot be combined with --database, which names one cell", ""))
	}
	f.Exclude(c, "dry-run", "apply")
	for _, flag := range []string{"yes", "quiet", "max", "wait", "settle", "accept"} {
		if c.IsSet(flag) && !opts.apply {
			f.Add(args.UsageError("--"+flag+" requires --apply", ""))
		}
	}
	if opts.find.BusyAfter <= 0 {
		f.Add(args.UsageError("--busy-after must be longer than 0", ""))
	}
	if opts.most < 1 {
		f.Add(args.UsageError("--max must be at least 1", ""))
	}
	if text := c.String("accept"); c.IsSet("accept") {
		id, err := strconv.Atoi(text)
		if opts.accept = id; err != nil || id < 1 {
			f.Add(args.UsageError("--accept: not the number of an entry: "+strconv.Quote(text), "run 'gpustack history' to list the entries"))
		}
	}
	return opts
}

// repairReport is the output of repair-migration (docs/json.md).
type repairReport struct {
	views.Report
	// Token is of the database's time, for guest reports that are made after it.
	Token       string                   `json:"token"`
	Summary     cleanup.Summary          `json:"summary"`
	Findings    []cleanup.Finding        `json:"findings"`
	Pools       cleanup.PoolReport       `json:"pools"`
	Allocations cleanup.AllocationReport `json:"allocations"`
	Changes     []cleanup.Unit           `json:"changes"`
	// Recovered are the repairs of interrupted entries with their current states.
	Recovered []cleanup.Unit `json:"recovered"`
}

// repairing is one run of repair-migration, or of undo for one of its entries.
type repairing struct {
	u         *term.UI
	opts      repairOptions
	root      host.Root
	placement map[string]string // [placement] of nova.conf
	repairer  *repair.Repairer  // nil before connect
	unread    error             // what Placement has not answered; returned in the end
	report    repairReport
}

func runRepairMigration(ctx context.Context, u *term.UI, opts repairOptions) (err error) {
	debug.SetGCPercent(100) // main sets more for short runs; this one may read millions of rows
	r := &repairing{u: u, opts: opts, report: repairReport{Findings: []cleanup.Finding{},
		Changes: []cleanup.Unit{}, Recovered: []cleanup.Unit{}}}
	if r.root, err = host.NewRoot(opts.root); err != nil {
		return err
	}
	r.report.Report = newReport(r.root, newNode(u, r.root).RebootRequired(ctx), false)
	if err := errors.Join(r.opts.find.ReadReports(documentsAt(u, opts.guests...), opts.off), r.readInventories(), r.readConf()); err != nil {
		return err
	}
	repairer, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, repairer.Databases.Close()) }()
	if err := find.CheckOff(ctx, repairer.Databases, r.opts.find); err != nil {
		return err
	}
	if r.report.Token, err = find.Token(ctx, repairer.Databases); err != nil {
		return err
	}
	r.opts.find.Token, repairer.Options.Token = r.report.Token, r.report.Token
	if err := r.interrupted(ctx); err != nil {
		if opts.apply {
			u.Document.Show(&r.report)
		}
		return err
	}
	unread := repairer.Databases.Unread()
	for _, e := range host.Split(unread) {
		if e != nil {
			r.report.Warnings = append(r.report.Warnings, e.Error()) // the run returns the error in the end
		}
	}
	if err := r.find(ctx); err != nil {
		return err
	}
	if opts.format == term.FormatTable && !opts.quiet {
		printRepairs(u, r.report)
	}
	if opts.apply {
		err = r.repair(ctx)
	} else {
		u.Document.Show(&r.report)
	}
	err = errors.Join(err, unread, r.unread)
	if err == nil && (r.report.Summary.Different() || len(r.report.Pools.Findings)+len(r.report.Allocations.Findings) > 0) {
		err = errDifferent
	}
	return err
}

// connect connects to the databases, once, and returns the repairer of their rows. It
// authenticates with Placement if a repair changes allocations.
func (r *repairing) connect(ctx context.Context) (*repair.Repairer, error) {
	if r.repairer != nil {
		return r.repairer, nil
	}
	databases, err := novadb.Open(ctx, r.opts.where)
	if err != nil {
		return nil, err
	}
	r.repairer = &repair.Repairer{Databases: databases, Options: r.opts.find, SignIn: func(ctx context.Context) (repair.Placement, error) {
		return r.signIn(ctx)
	}}
	return r.repairer, nil
}

// signIn authenticates with Placement.
func (r *repairing) signIn(ctx context.Context) (*cloud.Placement, error) {
	o := r.opts.cloud.Options
	if !r.ownCredentials() {
		o.Service = cloud.NewService(r.placement)
	}
	c, err := signIn(ctx, r.u, cloudOptions{o, r.opts.cloud.verbose})
	if err != nil {
		return nil, err
	}
	return c.Placement()
}

// ownCredentials returns whether the operator has given credentials, which are used instead of
// those in nova.conf.
func (r *repairing) ownCredentials() bool {
	return r.opts.cloud.Cloud != "" || os.Getenv("OS_CLOUD") != "" || os.Getenv("OS_AUTH_URL") != ""
}

// engine returns the engine for changes of rows, recorded on this machine.
func (r *repairing) engine() change.Engine {
	return change.Engine{Store: change.Machine(r.root), Origin: change.NewOrigin(programVersion(), os.Args[min(1, len(os.Args)):]), Kinds: []change.Kind{&repair.Kind{Connect: r.connect, Accept: r.opts.accept}}}
}

// interrupted handles open entries of earlier runs. With --apply it recovers them, and repairs
// nothing while one remains open; otherwise the report names them.
func (r *repairing) interrupted(ctx context.Context) error {
	left, err := r.engine().Interrupted(ctx, change.ToLook)
	switch {
	case errors.Is(err, change.ErrLocked) && !r.opts.apply:
		addWarnings(r.u, &r.report, err.Error()+": some rows may be changed while they are read")
		return nil
	case errors.Is(err, fs.ErrPermission) && !r.opts.apply:
		return nil
	case err != nil:
		return err
	}
	var open []change.Entry
	for _, l := range left {
		switch {
		case !l.Here: // an entry of another kind
		case r.opts.apply:
			open = append(open, l.Entry)
		default:
			r.report.Warnings = append(r.report.Warnings, l.Text()) // action has printed it
		}
	}
	if !r.opts.apply {
		return nil
	}
	return errors.Join(r.repairer.Databases.Unread(), r.recover(ctx, open))
}

// recover determines the outcome of open entries and completes or reverts their repairs, or
// accepts one as it is.
func (r *repairing) recover(ctx context.Context, open []change.Entry) error {
	var ids []int
	var names, summaries []string
	for _, e := range open {
		summary := recoverySummary(e)
		if e.ID == r.opts.accept {
			summary = views.EntryName(e.ID, e.Command) + " is closed; no row and no allocation is changed"
		}
		ids, names, summaries = append(ids, e.ID), append(names, strconv.Itoa(e.ID)), append(summaries, summary)
	}
	if r.opts.accept != 0 && !slices.Contains(ids, r.opts.accept) {
		return args.UsageError(fmt.Sprintf("--accept: entry %d is not an interrupted repair", r.opts.accept), "run 'gpustack history' to list the entries")
	}
	if len(ids) == 0 {
		return nil
	}
	if !r.opts.yes {
		question := fmt.Sprintf("determine what the interrupted entry %s has done, and complete or revert it?", term.Listed(names, "and"))
		if r.opts.accept != 0 {
			question = fmt.Sprintf("close entry %d with its rows and allocations as they are now?", r.opts.accept)
		}
		if err := confirmRecovery(r.u, r.opts.decision, question, summaries); err != nil {
			return err
		}
	}
	if err := r.u.Run.BeginRecorded(remedyRows); err != nil {
		return err
	}
	defer r.u.Run.End()
	recovered, err := r.engine().Recover(ctx, ids)
	for _, done := range recovered {
		if c, ok := done.Change.(*repair.Change); ok {
			printUnitStates(r.u, fmt.Sprintf("entry %d, ", done.Entry.ID), c.Units())
			r.report.Recovered = append(r.report.Recovered, c.Units()...)
		}
	}
	return err
}

// repair plans, shows and makes the repairs, and evaluates all rows again.
func (r *repairing) repair(ctx context.Context) error {
	units, placement, err := r.repairer.Plan(ctx, r.report.Findings, r.opts.most)
	if placement != nil {
		addWarnings(r.u, &r.report, "Placement cannot be reached: "+placement.Error())
	}
	if err != nil {
		return err
	}
	r.report.Changes = append([]cleanup.Unit{}, units...)
	r.report.Changed = slices.ContainsFunc(units, func(u cleanup.Unit) bool { return u.State == cleanup.Planned })
	showPlan(r.u, r.opts.decision, &r.report, func() { printRepairPlan(r.u, units) })
	return decide(r.u, r.opts.decision, "make these repairs?", repairSummary(units), &r.report, func() error {
		err := r.apply(ctx, units)
		if err != nil && ctx.Err() != nil {
			return err // interrupted: the report keeps the earlier findings
		}
		return errors.Join(err, r.find(context.WithoutCancel(ctx)))
	})
}

// apply makes the repairs, records them and completes the report.
func (r *repairing) apply(ctx context.Context, units []cleanup.Unit) error {
	if err := r.u.Run.BeginRecorded(remedyRows); err != nil {
		return err
	}
	last := 0
	repairs := repair.NewChange(r.repairer, units, r.opts.wait, func(left int) {
		if left != last {
			last = left
			r.u.Waits("waiting for nova-compute to free the devices of %d repair(s), for at most %s", left, r.opts.wait)
		}
	})
	entry, err := r.engine().Apply(ctx, change.Work{Command: "repair-migration --apply", Change: repairs})
	units = repairs.Units()
	r.report.Changes = units
	printUnitStates(r.u, "", units)
	if entry.ID != 0 {
		r.report.Entry = &entry.ID
		if slices.ContainsFunc(units, cleanup.Unit.Written) {
			r.u.Note("%s", r.u.Completed(fmt.Sprintf("recorded as entry %d: 'gpustack undo %d' undoes it, unless Nova has already acted on it", entry.ID, entry.ID)))
		}
	}
	if err != nil {
		return err
	}
	r.report.Applied = entry.ID != 0
	if slices.ContainsFunc(units, func(u cleanup.Unit) bool { return u.Repair == cleanup.Offline && u.State == cleanup.Repaired }) {
		r.u.Waits("checking in %s that no nova-compute was started meanwhile", r.opts.settle)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(r.opts.settle):
		}
		return r.repairer.Settled(ctx, units)
	}
	return nil
}

// find evaluates all rows, pools and allocations for the report.
func (r *repairing) find(ctx context.Context) error {
	if err := r.findRows(ctx); err != nil {
		return err
	}
	return r.findAllocations(ctx)
}

// findAllocations judges the allocations in Placement, if there is one.
func (r *repairing) findAllocations(ctx context.Context) (err error) {
	r.report.Allocations, r.unread = cleanup.AllocationReport{Findings: []cleanup.AllocationFinding{}}, nil
	if !r.ownCredentials() && cloud.NewService(r.placement) == nil {
		r.report.Allocations.Why = "no Placement is configured: nova.conf has no [placement] auth_url, and neither OS_CLOUD nor OS_AUTH_URL is set"
		return nil
	}
	placement, err := r.signIn(ctx)
	if err != nil {
		r.unread = err
		r.report.Allocations.Why = err.Error()
		return nil
	}
	r.report.Allocations, r.unread, err = find.Allocations(ctx, r.repairer.Databases, r.opts.find, placement)
	return err
}

// findRows evaluates all rows and pools for the report.
func (r *repairing) findRows(ctx context.Context) error {
	r.report.Findings = []cleanup.Finding{}
	r.opts.find.All = r.opts.all
	var err error
	r.report.Summary, r.report.Pools, err = find.RowsAndPools(ctx, r.repairer.Databases, r.opts.find, func(f cleanup.Finding) {
		if r.opts.all || f.Listed() {
			r.report.Findings = append(r.report.Findings, f)
		}
	})
	slices.SortStableFunc(r.report.Findings, func(a, b cleanup.Finding) int {
		return slices.Compare([]string{a.Cell, a.Host, a.Device.Address}, []string{b.Cell, b.Host, b.Device.Address})
	})
	return err
}

// readInventories compares the rows with the devices in inventories of hosts.
func (r *repairing) readInventories() error {
	hosts, err := nova.ReadInventories(documentsAt(r.u, r.opts.inventories...), nova.ScopeAll)
	if err != nil {
		return err
	}
	r.opts.find.Present = map[string][]string{}
	for _, h := range hosts {
		for i := range h.Devices {
			r.opts.find.Present[h.InNova()] = append(r.opts.find.Present[h.InNova()], h.Devices[i].Address.String())
		}
	}
	return nil
}

// readConf reads from nova.conf the settings that the command line does not give.
func (r *repairing) readConf() error {
	o := &r.opts
	named := o.where
	o.where = databasesOf(r.root, nova.Databases{}, o.cloud.Timeout)
	o.where.API, o.where.Database = named.API, named.Database
	if there, err := r.root.Exists(o.conf); o.where.Database != "" && (err != nil || !there) {
		return err // then only Placement and the templates of URLs would be read from nova.conf
	}
	d, err := nova.ReadDatabases(r.root, o.conf)
	if err != nil {
		return err
	}
	o.find.Down, r.placement = d.Down, d.Placement
	o.where = databasesOf(r.root, d, o.cloud.Timeout)
	o.where.Database = named.Database
	// With the API database of another cloud, all instances would be missing.
	if named.Database != "" || named.API != "" {
		o.where.API, o.where.APIParameters = named.API, ""
	}
	if o.where.API == "" && o.where.Database == "" {
		return args.UsageError(o.conf+": has no [api_database] connection",
			"run gpustack on a controller; or give --database with the URL of one cell, and --api-database with that of nova_api")
	}
	return nil
}
