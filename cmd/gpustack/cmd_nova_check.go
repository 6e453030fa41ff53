package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/check"
)

func newNovaCheckCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "check nova.conf on controllers and compute nodes for consistency",
		Description: `
Finds errors in the PCI configuration before a restart of the services shows them:
aliases that are missing or different on one machine, or that no device_spec or no
device matches; options that the release ignores; filters that are missing or were
removed from Nova; Placement on one side only; device specs that an earlier one shadows,
and device specs with which nova-compute does not start. Changes nothing.

Without --conf it reads the files of this machine. Files of another machine are given
with its role, such as controller=FILE; several files of one machine are joined by
commas, in the order in which Nova reads them. --inventory also checks the files against
the hardware of compute nodes, and --flavors against the flavors of a cloud.

` + cloudHelp + `

EXAMPLES
  gpustack nova check
  gpustack nova check --conf controller=ctl.conf --conf compute=gpu1.conf --release zed
  gpustack nova check --conf controller=ctl.conf --conf compute=gpu1.conf --inventory gpu1.json -o json

EXIT STATUS
  0  no check has failed; there may be warnings
  1  the configuration could not be checked
  2  a check has failed`,
		Flags: append([]cli.Flag{
			rootFlag(),
			outputFlag(formatTable, formatJSON, formatYAML),
			confsFlag("check `[ROLE=]FILE[,FILE]` (repeatable; default: the files of this machine)"),
			releaseFlag(),
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
	confs        []nova.SideFiles
	hypervisor   nova.Hypervisor
	inventories  []string
	flavors      bool
	cloud        cloudOptions
}

func parseNovaCheck(c *cli.Context, f *faults) novaCheckOptions {
	f.arguments(c)
	version := func(flag string) nova.Version {
		if !c.IsSet(flag) {
			return nil
		}
		v, err := nova.ParseVersion(c.String(flag))
		f.each("--"+flag+": ", err, "")
		return v
	}
	return novaCheckOptions{
		c.String("root"), f.choice(c, "output"), parseRelease(c, f), parseConfs(c, f), nova.Hypervisor{Libvirt: version("libvirt"), QEMU: version("qemu")},
		c.StringSlice("inventory"), c.Bool("flavors"), parseCloud(c, f),
	}
}

// parseConfs reads --conf.
func parseConfs(c *cli.Context, f *faults) []nova.SideFiles {
	var confs []nova.SideFiles
	for _, value := range c.StringSlice("conf") {
		role, files := cutConf(value)
		if !slices.Contains([]nova.Role{nova.Controller, nova.Compute, nova.All}, nova.Role(role)) {
			f.add(&usageError{"--conf: unknown role " + quoted(role), "use controller, compute or all"})
		}
		confs = append(confs, nova.SideFiles{Role: nova.Role(role), Names: files})
	}
	return confs
}

// cutConf splits [ROLE=]FILE[,FILE]. Without a role the files are of all services.
func cutConf(value string) (role string, files []string) {
	role, list, ok := strings.Cut(value, "=")
	if !ok {
		role, list = string(nova.All), value
	}
	return role, strings.Split(list, ",")
}

// sides reads the files that are named, or without --conf everything of this machine.
func (o novaCheckOptions) sides(u *ui, root host.Root) ([]nova.Side, error) {
	if len(o.confs) > 0 {
		sides, err := nova.ReadSides(u.documents(), o.confs)
		for i := range sides {
			sides[i].Hypervisor = o.hypervisor
		}
		return sides, err
	}
	given, contractErr := prepared(root)
	side, err := nova.ObserveSide(root, given)
	if o.hypervisor.Libvirt != nil {
		side.Hypervisor.Libvirt = o.hypervisor.Libvirt
	}
	if o.hypervisor.QEMU != nil {
		side.Hypervisor.QEMU = o.hypervisor.QEMU
	}
	return []nova.Side{side}, errors.Join(err, contractErr)
}

// prepared returns the functions that host prepare has recorded for guests, or nil without a
// record.
func prepared(root host.Root) ([]pci.Address, error) {
	contract, err := machine.ReadContract(root)
	if contract == nil {
		return nil, err
	}
	given := []pci.Address{}
	for _, f := range contract.Functions {
		given = append(given, f.Address)
	}
	return given, err
}

// novaCheckReport is the output of nova check (docs/json.md).
type novaCheckReport struct {
	Schema   int            `json:"schema"`
	Release  string         `json:"release"`
	Passed   bool           `json:"passed"`
	Findings []host.Finding `json:"findings"`
}

func runNovaCheck(ctx context.Context, u *ui, opts novaCheckOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	release, err := opts.release.OrInstalled(root)
	errs := []error{err}
	sides, err := opts.sides(u, root)
	errs = append(errs, err)
	hosts, err := nova.ReadInventories(u.documents(opts.inventories...), nova.ScopeGPUs)
	errs = append(errs, err)
	var flavors []check.Flavor
	if opts.flavors {
		flavors, err = readFlavors(ctx, u, opts.cloud)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	findings := append([]host.Finding{}, check.Run(release, sides, hosts, flavors)...)
	report := novaCheckReport{Schema: 1, Release: release.String(), Passed: !host.Failed(findings), Findings: findings}
	u.show(report)
	if opts.format == formatTable {
		u.novaCheckTable(report)
	}
	if !report.Passed {
		return errDifferent
	}
	return nil
}

// readFlavors returns the flavors that request devices.
func readFlavors(ctx context.Context, u *ui, opts cloudOptions) ([]check.Flavor, error) {
	_, compute, err := u.connect(ctx, opts)
	if err != nil {
		return nil, err
	}
	all, err := compute.FlavorsWithSpecs(ctx)
	var flavors []check.Flavor
	for _, f := range gpuFlavors(all) {
		flavors = append(flavors, check.Flavor{Name: f.Name, Request: f.ExtraSpecs[nova.RequestKey]})
	}
	return flavors, err
}

func (u *ui) novaCheckTable(r novaCheckReport) {
	if len(r.Findings) == 0 {
		u.printf("Nova %s: no problems found\n", r.Release)
		return
	}
	u.findings(r.Findings)
}
