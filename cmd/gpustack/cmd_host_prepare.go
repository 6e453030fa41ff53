package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/journal"
	"gpustack/host/pci"
	"gpustack/host/prepare"
)

func newHostPrepareCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "prepare",
		Usage: "make the machine ready to give GPUs to guests",
		Description: `
Plans kernel arguments, modules, initramfs and blacklist such that the functions
selected, all of their cards and all of their IOMMU groups are held for guests from
the next boot on. Shows the plan as a diff, asks, applies it file by file and
records it: "gpustack undo" takes it back. Run again it plans nothing.

Selects what was recorded before, else every NVIDIA display function. --device and
--vendor add to what is recorded, and only --remove removes. What the host itself
needs is refused: its disks, its way to the network, its console, members of a group
that are no part of a card, half of an NVSwitch board, what a process or a guest has
open. --allow lifts one refusal, except that of the root file system's disk.

On the running machine the initramfs and GRUB's menu are made anew; on a root
elsewhere only with --rebuild. "gpustack=off" among the kernel's arguments at the boot
menu leaves every function to the host for that boot.

EXAMPLES
  gpustack host prepare --dry-run
  gpustack host prepare --device 0000:84:00.0
  gpustack host prepare --remove 0000:84:00.0 --yes
  gpustack host prepare --root /mnt/node --dry-run -o json

EXIT STATUS
  0  the machine is as planned, or was so already
  1  it could not be, and is as it was unless the error says otherwise
  2  --dry-run: there is something to do
  130  interrupted: nothing was changed, or all was rolled back unless the error says otherwise`,
		Flags: []cli.Flag{
			rootFlag(),
			outputFlag(formatTable, formatJSON, formatYAML),
			&cli.StringSliceFlag{Name: "device", Usage: "select `DEVICE` too: an address, or VENDOR:PRODUCT for all of a product (repeatable)"},
			&cli.StringSliceFlag{Name: "vendor", Usage: "select the display functions made by `VENDOR` too, four digits (repeatable)"},
			&cli.StringSliceFlag{Name: "remove", Usage: "select `DEVICE` no longer (repeatable)"},
			&cli.StringSliceFlag{Name: "allow", Usage: "lift the refusal of the function at `ADDRESS` (repeatable)"},
			choiceFlag{&cli.StringFlag{Name: "driver", Usage: "hold functions with `DRIVER`: vfio-pci or pci-stub (unless recorded, vfio-pci)"}, []string{"", prepare.VFIO, prepare.Stub}},
			&cli.BoolFlag{Name: "allow-unsafe-interrupts", Usage: "for machines without interrupt remapping: guests may attack the host"},
			&cli.BoolFlag{Name: "rebuild", Usage: "make initramfs and menu anew on a root elsewhere too, and even if no file changes"},
			&cli.BoolFlag{Name: "no-rebuild", Usage: "leave initramfs and menu as they are"},
			dryRunFlag(), yesFlag(),
		},
		Action: action(u, parseHostPrepare, runHostPrepare),
	}
}

type hostPrepareOptions struct {
	decision
	root               string
	prepare            prepare.Options
	rebuild, noRebuild bool
	command            string
}

func parseHostPrepare(c *cli.Context, f *faults) hostPrepareOptions {
	f.arguments(c)
	opts := hostPrepareOptions{
		decision: parseDecision(c, f),
		root:     c.String("root"),
		prepare: prepare.Options{
			Add:     values(f, c, "device", pci.ParseSelector),
			Vendors: values(f, c, "vendor", pci.ParseID),
			Remove:  values(f, c, "remove", pci.ParseSelector),
			Allow:   values(f, c, "allow", pci.ParseAddress),
			Driver:  f.choice(c, "driver"),
			Unsafe:  c.Bool("allow-unsafe-interrupts"),
		},
		rebuild: c.Bool("rebuild"), noRebuild: c.Bool("no-rebuild"),
		command: "host prepare" + selected(c, "device", "vendor", "remove", "allow"),
	}
	if opts.rebuild && opts.noRebuild {
		f.add(&usageError{"--rebuild and --no-rebuild say opposite things", f.seeHelp()})
	}
	if d := opts.prepare.Driver; d != "" {
		opts.command += " --driver " + d
	}
	return opts
}

// prepareReport is what host prepare prints, in the form that docs/json.md
// describes.
type prepareReport struct {
	Schema         int                `json:"schema"`
	Changed        bool               `json:"changed"`
	Changes        []fileChange       `json:"changes"`
	Functions      []prepare.Function `json:"functions"`
	Arguments      argumentChange     `json:"arguments"`
	Programs       []string           `json:"programs"`
	Left           []string           `json:"left"`
	RebootRequired bool               `json:"reboot_required"`
	Restart        []string           `json:"restart"`
	Applied        bool               `json:"applied"`
	Entry          *int               `json:"entry"`
	Warnings       []string           `json:"warnings"`
}

type fileChange struct {
	File   string      `json:"file"`
	Action edit.Action `json:"action"`
	Diff   string      `json:"diff"`
}

type argumentChange struct {
	Drop boot.Args `json:"drop"`
	Add  boot.Args `json:"add"`
}

func runHostPrepare(ctx context.Context, u *ui, opts hostPrepareOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	runner := u.runner(root)
	if err := u.recover(ctx, runner, opts.decision, driver.DefaultTimeout); err != nil {
		return err
	}
	running, runningErr := readRunning(root, driver.Live{Runner: runner})
	node, err := prepare.Observe(root, running)
	if err != nil {
		return err
	}
	if runningErr != nil {
		// The session itself ends with the boot, and its interface has an address.
		node.Warnings = append(node.Warnings, fmt.Sprintf("the interface of this ssh session is not determined: %v", runningErr))
	}
	plan, err := prepare.New(root, node, opts.prepare)
	if err != nil {
		return err
	}
	work := prepareWork(plan, opts, root)
	report := newPrepareReport(plan, work)
	if err := runner.Ready(work.Programs); len(work.Programs) > 0 && err != nil {
		return err
	}
	if opts.format == formatTable {
		u.warn(plan.Warnings...)
		u.prepareTable(report, node)
	}
	return u.decide(opts.decision, report.Changed, "apply this plan?", &report, func() error {
		return u.apply(ctx, runner, opts.format, work, &report.Applied, &report.Entry)
	})
}

// prepareWork says which programs are run, and which are left.
func prepareWork(plan prepare.Plan, opts hostPrepareOptions, root host.Root) journal.Work {
	work := journal.Work{Command: opts.command, Files: plan.Files}
	programs := plan.Programs
	if opts.rebuild {
		programs = plan.AllPrograms
	}
	if opts.rebuild || root.Path("/") == "/" && !opts.noRebuild {
		work.Programs = programs
	} else {
		work.Left = programs
	}
	return work
}

// apply does the work under the journal's lock, and tells what came of it.
func (u *ui) apply(ctx context.Context, runner host.Runner, format string, work journal.Work, applied *bool, entry **int) error {
	e, err := u.applyWork(ctx, runner, work)
	*applied = err == nil
	if e.ID != 0 {
		*entry = &e.ID
	}
	if err == nil && format == formatTable {
		u.note("done, recorded as entry %d: gpustack undo %d takes it back", e.ID, e.ID)
	}
	return err
}

func (u *ui) applyWork(ctx context.Context, runner host.Runner, work journal.Work) (entry journal.Entry, err error) {
	j, err := u.openJournal(runner)
	if err != nil {
		return journal.Entry{}, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	return j.Apply(ctx, work)
}

// runner starts programs of the machine below root. A second signal ends them.
func (u *ui) runner(root host.Root) host.Runner {
	return host.Runner{Root: root, Talk: u.talk, Stop: u.stop}
}

// openJournal opens the journal for writing: from here on, a signal lets the running step end
// and has the rest rolled back.
func (u *ui) openJournal(runner host.Runner) (*journal.Journal, error) {
	return u.openJournalFor(remedyMachine, runner)
}

// openJournalFor is openJournal for changes with another remedy than that of files and drivers.
func (u *ui) openJournalFor(remedy string, runner host.Runner) (*journal.Journal, error) {
	if err := u.beginRecorded(remedy); err != nil {
		return nil, err
	}
	j, err := journal.Open(runner.Root, func(ctx context.Context, argv []string) error {
		return prepare.Rebuild(ctx, runner, argv)
	})
	if err == nil {
		j.Current = func(recorded [][]string) ([][]string, error) { return prepare.CurrentPrograms(runner.Root, recorded) }
	}
	return j, err
}

func newPrepareReport(plan prepare.Plan, work journal.Work) prepareReport {
	r := prepareReport{
		Schema:    1,
		Changes:   fileChanges(work.Files),
		Functions: plan.Functions,
		Arguments: argumentChange{append(boot.Args{}, plan.Arguments.Drop...), append(boot.Args{}, plan.Arguments.Add...)},
		Programs:  commandLines(work.Programs),
		Left:      commandLines(work.Left),
		Restart:   []string{},
		Warnings:  append([]string{}, plan.Warnings...),
	}
	r.Changed = len(r.Changes)+len(work.Programs) > 0
	r.RebootRequired = plan.Menu || plan.Initramfs
	return r
}

func fileChanges(plan edit.Plan) []fileChange {
	changes := []fileChange{}
	for _, c := range plan.Pending() {
		changes = append(changes, fileChange{c.Name, c.Action(), c.Diff()})
	}
	return changes
}

func commandLines(programs [][]string) []string {
	lines := []string{}
	for _, argv := range programs {
		lines = append(lines, strings.Join(argv, " "))
	}
	return lines
}

// prepareTable prints the plan for people.
func (u *ui) prepareTable(r prepareReport, n prepare.Node) {
	var rows [][]string
	for _, f := range r.Functions {
		i := slices.IndexFunc(n.Devices, func(d pci.Device) bool { return d.Address == f.Address })
		d := n.Devices[i]
		now := text(d.Driver)
		if now == "" {
			now = "-"
		}
		rows = append(rows, []string{f.Address.String(), ids(d), name(d), number(f.Group), now, f.Driver + " by " + string(f.By)})
	}
	u.table([]string{"FUNCTION", "ID", "NAME", "GROUP", "NOW", "AT BOOT"}, rows)
	if !r.Changed {
		u.printf("\nnothing to do: the files are as planned\n")
		return
	}
	if len(r.Arguments.Drop) > 0 {
		u.printf("\nkernel arguments that contradict: %s\n", r.Arguments.Drop)
	}
	u.diffs(r.Changes)
	u.programs(r.Programs, r.Left)
	if r.RebootRequired {
		u.printf("\ntakes effect at the next boot; gpustack=off among the kernel's arguments leaves every function to the host")
		for _, arg := range r.Arguments.Add {
			if strings.Contains(arg, ".ids=") {
				u.printf(", in the place of %s", arg)
			}
		}
		u.printf("\n")
	}
}

// programs prints what runs after a plan's changes.
func (u *ui) programs(run, left []string) {
	for _, line := range run {
		u.printf("then runs %s\n", line)
	}
	for _, line := range left {
		u.printf("left to be run on the machine: %s\n", line)
	}
}

// recover puts right what a killed run left, which it says. The kernel has the timeout
// for each write to sysfs that it takes, and for one that is still on its way.
func (u *ui) recover(ctx context.Context, runner host.Runner, d decision, timeout time.Duration) (err error) {
	left, err := journal.Interrupted(runner.Root)
	if err != nil || left == nil {
		return err
	}
	if err := bootMounted(runner.Root, *left); err != nil {
		return err
	}
	if left.Kind == journal.KindDrivers {
		if err := recoverable(ctx, runner, *left, d.dryRun, timeout); err != nil {
			return err
		}
	}
	if d.dryRun {
		u.warn(fmt.Sprintf("entry %d (%s) was cut off while %s: the next run that may change something puts that right first", left.ID, left.Command, left.Status))
		return nil
	}
	if !d.yes {
		if err := u.confirm(fmt.Sprintf("entry %d (%s) was cut off while %s: put that right?", left.ID, left.Command, left.Status), formatTable); err != nil {
			return err
		}
	}
	j, err := u.openJournal(runner)
	if err != nil {
		return err
	}
	defer u.end()
	defer func() { err = errors.Join(err, j.Close()) }()
	entries, err := j.Recover(ctx)
	for _, e := range entries {
		switch e.Status {
		case journal.Applying:
			u.note("entry %d was cut off half-way: rolled back", e.ID)
		case journal.Undone:
			u.note("entry %d was being undone: finished", e.ID)
		default:
			u.note("entry %d was waiting for its programs: finished", e.ID)
		}
	}
	if err != nil {
		return err
	}
	return u.recoverDrivers(ctx, j, runner, timeout)
}
