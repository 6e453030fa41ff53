package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/document"
	"gpustack/nova/fleet"
)

// formatAnsible is the format of a static inventory of Ansible.
const formatAnsible = "ansible-inventory"

func newFleetPlanCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "plan",
		Usage:     "plan waves that keep enough GPUs schedulable",
		ArgsUsage: "FILE...",
		Description: `
Plans waves of nodes for changes that take them out of service, so that in each zone or
aggregate as many GPUs of each product stay schedulable as --keep says. Only a GPU counts
that is ready for guests, has no guest by a complete output of host guests, and is on a
host whose nova-compute is enabled and up. Changes nothing.

The first wave has a canary of each layout. Nodes of a wave return to service before the
next one. Nodes with guests are blocked and listed with their instances, as are nodes of
which guests or zone are unknown; --blocked-last puts them into last waves. If the GPUs
cannot be kept, the zone and product are named, and nothing is planned.

` + fleetDocuments + `

--map FILE is the output of
  openstack compute service list --service nova-compute -f json
or, for --by aggregate, {"AGGREGATE": ["HOST"]}. Hosts have their names in Nova.

With -o ansible-inventory the waves are groups wave_00, wave_01 and so on of a static
inventory in YAML. A host is named as the file with its documents, without its ending and
without .scan, .check or .guests; where a file has several documents, by its hostname.

EXAMPLES
  gpustack fleet plan nodes --keep 8 --map services.json
  gpustack fleet plan nodes --keep 25% --by aggregate --map aggregates.json --blocked-last
  gpustack fleet plan nodes --keep 8 --map services.json -o ansible-inventory > waves.yml`,
		Flags: []cli.Flag{
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML, formatAnsible),
			&cli.StringFlag{Name: "keep", Usage: "keep `NUMBER` GPUs of each product schedulable, or with % as many of those that are now"},
			args.Choice(&cli.StringFlag{Name: "by", Value: string(fleet.ByZone), Usage: "keep them in each `KIND`: zone or aggregate"},
				[]string{string(fleet.ByZone), string(fleet.ByAggregate)}),
			args.Path(&cli.StringFlag{Name: "map", Usage: "read from `FILE` in which zone or aggregate hosts are"}, args.PathRules{Kind: args.HandedOver, Stdin: true}),
			&cli.BoolFlag{Name: "blocked-last", Usage: "put blocked nodes into last waves"},
			maxAgeFlag("block nodes whose documents were made longer than `TIME` ago, such as 1h"),
		},
		Action: action(u, parseFleetPlan, runFleetPlan),
	}
}

type fleetPlanOptions struct {
	format  string
	files   []string
	mapFile string
	plan    fleet.PlanOptions // without zones
	by      fleet.By
}

func parseFleetPlan(c *cli.Context, f *args.Faults) fleetPlanOptions {
	opts := fleetPlanOptions{format: f.Choice(c, "output"), files: fleetFiles(c, f, "map"), mapFile: c.String("map"), by: fleet.By(f.Choice(c, "by"))}
	keep, err := fleet.ParseKeep(c.String("keep"))
	switch {
	case !c.IsSet("keep"):
		f.Add(args.UsageError("--keep is required", "write for example --keep 8, --keep 25% or --keep 0"))
	case err != nil:
		f.AddEach("--keep: ", err, "write for example --keep 8 or --keep 25%")
	}
	if !c.IsSet("map") {
		f.Add(args.UsageError("--map is required", "openstack compute service list --service nova-compute -f json > FILE"))
	}
	opts.plan = fleet.PlanOptions{Map: document.Name(opts.mapFile), Keep: keep, BlockedLast: c.Bool("blocked-last"), MaxAge: parseMaxAge(c, f)}
	return opts
}

func runFleetPlan(_ context.Context, u *term.UI, opts fleetPlanOptions) error {
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
	plan, err := found.Plan(o)
	if err != nil {
		return err
	}
	report := views.NewFleetPlan(plan, o, programVersion(), found.Warnings)
	if opts.format == formatAnsible {
		names, err := plan.AnsibleNames()
		if err != nil {
			return err
		}
		return report.PrintAnsible(u, plan.Waves, names)
	}
	return showReport(u, opts.format, report, func() { report.Print(u) }, true)
}
