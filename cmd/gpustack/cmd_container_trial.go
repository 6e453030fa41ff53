package main

import (
	"context"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/cudaprobe/embedded"
	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/container/containertest"
	"gpustack/host/engine"
	"gpustack/host/pci"
)

func newContainerTestCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "test",
		Usage:     "prove in a container that CUDA computes on a GPU",
		ArgsUsage: "[-- COMMAND…]",
		Description: `
Starts a container of an image that podman, docker or nerdctl has on this machine, with the CDI
device of one GPU, and proves that CUDA computes in it. The container runs as user 65534, without
a capability and without a network. No image is pulled, and the container is gone afterwards.

Without COMMAND it runs cudaprobe, a program that gpustack carries. It loads the libcuda that
the image's loader finds, asks it for GPUs, lets the driver compile a kernel, and compares what
the GPU computes. If that fails, the result names the message that users see, the cause and the
remedy: see 'Messages and their causes' in docs/containers.md. The image needs glibc and nothing
else: with musl it cannot use the driver.

COMMAND is a program of the image with its arguments, such as nvidia-smi -L. It passes if it
ends with 0. What it prints may contain secrets: --console prints it.

The test runs on this machine alone: --root must be /. If gpustack itself is killed, podman ends
the container at the time limit, docker and nerdctl do not: its name begins with
gpustack-container-test-. A folder /var/lib/gpustack-test-* may be left then, too.

EXAMPLES
  gpustack container test --device 0000:84:00.0 --image localhost/cuda
  gpustack container test --device 0000:84:00.0 --image localhost/cuda -- nvidia-smi -L`,
		Flags: reading(
			&cli.StringFlag{Name: "device", Usage: "test the GPU at `ADDRESS`"},
			&cli.StringFlag{Name: "image", Usage: "start a container of `IMAGE`"},
			args.Choice(&cli.StringFlag{Name: "engine", Usage: "start it with `ENGINE` (default: the first one that has the image)"},
				append([]string{""}, engine.Engines()...)),
			&cli.DurationFlag{Name: "wait", Value: time.Minute, Usage: "wait at most `TIME` for the end of the program"},
			&cli.BoolFlag{Name: "console", Usage: "print what COMMAND prints, which may contain secrets"},
		),
		Action: action(u, parseContainerTest, runContainerTest),
	}
}

type containerTestOptions struct {
	console bool
	containertest.Request
}

func parseContainerTest(c *cli.Context, f *args.Faults) containerTestOptions {
	opts := containerTestOptions{console: c.Bool("console"), Request: containertest.Request{
		Image: c.String("image"), Engine: f.Choice(c, "engine"), Command: c.Args().Slice(), Timeout: f.Positive(c, "wait"),
	}}
	f.Machine(c, "container test starts a container on the running machine", "container check")
	list := host.Textf("'%s' lists the GPUs", host.NewCommand("host scan"))
	var err error
	if opts.Device, err = pci.ParseAddress(c.String("device")); !c.IsSet("device") {
		f.Add(args.UsageError("--device is missing", list))
	} else {
		f.AddEach("--device "+strconv.Quote(c.String("device"))+": ", err, list)
	}
	if err = engine.CheckImage(opts.Image); !c.IsSet("image") {
		f.Add(args.UsageError("--image is missing", "podman images, docker images or nerdctl images lists them"))
	} else {
		f.AddEach("--image "+strconv.Quote(opts.Image)+": ", err, host.HintOf(err))
	}
	args.AddIf(f, opts.console && len(opts.Command) == 0, "--console needs a COMMAND", "name a program of the image after --")
	return opts
}

// remedyContainers is the remedy for a test that a second signal has stopped before its container
// was removed.
const remedyContainers = "a container of the test may be left, and a folder /var/lib/gpustack-test-*: podman ps --all, docker ps --all or nerdctl ps --all " +
	"lists it, with a name that begins with gpustack-"

func runContainerTest(ctx context.Context, u *term.UI, o given, opts containerTestOptions) error {
	program, err := embedded.Program()
	if err != nil {
		return err
	}
	m, err := containertest.Observe(ctx, o.root, opts.Request, program)
	if err != nil {
		return err
	}
	if err := u.Run.Begin(host.Plain(remedyContainers)); err != nil {
		return err
	}
	u.Waits("running in the container")
	result, err := m.Test(ctx)
	u.Run.End()
	if err != nil {
		return err
	}
	r := views.NewContainerTest(m, result, opts.console)
	u.Warn(r.Warnings...)
	return showReport(u, o.format, r, func() { views.PrintContainerTest(u, *r) }, r.Verdict == containertest.Pass)
}
