package main

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
	clouds "gpustack/operate/cloud"
)

func newFlavorCreateCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "create or update a flavor whose guests get devices",
		ArgsUsage: "ALIAS:COUNT[,ALIAS:COUNT]...",
		Description: `
Plans a flavor that requests devices by the aliases of nova.conf, shows the difference
to the flavors of the cloud, asks, applies and records the change. "gpustack undo"
reverts it. Of an existing flavor, properties, description and access are changed; sizes
cannot be changed. Properties that are not given stay as they are.

Sizes take units as Nova counts them: 64G is 64 GiB. By default each device adds 4 vCPUs,
16 GiB of RAM and 40 GiB of disk.

With --fit, vCPUs and RAM come from the hosts instead: each NUMA node is divided among its
GPUs, after a reserve for the host is subtracted, and the smallest share of all nodes and
hosts counts, so that guests for all devices fit on every host. Memory that a host keeps as
huge pages of 1 GiB is the guests' memory. An inventory does not show the file system of
guests' disks, so the disk remains the default. Sizes that are given win.

` + cloudHelp + `
Properties that the cloud's Nova release does not support are skipped with a warning.

EXAMPLES
  gpustack flavor create K4200:2
  gpustack flavor create A100-SXM4-80GB:8,A100-NVSwitch:6 --vcpus 96 --ram 1T --cpu-policy dedicated --numa-policy preferred
  gpustack flavor create K4200:1,A100-SXM4-80GB:1 --numa-policy required
  gpustack flavor create K4200:1 --name fit.k4200 --fit machines/
  gpustack flavor create K4200:1 --name win.gpu --hide-hypervisor --image windows-10
  gpustack flavor create L40S:1 --private --project lab --yes -o json`,
		Flags: changingCloud(
			&cli.StringFlag{Name: "name", Usage: "`NAME` of the flavor (default: from alias and count, such as gpu.k4200.2)"},
			&cli.StringFlag{Name: "vcpus", Usage: "`NUMBER` of virtual CPUs"},
			&cli.StringFlag{Name: "ram", Usage: "`SIZE` of the memory, in MiB without a unit"},
			&cli.StringFlag{Name: "disk", Usage: "`SIZE` of the root disk, in GiB without a unit; 0 for the size of the image"},
			&cli.StringFlag{Name: "ephemeral", Usage: "`SIZE` of a second disk, in GiB without a unit"},
			&cli.StringFlag{Name: "swap", Usage: "`SIZE` of the swap disk, in MiB without a unit"},
			&cli.BoolFlag{Name: "private", Usage: "let only the projects of --project use it"},
			&cli.StringSliceFlag{Name: "project", Usage: "let `PROJECT`, a name or an id, use it (repeatable; requires --private)"},
			&cli.StringFlag{Name: "description", Usage: "set the description to `TEXT`"},
			&cli.StringSliceFlag{Name: "property", Usage: "set the extra spec `KEY=VALUE` (repeatable)"},
			args.Choice(&cli.StringFlag{Name: "numa-policy",
				Usage: "NUMA affinity of the devices: `POLICY` required, preferred, legacy or socket"}, []string{"", "required", "preferred", "legacy", "socket"}),
			args.Choice(&cli.StringFlag{Name: "cpu-policy", Usage: "CPU pinning: `POLICY` dedicated or shared"}, []string{"", "dedicated", "shared"}),
			&cli.BoolFlag{Name: "hide-hypervisor", Usage: "hide KVM from the guest, for old NVIDIA drivers on Windows (Error 43)"},
			&cli.StringFlag{Name: "image", Usage: "check disk and RAM against `IMAGE`, a name or an id"},
			args.DocumentsFlag("fit", "derive vCPUs and RAM from `FILE`, the output of host scan --machine"),
			&cli.StringSliceFlag{Name: "alias", Usage: "with --fit, the product of `ALIAS`, as NAME=VENDOR:PRODUCT (repeatable)"},
			&cli.StringFlag{Name: "reserve-cores", Usage: "with --fit, `NUMBER` of cores of each NUMA node that remain with the host (default 1)"},
			&cli.StringFlag{Name: "reserve-memory", Usage: "with --fit, `SIZE` of the memory of each NUMA node that remains with the host (default 8G)"},
		),
		Action: action(u, parseFlavorCreate, runFlavorCreate),
	}
}

type flavorCreateOptions struct {
	flavor flavor.Options
	fit    flavor.FitOptions
}

func parseFlavorCreate(c *cli.Context, f *args.Faults) flavorCreateOptions {
	var opts flavorCreateOptions
	o := &opts.flavor
	if spec := f.Arguments(c, "ALIAS:COUNT")[0]; c.Args().Len() > 0 {
		var err error
		o.Request, err = flavor.ParseRequest(spec)
		f.AddEach("", err, host.Plain("write for example K4200:2 or K4200:1,A100:1"))
	}
	o.Name = c.String("name")
	if len([]rune(o.Name)) > 255 || o.Name != strings.TrimSpace(o.Name) || c.IsSet("name") && o.Name == "" {
		f.Add(args.UsageError("--name: "+strconv.Quote(o.Name)+" is not a valid name", "use 1 to 255 characters, without blanks around them"))
	}
	o.VCPUs = f.Size(c, "vcpus", 1, args.Number)
	o.RAM = f.Size(c, "ram", 1, sizeIn(flavor.MiB))
	o.Disk = f.Size(c, "disk", 0, sizeIn(flavor.GiB))
	o.Ephemeral = f.Size(c, "ephemeral", 0, sizeIn(flavor.GiB))
	o.Swap = f.Size(c, "swap", 0, sizeIn(flavor.MiB))
	o.Private, o.Projects, o.Image = c.Bool("private"), c.StringSlice("project"), c.String("image")
	args.AddIf(f, len(o.Projects) > 0 && !o.Private, "--project requires --private: all projects may use a public flavor", "")
	if c.IsSet("description") {
		o.Description = new(c.String("description"))
	}
	o.NUMAPolicy, o.CPUPolicy, o.HideHypervisor = f.Choice(c, "numa-policy"), f.Choice(c, "cpu-policy"), c.Bool("hide-hypervisor")
	o.Properties = parseProperties(c, f, *o)
	opts.fit = parseFit(c, f)
	return opts
}

// parseProperties reads --property of a flavor, for which the other options are given.
func parseProperties(c *cli.Context, f *args.Faults, o flavor.Options) map[string]string {
	properties := map[string]string{}
	for _, property := range c.StringSlice("property") {
		key, value, err := flavor.ParseProperty(property)
		_, twice := properties[key]
		switch {
		case err != nil:
			f.AddEach("--property: ", err, nil)
		case twice:
			f.Add(args.UsageError("--property: "+key+" is given twice", ""))
		case o.Sets(key):
			f.Add(args.UsageError("--property: "+key+" is set by another option", ""))
		}
		properties[key] = value
	}
	return properties
}

func parseFit(c *cli.Context, f *args.Faults) flavor.FitOptions {
	fit := flavor.FitOptions{Inventories: documentsOf(c, "fit"), Reserve: flavor.DefaultReserve()}
	f.Require(c, "fit", "alias", "reserve-cores", "reserve-memory")
	fit.Products = parseProducts(c, f)
	fit.Reserve.Cores = *cmp.Or(f.Size(c, "reserve-cores", 0, args.Number), &fit.Reserve.Cores)
	fit.Reserve.Memory = *cmp.Or(f.Size(c, "reserve-memory", 0, sizeIn(flavor.MiB)), &fit.Reserve.Memory)
	return fit
}

// parseProducts reads --alias, the products of aliases.
func parseProducts(c *cli.Context, f *args.Faults) map[string]flavor.Product {
	products := map[string]flavor.Product{}
	for _, a := range args.Values(f, c, "alias", nova.ParseAlias, nil) {
		products[a.Name] = flavor.Product{Vendor: a.VendorID, Product: a.ProductID}
	}
	return products
}

// sizeIn returns what parses sizes in a unit.
func sizeIn(unit flavor.Unit) func(string) (int, error) {
	return func(s string) (int, error) { return flavor.ParseSize(s, unit) }
}

func runFlavorCreate(ctx context.Context, u *term.UI, g given, opts flavorCreateOptions) error {
	fit, err := flavor.ReadFit(opts.flavor.Request, opts.fit)
	if err != nil {
		return err
	}
	opts.flavor.Fit = fit
	o, err := openObjects(ctx, u, g)
	if err != nil {
		return err
	}
	observed, err := flavor.Observe(ctx, o.compute, opts.flavor)
	if err != nil {
		return err
	}
	plan, err := flavor.NewPlan(opts.flavor, observed)
	if err != nil {
		return err
	}
	report := views.NewFlavorPlan(o.head(ctx, plan.Changed(), plan.Warnings...), o.compute, plan, fit)
	made := flavor.Kind(o.compute).New(plan.Move)
	return o.carryOut(ctx, u, objectPlan{
		work:     change.Work{Command: "flavor create " + made.Move.After.Name, Change: made},
		show:     func() { views.PrintFlavorPlan(u, report, plan) },
		question: "make these requests?", summary: views.FlavorSummary(plan.Move),
		done: func() string {
			report.After = made.Move.After
			return views.FlavorMade(made.Move)
		},
	}, &report)
}

func newFlavorListCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the flavors whose guests get devices",
		Description: `
Lists the flavors that request devices and that the user may see; an administrator also
sees private flavors and the projects that may use them. With --conf or --inventory it
shows which hosts can provide the devices of each flavor when all devices are free.
Without --conf an alias stands for the product that host scan gives that name. Changes
nothing.

` + cloudHelp + `

EXAMPLES
  gpustack flavor list
  gpustack flavor list --conf controller=/etc/nova/nova.conf --inventory gpu1.json
  gpustack flavor list --os-cloud lab -o json`,
		Flags: append(reading(
			confsFlag("check against", ""),
			releaseFlag(),
			inventoryFlag("check against the hardware in `FILE`, JSON or YAML of host scan"),
		), cloudFlags(timeoutOfCloud)...),
		Action: action(u, parseFlavorList, runFlavorList),
	}
}

func parseFlavorList(c *cli.Context, f *args.Faults) clouds.OfferOptions {
	return clouds.OfferOptions{Confs: parseConfs(c, f, ""), Release: parseRelease(c, f), Inventories: documentsOf(c, "inventory")}
}

func runFlavorList(ctx context.Context, u *term.UI, o given, opts clouds.OfferOptions) error {
	offers, err := clouds.ReadOffers(o.root, opts)
	if err != nil {
		return err
	}
	compute, err := cloud.ConnectCompute(ctx, o.cloud)
	if err != nil {
		return err
	}
	flavors, warnings, err := clouds.ListFlavors(ctx, compute, offers)
	if err != nil {
		return err
	}
	report := views.FlavorList{Schema: 1, Cloud: compute.URL, Flavors: flavors, Warnings: slices.Concat(offers.Warnings, warnings)}
	return showReport(u, o.format, report, func() { views.PrintFlavors(u, report, len(offers.Sides)+len(offers.Hosts) > 0) }, true)
}

func newFlavorDeleteCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "delete",
		Usage:     "delete a flavor whose guests get devices",
		ArgsUsage: "NAME",
		Description: `
Shows the flavor with this name or id, asks, deletes it and records that. "gpustack undo"
creates it again, with the same id. Flavors that instances of any project have, and
flavors that do not request devices, are refused.

` + cloudHelp + `

EXAMPLES
  gpustack flavor delete gpu.k4200.2 --os-cloud lab --yes`,
		Flags:  changingCloud(),
		Action: action(u, oneArgument("NAME"), runFlavorDelete),
	}
}

func runFlavorDelete(ctx context.Context, u *term.UI, g given, nameOrID string) error {
	o, err := openObjects(ctx, u, g)
	if err != nil {
		return err
	}
	move, err := flavor.PlanDeletion(ctx, o.compute, nameOrID)
	if err != nil {
		return err
	}
	plan, name := flavor.Plan{Move: move}, move.Name()
	report := views.NewFlavorPlan(o.head(ctx, true), o.compute, plan, nil)
	return o.carryOut(ctx, u, objectPlan{
		work:     change.Work{Command: "flavor delete " + name, Change: flavor.Kind(o.compute).New(move)},
		show:     func() { views.PrintFlavorPlan(u, report, plan) },
		question: "delete it?", summary: views.FlavorSummary(move),
		done: func() string { return "deleted flavor " + term.Printable(name) },
	}, &report)
}
