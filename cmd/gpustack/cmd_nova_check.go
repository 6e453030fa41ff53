package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/nova"
	"gpustack/nova/conf"
)

func newNovaCheckCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "hold nova.conf of controllers and compute nodes against each other",
		Description: `
Reads what controllers and compute nodes are told about PCI devices, before a restart
shows it: aliases that are missing or different on one side, that no compute node
offers or no hardware has, names that the release ignores, filters that are missing or
gone, Placement on one side only, specs that an earlier one shadows, and specs with
which nova-compute does not start. Changes nothing.

Without --conf it reads this machine's files. Files of another machine are given with
its role, such as controller=FILE, several of one machine joined by commas, in the
order in which Nova reads them. With inventories, the JSON or YAML of host scan, files
are checked against the hardware too, and with --flavors against the flavors of a
cloud.

` + cloudHelp + `

EXAMPLES
  gpustack nova check
  gpustack nova check --conf controller=ctl.conf --conf compute=gpu1.conf --release zed
  gpustack nova check --conf controller=ctl.conf --conf compute=gpu1.conf --inventory gpu1.json -o json

EXIT STATUS
  0  nothing stands in the way; there may be warnings
  1  it could not be looked at
  2  something has failed`,
		Flags: append([]cli.Flag{
			rootFlag(),
			outputFlag(formatTable, formatJSON, formatYAML),
			confFlag("read `[ROLE=]FILE[,FILE]` below the root (repeatable; unless given, all of this machine)"),
			releaseFlag(),
			&cli.StringFlag{Name: "libvirt", Usage: "the compute nodes' libvirt `VERSION` (default: without --conf, this machine's)"},
			&cli.StringFlag{Name: "qemu", Usage: "the compute nodes' QEMU `VERSION` (default: as for --libvirt)"},
			inventoryFlag("hold them against `FILE`, what host scan printed as json or yaml (repeatable)"),
			&cli.BoolFlag{Name: "flavors", Usage: "ask the cloud for its flavors"},
		}, cloudFlags()...),
		Action: action(u, parseNovaCheck, runNovaCheck),
	}
}

type novaCheckOptions struct {
	root, format string
	release      releaseOption
	confs        []confOption
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
func parseConfs(c *cli.Context, f *faults) []confOption {
	var confs []confOption
	for _, value := range c.StringSlice("conf") {
		conf := confOption{nova.All, strings.Split(value, ",")}
		if role, files, ok := strings.Cut(value, "="); ok {
			conf = confOption{nova.Role(role), strings.Split(files, ",")}
			switch conf.role {
			case nova.Controller, nova.Compute, nova.All:
			default:
				f.add(&usageError{"--conf: unknown role " + quoted(role), "roles are controller, compute and all"})
			}
		}
		confs = append(confs, conf)
	}
	return confs
}

// confOption is a machine's part, and its files.
type confOption struct {
	role  nova.Role
	files []string
}

// sides reads the files: those named, or all that this machine's services read. Only of
// this machine the hardware and the packages are looked at too.
func (o novaCheckOptions) sides(root host.Root) ([]nova.Side, error) {
	if len(o.confs) > 0 {
		sides, err := readSides(root, o.confs)
		for i := range sides {
			sides[i].Hypervisor = o.hypervisor
		}
		return sides, err
	}
	files, err := nova.Files(root, defaultConf, nova.All)
	if err != nil {
		return nil, err
	}
	sides, err := readSides(root, []confOption{{nova.All, files}})
	errs := []error{err}
	hypervisor, err := nova.InstalledHypervisor(root)
	errs = append(errs, err)
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil && !errors.Is(err, pci.ErrNoPCI) {
		errs = append(errs, err)
	}
	if o.hypervisor.Libvirt != nil {
		hypervisor.Libvirt = o.hypervisor.Libvirt
	}
	if o.hypervisor.QEMU != nil {
		hypervisor.QEMU = o.hypervisor.QEMU
	}
	sides[0].Devices, sides[0].Hypervisor = devices, hypervisor
	sides[0].Interfaces, err = nova.Interfaces(root)
	errs = append(errs, err)
	contract, err := prepare.ReadContract(root)
	errs = append(errs, err)
	if contract != nil {
		sides[0].Given = []pci.Address{}
		for _, f := range contract.Functions {
			sides[0].Given = append(sides[0].Given, f.Address)
		}
	}
	return sides, errors.Join(errs...)
}

// readSides reads the files of machines.
func readSides(root host.Root, confs []confOption) ([]nova.Side, error) {
	var sides []nova.Side
	var errs []error
	for _, c := range confs {
		side := nova.Side{Role: c.role}
		for _, name := range c.files {
			file, err := readConf(root, name)
			errs = append(errs, err)
			side.Files = append(side.Files, nova.SideFile{Name: name, File: file})
		}
		sides = append(sides, side)
	}
	return sides, errors.Join(errs...)
}

// novaCheckReport is what nova check prints, in the form that docs/json.md describes.
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
	release, err := opts.release.of(root)
	errs := []error{err}
	sides, err := opts.sides(root)
	errs = append(errs, err)
	hosts, err := readInventories(opts.inventories)
	errs = append(errs, err)
	var flavors []nova.Flavor
	if opts.flavors {
		flavors, err = readFlavors(ctx, u, opts.cloud)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	findings := append([]host.Finding{}, nova.Check(release, sides, hosts, flavors)...)
	report := novaCheckReport{Schema: 1, Release: release.String(), Passed: !host.Failed(findings), Findings: findings}
	if opts.format != formatTable {
		err = u.show(opts.format, report)
	} else {
		u.novaCheckTable(report)
	}
	if err == nil && !report.Passed {
		err = errDifferent
	}
	return err
}

// readFlavors returns the flavors that ask for devices.
func readFlavors(ctx context.Context, u *ui, opts cloudOptions) ([]nova.Flavor, error) {
	_, compute, err := u.connect(ctx, opts)
	if err != nil {
		return nil, err
	}
	all, err := compute.FlavorsWithSpecs(ctx)
	var flavors []nova.Flavor
	for _, f := range gpuFlavors(all) {
		flavors = append(flavors, nova.Flavor{Name: f.Name, Request: f.ExtraSpecs[nova.RequestKey]})
	}
	return flavors, err
}

func readConf(root host.Root, name string) (*conf.File, error) {
	f, err := edit.Read(root, name)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("%s: %w", name, nova.ErrUnset)
	}
	file, err := conf.Parse(f.Content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return file, nil
}

func (u *ui) novaCheckTable(r novaCheckReport) {
	if len(r.Findings) == 0 {
		u.printf("Nova %s: nothing found\n", r.Release)
		return
	}
	u.findings(r.Findings)
}
