package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/operate/cloud"
)

func newNovaCheckCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "check nova.conf of controllers and compute nodes",
		Description: `
Finds errors in the PCI configuration before a restart of the services shows them:
aliases that are missing or different on one machine, or that no device_spec or no
device matches; options that the release ignores; filters that are missing or were
removed from Nova; Placement on one side only; device specs that an earlier one shadows,
and device specs with which nova-compute does not start. Controllers need every alias, a
compute node those of the devices that it offers. Changes nothing.

Without --conf it reads the files of this machine: those that oslo.config finds for each
program (nova-dist.conf, nova.conf, nova-compute.conf, nova.conf.d and so on), and those
that kolla-ansible, TripleO, RHOSO or Sunbeam generate; it warns of services that run with
the options of before a change. Files are given with the role of their machine, such as
controller=FILE; several files of one machine are joined by commas, in the order in which
Nova reads them. An absolute path is below --root; copies from other machines are relative
paths, or - for standard input, and need --release. Without ROLE= and --role, the role is
inferred from what nova configure has recorded, the units of this machine, or else the
options in the files and what is prepared.

--inventory also checks the files against the hardware of compute nodes, and --flavors
against the flavors of a cloud. The devices that are counted at the end are those that
the device specs offer to guests, or without a compute node those of the aliases.

` + cloudHelp + `

EXAMPLES
  gpustack nova check
  gpustack nova check --role compute
  gpustack nova check --conf controller=ctl.conf --conf compute=gpu1.conf --release zed
  gpustack nova check --conf compute=gpu1.conf,gpu1.d/10.conf --release zed --inventory inventories`,
		Flags: append(reading(
			confsFlag("check", "; default: all files"),
			releaseFlag(),
			args.Choice(&cli.StringFlag{Name: "role", Usage: "`ROLE` of the machine: controller, compute or all (default: inferred); ROLE= of --conf takes precedence"},
				[]string{"", string(nova.Controller), string(nova.Compute), string(nova.All)}),
			&cli.StringFlag{Name: "libvirt", Usage: "`VERSION` of libvirt on the compute nodes (default: without --conf, that of this machine)"},
			&cli.StringFlag{Name: "qemu", Usage: "`VERSION` of QEMU on the compute nodes (default: as for --libvirt)"},
			inventoryFlag("check against the hardware in `FILE`, JSON or YAML of host scan"),
			&cli.BoolFlag{Name: "flavors", Usage: "check the flavors of the cloud"},
		), cloudFlags(timeoutOfCloud)...),
		Action: action(u, parseNovaCheck, runNovaCheck),
	}
}

type novaCheckOptions struct {
	cloud.CheckOptions // without the cloud
	flavors            bool
}

func parseNovaCheck(c *cli.Context, f *args.Faults) novaCheckOptions {
	role := nova.Role(f.Choice(c, "role"))
	return novaCheckOptions{cloud.CheckOptions{
		Release: parseRelease(c, f), Role: role, Confs: parseConfs(c, f, role), Hypervisor: parseHypervisor(c, f), Inventories: documentsOf(c, "inventory"),
	}, c.Bool("flavors")}
}

// parseHypervisor reads --libvirt and --qemu; a version that is not given is nil.
func parseHypervisor(c *cli.Context, f *args.Faults) nova.Hypervisor {
	return nova.Hypervisor{Libvirt: args.Value(f, c, "libvirt", nova.ParseVersion, nil), QEMU: args.Value(f, c, "qemu", nova.ParseVersion, nil)}
}

// parseConfs reads --conf. Files without a role of their own get the given one; "" stands for the
// role that is inferred from the files.
func parseConfs(c *cli.Context, f *args.Faults, otherwise nova.Role) (confs []nova.SideFiles) {
	for _, value := range c.StringSlice("conf") {
		side, err := nova.ParseSideFiles(value, otherwise)
		f.AddEach("--conf: ", err, host.Plain("use controller, compute or all"))
		confs = append(confs, side)
	}
	return confs
}

func runNovaCheck(ctx context.Context, u *term.UI, o given, opts novaCheckOptions) error {
	if opts.flavors {
		opts.Flavors = &o.cloud
	}
	checked, err := cloud.Check(ctx, o.root, opts.CheckOptions)
	if err != nil {
		return err
	}
	report := views.NewNovaCheck(checked)
	return showReport(u, o.format, report, func() { report.Print(u) }, report.Passed)
}
