package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/checklist"
	"gpustack/host/edit"
	"gpustack/host/guest"
	"gpustack/host/machine"
	"gpustack/host/metrics"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmacheck"
	"gpustack/host/rdma/trial"
	"gpustack/nova"
	"gpustack/operate/node"
)

// checkCommand is a command that runs the checks of one list on a machine.
type checkCommand struct {
	name               string // "host check"; of those with --metrics
	usage, description string
	flags              []cli.Flag // of this command alone
	// check observes the machine, judges it and returns the report.
	check func(ctx context.Context, u *term.UI, root host.Root, journal change.Seen, opts checkOptions) (checkReport, error)
}

// checkReport is the report of a check: a document, of which people get a part.
type checkReport interface {
	Checked() views.Check
}

// checkHelp is part of the description of each check.
const checkHelp = `Prints the verdict with what to do next, then failures and warnings, each with its effect,
with the message that users see, and a remedy. --all prints what every check has found. What
cannot be read, for example in a support archive or by users other than root, is n/a, never pass.`

// newCheckCommand returns the command check of a subject.
func newCheckCommand(u *term.UI, k checkCommand) *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       k.usage,
		Description: k.description,
		Flags:       append(reading(k.flags...), &cli.BoolFlag{Name: "all", Usage: "list every check, in its order; json and yaml always do"}),
		Action: action(u, parseCheck, func(ctx context.Context, u *term.UI, o given, opts checkOptions) error {
			return inspect(ctx, u, k, o, opts)
		}),
	}
}

type checkOptions struct {
	all     bool
	metrics string                     // "" for none
	words   func(flag string) []string // the values of a flag of the command alone
}

// warnsInterrupted: a check, and status, reads the journal once, and warns of interrupted changes by itself.
func (checkOptions) warnsInterrupted() {}

func parseCheck(c *cli.Context, f *args.Faults) checkOptions {
	return checkOptions{c.Bool("all"), parseMetrics(c, f), c.StringSlice}
}

// inspect checks the machine below the root.
func inspect(ctx context.Context, u *term.UI, k checkCommand, o given, opts checkOptions) error {
	root := o.root
	journal, interrupted := change.Look(ctx, root)
	u.Warn(interrupted...)
	if err := node.Settled(ctx, root, journal); err != nil {
		return err
	}
	if err := machine.Find(root); err != nil {
		return err
	}
	report, err := k.check(ctx, u, root, journal, opts)
	if err != nil {
		return err
	}
	checked := report.Checked()
	u.Warn(checked.Warnings...)
	u.Document.Show(report)
	if o.format == term.FormatTable {
		views.PrintCheck(u, checked, opts.all)
	}
	if err := writeMetrics(u, opts.metrics, k.name, checked.Metrics); err != nil {
		return err
	}
	switch {
	case host.Failed(checked.Findings):
		return errDifferent
	case checked.Verdict == checklist.Unknown:
		return fmt.Errorf("%s: %w", root.Path("/"), checklist.ErrUnknown)
	}
	return nil
}

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

func checkHost(ctx context.Context, u *term.UI, root host.Root, journal change.Seen, _ checkOptions) (checkReport, error) {
	return views.NewHostCheck(node.CheckHost(ctx, newNode(u, root), journal)), nil
}

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

func checkRDMA(_ context.Context, _ *term.UI, root host.Root, journal change.Seen, _ checkOptions) (checkReport, error) {
	checked, err := rdmacheck.Check(root, journal)
	if err != nil {
		return nil, err
	}
	testable := trial.Rping().Ready(host.Runner{Root: root}) == nil && checked.Observed.Reachable()
	return views.NewRDMACheck(root, checked, testable), nil
}

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
				args.PathRules{}),
		},
		check: checkContainers,
	}
}

func checkContainers(_ context.Context, _ *term.UI, root host.Root, _ change.Seen, opts checkOptions) (checkReport, error) {
	checked, err := node.CheckContainers(root, opts.words("image-dir"))
	if err != nil {
		return nil, err
	}
	return views.NewContainerCheck(root, checked), nil
}

// metricsSuffix is the suffix of the names of the files that node_exporter reads (node_exporter,
// collector/textfile.go).
const metricsSuffix = ".prom"

// metricsFlag returns the flag --metrics.
func metricsFlag() cli.Flag {
	return args.Path(&cli.StringFlag{Name: "metrics", Usage: "also write metrics for node_exporter to `FILE`.prom, replacing it"},
		args.PathRules{})
}

// parseMetrics returns the value of --metrics, "" if it is not given. A file that node_exporter
// would not read is a fault, so that no metrics are missing unnoticed.
func parseMetrics(c *cli.Context, f *args.Faults) string {
	file := c.String("metrics")
	args.AddIf(f, c.IsSet("metrics") && !strings.HasSuffix(file, metricsSuffix), "--metrics: "+strconv.Quote(file)+" does not end in "+metricsSuffix,
		"node_exporter reads no other files")
	return file
}

// writeMetrics writes the metrics of a command that has completed, unless file is "". Every user
// can read the file: node_exporter runs as a user of its own.
func writeMetrics(u *term.UI, file, command string, samples []metrics.Sample) error {
	if file == "" {
		return nil
	}
	text, err := metrics.Encode(append(metrics.OfRun(command, programVersion(), time.Now()), samples...))
	if err != nil {
		return err
	}
	if err := u.Run.Begin(nil); err != nil {
		return err
	}
	defer u.Run.End()
	return edit.Replace(file, text, 0o644)
}

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
