package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/guest"
	"gpustack/nova"
)

func newHostGuestsCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "guests",
		Usage: "show which guests use which PCI functions right now",
		Description: `
Lists the processes that have a VFIO group, VFIO device or vDPA device open and the guests
they run, every QEMU process, the libvirt domains (also of kolla's containers), virtual
functions and nova-compute, with the host's name in Nova, its machine id and the time.
Reads files below the root and the state of the clock, and changes nothing. Must be run as
root, outside of containers.

The report, as json or yaml, is evidence for 'gpustack repair-migration', which needs one
of each host that is involved with a guest, not older than ten minutes. The report names
what could not be read, and then proves no absence.

Whether a report is newer than the last change of a row is known only if the host's clock is
synchronized, and then to half a minute. With --token it does not depend on the clock: copy
the token that 'gpustack repair-migration' has just printed, which has the database's time.

The host's name in Nova is read from /etc/nova/nova.conf and the files beside it that
nova-compute reads, and from kolla's /etc/kolla/nova-compute/nova.conf. Without such a
setting it is the hostname.

EXAMPLES
  ssh gpu1 gpustack host guests -o json > gpu1.json
  ssh gpu1 gpustack host guests --token 20261123T174001.123456Z-84efa4dd -o json > gpu1.json
  gpustack host guests --conf /srv/nova/nova.conf -o yaml

EXIT STATUS
  0  everything could be read
  1  error: the root cannot be read
  2  something could not be read; the output names it`,
		Flags: reading(
			args.Paths(&cli.StringSliceFlag{Name: "conf", Usage: "read Nova's host from " + belowRoot + ", what nova-compute reads (repeatable)"},
				args.PathRules{Below: true}),
			&cli.StringFlag{Name: "token", Usage: "record that the report was made after 'gpustack repair-migration' printed `TOKEN`"},
		),
		Action: action(u, parseHostGuests, runHostGuests),
	}
}

type hostGuestsOptions struct {
	conf  []string
	token *string
}

func parseHostGuests(c *cli.Context, f *args.Faults) hostGuestsOptions {
	opts := hostGuestsOptions{conf: c.StringSlice("conf")}
	if c.IsSet("token") {
		token := c.String("token")
		_, err := guest.ParseToken(token)
		f.AddEach("--token: ", err, host.Plain("copy the token as repair-migration prints it"))
		opts.token = &token
	}
	return opts
}

func runHostGuests(_ context.Context, u *term.UI, o given, opts hostGuestsOptions) error {
	report := guest.Observe(o.root, guest.NovaConf(nova.ReadHostOption(o.root, opts.conf)), time.Now())
	report.Token = opts.token
	if o.root.IsMachine() {
		report.Clock = guest.ReadClock()
	}
	return showReport(u, o.format, report, func() { views.PrintGuests(u, report) }, report.Complete)
}
