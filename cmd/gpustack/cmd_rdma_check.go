package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma/rdmacheck"
)

func newRDMACheckCommand(u *term.UI) *cli.Command {
	return newCheckCommand(u, rdmaCheck())
}

func rdmaCheck() checkCommand {
	return checkCommand{
		usage: "check the RDMA stack, from modules and libraries to ports and virtual functions",
		description: `
Checks everything that programs, containers and guests with RDMA depend on, in this order:
adapters, kernel modules, libraries and their versions, device nodes, firmware and PCIe
links, ports, GIDs, IPoIB, network namespaces, limits of locked memory, and the record of
rdma prepare with the steps of this boot. Prints the verdict with what to do next, then
failures and warnings. Each has its effect, with the message that users see, and a remedy.
--all prints what every check has found.

Reads files below the root; opens no connection and runs no program. gpustack rdma test
sends data. Some files can be read by root only.

What cannot be read, for example in a support archive, is n/a, never pass. docs/rdma.md
lists the messages with their causes; the formats json and yaml are described in
docs/json.md.

EXAMPLES
  gpustack rdma check
  gpustack rdma check --all
  gpustack rdma check -o json

EXIT STATUS
  0  ready; there may be warnings
  1  error, no RDMA device, or not enough information to reach a verdict
  2  a check has failed: pending reboot, not ready or drifted`,
		check: checkRDMA,
	}
}

func checkRDMA(_ context.Context, _ *term.UI, in checkInput) (checkReport, error) {
	root := in.root
	devices, warnings, err := pci.Scan(root, pci.Options{})
	if err != nil && !errors.Is(err, pci.ErrNoPCI) { // software devices need no PCI
		return nil, err
	}
	running, session := runningFor(root)
	m := rdmacheck.Observe(root, devices, in.journal, running)
	findings, verdict, err := rdmacheck.Verify(m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root.Path("/"), err)
	}
	r := views.RDMACheck{
		Schema: 1, Host: host.ReadHostname(root), Verdict: verdict, Passed: !host.Failed(findings), Reboot: m.RebootRequired(),
		Findings: findings, Warnings: append(append([]string{}, warnings...), m.Stack.Value.Warnings...),
	}
	for _, a := range m.Stack.Value.Adapters {
		r.Warnings = append(r.Warnings, a.Warnings...)
	}
	if session != nil && r.Reboot != nil && *r.Reboot {
		r.Warnings = append(r.Warnings, guard.UnknownSession(session))
	}
	return r, nil
}

// runningFor reads what only the running machine shows, of any other root nothing. session is the
// error of the ssh session alone.
func runningFor(root host.Root) (seen machine.Look[guard.Running], session error) {
	if !root.IsMachine() {
		return seen, nil
	}
	running, session := gate.ReadRunning(root)
	return machine.Saw("/proc/net", running, running.Unread), session
}
