package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/host/pci"
	"gpustack/operate/node"
)

func newHostScanCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "scan",
		Usage: "list GPUs, their IOMMU groups and what guests can get",
		Description: `
Lists the NVIDIA GPUs of a machine, or without any those of other vendors, every
function that shares a slot or an IOMMU group with one of them (only whole groups can
be assigned to guests), and NVSwitches.
Reads files below the root, changes nothing and needs no privileges, except to show
which guests use functions.

STATE is one of:
  host         bound to a host driver, or to no driver; (console): the host's console
               is on it; (prepared): recorded by host prepare, which only root can see
  guest-ready  bound to VFIO with its whole group: can be assigned to a guest
  in use       assigned to a running guest
  blocked      cannot be assigned to a guest: its group contains another device of the
               host, or it has virtual functions or mediated devices
  on DRIVER    bound for guests; whether a guest uses it is not visible here, as in a
               snapshot or for users other than root
  unknown      the state depends on files that cannot be read

The last lines show how many GPUs can be prepared, judging by drivers and groups,
and the next command to run.

Filters select from all functions those that match every kind of filter given.
The format dot is a graph for graphviz, with network adapters as well: pipe it to
"dot -Tsvg".

EXAMPLES
  gpustack host scan
  gpustack host scan -o tree --all
  gpustack host scan --device 10de:11b4 -o json
  gpustack host scan --machine -o json
  gpustack host scan --root /mnt/sosreport`,
		Flags: []cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, formatTree, formatDot, term.FormatJSON, term.FormatYAML),
			&cli.BoolFlag{Name: "all", Usage: "list every PCI function"},
			&cli.BoolFlag{Name: "machine", Usage: "add product, BIOS, CPUs, memory per NUMA node, disks and network interfaces"},
			&cli.StringSliceFlag{Name: "device", Usage: "list `DEVICE`: an address, or VENDOR:PRODUCT for all of a product (repeatable)"},
			&cli.StringSliceFlag{Name: "vendor", Usage: "list functions made by `VENDOR`, four digits (repeatable)"},
			&cli.StringSliceFlag{Name: "class", Usage: "list functions of `CLASS`, two or four digits (repeatable)"},
			args.Path(&cli.StringFlag{Name: "pci-ids", Usage: "take names from `FILE` instead of the pci.ids below the root"}, args.PathRules{}),
		},
		Action: action(u, parseHostScan, runHostScan),
	}
}

func parseHostScan(c *cli.Context, f *args.Faults) node.ScanOptions {
	format := c.String("output")
	return node.ScanOptions{
		All: c.Bool("all"),
		Filter: pci.Filter{
			Devices: selectors(c, f, "device"),
			Vendors: vendors(c, f),
			Classes: classes(c, f),
		},
		PCIIDs:   c.String("pci-ids"),
		Machine:  c.Bool("machine"),
		Tree:     format == formatTree || format == formatDot,
		Document: format == term.FormatJSON || format == term.FormatYAML,
	}
}

func runHostScan(ctx context.Context, u *term.UI, o given, opts node.ScanOptions) error {
	if err := node.Settled(ctx, o.root, change.Machine(o.root).Observe()); err != nil {
		return err
	}
	shown, all, err := node.ReadScan(o.root, opts)
	if err != nil {
		return err
	}
	shown.Version, shown.Time = programVersion(), reportTime()
	u.Warn(shown.AllWarnings()...)
	switch o.format {
	case term.FormatTable:
		views.PrintScan(u, shown, all)
	case formatTree:
		views.PrintScanTree(u, shown, all)
	case formatDot:
		views.PrintScanDot(u, shown, all)
	default:
		u.Document.Show(shown)
	}
	return nil
}
