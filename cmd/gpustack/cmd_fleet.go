package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/fleet"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/nova/drain"
)

func newFleetShowCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show layouts of GPUs, odd nodes, and how GPUs are used",
		ArgsUsage: "FILE...",
		Description: `
Lists what is odd about nodes, then a row per layout, then the use of the GPUs of each
product. A layout is what nodes have in common: products, addresses, NUMA nodes and
members of IOMMU groups. A node is odd if many more nodes have the layout from which it
differs: a lost or added card, a moved address, another product, NUMA node, group, driver
or firmware (with host scan --machine), the console on a GPU; and if host check finds a
PCIe link with too few lanes, a machine that is not ready, or a pending reboot. So is a
node with GPUs whose use is unknown.

` + fleetDocuments + `

A GPU is free only if host scan shows it ready for guests and a complete output of host
guests shows that no guest has it, not even one that is powered off. What the documents do
not show is unknown.

EXAMPLES
  gpustack fleet show nodes
  gpustack fleet show scans checks guests --max-age 24h
  cat *.jsonl | gpustack fleet show - -o json`,
		Flags: []cli.Flag{
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			&cli.DurationFlag{Name: "max-age", Usage: "list documents that were made longer than `TIME` ago, such as 24h (default: no limit)"},
		},
		Action: action(u, parseFleetShow, runFleetShow),
	}
}

type fleetShowOptions struct {
	files  []string
	maxAge time.Duration
}

func parseFleetShow(c *cli.Context, f *args.Faults) fleetShowOptions {
	return fleetShowOptions{fleetFiles(c, f), f.Positive(c, "max-age")}
}

func runFleetShow(_ context.Context, u *term.UI, o given, opts fleetShowOptions) error {
	found, err := readFleet(u, opts.files...)
	if err != nil {
		return err
	}
	report := views.NewFleetShow(found, opts.maxAge, reportTime())
	return showReport(u, o.format, report, func() { report.Print(u) }, true)
}

func newFleetDiffCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "diff",
		Usage:     "show what changed between two sets of documents",
		ArgsUsage: "OLD_DIR NEW_DIR",
		Description: `
Lists the nodes and functions that were added or removed, that have moved to another
address, or that have changed: driver, NUMA node, IOMMU group, product, device type and
role of functions; kernel, firmware, verdict and name in Nova of nodes. Functions are GPUs,
what shares a card or an IOMMU group with one, and NVSwitches. What guests use is no
difference.

So a dead GPU is found: its function is missing after a reboot, and Nova shows only a row
that it never allocates.

` + fleetDocuments + `

EXAMPLES
  gpustack fleet diff nodes.yesterday nodes
  cat *.jsonl | gpustack fleet diff nodes.yesterday - -o json`,
		Flags:  []cli.Flag{args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML)},
		Action: action(u, parseFleetDiff, runFleetDiff),
	}
}

func parseFleetDiff(c *cli.Context, f *args.Faults) []string {
	files := f.Arguments(c, "OLD_DIR", "NEW_DIR")
	args.AddIf(f, files[0] == document.Stdin && files[1] == document.Stdin, "standard input is given more than once", "give - once")
	return files
}

// readScans reads documents, of which some must be of host scan.
func readScans(u *term.UI, argument, file string) (fleet.Fleet, error) {
	found, err := readFleet(u, file)
	if err == nil && found.NeedScan() != nil {
		err = fmt.Errorf("%s %s: %w", argument, document.Name(file), found.NeedScan())
	}
	return found, err
}

func runFleetDiff(_ context.Context, u *term.UI, o given, files []string) error {
	earlier, errEarlier := readScans(u, "OLD_DIR", files[0])
	later, errLater := readScans(u, "NEW_DIR", files[1])
	if err := errors.Join(errEarlier, errLater); err != nil {
		return err
	}
	report := views.NewFleetDiff(earlier, later)
	return showReport(u, o.format, report, func() { report.Print(u) }, len(report.Differences) == 0)
}

// formatAnsible is the format of a static inventory of Ansible.
const formatAnsible = "ansible-inventory"

func newFleetPlanCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "plan",
		Usage:     "plan waves that keep enough GPUs schedulable",
		ArgsUsage: "FILE...",
		Description: `
Plans the next wave of nodes for a change that takes them out of service: nodes that are
not done, such that in each zone or aggregate as many GPUs of each product stay schedulable
as --keep says. Run again with new documents, after the wave or any interruption, it goes on.
Changes nothing.

A node is done if host check says that it is ready, with the kernel or the gpustack that
--goal names, and nothing but guests keeps it out of waves. Nodes that this operator has
disabled and not enabled again, by the journal of this machine, come first, and the rest
waits for them, unless nothing but guests blocks them. Then a canary of each layout of which
no node is done, in a wave that may have more nodes than --max-nodes.
Never planned are nodes that others have disabled or whose nova-compute is down, and nodes of
which something is unknown. Nodes with guests are listed with their instances; --blocked-last
puts them into last waves.

Only a GPU counts that is ready for guests, has no guest by a complete output of host guests,
and is on a host whose nova-compute is enabled and up. Nodes of which too few GPUs can be
spared are listed; if there is no other node, zone and product are named, with exit status 1.

` + fleetDocuments + `

--map FILE is the output of
  openstack compute service list --service nova-compute --long -f json
or, for --by aggregate, {"services": that output, "aggregates": {"AGGREGATE": ["HOST"]}}.
Hosts have their names in Nova. Its age counts by the newest Updated At of a service that is up.

With -o ansible-inventory the waves are groups wave_00, wave_01 and so on of a static
inventory in YAML; wave_00 is the next. A host is named as the file with its documents,
without its ending and without .scan, .check or .guests; where a file has several documents,
by its hostname.

EXAMPLES
  gpustack fleet plan nodes --keep 8 --map services.json
  gpustack fleet plan nodes --goal kernel=6.8.0-60-generic --keep 25% --map services.json --all
  gpustack fleet plan nodes --keep 8 --map services.json -o ansible-inventory > waves.yml`,
		Flags: []cli.Flag{
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML, formatAnsible),
			&cli.StringFlag{Name: "keep", Usage: "keep `NUMBER` GPUs of each product schedulable, or with % as many of those that are now"},
			args.Choice(&cli.StringFlag{Name: "by", Value: string(fleet.ByZone), Usage: "keep them in each `KIND`: zone or aggregate"},
				[]string{string(fleet.ByZone), string(fleet.ByAggregate)}),
			&cli.StringFlag{Name: "goal", Value: "ready", Usage: "nodes are done that have this `GOAL`: ready, kernel=RELEASE or gpustack=VERSION"},
			&cli.IntFlag{Name: "max-nodes", Usage: "plan at most `NUMBER` nodes of a wave (default: 5 % of the nodes, at least 1)"},
			&cli.BoolFlag{Name: "all", Usage: "plan every wave, and not only the next"},
			args.Path(&cli.StringFlag{Name: "map", Usage: "read from `FILE` the compute services, with their zones or aggregates"},
				args.PathRules{Stdin: true}),
			&cli.BoolFlag{Name: "blocked-last", Usage: "put nodes with guests into last waves"},
			&cli.DurationFlag{Name: "max-age", Value: time.Hour, Usage: "block nodes whose documents were made longer than `TIME` ago, and refuse such a map"},
		},
		Action: action(u, parseFleetPlan, runFleetPlan),
	}
}

type fleetPlanOptions struct {
	files   []string
	mapFile string
	plan    fleet.PlanOptions // without zones
	by      fleet.By
}

func parseFleetPlan(c *cli.Context, f *args.Faults) fleetPlanOptions {
	opts := fleetPlanOptions{files: fleetFiles(c, f, c.String("map")), mapFile: c.String("map"), by: fleet.By(f.Choice(c, "by"))}
	keep := args.Value(f, c, "keep", fleet.ParseKeep, host.Plain("write for example --keep 8 or --keep 25%"))
	args.AddIf(f, !c.IsSet("keep"), "--keep is required", "write for example --keep 8, --keep 25% or --keep 0")
	args.AddIf(f, !c.IsSet("map"), "--map is required", "openstack compute service list --service nova-compute --long -f json > FILE")
	goal, err := fleet.ParseGoal(c.String("goal"))
	f.AddEach("--goal: ", err, host.Plain("write for example --goal kernel=6.8.0-60-generic"))
	args.AddIf(f, c.IsSet("max-nodes") && c.Int("max-nodes") < 1, fmt.Sprintf("--max-nodes: %d is not a number of nodes", c.Int("max-nodes")),
		"write for example --max-nodes 10")
	opts.plan = fleet.PlanOptions{Map: document.Name(opts.mapFile), Goal: goal, Keep: keep, MaxNodes: c.Int("max-nodes"), All: c.Bool("all"),
		BlockedLast: c.Bool("blocked-last"), MaxAge: f.Positive(c, "max-age")}
	return opts
}

// ownDrains returns the ids of the drains that the operator's journal on this machine has.
func ownDrains() ([]string, error) {
	store, err := change.UserStore()
	if err != nil {
		return nil, err
	}
	entries, err := store.List()
	return drain.Own(entries), err
}

func runFleetPlan(_ context.Context, u *term.UI, g given, opts fleetPlanOptions) error {
	o := opts.plan
	o.Now = reportTime()
	text, errMap := documentsAt(u).ReadFile(opts.mapFile)
	if errMap == nil {
		o.Zones, errMap = fleet.ParseZones(o.Map, text, opts.by)
	}
	found, err := readFleet(u, opts.files...)
	if err := errors.Join(errMap, err); err != nil {
		return err
	}
	var own []string
	if slices.ContainsFunc(o.Zones.Hosts, func(h fleet.ZoneHost) bool { return h.Disabled }) {
		if own, err = ownDrains(); err != nil {
			return err
		}
	}
	o.Own = func(reason string) bool {
		r, ours := drain.ParseReason(reason)
		return ours && slices.Contains(own, r.ID)
	}
	plan, err := found.Plan(o)
	if err != nil {
		return err
	}
	report := views.NewFleetPlan(plan, o, programVersion(), found.Warnings)
	if g.format == formatAnsible {
		names, err := plan.AnsibleNames()
		if err != nil {
			return err
		}
		return report.PrintAnsible(u, names)
	}
	return showReport(u, g.format, report, func() { report.Print(u) }, true)
}

// fleetDocuments is the part of the help of commands on a fleet that says what they read.
const fleetDocuments = `Reads the output of host scan, host check and host guests, as JSON or YAML: files,
folders, or - for standard input, with one document a file or several (JSON lines). Of one
host and kind the newest document counts. gpustack connects to no node: docs/fleet.md says
how to collect the documents.`

// fleetFiles returns the paths of documents, of which there must be at least one. Standard input
// may be given once, as one of more paths too.
func fleetFiles(c *cli.Context, f *args.Faults, more ...string) []string {
	files := c.Args().Slice()
	args.AddIf(f, len(files) == 0, "FILE is missing", "")
	args.AddIf(f, slices.Contains(files, ""), `"" is an empty path`, "")
	all := slices.Concat(files, more)
	i := slices.Index(all, document.Stdin)
	args.AddIf(f, i >= 0 && slices.Contains(all[i+1:], document.Stdin), "standard input is given more than once", "give - once, and files or folders for the rest")
	return files
}

// readFleet reads documents, and prints warnings about them.
func readFleet(u *term.UI, files ...string) (fleet.Fleet, error) {
	debug.SetGCPercent(100) // main sets more for short runs; this one may read thousands of documents
	found, err := fleet.Read(documentsAt(u, files...))
	if err != nil {
		return fleet.Fleet{}, err
	}
	u.Warn(found.Warnings...)
	return found, nil
}
