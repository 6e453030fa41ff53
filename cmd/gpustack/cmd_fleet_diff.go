package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/document"
)

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

type fleetDiffOptions struct{ earlier, later string }

func parseFleetDiff(c *cli.Context, f *args.Faults) fleetDiffOptions {
	files := f.Arguments(c, "OLD_DIR", "NEW_DIR")
	if files[0] == document.Stdin && files[1] == document.Stdin {
		f.Add(args.UsageError("standard input is given more than once", "give - once"))
	}
	return fleetDiffOptions{files[0], files[1]}
}

func runFleetDiff(_ context.Context, u *term.UI, o given, opts fleetDiffOptions) error {
	earlier, errEarlier := readFleet(u, opts.earlier)
	if errEarlier == nil && earlier.NeedScan() != nil {
		errEarlier = fmt.Errorf("OLD_DIR %s: %w", document.Name(opts.earlier), earlier.NeedScan())
	}
	later, errLater := readFleet(u, opts.later)
	if errLater == nil && later.NeedScan() != nil {
		errLater = fmt.Errorf("NEW_DIR %s: %w", document.Name(opts.later), later.NeedScan())
	}
	if err := errors.Join(errEarlier, errLater); err != nil {
		return err
	}
	report := views.NewFleetDiff(earlier, later)
	return showReport(u, o.format, report, func() { report.Print(u) }, len(report.Differences) == 0)
}
