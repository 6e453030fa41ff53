package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/guest"
	"gpustack/host/pci"
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
what could not be read, and then proves no absence. docs/json.md describes the fields.

Whether a report is newer than the last change of a row is known only if the host's clock is
synchronized, and then to half a minute. With --token it does not depend on the clock: copy
the token that 'gpustack repair-migration' has just printed, which has the database's time.

The host's name in Nova is read from /etc/nova/nova.conf and the files beside it that
nova-compute reads, and from kolla's /etc/kolla/nova-compute/nova.conf. Without such a
setting it is the hostname.

EXAMPLES
  gpustack host guests
  ssh gpu1 gpustack host guests -o json > gpu1.json
  ssh gpu1 gpustack host guests --token 20261123T174001.123456Z-84efa4dd -o json > gpu1.json
  gpustack host guests --conf /srv/nova/nova.conf -o yaml

EXIT STATUS
  0  everything could be read
  1  error: the root cannot be read
  2  something could not be read; the output names it`,
		Flags: []cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			args.Paths(&cli.StringSliceFlag{Name: "conf", Usage: "read Nova's host from `FILE` below the root, what nova-compute reads (repeatable)"},
				args.PathRules{Kind: args.MachineFile}),
			&cli.StringFlag{Name: "token", Usage: "record that the report was made after 'gpustack repair-migration' printed `TOKEN`"},
		},
		Action: action(u, parseHostGuests, runHostGuests),
	}
}

type hostGuestsOptions struct {
	root, format string
	conf         []string
	token        *string
}

func parseHostGuests(c *cli.Context, f *args.Faults) hostGuestsOptions {
	f.Arguments(c)
	opts := hostGuestsOptions{root: c.String("root"), format: f.Choice(c, "output"), conf: c.StringSlice("conf")}
	if c.IsSet("token") {
		token := c.String("token")
		if _, err := guest.ParseToken(token); err != nil {
			f.Add(args.UsageError("--token: "+err.Error(), "copy the token as repair-migration prints it"))
		}
		opts.token = &token
	}
	return opts
}

func runHostGuests(_ context.Context, u *term.UI, opts hostGuestsOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	report := guest.Observe(root, guest.NovaConf(nova.ReadHostOption(root, opts.conf)), time.Now())
	report.Token = opts.token
	if root.IsMachine() {
		report.Clock = guest.ReadClock()
	}
	u.Document.Show(report)
	if opts.format == term.FormatTable {
		printGuests(u, report)
	}
	if !report.Complete {
		return errDifferent
	}
	return nil
}

// printGuests prints a line for each guest and each group or device that it uses, then other users
// of groups and devices, then errors.
func printGuests(u *term.UI, r guest.Report) {
	u.Printf("%s\n", term.Printable(guestsLine(r)))
	if rows := guestRows(r); len(rows) > 0 {
		u.Printf("\n")
		u.Table([]string{"GUEST", "NAME", "STATE", "PID", "COMMAND", "VFIO/VDPA", "FUNCTIONS"}, rows)
	} else if r.Complete {
		u.Printf("\nno guest, and no process uses a function\n")
	}
	u.Printf("\n")
	for _, n := range r.NovaCompute {
		since := "since an unknown time"
		if n.Started != nil {
			since = "since " + n.Started.Format(time.RFC3339)
		}
		u.Printf("nova-compute runs %s, pid %d\n", since, n.PID)
	}
	if r.NovaCompute != nil && len(r.NovaCompute) == 0 {
		u.Printf("nova-compute does not run\n")
	}
	if r.Clock != nil && !r.Clock.Synchronized && r.Token == nil {
		u.Printf("the clock is not synchronized: repair-migration needs a report with a token\n")
	}
	for _, s := range r.Unread() {
		u.Printf("%s\n", u.Paint(term.Red, fmt.Sprintf("not readable: %s: %s", s.Name, term.Printable(s.Detail))))
	}
}

// guestsLine returns a line with the machine's name and the time of the observation.
func guestsLine(r guest.Report) string {
	return fmt.Sprintf("%s (by %s), machine %s, %s", views.Text(r.NovaHost), views.Text(r.NovaHostFrom), views.Text(r.MachineID), r.Collected.Format(time.RFC3339))
}

// guestRows returns a row for each running guest and each of its groups and devices, for each other
// user of one, and for each domain that is not running.
func guestRows(r guest.Report) [][]string {
	held := map[int][]guest.Holder{}
	for _, h := range r.Holders {
		held[h.PID] = append(held[h.PID], h)
	}
	domains := map[string]guest.Domain{}
	for _, d := range r.Domains {
		domains[d.UUID] = d
	}
	var rows [][]string
	for _, g := range r.Guests {
		row := []string{views.Text(g.UUID), views.Text(g.Name), "runs", strconv.Itoa(g.PID), g.Command, "-", "-"}
		if len(g.Asked) > 0 {
			row[6] = listAddresses(g.Asked) + " (by its arguments)"
		}
		if g.UUID != nil {
			delete(domains, *g.UUID)
		}
		if len(held[g.PID]) == 0 {
			rows = append(rows, row)
		}
		for _, h := range held[g.PID] {
			rows = append(rows, append(row[:5:5], openName(h), listAddresses(h.Functions)))
			row = []string{"", "", "", "", "", "", ""}
		}
		delete(held, g.PID)
	}
	for _, h := range r.Holders {
		if _, left := held[h.PID]; left {
			rows = append(rows, []string{"-", "-", "no guest", strconv.Itoa(h.PID), h.Command, openName(h), listAddresses(h.Functions)})
		}
	}
	for _, d := range r.Domains {
		if _, left := domains[d.UUID]; left {
			state := "defined"
			if d.Running {
				state = "runs, no process"
			}
			rows = append(rows, []string{d.UUID, d.Name, state, "-", "-", "-", listAddresses(d.Functions)})
		}
	}
	return rows
}

// openName returns the name of the group or device that a holder has open.
func openName(h guest.Holder) string {
	switch {
	case h.Device != nil:
		return *h.Device
	case h.VDPA != nil:
		return *h.VDPA
	}
	return views.Number(h.Group)
}

// listAddresses joins addresses. Unknown ones are a question mark.
func listAddresses(addresses []pci.Address) string {
	if addresses == nil {
		return "?"
	}
	var words []string
	for _, a := range addresses {
		words = append(words, a.String())
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, " ")
}
