package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
)

func newFleetAliasesCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "aliases",
		Usage:     "show one set of aliases for the GPUs of all nodes",
		ArgsUsage: "FILE...",
		Description: `
Prints an alias for each product of the fleet, as lines of nova.conf that are the same on
every controller and compute node. An alias has one device type: nodes on which the same
product has another one, such as type-PCI where SR-IOV is off in the firmware, are listed.
GPUs for containers have no alias.

` + fleetDocuments + `

EXAMPLES
  gpustack fleet aliases nodes
  gpustack fleet aliases nodes -o json

EXIT STATUS
  0  one set of aliases serves all nodes
  1  error: a document cannot be read, two documents of a host conflict, or none is of host scan
  2  a product has several device types, or no name`,
		Flags:  []cli.Flag{args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML)},
		Action: action(u, parseFleetAliases, runFleetAliases),
	}
}

type fleetAliasesOptions struct {
	format string
	files  []string
}

func parseFleetAliases(c *cli.Context, f *args.Faults) fleetAliasesOptions {
	return fleetAliasesOptions{f.Choice(c, "output"), fleetFiles(c, f)}
}

func runFleetAliases(_ context.Context, u *term.UI, opts fleetAliasesOptions) error {
	found, err := readFleet(u, opts.files...)
	if err == nil {
		err = found.NeedScan()
	}
	if err != nil {
		return err
	}
	report := views.NewFleetAliases(found)
	return showReport(u, opts.format, report, func() { report.Print(u) }, report.Passed)
}
