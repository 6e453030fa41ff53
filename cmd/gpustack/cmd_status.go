package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/guest"
	"gpustack/host/machine"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmacheck"
	"gpustack/nova"
	"gpustack/operate/node"
)

func newStatusCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "show on one screen how far a machine is, and what to do next",
		Description: `
Prints a line each for what host prepare has recorded, whether the machine was booted with
it, which functions are bound, whether nova.conf offers them, and how many guests use; then
for containers, RDMA adapters and interrupted changes, and the next command. The checks
decide: their own commands show the details. What cannot be read is n/a, never pass.

Changes nothing but the cache that host check has.

EXAMPLES
  gpustack status
  gpustack status --root /mnt/sosreport

EXIT STATUS
  0  nothing is to be done
  1  error
  2  there is a next step`,
		Flags:  reading(),
		Action: action(u, parseCheck, runStatus),
	}
}

func runStatus(ctx context.Context, u *term.UI, o given, _ checkOptions) error {
	root := o.root
	journal, interrupted := change.Look(ctx, root)
	u.Warn(interrupted...)
	if err := machine.Find(root); err != nil {
		return err
	}
	checked := node.CheckHost(ctx, newNode(u, root), journal)
	containers, err := node.CheckContainers(root, nil)
	if err != nil {
		return err
	}
	adapters, err := checkRecordedAdapters(root, journal)
	if err != nil {
		return err
	}
	guests := guest.Observe(root, guest.NovaConf(nova.ReadHostOption(root, nil)), time.Now())
	s := views.NewStatus(checked, views.NewContainerCheck(root, containers), adapters, guests)
	u.Warn(s.Warnings...)
	return showReport(u, o.format, s, func() { views.PrintStatus(u, s) }, s.Next == nil)
}

// checkRecordedAdapters checks the RDMA adapters of a machine; it returns nil if none is recorded.
func checkRecordedAdapters(root host.Root, journal change.Seen) (*views.RDMACheck, error) {
	if record, err := rdma.ReadRecord(root); err != nil || record == nil {
		return nil, err
	}
	checked, err := rdmacheck.Check(root, journal)
	if err != nil {
		return nil, err
	}
	r := views.NewRDMACheck(root, checked, false)
	return &r, nil
}
