package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/operate/node"
)

func containerCheck() checkCommand {
	return checkCommand{
		usage: "check whether containers can use GPUs and adapters",
		description: `
Checks everything that containers with GPUs or RDMA adapters depend on: the driver, its
libraries and device nodes, every CDI spec in /etc/cdi and /run/cdi, roles, and images.
--image-dir DIR judges an image in its root folder, by podman image mount or a docker export
that is unpacked: which libcuda its programs load, whether the driver runs its CUDA, and
whether its libraries see the adapters. DIR is not below the root.

` + checkHelp + `
docs/containers.md lists the messages with their causes.

Reads files below the root only: NVIDIA's libraries and programs are neither loaded nor
started, because they create device nodes on the running machine.

EXAMPLES
  gpustack container check
  gpustack container check --image-dir /srv/images/pytorch`,
		flags: []cli.Flag{
			args.Paths(&cli.StringSliceFlag{Name: "image-dir", Usage: "judge the image in `DIR`, too: its root folder (repeatable)"},
				args.PathRules{Kind: args.HandedOver}),
		},
		check: checkContainers,
	}
}

func checkContainers(_ context.Context, _ *term.UI, in checkInput) (checkReport, error) {
	checked, err := node.CheckContainers(in.root, in.words("image-dir"))
	if err != nil {
		return nil, err
	}
	return views.NewContainerCheck(in.root, checked), nil
}
