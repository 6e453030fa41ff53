package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/rdma/rdmacheck"
	"gpustack/host/rdma/trial"
)

func rdmaCheck() checkCommand {
	return checkCommand{
		name:  "rdma check",
		usage: "check the RDMA stack, from modules to ports and VFs",
		description: `
Checks everything that programs, containers and guests with RDMA depend on, in this order:
adapters, kernel modules, libraries and their versions, device nodes, PCIe links and
GPUDirect, ports, GIDs, IPoIB, network namespaces, limits of locked memory, and the record of
rdma prepare with the steps of this boot. Reads files below the root; opens no connection
and runs no program. gpustack rdma test sends data.

` + checkHelp + `
docs/rdma.md lists the messages with their causes. --metrics is that of host check.

EXAMPLES
  gpustack rdma check
  gpustack rdma check --metrics gpustack-rdma-check.prom`,
		flags: []cli.Flag{metricsFlag()},
		check: checkRDMA,
	}
}

func checkRDMA(_ context.Context, _ *term.UI, in checkInput) (checkReport, error) {
	checked, err := rdmacheck.Check(in.root, in.journal)
	if err != nil {
		return nil, err
	}
	testable := trial.Rping().Ready(host.Runner{Root: in.root}) == nil && checked.Machine.Reachable()
	return views.NewRDMACheck(in.root, checked, testable), nil
}
