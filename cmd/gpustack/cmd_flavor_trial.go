package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/probe"
	"gpustack/nova/servertest"
	clouds "gpustack/operate/cloud"
)

func newFlavorTestCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "test",
		Usage:     "boot a server with a flavor, count its devices, delete it",
		ArgsUsage: "[FLAVOR]",
		Description: `
Boots a server of the flavor, which gets a script by its configuration drive. The script
prints the PCI functions of the guest to the console, and gpustack compares them with what
the flavor requests, deletes the server and determines whether its devices are free again.
The image needs cloud-init, but neither a driver nor console=ttyS0: the script writes to the
first serial port itself. The server has no network unless --network is given.

--run gives the guest's sh a command that it runs as root, after it has counted devices, and
--run-file a script. The command must return 0 within --run-wait. GPUs and measurements in
the output of nvidia-smi, deviceQuery, bandwidthTest, nvbandwidth and nbody are printed as
numbers, and the verdict is fail if one of them lists fewer GPUs than the flavor has. Other
output may contain secrets: its first and last lines are printed with --console only. The
journal has the command's SHA-256 hash.

The verdict is pass, fail or unknown. It is unknown if the guest has not reported: that says
nothing about its devices. A failed deletion, and a server on another host than requested,
are errors. With --count, that many servers run at the same time, each counts its own
devices, and all must pass.

The ids of an alias come from the files of --conf, otherwise from the nova.conf of this
machine if that defines it, otherwise from the name that nova configure gives a product.
Whether devices are free is determined by Placement, if nova-compute reports them there
(report_in_placement), otherwise by --database, otherwise it is not verified.

Each server is recorded before it is created. "gpustack undo" deletes it, and Ctrl-C deletes
it before the test ends. --clean finds servers that a killed test has left, in all projects
that the user may list: it deletes servers whose name and metadata are those of a test that
is no longer running.

--wait is the time for the server to become active and the guest to report its devices,
--run-wait that for the command after that, --timeout that for each answer of the cloud.

` + cloudHelp + `

EXAMPLES
  gpustack flavor test gpu.k4200.2 --image debian-12 --host gpu7 --count 2 --yes -o json
  gpustack flavor test gpu.k4200.2 --image debian-12 --conf controller=/etc/nova/nova.conf --dry-run
  gpustack flavor test gpu.k4200.2 --image cuda-12 --run 'nvidia-smi -L' --yes
  gpustack flavor test gpu.k4200.2 --image cuda-12 --run-file measure.sh --run-wait 20m --yes
  gpustack flavor test --clean --yes

EXIT STATUS
  0  the guest has the devices, and the command has returned 0; --clean: nothing is left
  1  the test could not be made, or a server could not be deleted
  2  the verdict is fail or unknown; --dry-run: the test can be made
  130  interrupted: the servers were deleted, unless the error says otherwise`,
		Flags: slices.Concat(reading(
			&cli.StringFlag{Name: "image", Usage: "boot `IMAGE`, a name or an id"},
			&cli.StringFlag{Name: "network", Usage: "attach the server to `NETWORK`: a name, an id, none or auto (default none, or auto before Newton)"},
			&cli.StringFlag{Name: "host", Usage: "boot on `HOST`, to which the scheduler's filters apply (Nova Train)"},
			&cli.StringFlag{Name: "az", Usage: "boot in the availability zone `ZONE`"},
			&cli.IntFlag{Name: "count", Value: 1, Usage: "test `NUMBER` servers at the same time"},
			args.Secret(&cli.StringFlag{Name: "run", Usage: "also run `COMMAND` in the guest, as 'nvidia-smi -L'"}),
			args.Path(&cli.StringFlag{Name: "run-file", Usage: "also run the script `FILE` in the guest"}, args.PathRules{Stdin: true}),
			&cli.DurationFlag{Name: "run-wait", Value: 5 * time.Minute, Usage: "kill the command after `TIME`"},
			&cli.BoolFlag{Name: "keep-server", Usage: "do not delete the servers"},
			&cli.BoolFlag{Name: "one-time-use-ok", Usage: "also test devices that stay reserved afterwards"},
			&cli.BoolFlag{Name: "console", Usage: "print the last lines of the console, and output of the command; both may contain secrets"},
			confsFlag("find aliases in", ""),
			&cli.StringFlag{Name: "database", Usage: "determine free devices by one cell's database, by its `URL`"},
			&cli.BoolFlag{Name: "clean", Usage: "delete servers that killed tests have left"},
			&cli.DurationFlag{Name: "wait", Value: 10 * time.Minute,
				Usage: "wait at most `TIME` for the server to become active and the guest to report its devices"},
		), args.PlanFlags(), cloudFlags(timeoutOfCloud)),
		Action: action(u, parseFlavorTest, runFlavorTest),
	}
}

type flavorTestOptions struct {
	test     servertest.Options
	confs    []nova.SideFiles
	database string
	console  bool
	clean    bool
	run      givenCommand
}

// givenCommand is the command of a test as it is given: as text or in a file, or neither.
type givenCommand struct {
	text, file string
	wait       time.Duration
}

// read returns the command, and none if none is given. The error is that of its flag.
func (g givenCommand) read(u *term.UI) (probe.Command, error) {
	flag, text := "--run", g.text
	if g.file != "" {
		content, err := documentsAt(u).ReadFile(g.file)
		if err != nil {
			return probe.Command{}, err
		}
		flag, text = document.Name(g.file), string(content)
	} else if text == "" {
		return probe.Command{}, nil
	}
	command, err := probe.NewCommand(text, g.wait)
	if err != nil {
		err = fmt.Errorf("%s: %w", flag, err)
	}
	return command, err
}

func parseFlavorTest(c *cli.Context, f *args.Faults) flavorTestOptions {
	opts := flavorTestOptions{
		confs: parseConfs(c, f, ""), database: c.String("database"), console: c.Bool("console"), clean: c.Bool("clean"),
		run: givenCommand{text: c.String("run"), file: c.String("run-file"), wait: c.Duration("run-wait")},
		test: servertest.Options{
			ImageName: c.String("image"), Network: c.String("network"), Host: c.String("host"), Zone: c.String("az"), Count: c.Int("count"),
			Keep: c.Bool("keep-server"), OneTimeUse: c.Bool("one-time-use-ok"),
		},
	}
	if opts.clean {
		f.Arguments(c)
		f.Exclude(c, "clean", "image", "network", "host", "az", "count", "run", "run-file", "run-wait", "keep-server", "one-time-use-ok", "console", "conf",
			"database", "wait")
		return opts
	}
	opts.test.FlavorName = f.Arguments(c, "FLAVOR")[0]
	args.AddIf(f, opts.test.ImageName == "", "--image is missing", "'openstack image list' shows the images; it needs cloud-init")
	args.AddIf(f, opts.test.Count < 1, "--count must be at least 1", "without --count, one server is tested")
	opts.test.Timeout = f.Positive(c, "wait")
	f.NotEmpty(c, "network", "host", "az", "database", "run", "run-file")
	f.Exclude(c, "run", "run-file")
	switch runs := c.IsSet("run") || c.IsSet("run-file"); {
	case c.IsSet("run-wait") && !runs:
		f.Add(args.UsageError("--run-wait needs --run or --run-file", "give a command to run: --run 'nvidia-smi -L'"))
	case opts.run.wait < time.Second:
		f.Add(args.UsageError("--run-wait: not a time to wait: "+opts.run.wait.String(), "--run-wait takes a time of at least a second, such as 30s or 10m"))
	}
	return opts
}

// remedyTest is the remedy for a test that a second signal has stopped.
var remedyTest = host.Textf("servers of the test may be left: '%s' finds and deletes them", host.NewCommand("flavor test").Flag("clean"))

func runFlavorTest(ctx context.Context, u *term.UI, g given, opts flavorTestOptions) (err error) {
	var sources []nova.Defined
	if opts.test.Command, err = opts.run.read(u); err != nil {
		return err
	}
	if !opts.clean {
		if sources, err = aliasSources(u, g.root, opts.confs); err != nil {
			return err
		}
	}
	o, err := openTests(ctx, u, g)
	if err != nil {
		return err
	}
	kind, report := servertest.Kind{Compute: o.compute, Root: o.engine.Store.Root}, views.NewFlavorTest(o.head(ctx, true), o.compute)
	entries, err := o.engine.Store.List()
	if err != nil {
		return err
	}
	if opts.clean {
		return cleanTests(ctx, u, o, kind, entries, &report)
	}
	addWarnings(u, &report, views.UnendedTests(kind.Unended(entries))...)
	evidence, end, err := clouds.OpenEvidence(ctx, opts.database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	is, err := servertest.Observe(ctx, o.compute.Cloud(), o.compute, opts.test, sources)
	if err != nil {
		return err
	}
	plan, err := servertest.NewPlan(opts.test, is, time.Now())
	if err != nil {
		return err
	}
	evidence.Placement = is.Placement
	if err := report.AddPlan(plan); err != nil {
		return err
	}
	return decide(u, g, &report, "test it?", views.FlavorTestSummary(plan), func() { views.PrintFlavorTest(u, report, plan) }, func() error {
		return runTest(ctx, u, g, opts, servertest.Test{Kind: kind, Engine: o.engine, Plan: plan, Evidence: evidence}, &report)
	}, plan.Warnings...)
}

// openTests is openObjects while other tests may be using the journal.
func openTests(ctx context.Context, u *term.UI, g given) (objects, error) {
	compute, err := cloud.ConnectCompute(ctx, g.cloud)
	if err != nil {
		return objects{}, err
	}
	var o objects
	err = servertest.Unlocked(ctx, func() (err error) {
		o, err = recoverObjects(ctx, u, compute, g)
		return err
	})
	return o, err
}

// aliasSources reads the definitions of aliases, with a warning for each file of this machine that
// cannot be read.
func aliasSources(u *term.UI, root host.Root, confs []nova.SideFiles) ([]nova.Defined, error) {
	sources, unread, err := clouds.AliasSources(root, confs, documentsAt(u))
	for _, e := range unread {
		u.Warn("aliases of this machine are not used: " + views.InOneLine(e))
	}
	return sources, err
}

// runTest creates the servers of a test, watches them and deletes them.
func runTest(ctx context.Context, u *term.UI, g given, opts flavorTestOptions, test servertest.Test, r *views.FlavorTest) error {
	if err := u.Run.Begin(remedyTest); err != nil {
		return err
	}
	shown := views.NewTestProgress(u)
	test.Progress, test.Warn = shown.Show, func(w string) { addWarnings(u, r, w) }
	entry, servers, err := test.Create(ctx)
	if entry.ID != 0 {
		r.Entry = &entry.ID
	}
	r.AddServers(servers)
	if err != nil {
		return err
	}
	outcomes := test.Watch(ctx, servers)
	shown.Clear()
	if test.Plan.Keep {
		u.Note("the servers are kept, recorded as entry %d: '%s' deletes them", entry.ID, u.Command(views.UndoCommand(entry.ID)))
	}
	err = test.End(ctx, entry, outcomes)
	r.AddOutcomes(outcomes, opts.console)
	if g.format == term.FormatTable {
		views.PrintOutcomes(u, *r, outcomes, opts.console)
	}
	if err != nil {
		return err
	}
	r.Applied = true
	if r.Verdict != probe.Pass {
		return errDifferent
	}
	return nil
}

// cleanTests shows and deletes servers that tests have left.
func cleanTests(ctx context.Context, u *term.UI, o objects, kind servertest.Kind, entries []change.Entry, r *views.FlavorTest) error {
	plan, err := kind.NewCleaning(ctx, entries, time.Now())
	if err != nil {
		return err
	}
	r.AddCleaning(plan)
	summary := views.CleaningSummary(plan)
	return decide(u, o.given, r, "clean up?", summary, func() { views.PrintLeftovers(u, *r, plan) }, func() error {
		if err := u.Run.Begin(remedyTest); err != nil {
			return err
		}
		if err := kind.Clean(context.WithoutCancel(ctx), o.engine, &plan); err != nil {
			return err
		}
		if r.Applied = true; o.format == term.FormatTable {
			u.Note("%s", summary)
		}
		return nil
	})
}
