package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/probe"
	"gpustack/nova/servertest"
)

func newFlavorTestCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "test",
		Usage:     "boot a server with a flavor, count the devices in the guest, delete the server",
		ArgsUsage: "[FLAVOR]",
		Description: `
Boots a server of the flavor, which gets a script by its configuration drive. The script
prints the PCI functions of the guest to the console, and gpustack compares them with what
the flavor requests, deletes the server and determines whether its devices are free again.
The image needs cloud-init, but neither a driver nor console=ttyS0: the script writes to the
first serial port itself. The server has no network unless --network is given.

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

--timeout is the time for the server to become active and the guest to report. Each answer
of the cloud may take a minute.

` + cloudHelp + `

EXAMPLES
  gpustack flavor test gpu.k4200.2 --image debian-12
  gpustack flavor test gpu.k4200.2 --image debian-12 --host gpu7 --count 2 --yes -o json
  gpustack flavor test gpu.k4200.2 --image debian-12 --conf controller=/etc/nova/nova.conf --dry-run
  gpustack flavor test --clean --yes

EXIT STATUS
  0  the guest has the devices; --clean: nothing is left
  1  the test could not be made, or a server could not be deleted
  2  the verdict is fail or unknown; --dry-run: the test can be made
  130  interrupted: the servers were deleted, unless the error says otherwise`,
		Flags: append([]cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			&cli.StringFlag{Name: "image", Usage: "boot `IMAGE`, a name or an id"},
			&cli.StringFlag{Name: "network", Usage: "attach the server to `NETWORK`: a name, an id, none or auto (default none, or auto before Newton)"},
			&cli.StringFlag{Name: "host", Usage: "boot on `HOST`, to which the scheduler's filters apply (Nova Train)"},
			&cli.StringFlag{Name: "az", Usage: "boot in the availability zone `ZONE`"},
			&cli.IntFlag{Name: "count", Value: 1, Usage: "test `NUMBER` servers at the same time"},
			&cli.BoolFlag{Name: "driver", Usage: "also run nvidia-smi -L in the guest"},
			&cli.BoolFlag{Name: "keep", Usage: "do not delete the servers"},
			&cli.BoolFlag{Name: "one-time-use-ok", Usage: "also test devices that stay reserved afterwards"},
			&cli.BoolFlag{Name: "console", Usage: "print the last lines of the console, which may contain secrets, also to files and documents"},
			confsFlag("find aliases in `[ROLE=]FILE[,FILE]` (repeatable)"),
			&cli.StringFlag{Name: "database", Usage: "determine free devices by one cell's database, by its `URL`"},
			&cli.BoolFlag{Name: "clean", Usage: "delete servers that killed tests have left"},
			args.DryRunFlag(), args.YesFlag(), args.QuietFlag(),
		}, trialCloudFlags()...),
		Action: action(u, parseFlavorTest, runFlavorTest),
	}
}

// trialCloudFlags are cloudFlags, with --timeout for the guest instead of each answer.
func trialCloudFlags() []cli.Flag {
	flags := cloudFlags()
	for i, f := range flags {
		if f.Names()[0] == "timeout" {
			flags[i] = &cli.DurationFlag{Name: "timeout", Value: 10 * time.Minute, Usage: "wait `TIME` for the guest to report"}
		}
	}
	return flags
}

type flavorTestOptions struct {
	decision
	root     string
	cloud    cloudOptions
	test     servertest.Options
	confs    []nova.SideFiles
	database string
	console  bool
	clean    bool
}

func parseFlavorTest(c *cli.Context, f *args.Faults) flavorTestOptions {
	opts := flavorTestOptions{
		decision: parseDecision(c, f), root: c.String("root"), cloud: parseCloud(c, f), confs: parseConfs(c, f, ""),
		database: c.String("database"), console: c.Bool("console"), clean: c.Bool("clean"),
		test: servertest.Options{
			ImageName: c.String("image"), Network: c.String("network"), Host: c.String("host"), Zone: c.String("az"), Count: c.Int("count"), Timeout: c.Duration("timeout"),
			Keep: c.Bool("keep"), Driver: c.Bool("driver"), OneTimeUse: c.Bool("one-time-use-ok"),
		},
	}
	opts.cloud.Timeout = 0 // --timeout is not for each answer
	if opts.clean {
		f.Arguments(c)
		f.Exclude(c, "clean", "image", "network", "host", "az", "count", "driver", "keep", "one-time-use-ok", "console", "conf", "database", "timeout")
		return opts
	}
	opts.test.FlavorName = f.Arguments(c, "FLAVOR")[0]
	if opts.test.ImageName == "" {
		f.Add(args.UsageError("--image is missing", "'openstack image list' shows the images; it needs cloud-init"))
	}
	if opts.test.Count < 1 {
		f.Add(args.UsageError("--count must be at least 1", ""))
	}
	for _, name := range []string{"network", "host", "az", "database"} {
		if c.IsSet(name) && c.String(name) == "" {
			f.Add(args.UsageError("--"+name+": the value is missing", f.SeeHelp()))
		}
	}
	return opts
}

// flavorTestReport is the output of flavor test (docs/json.md).
type flavorTestReport struct {
	views.Report
	Cloud        string             `json:"cloud"`
	Microversion string             `json:"microversion"`
	Flavor       *string            `json:"flavor"` // null with --clean, as the next ones
	Image        *string            `json:"image"`
	Network      *string            `json:"network"`
	Wanted       map[probe.ID]int   `json:"wanted"`
	WantedFrom   []string           `json:"wanted_from"`
	Quotas       []servertest.Quota `json:"quotas"`
	Free         *freeDevices       `json:"free_devices"`
	Changes      []cloud.Request    `json:"changes"`
	Verdict      *probe.Verdict     `json:"verdict"`
	Servers      []testedServer     `json:"servers"`
	Leftovers    []leftover         `json:"leftovers"`
}

// freeDevices is the free devices that Placement shows.
type freeDevices struct {
	Devices    int  `json:"device_count"`
	Hosts      int  `json:"host_count"`
	OneTimeUse bool `json:"stay_reserved"`
}

// testedServer is a server of a test.
type testedServer struct {
	Server     *string          `json:"server"` // its id; null before it is created
	Name       string           `json:"name"`
	Host       *string          `json:"host"` // null if the user may not see it
	Verdict    *probe.Verdict   `json:"verdict"`
	Reasons    []string         `json:"reasons"`
	Hints      []string         `json:"hints"`
	Seen       map[probe.ID]int `json:"seen" null:"zero"` // null if the guest has not reported
	Others     map[probe.ID]int `json:"others" null:"zero"`
	Unassigned []pci.Address    `json:"unassigned"`
	Guest      *probe.Driver    `json:"guest_driver"`
	Seconds    seconds          `json:"seconds"`
	Deleted    *bool            `json:"deleted"`
	Freed      *bool            `json:"freed"`
	FreedBy    *string          `json:"freed_by"`
	Console    []string         `json:"console_lines" null:"zero"`
}

// seconds are how long the parts of a test took.
type seconds struct {
	Build  *float64 `json:"build"`
	Guest  *float64 `json:"guest"`
	Delete *float64 `json:"delete"`
}

// leftover is a server that a test has left.
type leftover struct {
	Server  string    `json:"server"`
	Name    string    `json:"name"`
	Project string    `json:"project_id"`
	Host    *string   `json:"host"`
	Created time.Time `json:"created"`
	Entry   *int      `json:"entry"`
	Reason  *string   `json:"reason"` // why it stays; null if it is deleted
	Deleted bool      `json:"deleted"`
}

// remedyTest is the remedy for a test that a second signal has stopped.
const remedyTest = "servers of the test may be left: 'gpustack flavor test --clean' finds and deletes them"

// trial is one run of flavor test.
type trial struct {
	u        *term.UI
	opts     flavorTestOptions
	kind     servertest.Kind
	engine   change.Engine
	plan     servertest.Plan
	evidence servertest.Evidence
	report   flavorTestReport
	outcomes []servertest.Outcome // in the order of report.Servers
}

func runFlavorTest(ctx context.Context, u *term.UI, opts flavorTestOptions) (err error) {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	t := &trial{u: u, opts: opts}
	var sources []nova.Defined
	if !opts.clean {
		if sources, err = t.sources(root); err != nil {
			return err
		}
	}
	c, compute, err := connect(ctx, u, opts.cloud)
	if err != nil {
		return err
	}
	err = servertest.Unlocked(ctx, func() (err error) {
		t.engine, err = newObjectEngine(ctx, u, compute, opts.decision)
		return err
	})
	if err != nil {
		return err
	}
	t.kind = servertest.Kind{Compute: compute, Root: t.engine.Store.Root}
	t.report = flavorTestReport{
		Report: newReport(t.engine.Store.Root, newNode(u, t.engine.Store.Root).RebootRequired(ctx), true),
		Cloud:  compute.URL, Microversion: compute.Microversion.String(), Wanted: map[probe.ID]int{}, WantedFrom: []string{}, Quotas: []servertest.Quota{},
		Changes: []cloud.Request{}, Servers: []testedServer{}, Leftovers: []leftover{},
	}
	entries, err := t.engine.Store.List()
	if err != nil {
		return err
	}
	if opts.clean {
		return t.clean(ctx, entries)
	}
	for _, e := range t.kind.Unended(entries) {
		addWarnings(u, &t.report, fmt.Sprintf("entry %d (%s): its run was killed or could not delete its servers, which may be left: 'gpustack undo %d' or 'gpustack flavor test --clean' deletes them",
			e.ID, e.Command, e.ID))
	}
	if opts.database != "" {
		databases, err := novadb.Open(ctx, novadb.Where{Database: opts.database})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, databases.Close()) }()
		t.evidence.Rows = func(ctx context.Context, instance string) ([]string, error) {
			return find.DevicesOf(ctx, databases, instance)
		}
	}
	if err := t.read(ctx, c, sources); err != nil {
		return err
	}
	if err := t.describe(); err != nil {
		return err
	}
	showPlan(u, opts.decision, &t.report, t.show, t.plan.Warnings...)
	return decide(u, opts.decision, "test it?", testSummary(t.plan), &t.report, func() error { return t.run(ctx) })
}

// sources reads the definitions of aliases: files that are given, else those of this machine. A
// file of this machine that cannot be read is a warning: most users may not read nova.conf.
func (t *trial) sources(root host.Root) ([]nova.Defined, error) {
	if len(t.opts.confs) > 0 {
		sides, err := nova.ReadSides(documentsAt(t.u), t.opts.confs)
		if err != nil {
			return nil, err
		}
		given, err := nova.DefinedBy(sides)
		return []nova.Defined{given}, err
	}
	aliases, err := nova.OfferedAliases(root)
	for _, e := range host.Split(err) {
		if e != nil {
			t.u.Warn("aliases of this machine are not used: " + views.InOneLine(e))
		}
	}
	return []nova.Defined{{Aliases: aliases}}, nil
}

// read observes what the plan depends on and makes it.
func (t *trial) read(ctx context.Context, c *cloud.Cloud, sources []nova.Defined) error {
	is, err := servertest.Observe(ctx, c, t.kind.Compute, t.opts.test, sources)
	if err != nil {
		return err
	}
	t.evidence.Placement = is.Placement
	t.plan, err = servertest.NewPlan(t.opts.test, is, time.Now())
	t.report.Network = views.Optional(t.plan.NetworkName)
	return err
}

// describe completes the report of the plan.
func (t *trial) describe() error {
	p, r := &t.plan, &t.report
	requests, err := p.Requests()
	if err != nil {
		return err
	}
	r.Flavor, r.Image, r.Wanted, r.WantedFrom, r.Quotas, r.Changes = &p.Flavor.Name, &p.Image.Name, p.Wanted.IDs, p.Wanted.From, p.Quotas, requests
	r.Warnings = append(r.Warnings, p.Warnings...)
	if p.Free != nil {
		r.Free = &freeDevices{p.Free.Devices, p.Free.Hosts, p.Free.OneTimeUse}
	}
	for _, s := range p.Servers {
		r.Servers = append(r.Servers, testedServer{Name: s.Name, Reasons: []string{}, Hints: []string{}, Unassigned: []pci.Address{}})
	}
	return nil
}

// run creates the servers, watches them and deletes them.
func (t *trial) run(ctx context.Context) error {
	if err := t.u.Run.BeginRecorded(remedyTest); err != nil {
		return err
	}
	shown := progressLine{status: term.NewStatus(t.u), lines: map[string]string{}}
	test := servertest.Test{
		Kind: t.kind, Plan: t.plan, Evidence: t.evidence, Engine: t.engine,
		Progress: shown.show, Warn: func(w string) { addWarnings(t.u, &t.report, w) },
	}
	entry, servers, err := test.Create(ctx)
	if entry.ID != 0 {
		t.report.Entry = &entry.ID
	}
	for i, s := range servers {
		t.report.Servers[i].Server = views.Optional(s.ID)
	}
	if err != nil {
		return err
	}
	t.outcomes = test.Watch(ctx, servers)
	shown.status.Clear()
	if t.plan.Keep {
		t.u.Note("%s", t.u.Completed(fmt.Sprintf("the servers are kept, recorded as entry %d: 'gpustack undo %d' deletes them", entry.ID, entry.ID)))
	}
	err = test.End(ctx, entry, t.outcomes)
	t.complete()
	t.showOutcomes()
	if err != nil {
		return err
	}
	t.report.Applied = true
	if *t.report.Verdict != probe.Pass {
		return errDifferent
	}
	return nil
}

// complete completes the report with the outcomes and the verdict.
func (t *trial) complete() {
	for i, o := range t.outcomes {
		r := &t.report.Servers[i]
		r.Host, r.Verdict, r.Unassigned, r.Guest = views.Optional(o.Host), &o.Verdict, o.Unassigned, o.Driver
		r.Reasons, r.Hints = append(r.Reasons, o.Reasons...), append(r.Hints, o.Hints...)
		if o.Guest != nil {
			r.Seen, r.Others = o.Seen, o.Others
		}
		r.Seconds = seconds{rounded(o.Build), rounded(o.Guest), rounded(o.Deletion)}
		r.Deleted, r.Freed, r.FreedBy = &o.Deleted, o.Freed.Free, views.Optional(o.Freed.By)
		if t.opts.console {
			r.Console = append([]string{}, o.Console...)
		}
	}
	verdict := servertest.Verdict(t.outcomes)
	t.report.Verdict = &verdict
}

// rounded returns a time in seconds, to a tenth.
func rounded(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	s := math.Round(d.Seconds()*10) / 10
	return &s
}

// clean deletes servers that tests have left.
func (t *trial) clean(ctx context.Context, entries []change.Entry) error {
	plan, err := t.kind.NewCleaning(ctx, entries, time.Now())
	if err != nil {
		return err
	}
	for _, l := range plan.Leftovers {
		item := leftover{Server: l.ID, Name: l.Name, Project: l.Project, Host: views.Optional(l.Host), Created: l.Created, Reason: views.Optional(l.Leave)}
		if l.Entry != 0 {
			item.Entry = &l.Entry
		}
		t.report.Leftovers = append(t.report.Leftovers, item)
	}
	remove := plan.Remove()
	for _, s := range remove {
		t.report.Changes = append(t.report.Changes, cloud.Request{Method: "DELETE", Path: "/servers/" + s.ID})
	}
	t.report.Changed = len(remove)+len(plan.Closed) > 0
	summary := cleanSummary(len(remove), len(plan.Closed))
	showPlan(t.u, t.opts.decision, &t.report, func() { t.showLeftovers(plan) })
	return decide(t.u, t.opts.decision, "clean up?", summary, &t.report, func() error {
		if err := t.u.Run.BeginRecorded(remedyTest); err != nil {
			return err
		}
		err := t.kind.Clean(context.WithoutCancel(ctx), t.engine, &plan)
		for i, l := range plan.Leftovers {
			t.report.Leftovers[i].Deleted = l.Deleted
		}
		if err != nil {
			return err
		}
		if t.report.Applied = true; t.opts.format == term.FormatTable {
			t.u.Note("%s", summary)
		}
		return nil
	})
}
