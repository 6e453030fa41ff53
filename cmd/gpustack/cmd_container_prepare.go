package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/container"
	"gpustack/host/container/containerprepare"
	"gpustack/host/driver"
	"gpustack/host/steps"
	"gpustack/operate/node"
)

func newContainerPrepareCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "prepare",
		Usage: "give GPUs and RDMA adapters to containers by CDI",
		Description: `
Records which GPUs and RDMA adapters are for containers, and writes CDI specs with which
podman, docker and containerd give them to containers.

Devices are named by PCI address: podman run --device gpustack.local/gpu=0000:84:00.0. The
specs have nodes without numbers, and libraries by the links that programs load: those stay
right when the driver is upgraded. Drivers before 535 and since 590 need libraries with the
driver's version in the name too: after an upgrade, containers do not start until the specs
are written again, by a boot or by systemctl restart gpustack-boot.service. The specs are for
compute: nvidia-ctk makes specs for graphics and MIG.

At each boot, gpustack-boot.service makes the driver's nodes by nvidia-modprobe and writes
the specs in /run/cdi, as the machine is then: uverbs nodes may have other numbers. With
--static the specs are in /etc/cdi and no boot writes them: where a driver container, such as
the GPU operator's, has the driver, GPUs need it.

SELECTION
  --device adds GPUs to those that are recorded, --hca adds RDMA adapters or their VFs, whose
  containers need no capability. --remove removes a function, --none removes all, with every
  file. A function that is recorded for guests is refused, and so are a GPU that is not bound
  to NVIDIA's driver or that is divided into MIG instances, and a part of a board with
  NVSwitches.

LIBRARIES
  The driver's libraries are mounted in /usr/local/nvidia/lib64. Images whose LD_LIBRARY_PATH
  names that folder find them there. --library-path sets the variable for all others, and
  replaces an image's own value: "gpustack container check --image-dir" names images that need
  it. The values of --library-path, --umad and --static are recorded: --library-path=false
  ends one.

EXAMPLES
  gpustack container prepare --device 0000:84:00.0 --dry-run
  gpustack container prepare --device 0000:84:00.0 --library-path --yes
  gpustack container prepare --hca 0000:0c:00.0 --umad
  gpustack container prepare --remove 0000:84:00.0 --yes
  gpustack container prepare --none`,
		Flags: changing(
			&cli.StringSliceFlag{Name: "device", Usage: "give the GPU at `ADDRESS` to containers (repeatable)"},
			&cli.StringSliceFlag{Name: "hca", Usage: "give the RDMA adapter at `ADDRESS` to containers (repeatable)"},
			&cli.BoolFlag{Name: "umad", Usage: "offer the umad nodes of adapters too, for programs that manage the fabric"},
			&cli.BoolFlag{Name: "static", Usage: "write the specs in /etc/cdi once, instead of in /run/cdi at each boot"},
			&cli.BoolFlag{Name: "library-path", Usage: "set LD_LIBRARY_PATH, so that every image finds the driver's libraries"},
			&cli.StringSliceFlag{Name: "remove", Usage: "remove the function at `ADDRESS` from the record (repeatable)"},
			&cli.BoolFlag{Name: "none", Usage: "give nothing to containers: remove the record and every file"},
		),
		Action: action(u, parseContainerPrepare, runContainerPrepare),
	}
}

func parseContainerPrepare(c *cli.Context, f *args.Faults) containerprepare.Options {
	opts := containerprepare.Options{GPUs: addresses(c, f, "device"), HCAs: addresses(c, f, "hca"), Remove: addresses(c, f, "remove"), None: c.Bool("none")}
	for flag, option := range map[string]**bool{
		"umad": &opts.UMAD, "static": &opts.Static, "library-path": &opts.LibraryPath,
	} {
		if c.IsSet(flag) {
			*option = new(c.Bool(flag))
		}
	}
	f.Exclude(c, "none", "device", "hca", "umad", "static", "library-path", "remove")
	named := slices.Concat(opts.GPUs, opts.HCAs, opts.Remove)
	for i, a := range named {
		args.AddIf(f, slices.Contains(named[:i], a), fmt.Sprintf("%s is named twice", a), f.SeeHelp())
	}
	return opts
}

func runContainerPrepare(ctx context.Context, u *term.UI, o given, opts containerprepare.Options) error {
	root := o.root
	engine := newNode(u, root).Engine(driver.DefaultTimeout)
	if err := recoverEntries(ctx, u, engine, o, 0); err != nil {
		return err
	}
	seen, reboot := node.Observe(ctx, root, true)
	m, err := containerprepare.Observe(root, seen)
	if err != nil {
		return err
	}
	if err := opts.Unnamed(m); err != nil {
		return err
	}
	plan, work, err := newNode(u, root).PlanContainers(m, opts, o.command)
	if err != nil {
		return err
	}
	report := views.NewContainerPrepare(newReport(root, reboot, false, plan.Warnings...), plan)
	summary := views.ContainerPrepareSummary(report, m.Recorded)
	return decide(u, o, &report, "apply this plan?", summary, func() { views.PrintContainerPrepare(u, report) }, func() error {
		if err := applyContainers(ctx, u, engine, o.format, work, plan, &report); err != nil || !root.IsMachine() && !plan.Record.Options.Static {
			return err
		}
		return container.Verify(root, plan.Names)
	}, plan.Warnings...)
}

// applyContainers applies a plan of container prepare. If only specs differ that each boot writes,
// such as after a GPU got another minor, there is nothing to record.
func applyContainers(ctx context.Context, u *term.UI, engine change.Engine, format string, work change.Work, plan containerprepare.Plan,
	r *views.ContainerPrepare,
) error {
	if len(plan.Files.Pending()) > 0 {
		return applyWork(ctx, u, engine, format, work, r)
	}
	if err := u.Run.Begin(host.Plain("run: systemctl restart " + steps.Unit)); err != nil {
		return err
	}
	err := newNode(u, r.Root).Steps().Revert(ctx)
	completeReport(ctx, r, err)
	return err
}
