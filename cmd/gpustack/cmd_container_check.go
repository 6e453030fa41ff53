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
	containercheck "gpustack/host/container/check"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

func newContainerCheckCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "check whether containers can use the GPUs and RDMA adapters of this node",
		Description: `
Checks everything that containers with GPUs or RDMA adapters depend on: the driver, its
libraries and device nodes, every CDI spec in /etc/cdi and /run/cdi, roles, and images.
--image DIR judges an image, in its root folder or as an OCI layout (podman save --format
oci-dir): which libcuda its programs load, whether the driver runs its CUDA, and whether its
libraries see the adapters. DIR is not below the root, and environment variables of images
are not printed. Prints the verdict with what to do next, then failures and warnings. Each
has its effect, with the message that users see, and a remedy. --all prints what every check
has found.

Reads files below the root only: NVIDIA's libraries and programs are neither loaded nor
started, because they create device nodes on the running machine. Some files can be read by
root only.

What cannot be read, for example in a support archive, is n/a, never pass.
docs/containers.md lists the messages with their causes; the formats json and yaml are
described in docs/json.md.

EXAMPLES
  gpustack container check
  gpustack container check --all
  gpustack container check --image /srv/images/pytorch
  gpustack container check -o json

EXIT STATUS
  0  ready; there may be warnings
  1  error, nothing to check, or not enough information to reach a verdict
  2  a check has failed`,
		Flags: []cli.Flag{
			args.RootFlag(),
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			args.Paths(&cli.StringSliceFlag{Name: "image", Usage: "judge the image in `DIR`, too: its root folder, or an OCI layout (repeatable)"}, args.PathRules{Kind: args.HandedOver}),
			&cli.BoolFlag{Name: "all", Usage: "list every check, in its order; json and yaml always do"},
		},
		Action: action(u, parseContainerCheck, runContainerCheck),
	}
}

type containerCheckOptions struct {
	root, format string
	images       []string
	all          bool
}

func parseContainerCheck(c *cli.Context, f *args.Faults) containerCheckOptions {
	f.Arguments(c)
	return containerCheckOptions{c.String("root"), f.Choice(c, "output"), c.StringSlice("image"), c.Bool("all")}
}

// containerCheckReport is the output of container check (docs/json.md).
type containerCheckReport struct {
	Schema   int               `json:"schema"`
	Host     *string           `json:"host"`
	Verdict  checklist.Verdict `json:"verdict"`
	Passed   bool              `json:"passed"`
	Driver   *string           `json:"loaded_driver"`
	Findings []host.Finding    `json:"findings"`
	Warnings []string          `json:"warnings"`
}

func runContainerCheck(ctx context.Context, u *term.UI, opts containerCheckOptions) error {
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
	if errors.Is(err, pci.ErrNoPCI) { // a tree without sysfs may have specs
		err = nil
	}
	root = root.Once()
	m := containercheck.Observe(root, machine.Saw(machine.DevicesDir, devices, err), offeredGPUs(root, devices))
	if m.Images, err = containercheck.ReadImages(ctx, opts.images, m.Architecture); err != nil {
		return err
	}
	findings, verdict, err := containercheck.Verify(m)
	if err != nil {
		return fmt.Errorf("%s: %w", root.Path("/"), err)
	}
	r := containerCheckReport{
		Schema: 1, Host: host.ReadHostname(root), Verdict: verdict, Passed: !host.Failed(findings),
		Findings: findings, Warnings: append([]string{}, warnings...),
	}
	if loaded := m.Driver.Value.Loaded; loaded != nil && loaded.Version != "" {
		version := string(loaded.Version)
		r.Driver = &version
	}
	r.Warnings = append(r.Warnings, m.Driver.Value.Warnings...)
	u.Warn(r.Warnings...)
	u.Document.Show(r)
	if opts.format == term.FormatTable {
		printContainerCheck(u, r, opts.all)
	}
	switch {
	case !r.Passed:
		return errDifferent
	case verdict == checklist.Unknown:
		return fmt.Errorf("%s: %w", root.Path("/"), checklist.ErrUnknown)
	}
	return nil
}

// printContainerCheck prints the verdict, failures and warnings; with all every finding in the
// order of the checks. Without a verdict it also prints what could not be checked.
func printContainerCheck(u *term.UI, r containerCheckReport, all bool) {
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
	colour, next := term.Bold, ""
	switch r.Verdict {
	case checklist.Ready:
		colour, next = term.Green, "nothing was started: only a container that runs CUDA proves the rest"
	case checklist.NotReady:
		colour, next = term.Red, "follow the remedies below, then run '"+u.Completed("gpustack container check")+"' again"
	case checklist.Unknown:
		next = "the checks below name what cannot be read"
	}
	printVerdict(u, colour, string(r.Verdict), next, r.Findings, listed)
}
