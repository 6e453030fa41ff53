package main

import (
	"context"
	"slices"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/host/check"
	"gpustack/host/driver"
	"gpustack/host/machine"
	"gpustack/host/prepare"
	"gpustack/host/selection"
	"gpustack/operate/node"
)

func newHostPrepareCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "prepare",
		Usage: "assign GPUs to guests from the next boot on",
		Description: `
Plans kernel arguments, modules, initramfs hooks and a blacklist that bind the selected
functions to vfio-pci at boot, together with all functions of their cards and IOMMU
groups.

SELECTION
  The first run selects all NVIDIA GPUs that are not for containers, or exactly those that
  --device and --vendor name. Later, both add to the selection, and --remove removes from
  it. Virtual functions must be named by --device or --only.
  --only names the whole selection: a recorded function that it does not name returns to
  the host at the next boot.
  --none returns all functions. It removes every file, hook and kernel argument that host
  prepare has added, and keeps the journal. Arguments that conflicted with the IOMMU
  (intel_iommu=off) and were replaced come back by "gpustack undo" only.

REFUSALS
  A selected GPU that nothing holds leaves the host with the other functions of its card.
  Every other function leaves only with --allow ADDRESS: disks, network interfaces, the
  console, other members of the IOMMU group. The error names each, what uses it as far as
  is seen, and prints complete commands that are accepted. Nothing lifts the refusal of
  what the root file system needs, of a disk that the kernel has claimed (mounted, part of
  RAID or LVM, swap), nor of GPUs with virtual functions or mediated devices: vGPU hosts
  are not prepared this way. What --allow names is bound by gpustack-boot.service, which
  asks again at every boot. Programs that only watch GPUs (nvidia-persistenced, DCGM) are
  a warning. docs/refusals.md has the rules.
  On a board with NVSwitches, --nvswitch host keeps the switches with the host:
  nvidia-fabricmanager must be installed, enabled and have FABRIC_MODE=1, and a partition
  must be activated before a guest starts, which Nova does not do (flavors with a single
  GPU work without NVLink). --nvswitch guest selects all GPUs and NVSwitches of the board,
  for one guest.

On a root elsewhere, the initramfs and GRUB's menu are regenerated only with --rebuild.
On a machine that was prepared by other means, ids= of others in modprobe.d, modules-load.d,
/etc/modules, /etc/initramfs-tools/modules, dracut's configuration and the kernel arguments
bind functions whatever gpustack records, and so do files of driverctl: the plan names each.
--take-over removes the ids of selected functions there, and driverctl's files of them, as
the diff shows; "gpustack undo" restores them, --none does not. "gpustack=off" among the
kernel arguments at the boot menu leaves every function with the host for that boot.

EXAMPLES
  gpustack host prepare --dry-run
  gpustack host prepare --device 0000:84:00.0
  gpustack host prepare --only 0000:84:00.0 --only 0000:88:00.0 --yes
  gpustack host prepare --remove 0000:84:00.0 --yes
  gpustack host prepare --if-present --yes
  gpustack host prepare --root /mnt/node --dry-run -o json`,
		Flags: changing(
			&cli.StringSliceFlag{Name: "device", Usage: "select `DEVICE`: an address, or VENDOR:PRODUCT for all of a product (repeatable)"},
			&cli.StringSliceFlag{Name: "vendor", Usage: "select the GPUs made by `VENDOR`, four digits (repeatable)"},
			&cli.StringSliceFlag{Name: "only", Usage: "select `DEVICE` and nothing that --only does not name (repeatable)"},
			&cli.StringSliceFlag{Name: "remove", Usage: "remove `DEVICE` from the selection (repeatable)"},
			&cli.BoolFlag{Name: "none", Usage: "select nothing: return all functions to the host"},
			&cli.BoolFlag{Name: "if-present", Usage: "succeed without a change on a machine that has no such device"},
			&cli.StringSliceFlag{Name: "allow", Usage: "let the function at `ADDRESS` leave the host (repeatable)"},
			nvswitchFlag(),
			args.Choice(&cli.StringFlag{Name: "driver",
				Usage: "bind functions to `DRIVER`: vfio-pci or pci-stub (unless recorded, vfio-pci)"}, []string{"", machine.VFIO, machine.Stub}),
			&cli.BoolFlag{Name: "allow-unsafe-interrupts", Usage: "for machines without interrupt remapping: guests may attack the host"},
			&cli.BoolFlag{Name: "take-over", Usage: "remove the ids of selected functions from other files and kernel arguments that bind them"},
			&cli.BoolFlag{Name: "rebuild", Usage: "regenerate initramfs and menu on a root elsewhere too, and even if no file changes"},
			&cli.BoolFlag{Name: "no-rebuild", Usage: "do not regenerate initramfs and menu"},
		),
		Action: action(u, parseHostPrepare, runHostPrepare),
	}
}

type hostPrepareOptions struct {
	prepare   selection.Options
	rebuild   node.Rebuild
	ifPresent bool
}

// called returns the command as the user called it, for hints.
func (o hostPrepareOptions) called(g given) views.Called {
	return views.Called{Name: "host prepare", Flags: append(slices.Clone(map[node.Rebuild][]string{
		node.All: {"rebuild"}, node.Never: {"no-rebuild"},
	}[o.rebuild]), g.repeated()...)}
}

func parseHostPrepare(c *cli.Context, f *args.Faults) hostPrepareOptions {
	opts := hostPrepareOptions{
		prepare: selection.Options{
			Add:      selectors(c, f, "device"),
			Vendors:  vendors(c, f),
			Only:     selectors(c, f, "only"),
			None:     c.Bool("none"),
			Remove:   selectors(c, f, "remove"),
			Allow:    addresses(c, f, "allow"),
			NVSwitch: machine.NVSwitch(f.Choice(c, "nvswitch")),
			Driver:   f.Choice(c, "driver"),
			Unsafe:   c.Bool("allow-unsafe-interrupts"),
			TakeOver: c.Bool("take-over"),
		},
		ifPresent: c.Bool("if-present"),
	}
	f.Exclude(c, "only", "device", "vendor", "remove", "none")
	f.Exclude(c, "none", "device", "vendor", "remove", "allow", "nvswitch", "driver", "allow-unsafe-interrupts", "take-over")
	f.Exclude(c, "rebuild", "no-rebuild")
	switch {
	case c.Bool("rebuild"):
		opts.rebuild = node.All
	case c.Bool("no-rebuild"):
		opts.rebuild = node.Never
	}
	return opts
}

func runHostPrepare(ctx context.Context, u *term.UI, o given, opts hostPrepareOptions) error {
	root := o.root
	n := newNode(u, root, opts.prepare.Allow...)
	engine := newNode(u, root).Engine(driver.DefaultTimeout)
	if err := recoverEntries(ctx, u, engine, o, 0); err != nil {
		return err
	}
	m := machine.ObservePrepare(root, !opts.prepare.None) // what the host needs must not keep functions from it
	// On a machine without such a device, other problems do not matter.
	if absent := selection.Absent(m, opts.prepare); absent != nil {
		switch {
		case opts.ifPresent:
			return nothingPresent(u, o, absent, func(why string) any {
				return views.NewPrepare(newReport(root, check.RebootRequired(m), false, why), m, prepare.Plan{}, change.Work{})
			})
		case m.Obstacles() != nil:
			return opts.called(o).Explain(absent)
		}
	}
	plan, work, err := n.PlanPrepare(m, opts.prepare, opts.rebuild, o.command)
	if err != nil {
		return opts.called(o).Explain(err)
	}
	report := views.NewPrepare(newReport(root, check.RebootRequired(m), false, plan.Warnings...), m, plan, work)
	summary := views.PrepareSummary(u, report, plan, opts.rebuild == node.All, m)
	return decide(u, o, &report, "apply this plan?", summary, func() { views.PrintPrepare(u, report, m.Devices.Value) }, func() error {
		return applyWork(ctx, u, engine, o.format, work, &report)
	}, plan.Warnings...)
}
