package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/nova"
	novacloud "gpustack/nova/cloud"
	"gpustack/operate/cloud"
	"gpustack/operate/node"
)

func newNovaConfigureCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name: "configure", Usage: "configure aliases, device specs and filters in nova.conf",
		Description: `
Plans the PCI options of the services of this machine, under their names in the
installed release of Nova, shows a diff, asks, applies and records the change. "gpustack
undo" reverts it, except report_in_placement. Only lines that must change are changed.
Aliases and device specs that gpustack has not written are kept and listed, older names
of options are replaced, lines of options that the release ignores are removed, and
secrets in the diff are masked. Without --role, the role is inferred as by nova check.

Nova gives a device the tags of the first device_spec that matches it: planned specs
are inserted before broader ones. The command refuses and shows the specs if no order
keeps the effect of both, if nova-compute would not start, or if an existing spec offers
a GPU that remains with the host. gpustack's own specs are updated, with a warning for
each tag whose value changes.

--alias NAME=VENDOR:PRODUCT defines an alias, with ,KEY=VALUE for device_type,
numa_policy, resource_class, traits (joined by plus signs) or live_migratable. Without
device_type it gets that of the devices in the inventories or of this machine, else that
of the product if all boards have the same, else that of the same alias in use. Where
none is known, a warning says so: Nova assigns no device of type-PF for such an alias.
Device specs get live_migratable only if nova-compute starts with it: with libvirt
10.0.0 and QEMU 8.2.2 or later, whether it is yes or no.
--inventory defines an alias for each product in the JSON or YAML of host scan, with
type-PF if the product supports SR-IOV. Without both, a compute node gets an alias for
each product that host prepare has recorded there, and the aliases of its files are
kept; so are those of a controller. A compute node offers functions by ids, or by
address if an identical device remains with the host or is for containers. Nothing that
container prepare has recorded is offered. Where host prepare has recorded nothing, what
the host needs or uses, such as its root disk or an interface that is up, is not offered.
Unless an inventory is of this machine, the roles in the inventories count, and the
command refuses if one text would offer what remains with one of the hosts.

The name of such an alias depends on the product alone: K4200, A100-SXM4-80GB. Names in
use win: that of --alias, else that of --names, else that of an alias for the same
vendor:product and device_type in the files of this machine. --names FILE is a controller's
nova.conf, or the output of nova configure -o json, and gives a compute node the aliases
of its cloud. The command refuses a name that exists with another product.

--hca ADDRESS=alias:NAME offers the VFs of an InfiniBand or RoCE adapter, one VF, or a
function that rdma prepare has recorded as a whole, to flavors; ADDRESS=port:PHYSNET to
ports of Neutron on that physical network, ADDRESS=port on tunnel networks. Device specs
are by address and product id, never a physical function with its VFs. Use aliases for
InfiniBand and ports for RoCE. On a controller, --inventory says what the address is.

--remove-alias NAME removes the alias NAME, and on a compute node the device specs with
exactly the ids of its product, by whomever they were written, unless another alias uses
the product. Device specs that match other devices too, such as those by address only,
are kept, with a warning. Those with physical_network, which are for ports, are kept.
Devices in use keep their guests. Combine it with --alias to rename an alias or to change its product. With
--if-present, NAME need not exist.

Run this command on each controller with the devices of all compute nodes: nova-api needs
every alias. nova-compute needs the aliases of the devices that its host offers, as they
are on the controllers: run it there with the devices of that host and --names. Files that
a deployment tool generates are refused; --render prints the options for the tool, as the
refusal does.

Use --placement on compute nodes first. On a controller of release 2023.1 or later it
turns on pci_in_placement. It refuses until the databases and Placement that nova.conf
names show that every compute node with such devices reports them and has allocations
for the devices in use.

EXAMPLES
  gpustack nova configure --role compute
  gpustack nova configure --role controller --alias K4200=10de:11b4 --dry-run
  gpustack nova configure --role controller --inventory gpu1.json --inventory gpu2.json
  gpustack nova configure --role compute --inventory gpu1.json --names controller.conf
  gpustack nova configure --role compute --hca 0000:0c:00.0=alias:CX6VF --release zed
  gpustack nova configure --role compute --remove-alias K4200 --dry-run
  gpustack nova configure --role compute --inventory gpu1.json --placement
  gpustack nova configure --role controller --inventory gpu1.json --placement
  gpustack nova configure --role controller --inventory gpu1.json --release zed --render kolla`,
		Flags: novaConfigureFlags(), Action: action(u, parseNovaConfigure, runNovaConfigure),
	}
}

func novaConfigureFlags() []cli.Flag {
	return changing(
		args.Choice(&cli.StringFlag{Name: "role", Usage: "`ROLE` of the machine: controller, compute or all (default: inferred)"},
			[]string{"", string(nova.Controller), string(nova.Compute), string(nova.All)}),
		releaseFlag(),
		&cli.StringSliceFlag{Name: "alias", Usage: "define `ALIAS`: NAME=VENDOR:PRODUCT[,KEY=VALUE]... (repeatable)"},
		&cli.StringSliceFlag{Name: "hca", Usage: "offer an adapter or VF as `HCA`: ADDRESS=alias:NAME or ADDRESS=port[:PHYSNET] (repeatable)"},
		inventoryFlag("define an alias for each product in `FILE`, JSON or YAML of host scan"),
		args.Paths(&cli.StringSliceFlag{Name: "names", Usage: "use the names in `FILE`, a controller's nova.conf or plan as JSON, or - (repeatable)"},
			args.PathRules{Stdin: true}),
		&cli.StringSliceFlag{Name: "remove-alias", Usage: "remove the alias `NAME` and the device specs that only it uses (repeatable)"},
		&cli.BoolFlag{Name: "if-present", Usage: "succeed without a change if no file defines the alias of --remove-alias"},
		&cli.BoolFlag{Name: "by-address", Usage: "write device specs by address"},
		&cli.BoolFlag{Name: "placement", Usage: "track the devices in Placement; cannot be turned off again on a compute node"},
		&cli.BoolFlag{Name: "computes-report", Usage: "assert that all compute nodes report devices, if it cannot be verified"},
		answerTimeoutFlag(timeoutOfDatabases),
		args.Choice(&cli.StringFlag{Name: "managed", Usage: "whether libvirt binds the functions to vfio-pci: `YES` or no (default: as it is)"},
			[]string{"", "yes", "no"}),
		&cli.BoolFlag{Name: "one-time-use", Usage: "assign each device to one guest only, until an operator releases it (default: as it is)"},
		&cli.StringFlag{Name: "libvirt", Usage: "`VERSION` of libvirt, for live_migratable (default: that of this machine)"},
		&cli.StringFlag{Name: "qemu", Usage: "`VERSION` of QEMU, for live_migratable (default: as for --libvirt)"},
		novaConfFlag("configure"),
		&cli.BoolFlag{Name: "drop-in", Usage: "write new options to a file of their own in nova.conf.d"},
		args.Choice(&cli.StringFlag{Name: "render", Usage: "only print the options for a deployment tool, as `FORM` ini, kolla, tripleo or rhoso"},
			[]string{"", string(nova.FormINI), string(nova.FormKolla), string(nova.FormTripleO), string(nova.FormRHOSO)}),
	)
}

type novaConfigureOptions struct {
	cloud.ConfigureOptions
	render   nova.Form         // "" to change the files
	service  novacloud.Options // of Placement, without credentials
	reported bool              // the operator asserts that all compute nodes report
}

func parseNovaConfigure(c *cli.Context, f *args.Faults) novaConfigureOptions {
	opts := novaConfigureOptions{
		ConfigureOptions: cloud.ConfigureOptions{Inventories: documentsOf(c, "inventory"), Names: documentsOf(c, "names"), Nova: nova.Options{
			Release:    parseRelease(c, f),
			Aliases:    args.Values(f, c, "alias", nova.ParseAlias, nil),
			HCAs:       args.Values(f, c, "hca", nova.ParseHCA, nil),
			Placement:  c.Bool("placement"),
			ByAddress:  c.Bool("by-address"),
			Managed:    f.Choice(c, "managed"),
			OneTimeUse: c.Bool("one-time-use"),
			NotOnce:    c.IsSet("one-time-use") && !c.Bool("one-time-use"),
			Remove:     c.StringSlice("remove-alias"),
			IfPresent:  c.Bool("if-present"),
			NamesGiven: c.IsSet("names"),
			Hypervisor: parseHypervisor(c, f),
		}, Place: nova.Place{File: c.String("conf"), Given: c.IsSet("conf"), DropIn: c.Bool("drop-in")}},
		render: nova.Form(f.Choice(c, "render")), service: parseCloud(c, f), reported: c.Bool("computes-report"),
	}
	opts.Rendered = opts.render != ""
	o := &opts.Nova
	o.Role = nova.Role(f.Choice(c, "role"))
	f.Exclude(c, "quiet", "render")
	f.Exclude(c, "diff", "render")
	if opts.reported && (!o.Placement || o.Role == nova.Compute) {
		f.Add(errComputesReport)
	}
	opts.Unnamed = len(opts.Inventories.Paths)+len(o.Remove)+len(c.StringSlice("alias"))+len(c.StringSlice("hca")) == 0
	args.AddIf(f, len(opts.Names.Paths) > 0 && len(opts.Inventories.Paths) == 0 && !opts.Unnamed, "--names requires --inventory",
		"--names gives the products of the inventories the names of the cloud")
	args.AddIf(f, o.IfPresent && len(o.Remove) == 0, "--if-present requires --remove-alias", "--if-present is about aliases to remove")
	args.AddIf(f, opts.render != "" && len(o.Remove) > 0, "--remove-alias cannot be combined with --render",
		"remove the alias where the deployment tool reads the options")
	return opts
}

// errComputesReport means that --computes-report asserts what the command does not ask.
var errComputesReport = args.UsageError("--computes-report requires --placement and --role controller or all", "")

// parseRelease reads --release; 0 stands for the release that is installed.
func parseRelease(c *cli.Context, f *args.Faults) nova.Release {
	if c.String("release") == "auto" {
		return 0
	}
	return args.Value(f, c, "release", nova.ParseRelease, host.Plain("--release takes auto, "+host.Listed(nova.ReleaseNames(), "or")+", or a newer one"))
}

func runNovaConfigure(ctx context.Context, u *term.UI, o given, opts novaConfigureOptions) error {
	root := o.root
	engine := newNode(u, root).Engine(driver.DefaultTimeout)
	var err error
	if opts.render == "" {
		err = recoverEntries(ctx, u, engine, o, 0)
	} else {
		err = node.Settled(ctx, root, change.Machine(root).Observe())
	}
	if err != nil {
		return err
	}
	m, reboot := node.Observe(ctx, root, opts.NeedsFunctions())
	c, err := cloud.ObserveConfiguration(root, m, opts.ConfigureOptions)
	if err != nil {
		return err
	}
	if opts.reported && c.Role == nova.Compute {
		return errComputesReport
	}
	want, err := nova.NewWant(c.Options)
	if err != nil {
		return err
	}
	if opts.render != "" {
		return views.RenderNova(u, newReport(root, reboot, false), opts.render, c, want)
	}
	plan, err := c.Plan(root, want, opts.Place)
	if errors.Is(err, nova.ErrOwned) && len(want.Aliases) > 0 {
		// The deployment tool has to write these options.
		return errors.Join(views.RenderNova(u, newReport(root, reboot, false), nova.FormFor(err), c, want), err)
	}
	if err != nil {
		return err
	}
	report := views.NewNovaConfigure(newReport(root, reboot, false), c, want, plan)
	if plan.AsksPlacement {
		state, warnings, err := cloud.ComputesReport(ctx, root, plan, cloud.ReportingOptions{Conf: opts.Place.File, Cloud: opts.service, Asserted: opts.reported})
		if err != nil {
			return err
		}
		report.ComputesReport, report.Warnings = &state, append(report.Warnings, warnings...)
	}
	return decide(u, o, &report, "apply this plan?", report.Summary(), func() { report.Print(u) }, func() error {
		return applyWork(ctx, u, engine, o.format, c.Work(root, plan, o.command), &report)
	}, report.Warnings...)
}
