package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/guest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/nova"
)

func newNovaConfigureCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "configure",
		Usage: "configure aliases, device specs and scheduler filters in nova.conf",
		Description: `
Plans the PCI options of the services of this machine, under their names in the
installed release of Nova, shows a diff, asks, applies and records the change. "gpustack
undo" reverts it, except report_in_placement. Only lines that must change are changed.
Aliases and device specs that gpustack has not written are kept and listed, older names
of options are replaced, and secrets in the diff are masked.

Nova gives a device the tags of the first device_spec that matches it: planned specs
are inserted before broader ones. The command refuses and shows the specs if no order
keeps the effect of both, if nova-compute would not start, or if an existing spec offers
a GPU that remains with the host. gpustack's own specs are updated, with a warning for
each tag whose value changes.

--alias NAME=VENDOR:PRODUCT defines an alias, with ,KEY=VALUE for device_type,
numa_policy, resource_class, traits (joined by plus signs) or live_migratable.
--inventory defines an alias for each product in the JSON or YAML of host scan, with
type-PF if the product supports SR-IOV. Without both, a compute node gets an alias for
each product that host prepare has recorded there. A compute node offers functions by
ids, or by address if an identical device remains with the host or is for containers.
Nothing that container prepare has recorded is offered.

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
are kept, with a warning. Devices in use keep their guests. Combine it with --alias to
rename an alias or to change its product.

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
  gpustack nova configure --role controller --inventory gpu1.json --release zed --render kolla

EXIT STATUS
  0  the files are as planned, or were before
  1  the change failed or was refused; the files are as before
  2  --dry-run: there are pending changes
  130  interrupted: nothing was changed, or all was rolled back unless the error says otherwise`,
		Flags: []cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			args.Choice(&cli.StringFlag{Name: "role", Usage: "`ROLE` of the machine: controller, compute or all"},
				[]string{string(nova.Controller), string(nova.Compute), string(nova.All)}),
			releaseFlag(),
			&cli.StringSliceFlag{Name: "alias", Usage: "define `ALIAS`: NAME=VENDOR:PRODUCT[,KEY=VALUE]... (repeatable)"},
			&cli.StringSliceFlag{Name: "hca", Usage: "offer an adapter or VF as `HCA`: ADDRESS=alias:NAME or ADDRESS=port[:PHYSNET] (repeatable)"},
			inventoryFlag("define an alias for each product in `FILE`, JSON or YAML of host scan"),
			args.Paths(&cli.StringSliceFlag{Name: "names", Usage: "use the names in `FILE`, a controller's nova.conf or plan as JSON, or - (repeatable)"},
				args.PathRules{Kind: args.HandedOver, Stdin: true}),
			&cli.StringSliceFlag{Name: "remove-alias", Usage: "remove the alias `NAME` and the device specs that only it uses (repeatable)"},
			&cli.BoolFlag{Name: "by-address", Usage: "write device specs by address"},
			&cli.BoolFlag{Name: "placement", Usage: "track the devices in Placement; cannot be turned off again on a compute node"},
			&cli.BoolFlag{Name: "computes-report", Usage: "assert that all compute nodes report devices, if it cannot be verified"},
			answerTimeoutFlag(timeoutOfDatabases),
			args.Choice(&cli.StringFlag{Name: "managed", Usage: "whether libvirt binds the functions to vfio-pci: `YES` or no"}, []string{"", "yes", "no"}),
			&cli.BoolFlag{Name: "one-time-use", Usage: "assign each device to one guest only, until an operator releases it"},
			novaConfFlag("configure `FILE`, below the root"),
			&cli.BoolFlag{Name: "drop-in", Usage: "write new options to a file of their own in nova.conf.d"},
			args.Choice(&cli.StringFlag{Name: "render", Usage: "only print the options for a deployment tool, as `FORM` ini, kolla, tripleo or rhoso"},
				[]string{"", renderINI, renderKolla, renderTripleO, renderRHOSO}),
			args.DryRunFlag(), args.YesFlag(), args.QuietFlag(),
		},
		Action: action(u, parseNovaConfigure, runNovaConfigure),
	}
}

const defaultConf = nova.DefaultConf

// Forms of --render.
const (
	renderINI     = "ini"
	renderKolla   = "kolla"
	renderTripleO = "tripleo"
	renderRHOSO   = "rhoso"
)

// renderFor returns the form for the tool that generates a refused file.
func renderFor(err error) string {
	var owned *nova.OwnedError
	if errors.As(err, &owned) {
		for owner, form := range map[string]string{"kolla-ansible": renderKolla, "TripleO": renderTripleO, "RHOSO": renderRHOSO} {
			if owned.Owner == owner {
				return form
			}
		}
	}
	return renderINI
}

type novaConfigureOptions struct {
	decision
	root        string
	inventories []string
	names       []string // files
	own         bool     // the products are those that are prepared on this machine
	unread      error    // of the files of this machine, which --render does not need
	nova        nova.Options
	place       nova.Place
	render      string
	timeout     time.Duration
	reported    bool // the operator asserts that all compute nodes report
	warnings    []string
}

func parseNovaConfigure(c *cli.Context, f *args.Faults) novaConfigureOptions {
	f.Arguments(c)
	opts := novaConfigureOptions{
		decision:    parseDecision(c, f),
		root:        c.String("root"),
		inventories: c.StringSlice("inventory"),
		names:       c.StringSlice("names"),
		nova: nova.Options{
			Release:    parseRelease(c, f),
			Aliases:    args.Values(f, c, "alias", nova.ParseAlias),
			HCAs:       args.Values(f, c, "hca", nova.ParseHCA),
			Placement:  c.Bool("placement"),
			ByAddress:  c.Bool("by-address"),
			Managed:    f.Choice(c, "managed"),
			OneTimeUse: c.Bool("one-time-use"),
			Remove:     c.StringSlice("remove-alias"),
			NamesGiven: c.IsSet("names"),
		},
		place:  nova.Place{File: c.String("conf"), Given: c.IsSet("conf"), DropIn: c.Bool("drop-in")},
		render: f.Choice(c, "render"), timeout: parseTimeout(c, f), reported: c.Bool("computes-report"),
	}
	if c.IsSet("role") {
		opts.nova.Role = nova.Role(f.Choice(c, "role"))
	} else {
		f.Add(args.UsageError("--role is missing", "give --role controller, compute or all"))
	}
	f.Exclude(c, "quiet", "render")
	if opts.reported && (!opts.nova.Placement || opts.nova.Role == nova.Compute) {
		f.Add(args.UsageError("--computes-report requires --placement and --role controller or all", ""))
	}
	none := len(opts.inventories)+len(opts.nova.Remove)+len(c.StringSlice("alias"))+len(c.StringSlice("hca")) == 0
	opts.own = none && opts.nova.Role.Computes()
	switch {
	case none && opts.nova.Role == nova.Controller:
		f.Add(args.UsageError("no alias given", "give --alias NAME=VENDOR:PRODUCT, or --inventory FILE with the output of gpustack host scan -o json"))
	case len(opts.names) > 0 && len(opts.inventories) == 0 && !none:
		f.Add(args.UsageError("--names requires --inventory", "--names gives the products of the inventories the names of the cloud"))
	}
	if opts.render != "" && len(opts.nova.Remove) > 0 {
		f.Add(args.UsageError("--remove-alias cannot be combined with --render", "remove the alias where the deployment tool reads the options"))
	}
	return opts
}

// parseRelease reads --release; 0 stands for the release that is installed.
func parseRelease(c *cli.Context, f *args.Faults) nova.Release {
	if c.String("release") == "auto" {
		return 0
	}
	release, err := nova.ParseRelease(c.String("release"))
	if err != nil {
		f.Add(args.UsageError("--release: "+err.Error(), "--release takes auto, "+term.Listed(nova.ReleaseNames(), "or")+", or a newer one"))
	}
	return release
}

// novaReport is the output of nova configure (docs/json.md).
type novaReport struct {
	views.Report
	Release        string             `json:"release"`
	Role           nova.Role          `json:"role"`
	Changes        []views.FileChange `json:"changes"`
	Aliases        []nova.Alias       `json:"aliases"`
	Specs          []nova.Spec        `json:"device_specs"`
	Kept           []string           `json:"kept"`
	Removed        []string           `json:"removed"`
	Dropped        []string           `json:"dropped_filters"`
	Services       []nova.Service     `json:"services"` // to restart
	ComputesReport *string            `json:"computes_report"`
	Rendered       *string            `json:"rendered"` // the options for a deployment tool
}

// newNovaReport returns the report of a plan.
func newNovaReport(root host.Root, reboot *bool, opts novaConfigureOptions, want nova.Want, plan nova.Plan) novaReport {
	changes := views.FileChanges(plan.Files)
	r := novaReport{
		Report:  newReport(root, reboot, len(changes) > 0, slices.Concat(opts.warnings, want.Warnings, plan.Warnings)...),
		Release: opts.nova.Release.String(), Role: opts.nova.Role, Changes: changes,
		Aliases: append([]nova.Alias{}, want.Aliases...), Specs: append([]nova.Spec{}, want.Specs...), Kept: append([]string{}, plan.Kept...),
		Removed: append([]string{}, plan.Removed...), Dropped: append([]string{}, plan.Dropped...), Services: append([]nova.Service{}, plan.Restart...),
	}
	for _, s := range plan.Restart {
		r.Restart = append(r.Restart, s.Name)
	}
	return r
}

func runNovaConfigure(ctx context.Context, u *term.UI, opts novaConfigureOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	engine := newNode(u, root).Engine(driver.DefaultTimeout)
	if opts.render == "" {
		err = recoverEntries(ctx, u, engine, opts.decision, 0)
	} else {
		err = newNode(u, root).Settled(ctx)
	}
	if err != nil {
		return err
	}
	if err := opts.observe(u, root); err != nil {
		return err
	}
	want, err := nova.NewWant(opts.nova)
	if err != nil {
		return err
	}
	if opts.render != "" {
		return renderNova(ctx, u, root, opts, want)
	}
	plan, err := nova.NewPlan(root, opts.nova, want, opts.place)
	if errors.Is(err, nova.ErrOwned) && len(want.Aliases) > 0 {
		// The deployment tool has to write these options.
		opts.render = renderFor(err)
		return errors.Join(renderNova(ctx, u, root, opts, want), err)
	}
	if err != nil {
		return err
	}
	report := newNovaReport(root, newNode(u, root).RebootRequired(ctx), opts, want, plan)
	if plan.AsksPlacement {
		state, warnings, err := computesReport(ctx, u, root, opts, plan)
		if err != nil {
			return err
		}
		report.ComputesReport, report.Warnings = &state, append(report.Warnings, warnings...)
	}
	showPlan(u, opts.decision, &report, func() { printNova(u, report, opts) }, report.Warnings...)
	return decide(u, opts.decision, "apply this plan?", novaSummary(report), &report, func() error {
		work := change.Work{Command: "nova configure --role " + string(opts.nova.Role), About: &change.Topic{Subject: change.OfNova, Role: string(opts.nova.Role)}, Change: change.Files{Root: root}.New(plan.Files)}
		work.Restart = append(work.Restart, report.Restart...)
		return applyWork(ctx, u, engine, opts.format, work, &report)
	})
}

// observe reads the machine and the inventories.
func (o *novaConfigureOptions) observe(u *term.UI, root host.Root) error {
	var errs [7]error
	o.nova.Release, o.warnings, errs[0] = o.nova.Release.OrInstalled(root)
	need := nova.ScopeGPUs
	if len(o.nova.HCAs) > 0 {
		need = nova.ScopeAll
	}
	o.nova.Hosts, errs[1] = nova.ReadInventories(documentsAt(u, o.inventories...), need)
	o.nova.Cloud, errs[4] = nova.ReadNames(documentsAt(u, o.names...))
	o.nova.InUse, errs[5] = nova.InUse(root, o.place, o.nova.Role, o.nova.Release)
	if o.render != "" && errs[5] != nil {
		// The options may be for another place: the files here are only a source of names.
		o.unread, errs[5] = errs[5], nil
	}
	if o.nova.Role != nova.Controller {
		var roles nova.Recorded
		roles, errs[2] = readRoles(root)
		o.nova.Machine, errs[3] = nova.Observe(root, roles)
		if len(o.nova.HCAs) > 0 && errs[3] == nil {
			o.nova.Adapters, errs[6] = novaAdapters(root, o.nova.Devices)
		}
		if o.own && errs[2] == nil && errs[3] == nil {
			var here nova.Host
			here, errs[1] = o.nova.Prepared()
			o.nova.Hosts = append(o.nova.Hosts, here)
		}
		if len(o.nova.Remove) > 0 {
			o.nova.Guests = guestsOf(guest.Observe(root, guest.NovaConf(nova.ReadHostOption(root, nil)), time.Now()))
		}
	}
	return errors.Join(errs[:]...)
}

// guestsOf returns the guests that a report shows to have functions, by function.
func guestsOf(r guest.Report) map[pci.Address]string {
	guests := map[pci.Address]string{}
	for _, d := range r.Domains {
		for _, a := range d.Functions {
			guests[a] = "guest " + d.UUID
		}
	}
	for _, h := range r.Holders {
		for _, a := range h.Functions {
			if guests[a] == "" {
				guests[a] = fmt.Sprintf("pid %d (%s)", h.PID, h.Command)
			}
			if h.UUID != nil {
				guests[a] = "guest " + *h.UUID
			}
		}
	}
	return guests
}

// renderNova prints the options for a deployment tool, and the file in which it reads them.
func renderNova(ctx context.Context, u *term.UI, root host.Root, opts novaConfigureOptions, want nova.Want) error {
	if opts.unread != nil {
		u.Warn("aliases that are in use on this machine are unknown: " + opts.unread.Error())
	}
	u.Warn(want.Warnings...)
	form := nova.Render
	switch opts.render {
	case renderTripleO:
		form = nova.RenderTripleO
	case renderRHOSO:
		form = nova.RenderRHOSO
	}
	text, err := form(opts.nova, want)
	if err != nil {
		return err
	}
	u.Warn(opts.warnings...)
	if opts.nova.Placement && opts.nova.Role != nova.Compute {
		u.Warn("--render does not verify it: set pci_in_placement only after every compute node reports its PCI devices and nova-compute was restarted")
	}
	if u.Document.Requested() {
		report := newNovaReport(root, newNode(u, root).RebootRequired(ctx), opts, want, nova.Plan{})
		report.Rendered = &text
		u.Document.Show(report)
		return nil
	}
	switch opts.render {
	case renderTripleO:
		u.Printf("# For TripleO: an environment file of \"openstack overcloud deploy -e FILE\".\n" +
			"# Compute and Controller stand for the roles of the nodes.\n")
	case renderRHOSO:
		if opts.nova.Role.Controls() {
			u.Printf("# For RHOSO: the spec is a part of the OpenStackControlPlane.\n")
		}
		if opts.nova.Role.Computes() {
			u.Printf("# For RHOSO: the ConfigMap is listed in dataSources of the nodes' OpenStackDataPlaneService for Nova.\n")
		}
	case renderKolla:
		services := map[nova.Role]string{nova.Controller: "nova-api.conf and nova-scheduler.conf", nova.Compute: "nova-compute.conf", nova.All: "nova.conf"}
		u.Printf("# For kolla-ansible: nova/%s in the folder node_custom_config.\n", services[opts.nova.Role])
	}
	if opts.nova.Role.Controls() && opts.render != renderINI {
		u.Printf("# The filters replace the list that is set.\n")
	}
	u.Printf("%s", text)
	return nil
}

// printNova prints the plan as text.
func printNova(u *term.UI, r novaReport, opts novaConfigureOptions) {
	u.Printf("Nova %s, %s\n\n", r.Release, r.Role)
	var rows [][]string
	for _, a := range r.Aliases {
		kind := a.DeviceType
		if kind == "" {
			kind = "-"
		}
		rows = append(rows, []string{a.Name, a.VendorID.String() + ":" + a.ProductID.String(), kind})
	}
	if len(rows) > 0 {
		u.Table([]string{"ALIAS", "ID", "TYPE"}, rows)
	}
	for i, line := range r.Removed {
		if i == 0 && len(rows) > 0 {
			u.Printf("\n")
		}
		if i == 0 {
			u.Printf("removed:\n")
		}
		u.Printf("%s\n", term.Printable(line))
	}
	for i, k := range r.Kept {
		if i == 0 {
			u.Printf("\nkept:\n")
		}
		u.Printf("%s\n", term.Printable(k))
	}
	if !r.Changed {
		u.Printf("\nnothing to do: the files are as planned\n")
		return
	}
	if len(r.Dropped) > 0 {
		u.Printf("\nremoved, because %s does not have these filters: %s\n", r.Release, term.Printable(strings.Join(r.Dropped, ", ")))
	}
	if text := views.CompanionsText(novaCompanions(opts.nova.Hosts)); text != "" && r.Role.Computes() && len(r.Specs) > 0 {
		u.Printf("\n%s", text)
	}
	views.PrintDiffs(u, r.Changes)
	if opts.nova.Placement && opts.nova.Role != nova.Controller {
		u.Printf("\nreport_in_placement cannot be turned off again on this host\n")
	}
	if r.ComputesReport != nil && *r.ComputesReport == reportVerified {
		u.Printf("\nverified: every compute node with these devices reports them to Placement\n")
	}
	printRestarts(u, r.Services)
}

// readRoles returns the functions of the machine that have a role.
func readRoles(root host.Root) (r nova.Recorded, err error) {
	guests, containers, err := machine.ReadRecord(root)
	if guests != nil {
		r.Guests = []pci.Address{}
		for _, f := range guests.Functions {
			r.Guests = append(r.Guests, f.Address)
		}
	}
	if containers != nil {
		for _, f := range containers.Functions {
			r.Containers = append(r.Containers, f.Address)
		}
	}
	return r, err
}
