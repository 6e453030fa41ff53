package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

func newRDMAScanCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "scan",
		Usage: "list InfiniBand and RoCE adapters, their ports, virtual functions and nearest GPUs",
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
NVLink. The formats json and yaml have all fields, GIDs among them.

EXAMPLES
  gpustack rdma scan
  gpustack rdma scan --topology
  gpustack rdma scan --gids
  gpustack rdma scan --device 0000:03:00.0 -o json

EXIT STATUS
  0  the list is printed; it may be empty
  1  error: the list cannot be read, or a requested adapter does not exist`,
		Flags: []cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, formatTree, term.FormatJSON, term.FormatYAML),
			&cli.StringSliceFlag{Name: "device", Usage: "list the adapter at `ADDRESS` (repeatable)"},
			&cli.BoolFlag{Name: "gids", Usage: "list the GID table of each port"},
			&cli.BoolFlag{Name: "topology", Usage: "print the links between GPUs and adapters as a matrix"},
		},
		Action: action(u, parseRDMAScan, runRDMAScan),
	}
}

type rdmaScanOptions struct {
	root           string
	format         string
	devices        []pci.Address
	gids, topology bool
}

func parseRDMAScan(c *cli.Context, f *args.Faults) rdmaScanOptions {
	f.Arguments(c)
	return rdmaScanOptions{
		root: c.String("root"), format: f.Choice(c, "output"),
		devices: args.Values(f, c, "device", pci.ParseAddress),
		gids:    c.Bool("gids"), topology: c.Bool("topology"),
	}
}

// rdmaScanReport is the output of rdma scan (docs/json.md).
type rdmaScanReport struct {
	Schema   int             `json:"schema"`
	Host     *string         `json:"host"`
	Netns    *rdma.NetnsMode `json:"netns"`
	VerbsABI *int            `json:"verbs_abi"`
	CM       *rdma.Node      `json:"rdma_cm"`
	Adapters []rdma.Adapter  `json:"adapters"`
	Links    []adapterLink   `json:"links"`
	Warnings []string        `json:"warnings"` // except those of adapters

	gpus []*pci.Device
}

// adapterLink is the link between an adapter and a GPU.
type adapterLink struct {
	Adapter pci.Address `json:"adapter"`
	GPU     pci.Address `json:"gpu"`
	Link    pci.Link    `json:"link"`
}

func runRDMAScan(ctx context.Context, u *term.UI, opts rdmaScanOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	if err := newNode(u, root).Settled(ctx); err != nil {
		return err
	}
	whole := opts.format == term.FormatJSON || opts.format == term.FormatYAML
	r, devices, err := scanRDMA(root, opts.devices, opts.gids || whole)
	if err != nil {
		return err
	}
	u.Warn(r.Warnings...)
	for _, a := range r.Adapters {
		u.Warn(a.Warnings...)
	}
	switch {
	case whole:
		u.Document.Show(r)
	case opts.topology:
		printTopology(u, r, devices)
	case opts.format == formatTree:
		printRDMATree(u, r, opts.gids)
	default:
		printRDMA(u, r, opts.gids)
	}
	return nil
}

// scanRDMA returns the RDMA adapters of the machine below root, or only those at some addresses, and
// all PCI functions. gids says that the tables of GIDs are read.
func scanRDMA(root host.Root, only []pci.Address, gids bool) (r rdmaScanReport, all pci.Devices, err error) {
	record, recordErr := rdma.ReadRecord(root)
	all, stack, err := rdma.Scan(root, rdma.Options{GIDs: gids, Whole: record.Whole()})
	if err != nil {
		return rdmaScanReport{}, nil, err
	}
	if recordErr != nil {
		stack.Warnings = append(stack.Warnings, fmt.Sprintf("adapters that are assigned to guests as a whole are not listed: %v", recordErr))
	}
	var errs []error
	for _, a := range only {
		if stack.At(a) == nil {
			errs = append(errs, rdma.NotAdapter(a, all))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return rdmaScanReport{}, nil, err
	}
	if len(only) > 0 {
		stack.Adapters = slices.DeleteFunc(stack.Adapters, func(a rdma.Adapter) bool {
			return a.Address == nil || !slices.Contains(only, *a.Address)
		})
	}
	stack.Warnings = append(stack.Warnings, findHolders(root, all, &stack)...)
	return newRDMAScanReport(root, all, stack), all, nil
}

// findHolders adds what uses each virtual function, and returns warnings. A copy
// of a machine has no processes.
func findHolders(root host.Root, devices pci.Devices, stack *rdma.Stack) (warnings []string) {
	if !slices.ContainsFunc(stack.Adapters, func(a rdma.Adapter) bool { return len(a.VFs) > 0 }) {
		return nil
	}
	uses, err := machine.ObserveUses(root, devices, root.IsMachine())
	if err != nil {
		warnings = append(warnings, fmt.Sprintf("cannot determine which processes have virtual functions open: %v", err))
	}
	if why := uses.Unknown(); why != "" && uses.Running {
		warnings = append(warnings, "cannot determine which guests have virtual functions: "+why)
	}
	for _, a := range stack.Adapters {
		for k := range a.VFs {
			v := &a.VFs[k]
			held, err := gate.HeldOf(root, devices, uses, v.Address)
			if err != nil {
				warnings = append(warnings, fmt.Sprintf("cannot determine whether %s is in use: %v", v.Address, err))
			}
			for _, h := range held {
				v.Holder = h.By
			}
		}
	}
	return warnings
}

func newRDMAScanReport(root host.Root, devices pci.Devices, stack rdma.Stack) rdmaScanReport {
	r := rdmaScanReport{
		Schema: 1, Host: host.ReadHostname(root), Netns: stack.Netns, VerbsABI: stack.VerbsABI, CM: stack.CM,
		Adapters: append([]rdma.Adapter{}, stack.Adapters...), Links: []adapterLink{}, Warnings: append([]string{}, stack.Warnings...), gpus: rdma.GPUs(devices),
	}
	for _, a := range stack.Adapters {
		for _, gpu := range r.gpus {
			if a.Function != nil {
				r.Links = append(r.Links, adapterLink{*a.Address, gpu.Address, devices.Link(a.Function, gpu)})
			}
		}
	}
	return r
}
