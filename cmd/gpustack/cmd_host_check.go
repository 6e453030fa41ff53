package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/prepare"
	"gpustack/nova"
)

func newHostCheckCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "tell whether the machine is ready to give GPUs to guests, and if not why",
		Description: `
Looks at everything that giving functions to guests rests on, in this order: CPU, firmware,
IOMMU, kernel arguments now and at the next boot, modules of each kernel, the functions
and their groups, and what host prepare has recorded. Each check says what it saw and,
unless all is well, what to do. Reads files below the root, changes nothing and runs no
program. Some files take root to be read.

Before host prepare it tells what stands in its way; after it, whether the machine has
yet to be booted, is as was planned, or has drifted. What follows from a fault that is
named already is not said again. What cannot be seen, such as in an archive that a
support program has made, is n/a, and never a pass.

The formats json and yaml are described in docs/json.md.

EXAMPLES
  gpustack host check
  gpustack host check -o json
  gpustack host check --root /mnt/sosreport

EXIT STATUS
  0  ready; there may be warnings
  1  it could not be looked at
  2  a check has failed: not prepared, to be booted, not ready or drifted`,
		Flags: []cli.Flag{
			rootFlag(),
			outputFlag(formatTable, formatJSON, formatYAML),
		},
		Action: action(u, parseHostCheck, runHostCheck),
	}
}

type hostCheckOptions struct {
	root, format string
}

func parseHostCheck(c *cli.Context, f *faults) hostCheckOptions {
	f.arguments(c)
	return hostCheckOptions{c.String("root"), f.choice(c, "output")}
}

// hostCheckReport is what host check prints, in the form that docs/json.md describes.
type hostCheckReport struct {
	Schema   int             `json:"schema"`
	Host     scannedHost     `json:"host"`
	Verdict  prepare.Verdict `json:"verdict"`
	Passed   bool            `json:"passed"`
	Findings []host.Finding  `json:"findings"`
	Warnings []string        `json:"warnings"`
}

func runHostCheck(ctx context.Context, u *ui, opts hostCheckOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	if err := u.settled(ctx, root); err != nil {
		return err
	}
	machine, err := prepare.ReadMachine(root)
	if err != nil {
		return err
	}
	machine.VirtType = readVirtType(root)
	report := newHostCheckReport(machine)
	u.warn(report.Warnings...)
	if opts.format != formatTable {
		err = u.show(opts.format, report)
	} else {
		u.hostCheckTable(report)
	}
	switch {
	case err != nil:
		return err
	case !report.Passed:
		return errDifferent
	case report.Verdict == prepare.Unknown:
		return fmt.Errorf("%s: %w", root.Path("/"), prepare.ErrUnseen)
	}
	return nil
}

// readVirtType reads how nova-compute runs guests.
func readVirtType(root host.Root) prepare.Look[string] {
	value, file, err := nova.ReadVirtType(root)
	return prepare.Look[string]{Value: value, File: file, Err: err}
}

func newHostCheckReport(m prepare.Machine) hostCheckReport {
	findings, verdict := prepare.Check(m)
	return hostCheckReport{
		Schema: 1,
		Host: scannedHost{
			Hostname: m.Facts.Hostname, Kernel: m.Facts.Kernel, Distribution: m.Facts.Distribution,
			CPUVendor: m.Facts.CPUVendor, IOMMU: m.IOMMU, BootLoader: m.Facts.BootLoader,
		},
		Verdict:  verdict,
		Passed:   !host.Failed(findings),
		Findings: findings,
		Warnings: append([]string{}, m.Warnings...),
	}
}

func (u *ui) hostCheckTable(r hostCheckReport) {
	u.printf("%s\n\n", printable(hostLine(r.Host)))
	u.findings(r.Findings)
	u.printf("\n%s\n", u.paint(bold, string(r.Verdict)+counted(r.Findings)))
}

// counted tells how many checks are not well.
func counted(findings []host.Finding) string {
	failed, warned := 0, 0
	for _, f := range findings {
		switch f.Status {
		case host.Fail:
			failed++
		case host.Warn:
			warned++
		}
	}
	switch {
	case failed+warned == 0:
		return ""
	case warned == 0:
		return fmt.Sprintf(" (failed: %d)", failed)
	case failed == 0:
		return fmt.Sprintf(" (warnings: %d)", warned)
	}
	return fmt.Sprintf(" (failed: %d, warnings: %d)", failed, warned)
}
