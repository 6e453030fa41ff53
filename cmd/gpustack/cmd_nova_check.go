package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/check"
	"gpustack/nova/flavor"
)

func newNovaCheckCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "check nova.conf on controllers and compute nodes for consistency",
		Description: `
Finds errors in the PCI configuration before a restart of the services shows them:
aliases that are missing or different on one machine, or that no device_spec or no
device matches; options that the release ignores; filters that are missing or were
removed from Nova; Placement on one side only; device specs that an earlier one shadows,
and device specs with which nova-compute does not start. Controllers need every alias, a
compute node those of the devices that it offers. Changes nothing.

Without --conf it reads the files of this machine: those that oslo.config finds for each
program (nova-dist.conf, nova.conf, nova-compute.conf, nova.conf.d and so on), and those
that kolla-ansible, TripleO or RHOSO give to containers. Files of another machine are
given with its role, such as controller=FILE; several files of one machine are joined by
commas, in the order in which Nova reads them. Without ROLE= and --role, the role is
inferred from what nova configure has recorded, the units of this machine, or else the
options in the files.

--inventory also checks the files against the hardware of compute nodes, and --flavors
against the flavors of a cloud. The devices that are counted at the end are those that
the device specs offer to guests, or without a compute node those of the aliases.

` + cloudHelp + `

EXAMPLES
  gpustack nova check
  gpustack nova check --role compute
  gpustack nova check --conf controller=ctl.conf --conf compute=gpu1.conf --release zed
  gpustack nova check --conf controller=ctl.conf --conf compute=gpu1.conf --inventory gpu1.json -o json
  gpustack nova check --conf compute=gpu1.conf,gpu1.d/10.conf --inventory inventories

EXIT STATUS
  0  no check has failed; there may be warnings
  1  the configuration could not be checked
  2  a check has failed`,
		Flags: append([]cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			confsFlag("check `[ROLE=]FILE[,FILE]` (repeatable; default: the files of this machine)"),
			releaseFlag(),
			args.Choice(&cli.StringFlag{Name: "role", Usage: "`ROLE` of the machine: controller, compute or all (default: inferred); ROLE= of --conf takes precedence"},
				[]string{"", string(nova.Controller), string(nova.Compute), string(nova.All)}),
			&cli.StringFlag{Name: "libvirt", Usage: "`VERSION` of libvirt on the compute nodes (default: without --conf, that of this machine)"},
			&cli.StringFlag{Name: "qemu", Usage: "`VERSION` of QEMU on the compute nodes (default: as for --libvirt)"},
			inventoryFlag("check against the hardware in `FILE`, JSON or YAML of host scan"),
			&cli.BoolFlag{Name: "flavors", Usage: "check the flavors of the cloud"},
		}, cloudFlags()...),
		Action: action(u, parseNovaCheck, runNovaCheck),
	}
}

type novaCheckOptions struct {
	root, format string
	release      nova.Release
	role         nova.Role // "" to infer it
	confs        []nova.SideFiles
	hypervisor   nova.Hypervisor
	inventories  []string
	flavors      bool
	cloud        cloudOptions
}

func parseNovaCheck(c *cli.Context, f *args.Faults) novaCheckOptions {
	f.Arguments(c)
	version := func(flag string) nova.Version {
		if !c.IsSet(flag) {
			return nil
		}
		v, err := nova.ParseVersion(c.String(flag))
		addEach(f, "--"+flag+": ", err, "")
		return v
	}
	role := nova.Role(f.Choice(c, "role"))
	return novaCheckOptions{
		c.String("root"), f.Choice(c, "output"), parseRelease(c, f), role, parseConfs(c, f, role),
		nova.Hypervisor{Libvirt: version("libvirt"), QEMU: version("qemu")},
		c.StringSlice("inventory"), c.Bool("flavors"), parseCloud(c, f),
	}
}

// parseConfs reads --conf. Files without a role of their own get the given one; "" stands for the
// role that is inferred from the files.
func parseConfs(c *cli.Context, f *args.Faults, otherwise nova.Role) []nova.SideFiles {
	var confs []nova.SideFiles
	for _, value := range c.StringSlice("conf") {
		role, files := cutConf(value)
		if role == "" && !strings.Contains(value, "=") {
			role = string(otherwise)
		} else if !slices.Contains([]nova.Role{nova.Controller, nova.Compute, nova.All}, nova.Role(role)) {
			f.Add(args.UsageError("--conf: unknown role "+strconv.Quote(role), "use controller, compute or all"))
		}
		confs = append(confs, nova.SideFiles{Role: nova.Role(role), Names: files})
	}
	return confs
}

// cutConf splits [ROLE=]FILE[,FILE]. The role is "" if there is none.
func cutConf(value string) (role string, files []string) {
	role, list, ok := strings.Cut(value, "=")
	if !ok {
		role, list = "", value
	}
	return role, strings.Split(list, ",")
}

// sides reads the files that are named, or without --conf everything of this machine.
func (o novaCheckOptions) sides(u *term.UI, root host.Root) (sides []nova.Side, warnings []string, err error) {
	if len(o.confs) > 0 {
		sides, err := nova.ReadSides(documentsAt(u), o.confs)
		for i := range sides {
			sides[i].Hypervisor = o.hypervisor
		}
		return sides, nil, err
	}
	roles, contractErr := readRoles(root)
	role, from := o.role, ""
	if role == "" {
		if role, from, err = configuredRole(root); err != nil {
			warnings = append(warnings, fmt.Sprintf("the role is inferred without the journal: %v", err))
		}
	}
	sides, more, err := nova.ObserveSides(root, role, from, roles)
	warnings = append(warnings, more...)
	for i := range sides {
		if o.hypervisor.Libvirt != nil {
			sides[i].Hypervisor.Libvirt = o.hypervisor.Libvirt
		}
		if o.hypervisor.QEMU != nil {
			sides[i].Hypervisor.QEMU = o.hypervisor.QEMU
		}
	}
	return sides, warnings, errors.Join(err, contractErr)
}

// configuredRole returns the role with which nova configure was run on the machine, and the entries
// of the journal that say so; "" if there is none.
func configuredRole(root host.Root) (role nova.Role, from string, err error) {
	entries, err := change.List(root)
	if err != nil {
		return "", "", err
	}
	ids := map[nova.Role]string{}
	for _, e := range entries {
		if about := e.Topic(); about.Subject == change.OfNova && e.Status == change.Done {
			ids[nova.Role(about.Role)] = views.EntryName(e.ID, e.Command)
		}
	}
	controls, computes, all := ids[nova.Controller], ids[nova.Compute], ids[nova.All]
	switch {
	case all != "":
		return nova.All, all + " is in the journal", nil
	case controls != "" && computes != "":
		return nova.All, controls + " and " + computes + " are in the journal", nil
	case controls != "":
		return nova.Controller, controls + " is in the journal", nil
	case computes != "":
		return nova.Compute, computes + " is in the journal", nil
	}
	return "", "", nil
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

// novaCheckReport is the output of nova check (docs/json.md).
type novaCheckReport struct {
	Schema         int             `json:"schema"`
	Release        string          `json:"release"`
	Passed         bool            `json:"passed"`
	Configurations []configuration `json:"configurations"`
	FileCount      int             `json:"file_count"`
	AliasCount     int             `json:"alias_count"`
	DeviceCount    *int            `json:"device_count"`
	Findings       []host.Finding  `json:"findings"`
	Warnings       []string        `json:"warnings"`
}

// configuration is the files of one machine, or of the services of one kind on this machine.
type configuration struct {
	Role     nova.Role `json:"role"`
	RoleFrom *string   `json:"role_from"`
	Files    []string  `json:"files"`
}

func newConfiguration(s nova.Side) configuration {
	c := configuration{Role: s.Role, Files: []string{}}
	if s.RoleFrom != "" {
		c.RoleFrom = &s.RoleFrom
	}
	for _, f := range s.Files {
		c.Files = append(c.Files, f.Name)
	}
	return c
}

func runNovaCheck(ctx context.Context, u *term.UI, opts novaCheckOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	release, warnings, err := opts.release.OrInstalled(root)
	errs := []error{err}
	sides, more, err := opts.sides(u, root)
	errs = append(errs, err)
	hosts, err := nova.ReadInventories(documentsAt(u, opts.inventories...), nova.ScopeGPUs)
	errs = append(errs, err)
	var flavors []check.Flavor
	if opts.flavors {
		flavors, err = readFlavors(ctx, u, opts.cloud)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	findings := append([]host.Finding{}, check.Run(release, sides, hosts, flavors)...)
	counts := check.Count(release, sides, hosts)
	report := novaCheckReport{
		Schema: 1, Release: release.String(), Passed: !host.Failed(findings), Configurations: []configuration{},
		FileCount: counts.Files, AliasCount: counts.Aliases, DeviceCount: counts.Devices,
		Findings: findings, Warnings: append(append([]string{}, warnings...), more...),
	}
	for _, s := range sides {
		report.Configurations = append(report.Configurations, newConfiguration(s))
	}
	u.Document.Show(report)
	if opts.format == term.FormatTable {
		printNovaCheck(u, report)
	}
	if !report.Passed {
		return errDifferent
	}
	return nil
}

// readFlavors returns the flavors that request devices.
func readFlavors(ctx context.Context, u *term.UI, opts cloudOptions) ([]check.Flavor, error) {
	compute, err := connect(ctx, u, opts)
	if err != nil {
		return nil, err
	}
	all, err := compute.FlavorsWithSpecs(ctx)
	var flavors []check.Flavor
	for _, f := range flavor.WithRequest(all) {
		flavors = append(flavors, check.Flavor{Name: f.Name, Request: f.ExtraSpecs[nova.RequestKey]})
	}
	return flavors, err
}

func printNovaCheck(u *term.UI, r novaCheckReport) {
	u.Warn(r.Warnings...)
	for _, c := range r.Configurations {
		if c.RoleFrom != nil {
			u.Printf("%s: role %s, because %s\n", term.Printable(strings.Join(c.Files, ", ")), c.Role, term.Printable(*c.RoleFrom))
		}
	}
	if len(r.Findings) > 0 {
		views.PrintFindings(u, r.Findings)
		return
	}
	found := fmt.Sprintf("%s, %s", quantity(r.FileCount, "file", "files"), quantity(r.AliasCount, "alias", "aliases"))
	if r.DeviceCount != nil {
		found += ", " + quantity(*r.DeviceCount, "device", "devices")
	} else {
		found += "; without --inventory, no devices"
	}
	u.Printf("Nova %s: no problems found: %s\n", r.Release, found)
}

// quantity returns a number with its noun.
func quantity(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}
