package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/operate/node"
)

func hostCheck() checkCommand {
	return checkCommand{
		name:  "host check",
		usage: "check whether the machine is ready to assign GPUs",
		description: `
Checks everything that GPU passthrough depends on, in this order: CPU, firmware, IOMMU,
kernel arguments now and at the next boot, modules of each kernel, the functions and
their IOMMU groups, and the record of host prepare. Reads files below the root and runs
no program.

` + checkHelp + `

Changes nothing but a cache: run by root on the machine itself, without --root, it
remembers the contents of initramfs images in /var/cache/gpustack/initramfs.json, so that
each image is unpacked once. That file may be deleted at any time.

Before host prepare, the checks show what would prevent it. After host prepare, they
show whether a reboot is pending, whether the machine is as planned, or whether it has
drifted. A check that depends on a failed check is skipped.

--metrics also writes the results to a file of the textfile collector of node_exporter, in
a folder that exists; see docs/monitoring.md. After an error nothing is written, so that
the time of the last run shows it.

EXAMPLES
  gpustack host check
  gpustack host check --root /mnt/sosreport
  gpustack host check --metrics gpustack-host-check.prom`,
		flags: []cli.Flag{metricsFlag()},
		check: checkHost,
	}
}

func checkHost(ctx context.Context, u *term.UI, in checkInput) (checkReport, error) {
	return views.NewHostCheck(node.CheckHost(ctx, newNode(u, in.root), in.journal)), nil
}
