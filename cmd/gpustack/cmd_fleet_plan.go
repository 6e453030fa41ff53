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
	"gpustack/fleet"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/nova/drain"
)

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
--goal names. Nodes that this operator has disabled and not enabled again, by the journal of
this machine, come first. Then a canary of each layout of which no node is done, in a wave
that may have more nodes than --max-nodes. Never planned are nodes that others have disabled
or whose nova-compute is down, and nodes of which something is unknown. Nodes with guests are
listed with their instances; --blocked-last puts them into last waves.

Only a GPU counts that is ready for guests, has no guest by a complete output of host guests,
and is on a host whose nova-compute is enabled and up. Nodes of which too few GPUs can be
spared are listed; if there is no other node, zone and product are named, with exit status 1.

` + fleetDocuments + `

--map FILE is the output of
  openstack compute service list --service nova-compute --long -f json
or, for --by aggregate, {"services": that output, "aggregates": {"AGGREGATE": ["HOST"]}}.
Hosts have their names in Nova.

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
				args.PathRules{Kind: args.HandedOver, Stdin: true}),
			&cli.BoolFlag{Name: "blocked-last", Usage: "put nodes with guests into last waves"},
			&cli.DurationFlag{Name: "max-age", Value: time.Hour, Usage: "block nodes whose documents were made longer than `TIME` ago"},
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
	opts := fleetPlanOptions{files: fleetFiles(c, f, "map"), mapFile: c.String("map"), by: fleet.By(f.Choice(c, "by"))}
	keep := args.Value(f, c, "keep", fleet.ParseKeep, host.Plain("write for example --keep 8 or --keep 25%"))
	if !c.IsSet("keep") {
		f.Add(args.UsageError("--keep is required", "write for example --keep 8, --keep 25% or --keep 0"))
	}
	if !c.IsSet("map") {
		f.Add(args.UsageError("--map is required", "openstack compute service list --service nova-compute --long -f json > FILE"))
	}
	goal, err := fleet.ParseGoal(c.String("goal"))
	f.AddEach("--goal: ", err, host.Plain("write for example --goal kernel=6.8.0-60-generic"))
	if c.IsSet("max-nodes") && c.Int("max-nodes") < 1 {
		f.Add(args.UsageError(fmt.Sprintf("--max-nodes: %d is not a number of nodes", c.Int("max-nodes")), "write for example --max-nodes 10"))
	}
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
