package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/explain"
)

func newNovaExplainCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "explain",
		Usage: "explain why no valid host was found for a flavor or a server",
		Description: `
Judges for each compute node whether it can build a guest of a flavor, and names the
first link of the chain that fails, with what was read, from where, and a command that
mends it:

  flavor             its request for devices is well-formed; it is not disabled
  image              its minimum disk and memory, with --image
  alias              defined by every controller of --conf
  device_spec        offers enough devices of the alias and its device_type, by the
                     compute node's file (--conf) and its hardware (--inventory)
  rows               enough devices are free in Nova's database; stale rows are named
  placement          CPUs, memory, disk and traits; devices too with pci_in_placement
  service            nova-compute is up and enabled
  filters            nova-scheduler starts with its filters; aggregates fit the flavor
  availability_zone  that of --az, of the server, or the default of nova-api
  numa               the free devices are on NUMA nodes that the guest can have

What cannot be read is not checked, and is listed with the option that would check it. A
host is unknown if no link fails, but one was not checked: free devices in the database
stand for device_spec, and those in Placement for the rows. Without --conf, an alias stands
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
  gpustack nova explain --flavor gpu.k4200.2 --az az1 -o json

EXIT STATUS
  0  at least one host can build the guest, or the server has a host already
  1  the hosts could not be judged
  2  no host can, or none is known to`,
		Flags: append([]cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			&cli.StringFlag{Name: "flavor", Usage: "explain the `FLAVOR` with this name or id"},
			&cli.StringFlag{Name: "server", Usage: "explain why the server `UUID` has no host"},
			&cli.StringFlag{Name: "host", Usage: "judge only `HOST`"},
			&cli.StringFlag{Name: "az", Usage: "request the availability zone `ZONE` (default: that of the server)"},
			&cli.StringFlag{Name: "image", Usage: "boot the `IMAGE` with this name or id (default: that of the server)"},
			confsFlag("read `[ROLE=]FILE[,FILE]` of a controller or compute node (repeatable)"),
			releaseFlag(),
			inventoryFlag("judge devices by the hardware in `FILE`, JSON or YAML of host scan"),
			&cli.StringFlag{Name: "database", Usage: "read only the cell whose database has this SQLAlchemy `URL`"},
			&cli.StringFlag{Name: "api-database", Usage: "`URL` of nova_api, to read all cells"},
			args.DocumentsFlag("guests", "judge rows by the guest report `FILE` of host guests"),
		}, databaseFlags()...),
		Action: action(u, parseNovaExplain, runNovaExplain),
	}
}

type novaExplainOptions struct {
	root, format          string
	flavor, server        string
	host, zone, image     string
	confs                 []nova.SideFiles
	release               nova.Release
	inventories, guests   []string
	database, apiDatabase string
	cloud                 cloudOptions
}

func parseNovaExplain(c *cli.Context, f *args.Faults) novaExplainOptions {
	f.Arguments(c)
	opts := novaExplainOptions{
		root: c.String("root"), format: f.Choice(c, "output"), flavor: c.String("flavor"), server: c.String("server"),
		host: c.String("host"), zone: c.String("az"), image: c.String("image"),
		confs: parseConfs(c, f, ""), release: parseRelease(c, f), inventories: c.StringSlice("inventory"), guests: c.StringSlice("guests"),
		database: c.String("database"), apiDatabase: c.String("api-database"), cloud: parseCloud(c, f),
	}
	f.Exclude(c, "flavor", "server")
	if opts.flavor == "" && opts.server == "" {
		f.Add(args.UsageError("--flavor or --server is required", "'gpustack flavor list' shows the flavors that request devices"))
	}
	return opts
}

// novaExplainReport is the output of nova explain (docs/json.md).
type novaExplainReport struct {
	Schema int              `json:"schema"`
	Cloud  string           `json:"cloud"`
	Flavor string           `json:"flavor_name"`
	Server *explainedServer `json:"failed_server"`
	explain.Report
	Findings []host.Finding `json:"findings"`
	Warnings []string       `json:"warnings"`
}

// explainedServer is the server whose fault is explained.
type explainedServer struct {
	ID     string  `json:"id"`
	Name   string  `json:"name"`
	Status string  `json:"status"`
	Host   *string `json:"host"`
	Fault  *string `json:"fault"`
}

func runNovaExplain(ctx context.Context, u *term.UI, opts novaExplainOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	e := &explaining{u: u, root: root, opts: opts, facts: explain.Facts{Unread: map[explain.Source]string{}},
		report: novaExplainReport{Schema: 1, Findings: []host.Finding{}, Warnings: []string{},
			Report: explain.Report{Request: nova.Request{}, Judgements: []explain.Judgement{}, Groups: []explain.Group{}, Concerns: []explain.Group{},
				NotChecked: []explain.Omission{}}}}
	if err := e.readFiles(); err != nil {
		return err
	}
	if err := e.connect(ctx); err != nil {
		return err
	}
	if opts.server != "" {
		isPlaced, err := e.readServer(ctx)
		if err != nil {
			return err
		}
		if isPlaced {
			u.Document.Show(e.report)
			if opts.format == term.FormatTable {
				u.Printf("%s\n", term.Printable(e.report.Conclusion))
			}
			return nil
		}
	} else if err := e.readFlavor(ctx, opts.flavor); err != nil {
		return err
	}
	if err := e.readCloud(ctx); err != nil {
		return err
	}
	e.judge()
	u.Document.Show(e.report)
	if opts.format == term.FormatTable {
		printExplanation(u, e.report)
	}
	if e.report.Verdict != explain.Can {
		return errDifferent
	}
	return nil
}

// printExplanation prints the report as text: hosts with the same failure share a line.
func printExplanation(u *term.UI, r novaExplainReport) {
	u.Warn(r.Warnings...)
	if r.Server != nil {
		text := fmt.Sprintf("server %s (%s) is %s", r.Server.Name, r.Server.ID, r.Server.Status)
		if r.Server.Fault != nil {
			text += ": " + *r.Server.Fault
		}
		u.Printf("%s\n", term.OneLine(text))
	}
	u.Printf("%s\n", term.OneLine(r.Conclusion))
	var rows [][]string
	add := func(g explain.Group, verdict string) {
		line := func(text string) {
			rows = append(rows, []string{verdict, text})
			verdict = ""
		}
		if n := len(g.Members); n > 0 {
			line(quantity(n, "host", "hosts") + ": " + explain.Names(g.Members, shownNames))
		}
		if g.Example == nil {
			return
		}
		seen := string(g.Example.Link) + ": " + g.Example.Seen
		if g.Example.From != "" {
			seen += " (" + g.Example.From + ")"
		}
		if len(g.Members) > 1 {
			seen = "on " + g.Members[0] + ", " + seen
		}
		line(seen)
		line(g.Example.Remedy)
	}
	for _, g := range r.Groups {
		add(g, string(g.Verdict))
	}
	for _, g := range r.Concerns {
		add(g, "warning")
	}
	if len(rows) > 0 {
		u.Printf("\n")
		u.Table([]string{"VERDICT", "SEEN"}, rows)
	}
	if len(r.NotChecked) > 0 {
		u.Printf("\nnot checked:\n")
		rows = nil
		for _, o := range r.NotChecked {
			rows = append(rows, []string{string(o.Link), quantity(o.Count, "host", "hosts"), o.Reason + ": " + o.Remedy})
		}
		u.Table([]string{"LINK", "HOSTS", "SEEN"}, rows)
	}
	if n := len(r.Findings); n > 0 {
		u.Printf("\n%s in the files: gpustack nova check with the same --conf explains %s\n", quantity(n, "check fails", "checks fail"),
			map[bool]string{true: "it", false: "them"}[n == 1])
	}
}

// shownNames is how many names or ranges of names the table contains for each verdict.
const shownNames = 3

// explaining is one run of nova explain.
type explaining struct {
	u           *term.UI
	root        host.Root
	opts        novaExplainOptions
	inventories []nova.Host
	cloud       *cloud.Cloud
	compute     *cloud.Compute
	facts       explain.Facts
	omitted     []explain.Omission
	report      novaExplainReport
}

// readFiles reads nova.conf files and inventories.
func (e *explaining) readFiles() error {
	var errs []error
	var err error
	if len(e.opts.confs) > 0 {
		e.facts.Sides, err = nova.ReadSides(documentsAt(e.u), e.opts.confs)
		errs = append(errs, err)
	}
	e.inventories, err = nova.ReadInventories(documentsAt(e.u, e.opts.inventories...), nova.ScopeGPUs)
	return errors.Join(append(errs, err)...)
}

// connect connects to the cloud and determines its release: that of --release, else the installed
// one, else the oldest with the cloud's newest microversion.
func (e *explaining) connect(ctx context.Context) error {
	release, warnings, err := e.opts.release.OrInstalled(e.root)
	if err != nil && !errors.Is(err, nova.ErrNoRelease) {
		return err
	}
	e.report.Warnings = append(e.report.Warnings, warnings...)
	e.cloud, e.compute, err = connect(ctx, e.u, e.opts.cloud)
	if err != nil {
		return err
	}
	if release == 0 {
		release = explain.ReleaseOf(e.compute.Newest)
	}
	e.facts.Release, e.facts.Zone = release, e.opts.zone
	e.facts.Project = e.compute.Scope().Project
	e.report.Cloud = e.compute.URL
	return nil
}

// readFlavor reads the flavor with a name or an id.
func (e *explaining) readFlavor(ctx context.Context, name string) error {
	all, err := e.compute.Flavors(ctx)
	if err != nil {
		return err
	}
	f, err := cloud.FindFlavor(all, name)
	if err != nil {
		return err
	}
	if f.ExtraSpecs, err = e.compute.ExtraSpecs(ctx, f); err != nil {
		return err
	}
	if !f.Public {
		e.facts.Projects, err = e.compute.Access(ctx, f)
		if errors.Is(err, cloud.ErrForbidden) {
			e.omit(explain.Flavor, err, "use an administrator's credentials")
			err = nil
		}
	}
	e.facts.Flavor, e.report.Flavor = f, f.Name
	return err
}

// omit notes that something could not be read.
func (e *explaining) omit(l explain.Link, err error, remedy string) {
	e.omitted = append(e.omitted, explain.Omission{Link: l, Reason: err.Error(), Remedy: remedy})
}

// readServer reads the server and its flavor. isPlaced is true if it has a host already: there is
// nothing to explain then.
func (e *explaining) readServer(ctx context.Context) (isPlaced bool, err error) {
	s, err := e.compute.ServerPlacing(ctx, e.opts.server)
	if err != nil {
		if errors.Is(err, cloud.ErrNotFound) {
			err = host.WithHint(err, "'openstack server list --all-projects' shows the ids; users see only the servers of their project")
		}
		return false, err
	}
	e.report.Server, e.report.Flavor = &explainedServer{ID: s.ID, Name: s.Name, Status: s.Status}, s.Flavor.Name
	if s.Host != "" {
		e.report.Server.Host = &s.Host
	}
	if s.Fault != "" {
		e.report.Server.Fault = &s.Fault
	}
	isUnplaced := s.Status == "ERROR" || s.Host == "" && slices.Contains([]string{"BUILD", "SHELVED_OFFLOADED"}, s.Status)
	if !isUnplaced {
		e.report.Verdict = explain.Can
		e.report.Conclusion = fmt.Sprintf("server %s is %s: nothing to explain", s.Name, s.Status)
		if s.Host != "" {
			e.report.Conclusion = fmt.Sprintf("server %s is %s on host %s: nothing to explain", s.Name, s.Status, s.Host)
		}
		return true, nil
	}
	if s.Fault != "" && !strings.Contains(s.Fault, "No valid host") {
		e.report.Warnings = append(e.report.Warnings, "the fault of the server may have another reason than the choice of a host: "+s.Fault)
	}
	e.facts.Flavor, e.facts.Project = s.Flavor, s.Project
	if e.facts.Zone == "" {
		e.facts.Zone = s.Zone
	}
	if !e.compute.HasEmbeddedFlavors() || s.Flavor.ExtraSpecs == nil {
		if err := e.readFlavor(ctx, s.Flavor.Name); err != nil {
			return false, err
		}
	}
	e.facts.Volume = s.Image == "" && e.opts.image == ""
	if e.opts.image == "" && s.Image != "" {
		image, err := e.cloud.GetImage(ctx, s.Image)
		switch {
		case errors.Is(err, cloud.ErrNotFound), errors.Is(err, cloud.ErrForbidden), errors.Is(err, cloud.ErrNoEndpoint):
			e.omit(explain.ImageLink, err, "give another image with --image")
		case err != nil:
			return false, err
		default:
			e.facts.Image = &image
		}
	}
	return false, nil
}
