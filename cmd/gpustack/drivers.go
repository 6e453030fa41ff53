package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/guard"
	"gpustack/host/journal"
	"gpustack/host/pci"
	"gpustack/host/prepare"
)

// What host bind, host release and undo have in common.

// settle is how long the kernel has to show that it has done what it was asked for.
const settle = 2 * time.Second

func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: driver.DefaultTimeout, Usage: "give the kernel `TIME` for each write to sysfs"}
}

// parseTimeout reads timeoutFlag.
func parseTimeout(c *cli.Context, f *faults) time.Duration {
	timeout := c.Duration("timeout")
	if timeout <= 0 {
		f.add(&usageError{"--timeout: not a time to wait: " + timeout.String(), "--timeout takes a time such as 30s or 2m"})
	}
	return timeout
}

// driversReport is what host bind and host release print, in the form that docs/json.md
// describes.
type driversReport struct {
	Schema         int            `json:"schema"`
	Changed        bool           `json:"changed"`
	Changes        []driverChange `json:"changes"`
	Functions      []pci.Address  `json:"functions"`
	Load           []string       `json:"load"`
	Groups         []int          `json:"groups"`
	RebootRequired bool           `json:"reboot_required"`
	Restart        []string       `json:"restart"`
	Applied        bool           `json:"applied"`
	Entry          *int           `json:"entry"`
	Warnings       []string       `json:"warnings"`
}

type driverChange struct {
	driver.Change
	Writes []driver.Write `json:"writes"`
}

func driverChanges(plan driver.Plan) []driverChange {
	changes := []driverChange{}
	for _, c := range plan.Changes {
		changes = append(changes, driverChange{c, c.Writes()})
	}
	return changes
}

// driversOptions are those of host bind and host release.
type driversOptions struct {
	decision
	root    string
	prepare prepare.Options
	timeout time.Duration
	live    bool
	command string
}

// changing is a change of drivers on a machine.
type changing struct {
	u      *ui
	kernel driver.Live
	node   prepare.Node
	uses   prepare.Uses
}

// observe reads a machine, after what a killed run has left is repaired. To release functions, it
// reads nothing of what the host needs: that must not keep functions from the host.
func (u *ui) observe(ctx context.Context, root host.Root, d decision, timeout time.Duration, release bool) (changing, error) {
	c := changing{u: u, kernel: driver.Live{Runner: u.runner(root), Timeout: timeout}}
	if err := u.recover(ctx, c.kernel.Runner, d, timeout); err != nil {
		return c, err
	}
	var running guard.Running
	var err, nodeErr, usesErr error
	if release {
		c.node, nodeErr = prepare.ObserveRelease(root)
	} else {
		running, err = readRunning(root, c.kernel)
		c.node, nodeErr = prepare.ObserveLive(root, running)
	}
	if nodeErr == nil {
		c.uses, usesErr = prepare.ObserveUses(root, c.node.Devices, c.kernel.Ready() == nil)
	}
	return c, errors.Join(err, nodeErr, usesErr)
}

// readRunning reads what only the running machine shows: the ssh session that gpustack was
// started in, and the addresses of its interfaces. Of every other root it is empty. What is
// missing beside an error the guard derives from files, as far as those show it.
func readRunning(root host.Root, kernel driver.Live) (guard.Running, error) {
	var running guard.Running
	if kernel.Ready() != nil {
		return running, nil
	}
	var err, addressesErr error
	if running.Session = os.Getenv("SSH_CONNECTION"); running.Session == "" {
		running.Session, err = guard.Connection(root, os.Getppid())
	}
	running.Addresses, addressesErr = guard.ReadAddresses()
	return running, errors.Join(err, addressesErr)
}

// show prints a plan, and carries it out if that is wanted.
func (c changing) show(ctx context.Context, opts driversOptions, plan prepare.Live, question string) error {
	if err := c.kernel.Ready(); err != nil && len(plan.Changes) > 0 && !opts.dryRun {
		return err
	}
	report := driversReport{
		Schema: 1, Changed: len(plan.Changes) > 0, Changes: driverChanges(plan.Plan), Functions: plan.Functions, Load: plan.Load, Groups: plan.Groups,
		Restart: []string{}, Warnings: append([]string{}, plan.Warnings...),
	}
	if opts.format == formatTable {
		c.u.warn(plan.Warnings...)
		c.u.driversTable(report, c.node)
		if report.Changed && !plan.Release && c.node.Recorded == nil {
			c.u.printf("\nlasts until the next boot; gpustack host prepare makes it last\n")
		}
	}
	return c.u.decide(opts.decision, report.Changed, question, &report, func() error {
		return c.apply(ctx, opts, plan, &report)
	})
}

func (c changing) apply(ctx context.Context, opts driversOptions, plan prepare.Live, report *driversReport) error {
	var entry journal.Entry
	err := c.binder(func(b driver.Binder) (err error) {
		entry, err = b.Apply(ctx, plan.Plan, opts.command)
		return err
	})
	report.RebootRequired = errors.Is(err, host.ErrStuck)
	if entry.ID != 0 {
		report.Entry = &entry.ID
	}
	if err != nil {
		return err
	}
	report.Applied = true
	record, err := driver.ParseRecord(entry)
	if err != nil {
		return err
	}
	for i, f := range record.Functions {
		report.Changes[i].After = f.After
		if f.Any && f.After.Driver == "" {
			warning := fmt.Sprintf("%s: no driver has taken it", f.Address)
			report.Warnings = append(report.Warnings, warning)
			c.u.warn(warning)
		}
	}
	if opts.format == formatTable {
		c.u.note("done, recorded as entry %d: gpustack undo %d takes it back", entry.ID, entry.ID)
	}
	return nil
}

// binder lets act change drivers, under the journal's lock.
func (c changing) binder(act func(driver.Binder) error) (err error) {
	j, err := c.u.openJournal(c.kernel.Runner)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	return act(driver.Binder{Root: c.kernel.Runner.Root, Kernel: c.kernel, Journal: j, Settle: settle})
}

// driversTable prints a plan for people.
func (u *ui) driversTable(r driversReport, n prepare.Node) {
	var rows [][]string
	for _, a := range r.Functions {
		i := slices.IndexFunc(n.Devices, func(d pci.Device) bool { return d.Address == a })
		d := n.Devices[i]
		now, then := text(d.Driver), text(d.Driver)
		for _, c := range r.Changes {
			if c.Address == a {
				then = string(c.After.Driver)
				if c.Any {
					then = "(whichever takes it)"
				}
			}
		}
		rows = append(rows, []string{a.String(), ids(d), name(d), number(d.IOMMUGroup), orDash(now), orDash(then)})
	}
	u.table([]string{"FUNCTION", "ID", "NAME", "GROUP", "NOW", "THEN"}, rows)
	if !r.Changed {
		u.printf("\nnothing to do: the drivers are as planned\n")
		return
	}
	u.driverWrites(r.Changes, r.Load, r.Groups)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// driverWrites prints what changes drivers, in its order.
func (u *ui) driverWrites(changes []driverChange, load []string, groups []int) {
	u.printf("\n")
	for _, name := range load {
		u.printf("modprobe %s\n", printable(name))
	}
	for _, c := range changes {
		for _, w := range c.Writes {
			u.printf("write %s to %s\n", quoted(w.Value), printable(w.File))
		}
	}
	for _, g := range groups {
		u.printf("prove IOMMU group %d viable\n", g)
	}
}

// recoverDrivers puts right what a killed run has left of drivers, which it says.
func (u *ui) recoverDrivers(ctx context.Context, j *journal.Journal, runner host.Runner, timeout time.Duration) error {
	b := driver.Binder{Root: runner.Root, Kernel: driver.Live{Runner: runner, Timeout: timeout}, Journal: j, Settle: settle}
	entries, err := b.Recover(ctx)
	for _, e := range entries {
		record, parseErr := driver.ParseRecord(e)
		current, currentErr := record.Current(runner.Root)
		err = errors.Join(err, parseErr, currentErr)
		switch {
		case !current:
			u.note("entry %d was cut off, and the machine was started anew since, which took it back", e.ID)
		case e.Status == journal.Done:
			var whole []string
			for _, f := range record.Functions {
				whole = append(whole, f.Address.String())
			}
			u.note("entry %d was cut off: what was changed whole stays, which is %s", e.ID, strings.Join(whole, ", "))
		case e.Status == journal.Undone:
			u.note("entry %d was being undone: finished", e.ID)
		default:
			u.note("entry %d was cut off half-way: rolled back", e.ID)
		}
	}
	return err
}

// recoverable is an error where an entry of drivers that was cut off cannot be put right
// here and now: the kernel may still be at it.
func recoverable(ctx context.Context, runner host.Runner, e journal.Entry, dryRun bool, timeout time.Duration) error {
	record, err := driver.ParseRecord(e)
	if err != nil {
		return err
	}
	if current, err := record.Current(runner.Root); err != nil || !current {
		return err // a boot has taken it back
	}
	err = driver.Await(ctx, runner.Root, timeout)
	if err == nil && !dryRun {
		err = driver.Live{Runner: runner}.Ready()
	}
	if err != nil {
		return fmt.Errorf("entry %d, which was cut off: %w", e.ID, err)
	}
	return nil
}

// settled is an error while the kernel is stuck with a write of a run before, for those
// who only look: reading the function's attributes, they would wait with it.
func settled(ctx context.Context, root host.Root) error {
	const patience = 2 * time.Second
	left, err := journal.Interrupted(root)
	switch {
	case errors.Is(err, journal.ErrLocked):
		// Between two writes it can be looked at, and in a long one that run says more.
		if awaitErr := driver.Await(ctx, root, patience); !errors.Is(awaitErr, host.ErrStuck) {
			return awaitErr
		}
		return err
	case err != nil:
		// The journal is root's, and looking is everybody's. What processes write is too.
		return driver.Await(ctx, root, patience)
	case left == nil || left.Kind != journal.KindDrivers:
		return nil
	}
	return recoverable(ctx, host.Runner{Root: root}, *left, true, patience)
}
