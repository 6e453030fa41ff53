package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/nova/explain"
	"gpustack/operate/cloud"
)

func newNovaExplainCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "explain",
		Usage: "explain why no valid host was found",
		Description: `
Judges for each compute node whether it can build a guest of a flavor, and names the
first link of the chain that fails, with what was read, from where, and a command that
mends it.

The links, in their order:

  flavor             its request for devices is well-formed; it is not disabled
  image              its minimum disk and memory, with --image
  alias              defined by every controller of --conf
  device_spec        offers enough devices of the alias and its device_type, by the
                     compute node's file (--conf) and its hardware (--inventory)
  rows               enough devices are free in Nova's database; stale rows are named
  numa               devices are free near as many NUMA nodes as the guest has
  placement          CPUs, memory, disk and traits; devices too with pci_in_placement
  service            nova-compute is up and enabled
  availability_zone  that of --az, of the server, or the default of nova-api
  filters            nova-scheduler starts with its filters, and these accept the host

What filters compare besides (CPU policies, aggregates, images, server groups) only Nova
itself judges: --nova-python names a command that runs Python where nova-scheduler is
installed. It runs a script of gpustack there, for 30 seconds at most, which reads and
opens nothing: what was read here goes in, each filter's answer comes out.

What cannot be read is not checked, and is listed with the option that would check it. A
host is unknown if no link fails, but one was not checked that can reject the guest: free
devices in the database stand for device_spec, and those in Placement for both. Without --conf, an alias stands
for the product that host scan gives that name, and no host is more than unknown. Changes
nothing.

The database is that of --database, or those that a controller's file of --conf names.
Placement and the lists of hosts require an administrator.

` + cloudHelp + `

EXAMPLES
  gpustack nova explain --flavor gpu.k4200.2
  gpustack nova explain --server 1f975a18-2c6e-4a6e-9d0d-3d7f4b7a8c11 --conf controller=/etc/nova/nova.conf
  gpustack nova explain --flavor gpu.k4200.2 --conf controller=ctl.conf --conf compute=gpu1.conf --host gpu1
  gpustack nova explain --flavor gpu.k4200.2 --conf controller=ctl.conf --inventory gpu1.json
  gpustack nova explain --flavor gpu.k4200.2 --conf controller=/etc/nova/nova.conf --nova-python python3

EXIT STATUS
  0  at least one host can build the guest, or the server has a host already
  1  the hosts could not be judged
  2  no host can, or none is known to`,
		Flags: append(reading(
			&cli.StringFlag{Name: "flavor", Usage: "explain the `FLAVOR` with this name or id"},
			&cli.StringFlag{Name: "server", Usage: "explain why the server `UUID` has no host"},
			&cli.StringFlag{Name: "host", Usage: "judge only `HOST`"},
			&cli.StringFlag{Name: "az", Usage: "request the availability zone `ZONE` (default: that of the server)"},
			&cli.StringFlag{Name: "image", Usage: "boot the `IMAGE` with this name or id (default: that of the server)"},
			confsFlag("read", ""),
			releaseFlag(),
			inventoryFlag("judge devices by the hardware in `FILE`, JSON or YAML of host scan"),
			&cli.StringFlag{Name: "nova-python", Usage: "ask the Nova beside the Python that `COMMAND` runs, as in python3 or 'docker exec -i nova_scheduler python3'"},
			&cli.StringFlag{Name: "database", Usage: "read only the cell whose database has this SQLAlchemy `URL`"},
			&cli.StringFlag{Name: "api-database", Usage: "`URL` of nova_api, to read all cells"},
			args.DocumentsFlag("guests", "judge rows by the guest report `FILE` of host guests"),
		), cloudFlags(timeoutOfDatabases)...),
		Action: action(u, parseNovaExplain, runNovaExplain),
	}
}

func parseNovaExplain(c *cli.Context, f *args.Faults) cloud.ExplainOptions {
	opts := parseSources(c, f)
	opts.Guest = explain.Options{Flavor: c.String("flavor"), Server: c.String("server"), Host: c.String("host"), Zone: c.String("az"), Image: c.String("image")}
	opts.Release, opts.NovaPython = parseRelease(c, f), c.String("nova-python")
	f.Exclude(c, "flavor", "server")
	args.AddIf(f, opts.Guest.Flavor == "" && opts.Guest.Server == "", "--flavor or --server is required",
		host.Textf("'%s' shows the flavors that request devices", host.NewCommand("flavor list")))
	return opts
}

// parseSources reads the flags for files, inventories, databases and guest reports.
func parseSources(c *cli.Context, f *args.Faults) cloud.ExplainOptions {
	return cloud.ExplainOptions{Confs: parseConfs(c, f, ""), Inventories: documentsOf(c, "inventory"), Reports: documentsOf(c, "guests"),
		Database: c.String("database"), API: c.String("api-database")}
}

func runNovaExplain(ctx context.Context, u *term.UI, o given, opts cloud.ExplainOptions) error {
	opts.Cloud = o.cloud
	explanation, err := cloud.Explain(ctx, o.root, opts)
	if err != nil {
		return err
	}
	report := views.NovaExplain{Schema: 1, Explanation: explanation}
	return showReport(u, o.format, report, func() { report.Print(u) }, report.Verdict == explain.Can)
}

func newNovaDevicesCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "devices",
		Usage: "list who has which device, and which devices are free",
		Description: `
Lists the PCI devices of all compute nodes, with the instance that has each, and counts
them by product and availability zone. Changes nothing.

A cloud that counts PCI devices in Placement (report_in_placement) needs only the
credentials of an administrator. Otherwise the database shows them: that of --database, or
that of a controller's file of --conf; without credentials it is read alone. --inventory
adds the GPUs of hosts and containers. Rows are judged as by repair-migration.

What two sources contradict each other in is listed with the command that explains it. What
Nova is changing at the moment may look like that: run it again.

STATES
  free        the next guest may get the device
  instance    an instance has the device
  to-clean    reserved in Placement after its guest (one_time_use): with --guests the command
              that releases it is printed, if no guest has the device
  disabled    nova-compute is disabled or down, the device is reserved, or a function of the
              same card is assigned
  host, container
              available to the host or to containers
  stale, suspicious
              by the row, with the letter of its case in repair-migration
  unknown     a source cannot show it, or two contradict each other

vGPUs (mediated devices and virtual functions of vendors), MIG and Cyborg are not supported:
such devices are listed only as far as Nova has them as PCI devices.

` + cloudHelp + `

EXAMPLES
  gpustack nova devices --state free --alias K4200 --conf controller=ctl.conf
  gpustack nova devices --host gpu1 --inventory gpu1.json
  gpustack nova devices --project admin -o json`,
		Flags: append(reading(
			&cli.StringFlag{Name: "host", Usage: "list only devices of `HOST`"},
			&cli.StringFlag{Name: "alias", Usage: "list only devices that `ALIAS` requests"},
			&cli.StringFlag{Name: "project", Usage: "list only devices of instances of `PROJECT` (its id; with credentials its name too)"},
			args.Choice(&cli.StringFlag{Name: "state", Usage: "list only devices in `STATE`"},
				append([]string{""}, cloud.DeviceStates()...)),
			confsFlag("read", ""),
			inventoryFlag("compare with the hardware in `FILE`, JSON or YAML of host scan"),
			&cli.StringFlag{Name: "database", Usage: "read only the cell whose database has this SQLAlchemy `URL`"},
			&cli.StringFlag{Name: "api-database", Usage: "`URL` of nova_api, to read all cells"},
			args.DocumentsFlag("guests", "judge by the guest report `FILE` of host guests"),
		), cloudFlags(timeoutOfDatabases)...),
		Action: action(u, parseNovaDevices, runNovaDevices),
	}
}

func parseNovaDevices(c *cli.Context, f *args.Faults) cloud.DevicesOptions {
	return cloud.DevicesOptions{
		Host: c.String("host"), Alias: c.String("alias"), Project: c.String("project"), State: cloud.DeviceState(f.Choice(c, "state")),
		Sources: parseSources(c, f),
	}
}

func runNovaDevices(ctx context.Context, u *term.UI, o given, opts cloud.DevicesOptions) error {
	opts.Sources.Cloud = o.cloud
	list, err := cloud.ListDevices(ctx, o.root, opts)
	if list.Devices == nil {
		return err
	}
	report := views.NovaDevices{Schema: 1, DeviceList: list}
	u.Document.Show(report)
	if o.format == term.FormatTable {
		report.Print(u)
	}
	return err
}
