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

func newRDMAScanCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "scan",
		Usage: "list InfiniBand and RoCE adapters, ports and VFs",
		Description: `
Lists the RDMA adapters of a machine by PCI address, since the names of devices (mlx5_0,
ibp12s0) change: ports with state, link layer, LIDs and rate, network interfaces, device
nodes, virtual functions with their identity and driver, and the nearest GPU with the
link between the two, from sysfs paths alone. Software devices (rxe) follow. A function
is listed if it has an RDMA device or is bound to the driver of one, or if rdma prepare
has recorded that it is assigned to guests as a whole.

Reads files below the root and changes nothing. Where the driver of the physical function
does not show the GUIDs of virtual functions in sysfs, they are unknown ("-").

--topology prints the matrix of GPUs and adapters, as nvidia-smi topo -m does without
NVLink. The formats json and yaml have GIDs too.

EXAMPLES
  gpustack rdma scan --topology
  gpustack rdma scan --gids
  gpustack rdma scan --device 0000:03:00.0 -o json`,
		Flags: []cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			&cli.StringSliceFlag{Name: "device", Usage: "list the adapter at `ADDRESS` (repeatable)"},
			&cli.BoolFlag{Name: "gids", Usage: "list GUIDs, LIDs, device nodes and IPoIB interfaces of each port, and its GID table"},
			&cli.BoolFlag{Name: "topology", Usage: "print the links between GPUs and adapters as a matrix"},
		},
		Action: action(u, parseRDMAScan, runRDMAScan),
	}
}

type rdmaScanOptions struct {
	devices        []pci.Address
	gids, topology bool
}

func parseRDMAScan(c *cli.Context, f *args.Faults) rdmaScanOptions {
	return rdmaScanOptions{addresses(c, f, "device"), c.Bool("gids"), c.Bool("topology")}
}

func runRDMAScan(ctx context.Context, u *term.UI, o given, opts rdmaScanOptions) error {
	if err := node.Settled(ctx, o.root, change.Machine(o.root).Observe()); err != nil {
		return err
	}
	whole := o.format == term.FormatJSON || o.format == term.FormatYAML
	r, devices, err := node.ReadRDMA(o.root, opts.devices, opts.gids || whole)
	if err != nil {
		return err
	}
	u.Warn(r.AllWarnings()...)
	switch {
	case whole:
		u.Document.Show(r)
	case opts.topology:
		views.PrintTopology(u, r, devices)
	default:
		views.PrintRDMA(u, r, opts.gids)
	}
	return nil
}
