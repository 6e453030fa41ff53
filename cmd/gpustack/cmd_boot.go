package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/startup"
	"gpustack/host/steps"
)

// newBootCommand returns the hidden command that gpustack-boot.service runs.
func newBootCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:   "boot",
		Usage:  "carry out the recorded steps of every boot",
		Hidden: true,
		Description: `
Carries out what gpustack has recorded for every boot: VFs, their identities and
drivers, and what containers get: device nodes and CDI specs. Each step has a deadline, and
a step that fails fails only the steps that need it. The result is in
/run/gpustack/boot.json. Run again, it completes what is missing and changes nothing else;
VFs that are in use are never destroyed.

With --revert it restores what the steps of this boot have changed and the records no
longer want, and remakes VFs that are recorded otherwise, or refuses if a VF that would go
is in use. Then it makes the nodes and CDI specs of containers as they are recorded.

EXIT STATUS
  0  every step has succeeded or was not necessary
  1  a step has failed, or error`,
		Flags: []cli.Flag{
			args.RootFlag(),
			&cli.BoolFlag{Name: "revert", Usage: "restore what the records no longer want"},
		},
		Action: action(u, parseBoot, runBoot),
	}
}

type bootOptions struct {
	root   string
	revert bool
}

func parseBoot(c *cli.Context, f *args.Faults) bootOptions {
	f.Arguments(c)
	return bootOptions{c.String("root"), c.Bool("revert")}
}

// programLimit is the maximum time for a program of a step: nvidia-modprobe waits for the driver's
// initialization.
const programLimit = time.Minute

// startupMachine returns what carries out steps on the machine below root.
func startupMachine(u *term.UI, root host.Root) startup.Machine {
	runner := newRunner(u, root)
	return startup.Machine{
		Root:    root,
		Settle:  settle,
		Version: programVersion(),
		Program: func(ctx context.Context, argv []string) error {
			limited := runner
			limited.Limit = programLimit
			_, err := limited.Run(ctx, argv)
			return err
		},
		Kernel: func(deadline time.Duration) driver.Requester {
			return driver.Live{Runner: runner, Timeout: deadline}
		},
	}
}

// revertBoot carries out gpustack boot --revert. Without a result there is nothing to revert, but
// containers may lack what was recorded since.
func revertBoot(ctx context.Context, u *term.UI, root host.Root) error {
	result, err := steps.ReadResult(root)
	if err == nil && result != nil {
		if err = readyForSteps(ctx, u, root); err == nil {
			err = startup.Revert(ctx, startupMachine(u, root))
		}
	}
	if err != nil {
		return err
	}
	return offerDevices(ctx, u, root)
}

// permitRevert returns the error with which gpustack boot --revert would refuse the record that a
// plan of files leaves, and what is lifted of it.
func permitRevert(u *term.UI, root host.Root, plan edit.Plan, allowed gate.Allowed) ([]host.Lift, error) {
	before, after, _, err := gate.Changed(root, plan)
	if err != nil || before.RDMA == after.RDMA { // the plan leaves it as it is
		return nil, err
	}
	m := startupMachine(u, root)
	m.Allowed = allowed
	return startup.Permit(m, after.RDMA)
}

func runBoot(ctx context.Context, u *term.UI, opts bootOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	if err := u.Run.BeginRecorded("run: systemctl restart " + steps.Unit); err != nil {
		return err
	}
	if opts.revert {
		return revertBoot(ctx, u, root)
	}
	if err := readyForSteps(ctx, u, root); err != nil {
		return err
	}
	result, err := startup.Run(ctx, startupMachine(u, root))
	for _, s := range result.Steps {
		line := s.ID + ": " + string(s.Status)
		if s.Error != "" {
			line += ": " + s.Error
		}
		u.Printf("%s\n", term.Printable(line))
	}
	return err
}

// readyForSteps returns an error unless the root is the running machine's, and no earlier request
// is stuck in the kernel.
func readyForSteps(ctx context.Context, u *term.UI, root host.Root) error {
	if err := (driver.Live{Runner: newRunner(u, root)}).Ready(); err != nil {
		return err
	}
	return driver.Await(ctx, root, driver.DefaultTimeout)
}
