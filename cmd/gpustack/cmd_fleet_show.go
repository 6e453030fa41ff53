package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
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
