package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/operate/cloud"
)

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
