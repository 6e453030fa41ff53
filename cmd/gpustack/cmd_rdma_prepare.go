package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
	"gpustack/operate/node"
)

func newRDMAPrepareCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "prepare",
		Usage: "make VFs of adapters that survive a reboot",
		Description: `
Records which virtual functions (VFs) an adapter has from the next boot on, with an identity
that stays the same, and what each is bound to.

At each boot, gpustack-boot.service carries the record out, before libvirtd, nova-compute
and container runtimes start. To have the VFs without a reboot:
systemctl restart gpustack-boot.service.

SELECTION
  --device names physical functions, and adds them to those that are recorded; the number of
  VFs, --whole and --for are recorded for each. --remove removes a function from the record,
  --none removes all, with every file; both return VFs that were made at this boot. VFs for
  guests are bound to vfio-pci by their address, VFs for containers to the host's driver. The
  physical function itself remains with the host. --whole assigns it instead, without VFs.

IDENTITY
  GUIDs of InfiniBand VFs are derived from that of the adapter, and are the same at each boot:
  the subnet manager's partitions can name them. Where the adapter's GUID is not of a known
  form, --guid-base gives one to derive them from. VFs on Ethernet get MAC addresses that are
  derived in the same way.

REFUSALS
  VFs that a guest, a process or a container uses are never taken away. Other VFs that would
  go, and with --whole the adapter itself, leave the host only if each of their interfaces is
  seen to be down and part of nothing, and each RDMA port is down; else --allow ADDRESS lets
  them leave. It also permits VFs of a bond whose RDMA device they remove. Nothing lifts the
  refusal of what the root file system needs. One program has to own the VFs of an adapter:
  the steps of each boot, and rdma check, compare them with the record.

EXAMPLES
  gpustack rdma prepare --device 0000:0c:00.0 --vfs 8 --dry-run
  gpustack rdma prepare --device 0000:0d:00.0 --vfs 4 --for containers --netns exclusive
  gpustack rdma prepare --device 0000:0d:00.0 --whole
  gpustack rdma prepare --remove 0000:0c:00.0 --yes
  gpustack rdma prepare --if-present --root /mnt/node --device 0000:0c:00.0 --vfs 8 --dry-run -o json`,
		Flags: changing(
			&cli.StringSliceFlag{Name: "device", Usage: "prepare the adapter at `ADDRESS` (repeatable)"},
			&cli.StringFlag{Name: "vfs", Usage: "give each adapter this `NUMBER` of VFs"},
			&cli.BoolFlag{Name: "whole", Usage: "assign the adapters themselves, without VFs"},
			args.Choice(&cli.StringFlag{Name: "for", Usage: "prepare for `USE`: guests or containers (unless recorded, guests)"},
				[]string{"", string(rdma.ForGuests), string(rdma.ForContainers)}),
			&cli.StringFlag{Name: "guid-base", Usage: "derive the GUIDs of VFs from `GUID` instead of from the adapter's"},
			args.Choice(&cli.StringFlag{Name: "netns", Usage: "RDMA devices belong to network namespaces in `MODE`: exclusive or shared (unless recorded, shared)"},
				[]string{"", string(rdma.NetnsExclusive), string(rdma.NetnsShared)}),
			&cli.StringSliceFlag{Name: "remove", Usage: "remove the adapter at `ADDRESS` from the record (repeatable)"},
			&cli.BoolFlag{Name: "none", Usage: "prepare nothing: remove the record and every file"},
			&cli.BoolFlag{Name: "if-present", Usage: "succeed without a change on a machine that has no such adapter"},
			&cli.StringSliceFlag{Name: "allow", Usage: "let the function at `ADDRESS`, or its VFs, leave the host (repeatable)"},
		),
		Action: action(u, parseRDMAPrepare, runRDMAPrepare),
	}
}

type rdmaPrepareOptions struct {
	prepare   rdmaprepare.Options
	ifPresent bool
}

func parseRDMAPrepare(c *cli.Context, f *args.Faults) rdmaPrepareOptions {
	opts := rdmaPrepareOptions{
		prepare: rdmaprepare.Options{
			Add:    addresses(c, f, "device"),
			Whole:  c.Bool("whole"),
			Use:    rdma.Use(f.Choice(c, "for")),
			Netns:  rdma.NetnsMode(f.Choice(c, "netns")),
			Remove: addresses(c, f, "remove"),
			None:   c.Bool("none"),
			Allow:  addresses(c, f, "allow"),
		},
		ifPresent: c.Bool("if-present"),
	}
	if c.IsSet("vfs") {
		n, err := strconv.Atoi(c.String("vfs"))
		args.AddIf(f, err != nil || n < 1 || n > rdma.MaxVFs, fmt.Sprintf("--vfs: not a number from 1 to %d: %s", rdma.MaxVFs, strconv.Quote(c.String("vfs"))),
			"--remove ADDRESS removes the VFs of an adapter")
		opts.prepare.VFs = n
	}
	if c.IsSet("guid-base") {
		opts.prepare.GUIDBase = new(args.Value(f, c, "guid-base", rdma.ParseGUID, nil))
	}
	f.Exclude(c, "none", "device", "vfs", "whole", "for", "guid-base", "netns", "remove")
	f.Exclude(c, "whole", "vfs", "guid-base")
	devices := len(c.StringSlice("device")) > 0
	switch {
	case devices && !c.IsSet("vfs") && !opts.prepare.Whole:
		f.Add(args.UsageError("--device: either --vfs or --whole is missing", "--vfs NUMBER makes VFs, --whole assigns the adapter itself"))
	case !devices:
		for _, flag := range []string{"vfs", "whole", "for", "guid-base"} {
			args.AddIf(f, c.IsSet(flag), "--"+flag+" needs --device", host.Textf("'%s' lists the adapters", host.NewCommand("rdma scan")))
		}
	}
	for _, a := range opts.prepare.Remove {
		args.AddIf(f, slices.Contains(opts.prepare.Add, a), fmt.Sprintf("%s is named by --device and by --remove", a), f.SeeHelp())
	}
	return opts
}

func runRDMAPrepare(ctx context.Context, u *term.UI, o given, opts rdmaPrepareOptions) error {
	root := o.root
	engine, runner := newNode(u, root).Engine(driver.DefaultTimeout), newRunner(u, root)
	if err := recoverEntries(ctx, u, engine, o, 0); err != nil {
		return err
	}
	m, reboot, err := node.ObserveRDMA(ctx, root, opts.prepare)
	if err != nil {
		return err
	}
	if absent := m.Absent(opts.prepare); absent != nil && opts.ifPresent {
		return nothingPresent(u, o, absent, func(why string) any {
			return views.NewRDMAPrepare(newReport(root, reboot, false, why), m, rdmaprepare.Plan{}, change.Work{})
		})
	}
	if err := opts.prepare.Unnamed(m); err != nil {
		return err
	}
	plan, work, err := newNode(u, root, opts.prepare.Allow...).PlanRDMA(m, opts.prepare, o.command)
	if err != nil {
		return views.ExplainAllow(err, opts.prepare.Allow, opts.prepare.Command(opts.ifPresent), o.dryRun)
	}
	if err := runner.Ready(work.Programs); err != nil {
		return err
	}
	report := views.NewRDMAPrepare(newReport(root, reboot, false, plan.Warnings...), m, plan, work)
	summary := views.RDMAPrepareSummary(report, m.Recorded)
	return decide(u, o, &report, "apply this plan?", summary, func() { views.PrintRDMAPrepare(u, report) }, func() error {
		err := applyWork(ctx, u, engine, o.format, work, &report)
		if pending, pendingErr := rdmaprepare.ReadPending(root); pendingErr == nil {
			report.RebootFor(pending)
		}
		return err
	}, plan.Warnings...)
}
