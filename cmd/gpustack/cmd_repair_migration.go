package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/cleanup/repair"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/guest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

func newRepairMigrationCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "repair-migration",
		Usage: "find and repair stale PCI device records in the Nova database",
		Description: `
After a failed migration, rows of nova.pci_devices can mark a device as taken although
no guest uses it, or as free although one does. This command reads the rows of every
cell, each in one consistent snapshot. For each suspicious row it prints a verdict, the
evidence, the impact of leaving it and how to fix it. Without --apply it changes nothing.

Some verdicts need proof from the compute hosts: --guests reads reports that "gpustack
host guests -o json" printed there within the last ten minutes. Without these reports, a
row is unknown if its repair could free a device that a guest uses. --apply repairs what
is proved stale:

  online   Placement's allocations are corrected and the dead migration is closed, so
           that nova-compute's own audit frees the devices; no service is touched
  offline  the row is written while nova-compute on that host is down, confirmed by
           missed heartbeats and by the host's own report; --host-is-off replaces the
           report. --claim also assigns free devices to the guests that use them

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

EXAMPLES
  gpustack repair-migration
  gpustack repair-migration --host gpu1 -o json
  gpustack repair-migration --instance 1f975a18-2c6e-4a6e-9d0d-3d7f4b7a8c11 --all
  ssh gpu1 gpustack host guests -o json > gpu1.json
  ssh gpu2 gpustack host guests -o json > gpu2.json
  gpustack repair-migration --guests gpu1.json --guests gpu2.json --apply

EXIT STATUS
  0  every row is free or legitimate
  1  rows could not be read or repaired
  2  rows are, or remain, stale, suspicious or unknown
  130  interrupted: committed repairs remain, are listed and can be undone; nothing else was changed`,
		Flags: append([]cli.Flag{
			rootFlag(),
			outputFlag(formatTable, formatJSON, formatYAML),
			&cli.StringFlag{Name: "conf", Value: defaultConf, Usage: "read nova.conf from `FILE` below the root"},
			&cli.StringFlag{Name: "database", Usage: "judge only the cell whose database has this SQLAlchemy `URL`"},
			&cli.StringFlag{Name: "api-database", Usage: "`URL` of nova_api, to find instances in other cells"},
			&cli.StringFlag{Name: "cell", Usage: "judge only rows of `CELL` (name or uuid)"},
			&cli.StringFlag{Name: "host", Usage: "judge only rows of `HOST`"},
			&cli.StringFlag{Name: "instance", Usage: "judge only rows of the instance `UUID`"},
			&cli.StringFlag{Name: "device", Usage: "judge only rows of the PCI `ADDRESS`"},
			&cli.BoolFlag{Name: "all", Usage: "list legitimate rows too"},
			&cli.StringSliceFlag{Name: "guests", Usage: "guest report `FILE` from 'gpustack host guests -o json' (repeatable)"},
			inventoryFlag("compare rows with `FILE` from 'gpustack host scan --all -o json' (repeatable)"),
			&cli.StringSliceFlag{Name: "host-is-off", Usage: "confirm that `HOST` is off and runs no guest (repeatable)"},
			&cli.BoolFlag{Name: "claim", Usage: "also assign free devices to the guests that use them by their hosts' reports"},
			&cli.BoolFlag{Name: "apply", Usage: "repair rows that are proved stale"},
			&cli.StringFlag{Name: "accept", Usage: "close the interrupted `ENTRY` with its rows and allocations as they are"},
			&cli.IntFlag{Name: "max", Value: 25, Usage: "repair nothing if more than `NUMBER` repairs are needed"},
			&cli.DurationFlag{Name: "wait", Value: 150 * time.Second, Usage: "wait at most `TIME` for nova-compute to free the devices"},
			&cli.DurationFlag{Name: "settle", Value: 30 * time.Second, Usage: "after offline repairs, wait `TIME` and check that no nova-compute was started"},
			yesFlag(),
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

func parseRepairMigration(c *cli.Context, f *faults) repairOptions {
	f.arguments(c)
	opts := repairOptions{
		decision: parseDecision(c, f), root: c.String("root"), conf: c.String("conf"),
		where:  novadb.Where{API: c.String("api-database"), Database: c.String("database")},
		find:   find.Options{Cell: c.String("cell"), Host: c.String("host"), Instance: c.String("instance"), Claim: c.Bool("claim")},
		all:    c.Bool("all"),
		apply:  c.Bool("apply"),
		guests: c.StringSlice("guests"), inventories: c.StringSlice("inventory"), off: c.StringSlice("host-is-off"),
		most: c.Int("max"), wait: c.Duration("wait"), settle: c.Duration("settle"), cloud: parseCloud(c, f),
	}
	if text := c.String("device"); text != "" {
		address, err := pci.ParseAddress(text)
		f.each("--device: ", err, "")
		opts.find.Address = address.String()
	}
	if opts.where.Database != "" && opts.find.Cell != "" {
		f.add(&usageError{"--cell cannot be combined with --database, which names one cell", ""})
	}
	for _, flag := range []string{"yes", "max", "wait", "settle", "accept"} {
		if c.IsSet(flag) && !opts.apply {
			f.add(&usageError{"--" + flag + " requires --apply", ""})
		}
	}
	if opts.most < 1 {
		f.add(&usageError{"--max must be at least 1", ""})
	}
	if text := c.String("accept"); c.IsSet("accept") {
		id, err := strconv.Atoi(text)
		if opts.accept = id; err != nil || id < 1 {
			f.add(&usageError{"--accept: not the number of an entry: " + quoted(text), "run 'gpustack history' to list the entries"})
		}
	}
	return opts
}

// repairReport is what repair-migration prints, in the form that docs/json.md describes.
type repairReport struct {
	report
	Summary  cleanup.Summary   `json:"summary"`
	Findings []cleanup.Finding `json:"findings"`
	Changes  []cleanup.Unit    `json:"changes"`
	// Recovered are the repairs of interrupted entries, as they are now.
	Recovered []cleanup.Unit `json:"recovered"`
}

// repairing is what a run of repair-migration has at hand.
type repairing struct {
	u         *ui
	opts      repairOptions
	root      host.Root
	databases *novadb.Databases
	placement map[string]string // of nova.conf
	report    repairReport
}

func runRepairMigration(ctx context.Context, u *ui, opts repairOptions) (err error) {
	r := &repairing{u: u, opts: opts, report: repairReport{report: newReport(false), Findings: []cleanup.Finding{}, Changes: []cleanup.Unit{}, Recovered: []cleanup.Unit{}}}
	if r.root, err = host.NewRoot(opts.root); err != nil {
		return err
	}
	if err := errors.Join(r.readGuests(), r.readConf()); err != nil {
		return err
	}
	if r.databases, err = novadb.Open(ctx, r.opts.where); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.databases.Close()) }()
	open, err := openRows(r.root)
	switch {
	case errors.Is(err, change.ErrLocked) && !opts.apply:
		r.warn(err.Error() + ": some rows may be as they were, others as they will be")
	case errors.Is(err, fs.ErrPermission) && !opts.apply:
	case err != nil:
		return err
	}
	if opts.apply {
		if err := errors.Join(r.databases.Unread(), r.recover(ctx, open)); err != nil {
			if opts.format != formatTable {
				err = errors.Join(err, u.show(opts.format, r.report))
			}
			return err
		}
	}
	for _, e := range open {
		if !opts.apply {
			r.report.Warnings = append(r.report.Warnings, interruptedRows(e)) // action has printed it
		}
	}
	for _, unread := range split(r.databases.Unread()) {
		if unread != nil {
			r.report.Warnings = append(r.report.Warnings, unread.Error()) // and an error in the end
		}
	}
	if err := r.find(ctx); err != nil {
		return err
	}
	if opts.format == formatTable {
		u.repairTable(r.report)
	}
	if opts.apply {
		err = r.repair(ctx)
	} else if opts.format != formatTable {
		err = u.show(opts.format, r.report)
	}
	err = errors.Join(err, r.databases.Unread())
	if s := r.report.Summary; err == nil && s.Stale+s.Suspicious+s.Unknown > 0 {
		err = errDifferent
	}
	return err
}

// warn says something that the operator should know, in the report too.
func (r *repairing) warn(warning string) {
	r.u.warn(warning)
	r.report.Warnings = append(r.report.Warnings, warning)
}

// readGuests reads the hosts' reports, and makes the proof of them.
func (r *repairing) readGuests() error {
	var reports []guest.Report
	var errs []error
	for _, file := range r.opts.guests {
		text, err := os.ReadFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		report, err := guest.Decode(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
		reports = append(reports, report)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	hosts, err := nova.ReadInventories(r.opts.inventories)
	if err != nil {
		return err
	}
	r.opts.find.Present = map[string][]string{}
	for _, h := range hosts {
		for i := range h.Devices {
			r.opts.find.Present[h.Name] = append(r.opts.find.Present[h.Name], h.Devices[i].Address.String())
		}
	}
	proof, err := cleanup.NewProof(reports, r.opts.off, time.Now)
	if err != nil {
		return err
	}
	r.opts.find.Held = cleanup.HeldIn(reports)
	if len(reports)+len(r.opts.off) > 0 {
		r.opts.find.Proof = proof
	}
	return nil
}

// find judges all rows, for the report.
func (r *repairing) find(ctx context.Context) error {
	r.report.Findings = []cleanup.Finding{}
	var err error
	r.report.Summary, err = find.Rows(ctx, r.databases, r.opts.find, func(f cleanup.Finding) {
		if r.opts.all || f.Verdict != cleanup.Legitimate {
			r.report.Findings = append(r.report.Findings, f)
		}
	})
	slices.SortStableFunc(r.report.Findings, func(a, b cleanup.Finding) int {
		return slices.Compare([]string{a.Cell, a.Host, a.Device.Address}, []string{b.Cell, b.Host, b.Device.Address})
	})
	return err
}

// repairer makes what carries repairs out. Placement is asked for where something
// needs it.
func (r *repairing) repairer(ctx context.Context, placement bool) (*repair.Repairer, error) {
	repairer := &repair.Repairer{Databases: r.databases, Options: r.opts.find}
	if !placement {
		return repairer, nil
	}
	o := r.opts.cloud.Options
	if o.Cloud == "" && os.Getenv("OS_CLOUD") == "" && os.Getenv("OS_AUTH_URL") == "" {
		o.Service = cloud.NewService(r.placement)
	}
	c, err := r.u.signIn(ctx, cloudOptions{o, r.opts.cloud.verbose})
	if err == nil {
		repairer.Books, err = c.Placement()
	}
	return repairer, err
}

// repair plans, shows and makes the repairs, and looks at what is left.
func (r *repairing) repair(ctx context.Context) error {
	units := cleanup.NewPlan(r.report.Findings)
	if len(units) > r.opts.most {
		return fmt.Errorf("%d repairs: %w", len(units), repair.ErrTooMany)
	}
	if err := (&repair.Repairer{Databases: r.databases}).Plausible(ctx, units); err != nil {
		return err
	}
	online := slices.ContainsFunc(units, func(u cleanup.Unit) bool { return u.Repair == cleanup.Online })
	repairer, err := r.repairer(ctx, online)
	if err == nil && online {
		err = repairer.Book(ctx, units)
	}
	if err != nil && online {
		// Never repair the row without Placement: skip online repairs until it is reachable.
		r.warn("Placement cannot be asked: " + err.Error())
		err = repairer.Unbooked(ctx, units)
	}
	if err == nil {
		err = repairer.Preview(ctx, units)
	}
	if err != nil {
		return err
	}
	r.report.Changes = append([]cleanup.Unit{}, units...)
	r.report.Changed = slices.ContainsFunc(units, func(u cleanup.Unit) bool { return u.State == cleanup.Planned })
	if r.opts.format == formatTable {
		r.u.repairPlan(units)
	}
	return r.u.decide(r.opts.decision, "make these repairs?", &r.report, func() error {
		err := r.carryOut(ctx, repairer, units)
		r.report.Changes = units
		if err != nil && ctx.Err() != nil {
			return err // interrupted: the findings stay those of before
		}
		return errors.Join(err, r.find(context.WithoutCancel(ctx)))
	})
}

// carryOut makes the repairs, recorded. An entry stays open as long as the outcome of one
// of its repairs is not known; it is removed if nothing was written.
func (r *repairing) carryOut(ctx context.Context, repairer *repair.Repairer, units []cleanup.Unit) (err error) {
	if err := r.u.beginRecorded(remedyRows); err != nil {
		return err
	}
	j, err := change.Machine(r.root).Lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	for i := range units {
		if units[i].State == cleanup.Planned {
			units[i].Rows = []cleanup.Row{} // as planned; recorded as they are written
		}
	}
	entry := change.Entry{Kind: change.KindRows, Command: "repair-migration --apply"}
	if err := errors.Join(entry.SetDetail(units), j.Begin(&entry)); err != nil {
		return err
	}
	repairer.Record = func(units []cleanup.Unit) error {
		return updateRows(j, &entry, change.Applying, units)
	}
	if err = repairer.Apply(ctx, units); err == nil {
		last := 0
		err = repairer.Wait(ctx, units, r.opts.wait, func(left int) {
			if left != last {
				last = left
				r.u.note("waiting for nova-compute to free devices, of %d repairs; at most %s", left, r.opts.wait)
			}
		})
	}
	nothing := !slices.ContainsFunc(units, func(u cleanup.Unit) bool { return wasWritten(u) || u.Open() })
	var recordErr error
	if nothing {
		recordErr = j.Forget(entry) // undo would pick an entry that undoes nothing
	} else {
		r.report.Entry = &entry.ID
		recordErr = updateRows(j, &entry, outcome(false, units), units)
	}
	for _, unit := range units {
		r.u.note("%s: %s%s", unit.Name(), unit.State, because(unit.Note))
	}
	if nothing && ctx.Err() != nil {
		others := slices.DeleteFunc(split(err), func(err error) bool { return err == nil || errors.Is(err, interruptedError{}) })
		err = errors.Join(append(others, fmt.Errorf("%w, nothing was changed", context.Cause(ctx)))...)
	}
	if recordErr != nil {
		return errors.Join(err, recordErr)
	}
	if slices.ContainsFunc(units, wasWritten) {
		r.u.note("recorded as entry %d: gpustack undo %d undoes it, unless Nova has gone on from there", entry.ID, entry.ID)
	}
	if err != nil {
		return err
	}
	r.report.Applied = !nothing
	if slices.ContainsFunc(units, func(u cleanup.Unit) bool { return u.Repair == cleanup.Offline && u.State == cleanup.Repaired }) {
		r.u.note("checking in %s whether a nova-compute has started again meanwhile", r.opts.settle)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(r.opts.settle):
		}
		return repairer.Settled(ctx, units)
	}
	return nil
}

func wasWritten(u cleanup.Unit) bool {
	return u.State == cleanup.Written || u.State == cleanup.Repaired
}

// outcome is the status of an entry of rows whose run, or undo, has ended. The entry stays
// open while the outcome of one of its repairs is unknown. It is undone when none stays: undo
// without a number then picks an earlier one.
func outcome(undoing bool, units []cleanup.Unit) change.Status {
	open := slices.ContainsFunc(units, cleanup.Unit.Open)
	switch {
	case open && undoing:
		return change.Undoing
	case open:
		return change.Applying
	case !slices.ContainsFunc(units, wasWritten):
		return change.Undone
	}
	return change.Done
}

func because(note string) string {
	if note == "" {
		return ""
	}
	return ": " + note
}

// interruptedRows is what every command says of an entry whose outcome is not known.
func interruptedRows(e change.Entry) string {
	return fmt.Sprintf("entry %d (%s) was interrupted, and its outcome is unknown: gpustack repair-migration --apply determines it and completes or reverts the repair, gpustack undo %d undoes it", e.ID, e.Command, e.ID)
}

// openRows returns the entries of rows whose outcome is unknown.
func openRows(root host.Root) (rows []change.Entry, err error) {
	open, err := change.Machine(root).Open()
	for _, e := range open {
		if e.Kind == change.KindRows {
			rows = append(rows, e)
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return rows, err
}

// journalOfRows is the journal, locked.
type journalOfRows interface {
	Write(e change.Entry) error
	SetStatus(e *change.Entry, status change.Status) error
}

func updateRows(j journalOfRows, e *change.Entry, status change.Status, units []cleanup.Unit) error {
	if err := e.SetDetail(units); err != nil {
		return err
	}
	return j.SetStatus(e, status)
}

// recover determines what became of repairs whose run was interrupted, and completes or
// reverts them. While one stays open, nothing else is repaired.
func (r *repairing) recover(ctx context.Context, open []change.Entry) (err error) {
	accept := func(e change.Entry) bool { return e.ID == r.opts.accept }
	if r.opts.accept != 0 && !slices.ContainsFunc(open, accept) {
		return &usageError{fmt.Sprintf("--accept: entry %d is not an interrupted repair", r.opts.accept), "run 'gpustack history' to list the entries"}
	}
	if len(open) == 0 {
		return nil
	}
	if !r.opts.yes {
		var names []string
		for _, e := range open {
			names = append(names, strconv.Itoa(e.ID))
		}
		question := fmt.Sprintf("determine what the interrupted entry %s has done, and complete or revert it?", listed(names, "and"))
		if r.opts.accept != 0 {
			question = fmt.Sprintf("close entry %d as its rows and allocations are now?", r.opts.accept)
		}
		if err := r.u.confirm(question, r.opts.format); err != nil {
			return err
		}
	}
	if err := r.u.beginRecorded(remedyRows); err != nil {
		return err
	}
	j, err := change.Machine(r.root).Lock()
	if err != nil {
		return err
	}
	defer r.u.end()
	defer func() { err = errors.Join(err, j.Close()) }()
	var errs []error
	for _, entry := range open {
		units, err := r.recoverEntry(ctx, j, entry, accept(entry))
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d: %w", entry.ID, err))
		}
		r.report.Recovered = append(r.report.Recovered, units...)
	}
	return errors.Join(errs...)
}

// recoverEntry recovers one entry under the journal's lock, or accepts it as it is, and
// returns its repairs.
func (r *repairing) recoverEntry(ctx context.Context, j journalOfRows, entry change.Entry, accept bool) ([]cleanup.Unit, error) {
	units, err := unitsOf(entry)
	if err != nil {
		return nil, err
	}
	status := entry.Status
	undoing := status == change.Undoing
	repairer, err := r.repairer(ctx, slices.ContainsFunc(units, func(u cleanup.Unit) bool { return (u.Open() || undoing) && u.Placement != nil }))
	if err != nil {
		return units, err
	}
	repairer.Record = func(units []cleanup.Unit) error {
		return updateRows(j, &entry, status, units)
	}
	end := repairer.Recover
	if accept {
		end = repairer.Accept
	}
	recoverErr := end(ctx, units, undoing)
	if err := updateRows(j, &entry, outcome(undoing, units), units); err != nil {
		return units, errors.Join(recoverErr, err)
	}
	for _, unit := range units {
		r.u.note("entry %d, %s: %s%s", entry.ID, unit.Name(), unit.State, because(unit.Note))
	}
	return units, recoverErr
}

func unitsOf(e change.Entry) ([]cleanup.Unit, error) {
	var units []cleanup.Unit
	if err := json.Unmarshal(e.Rows, &units); err != nil {
		return nil, fmt.Errorf("entry %d: %w", e.ID, err)
	}
	return units, nil
}

// readConf takes from nova.conf what the command line does not say.
func (r *repairing) readConf() error {
	o := &r.opts
	named := o.where
	o.where = whereOf(r.root, nova.Databases{}, o.cloud.Timeout)
	o.where.API, o.where.Database = named.API, named.Database
	if there, err := r.root.Exists(o.conf); o.where.Database != "" && (err != nil || !there) {
		return err // nova.conf then only tells of Placement, and how templates are filled
	}
	d, err := nova.ReadDatabases(r.root, o.conf)
	if err != nil {
		return err
	}
	o.find.Down, r.placement = d.Down, d.Placement
	o.where = whereOf(r.root, d, o.cloud.Timeout)
	o.where.Database = named.Database
	// With another cloud's API database, everything would be gone.
	if named.Database != "" || named.API != "" {
		o.where.API, o.where.APIParameters = named.API, ""
	}
	if o.where.API == "" && o.where.Database == "" {
		return &usageError{o.conf + ": has no [api_database] connection", "run it on a controller; or --database names one cell's database, and --api-database nova_api's"}
	}
	return nil
}

// repairTable prints the findings for people.
func (u *ui) repairTable(r repairReport) {
	for i, f := range r.Findings {
		if i > 0 {
			u.printf("\n")
		}
		where := f.Host
		if where == "" {
			where = fmt.Sprintf("compute node %d", f.Device.Node)
		}
		title := fmt.Sprintf("%s %s  %s:%s %s", where, f.Device.Address, f.Device.Vendor, f.Device.Product, f.Device.Status)
		verdict := strings.ToUpper(string(f.Verdict))
		if f.Case != "" {
			verdict += " (case " + string(f.Case) + ")"
		}
		u.printf("%s  %s\n", u.paint(bold, printable(title)), u.paint(map[cleanup.Verdict]string{cleanup.Stale: red, cleanup.Legitimate: green}[f.Verdict], verdict))
		for _, line := range [][2]string{
			{"why", f.Reason}, {"seen", f.Evidence}, {"so", f.Consequence}, {"repair", f.Steps}, {"needs", f.Needs}, {"leaves", f.Leaves},
		} {
			if line[1] != "" {
				u.printf("  %-7s %s\n", line[0], printable(line[1]))
			}
		}
	}
	s := r.Summary
	if len(r.Findings) > 0 {
		u.printf("\n")
	}
	u.printf("%d stale, %d suspicious, %d unknown, %d legitimate\n", s.Stale, s.Suspicious, s.Unknown, s.Legitimate)
}

// repairPlan prints what is to be written.
func (u *ui) repairPlan(units []cleanup.Unit) {
	if len(units) == 0 {
		u.printf("\nnothing to repair: nothing is proved stale that nova-compute does not free by itself\n")
	}
	for _, unit := range units {
		u.printf("\n%s repair of %s", unit.Repair, printable(unit.Name()))
		if unit.Instance != "" {
			u.printf(", instance %s", printable(unit.Instance))
		}
		u.printf("\n")
		if unit.State == cleanup.Skipped {
			u.printf("  skipped: %s\n", printable(unit.Note))
			continue
		}
		if p := unit.Placement; p != nil {
			u.printf("  POST /allocations\n")
			for _, line := range p.Lines(unit.Instance) {
				u.printf("    %s\n", printable(line))
			}
		}
		u.rows(unit.Rows)
		for _, d := range unit.Devices {
			verb := "frees"
			if d.Instance == nil && unit.Instance != "" {
				verb = "gives the instance"
			}
			u.printf("  %s %s of %s\n", verb, d.Address, printable(d.Host))
		}
	}
}

// rows prints statements and their values.
func (u *ui) rows(rows []cleanup.Row) {
	for _, row := range rows {
		statement, args := repair.Statement(row)
		u.printf("  %s\n    with %s\n", printable(statement), printable(sqlValues(args)))
	}
}

// sqlValues writes the values of a statement.
func sqlValues(args []any) string {
	var words []string
	for _, a := range args {
		switch v := a.(type) {
		case *string:
			if v == nil {
				words = append(words, "NULL")
				continue
			}
			words = append(words, quoted(*v))
		default:
			words = append(words, fmt.Sprint(v))
		}
	}
	return strings.Join(words, ", ")
}
