package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
	rdmacheck "gpustack/host/rdma/check"
)

func newRDMACheckCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "check the RDMA stack, from modules and libraries to ports and virtual functions",
		Description: `
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
		Flags: []cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			&cli.BoolFlag{Name: "all", Usage: "list every check, in its order; json and yaml always do"},
		},
		Action: action(u, parseRDMACheck, runRDMACheck),
	}
}

type rdmaCheckOptions struct {
	root, format string
	all          bool
}

func parseRDMACheck(c *cli.Context, f *args.Faults) rdmaCheckOptions {
	f.Arguments(c)
	return rdmaCheckOptions{c.String("root"), f.Choice(c, "output"), c.Bool("all")}
}

// rdmaCheckReport is the output of rdma check (docs/json.md).
type rdmaCheckReport struct {
	Schema   int               `json:"schema"`
	Host     *string           `json:"host"`
	Verdict  checklist.Verdict `json:"verdict"`
	Passed   bool              `json:"passed"`
	Reboot   *bool             `json:"reboot_required"`
	Findings []host.Finding    `json:"findings"`
	Warnings []string          `json:"warnings"`
}

func runRDMACheck(ctx context.Context, u *term.UI, opts rdmaCheckOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	if err := driversSettled(ctx, u, root); err != nil {
		return err
	}
	if err := machine.Find(root); err != nil {
		return err
	}
	devices, warnings, err := pci.Scan(root, pci.Options{})
	if err != nil && !errors.Is(err, pci.ErrNoPCI) { // software devices need no PCI
		return err
	}
	running, session := runningFor(root)
	m := rdmacheck.Observe(root, devices, running)
	findings, verdict, err := rdmacheck.Verify(m)
	if err != nil {
		return fmt.Errorf("%s: %w", root.Path("/"), err)
	}
	r := rdmaCheckReport{
		Schema: 1, Host: host.ReadHostname(root), Verdict: verdict, Passed: !host.Failed(findings), Reboot: m.RebootRequired(),
		Findings: findings, Warnings: append(append([]string{}, warnings...), m.Stack.Value.Warnings...),
	}
	for _, a := range m.Stack.Value.Adapters {
		r.Warnings = append(r.Warnings, a.Warnings...)
	}
	if session != nil && r.Reboot != nil && *r.Reboot {
		r.Warnings = append(r.Warnings, guard.UnknownSession(session))
	}
	u.Warn(r.Warnings...)
	u.Document.Show(r)
	if opts.format == term.FormatTable {
		printRDMACheck(u, r, opts.all)
	}
	switch {
	case !r.Passed:
		return errDifferent
	case verdict == checklist.Unknown:
		return fmt.Errorf("%s: %w", root.Path("/"), checklist.ErrUnknown)
	}
	return nil
}

// runningFor reads what only the running machine shows, of any other root nothing. session is the
// error of the ssh session alone.
func runningFor(root host.Root) (seen machine.Look[guard.Running], session error) {
	if root.Path("/") != "/" {
		return seen, nil
	}
	running, session := gate.ReadRunning(root)
	return machine.Saw("/proc/net", running, running.Unread), session
}

// printRDMACheck prints the verdict, failures and warnings; with all every finding in the order of
// the checks. Without a verdict it also prints what could not be checked.
func printRDMACheck(u *term.UI, r rdmaCheckReport, all bool) {
	if r.Host != nil {
		u.Printf("%s\n\n", term.Printable(*r.Host))
	}
	listed := r.Findings
	if !all {
		shown := []host.Status{host.Fail, host.Warn}
		if r.Verdict == checklist.Unknown {
			shown = append(shown, host.NA)
		}
		listed = slices.DeleteFunc(slices.Clone(listed), func(f host.Finding) bool { return !slices.Contains(shown, f.Status) })
		slices.SortStableFunc(listed, func(a, b host.Finding) int { return slices.Index(shown, a.Status) - slices.Index(shown, b.Status) })
	}
	command := func(name string) string { return "'" + u.Completed("gpustack rdma "+name) + "'" }
	mend := "follow the remedies below, then run " + command("check") + " again"
	colour, next := term.Bold, mend
	switch r.Verdict {
	case checklist.Ready:
		colour, next = term.Green, "'gpustack rdma test' sends data, here or between two machines"
	case checklist.NotReady:
		colour = term.Red
	case checklist.Drifted:
		colour, next = term.Red, "the machine no longer matches the record of rdma prepare; "+mend
	case checklist.PendingReboot:
		next = "reboot, then run " + command("check") + " again"
	case checklist.Unknown:
		next = "the checks below name what cannot be read"
	}
	printVerdict(u, colour, string(r.Verdict), next, r.Findings, listed)
}
