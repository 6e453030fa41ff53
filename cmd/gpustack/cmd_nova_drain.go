package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova/cloud"
	"gpustack/nova/drain"
)

func newNovaDrainCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "drain",
		Usage:     "take a compute service out of scheduling",
		ArgsUsage: "[HOST]",
		Description: `
Shows the compute service of HOST and the servers on it, asks, disables the service with the
reason "gpustack TIME ID: TEXT", reads it back and records the change. Then it waits until
no build, resize or migration is in progress on the host, and lists the servers that are
left, with their owners. It stops and moves none.

"gpustack nova enable" and "gpustack undo" enable the service again. A service that
was disabled by other means is refused, and so is a drain of another operator, whose ID this
journal does not have, without --take-over. For one that this journal has, TIME and ID stay.

  --step  changes only TEXT: a program that changes the host says so what it is doing, and
          --list shows it. Undo of the first change enables the service.
  --list  lists the services that gpustack has disabled, on this machine or another, with the
          earliest first, by the reasons that Nova keeps, and changes nothing. Before Nova
          Stein, services of a cell that does not answer are missing from the list.

A resize that is neither confirmed nor reverted is in progress. Builds, migrations and
unshelved servers elsewhere, which could still come to the host, are waited for too, unless
nothing has changed them for an hour, or for a day a build on a host that is up: a warning
lists these. A guest has GPUs if its flavor has pci_passthrough:alias, accel:device_profile,
or resources of VGPU, PGPU or CUSTOM_.

` + cloudHelp + `

EXAMPLES
  gpustack nova drain gpu7 --reason 'new kernel'
  gpustack nova drain gpu7 --reason 'new kernel' --wait-empty 2h --yes
  gpustack nova drain --list
  gpustack nova drain gpu7 --step 'reboot' --yes
  gpustack nova drain gpu7 --reason 'new kernel' --dry-run -o json

EXIT STATUS
  0  the service is disabled, and no server runs on the host with GPUs; --step: the reason
     is changed; --list: the services are listed, and there may be none
  1  the change failed, or something was still in progress after --wait
  2  servers with GPUs run on the host; --wait 0 and --dry-run: or something is in progress;
     --dry-run: or there are pending changes
  130  interrupted: nothing was changed, unless the error says otherwise`,
		Flags: changingCloud(
			&cli.StringFlag{Name: "reason", Usage: "say in `TEXT` why the service is disabled"},
			&cli.BoolFlag{Name: "list", Usage: "only list the services that gpustack has disabled, since when and at which step"},
			&cli.StringFlag{Name: "step", Usage: "only change the reason to `TEXT`"},
			&cli.BoolFlag{Name: "take-over", Usage: "replace the reason of another operator's drain, which undo restores"},
			&cli.DurationFlag{Name: "wait", Value: 10 * time.Minute,
				Usage: "wait at most `TIME` until nothing is in progress on the host, or may come to it; 0: not at all"},
			&cli.DurationFlag{Name: "wait-empty", Usage: "then wait at most `TIME` until no server runs there with GPUs (default: do not wait)"},
		),
		Action: action(u, parseNovaDrain, runNovaDrain),
	}
}

type novaDrainOptions struct {
	novaHost string
	text     string
	step     bool
	list     bool
	takeOver bool
	waiting  drain.Waiting
}

func parseNovaDrain(c *cli.Context, f *args.Faults) novaDrainOptions {
	if c.Bool("list") {
		f.Arguments(c)
		f.Exclude(c, "list", "step", "reason", "take-over", "wait", "wait-empty")
		return novaDrainOptions{list: true}
	}
	opts := novaDrainOptions{
		novaHost: f.Arguments(c, "HOST")[0], step: c.IsSet("step"), takeOver: c.Bool("take-over"),
		waiting: drain.Waiting{Tasks: c.Duration("wait"), Empty: c.Duration("wait-empty"), Every: drain.Every},
	}
	f.Exclude(c, "step", "reason", "take-over", "wait", "wait-empty")
	flag := "reason"
	if opts.step {
		flag = "step"
	}
	opts.text = c.String(flag)
	if err := drain.CheckText(opts.text); c.IsSet(flag) {
		f.AddEach("--"+flag+": ", err, host.HintOf(err))
	} else {
		f.Add(args.UsageError("--reason is missing", "say why: --reason 'new kernel'; administrators see it in the list of services"))
	}
	for _, name := range []string{"wait", "wait-empty"} {
		d := c.Duration(name)
		args.AddIf(f, c.IsSet(name) && (d < 0 || d == 0 && name != "wait"), fmt.Sprintf("--%s: not a time to wait: %s", name, d),
			"--"+name+" takes a time such as 30s or 10m")
	}
	return opts
}

// plan returns what is to change of a service.
func (o novaDrainOptions) plan(s cloud.ComputeService, journal change.Store) (drain.Move, error) {
	if o.step {
		return drain.NewStep(s, o.text)
	}
	entries, err := journal.List()
	if err != nil {
		return drain.Move{}, err
	}
	return drain.NewDraining(s, o.text, time.Now(), drain.Own(entries), o.takeOver)
}

// listDrained lists the services that gpustack has disabled.
func listDrained(ctx context.Context, u *term.UI, o given) error {
	compute, err := cloud.ConnectCompute(ctx, o.cloud)
	if err != nil {
		return err
	}
	services, err := compute.ComputeServices(ctx)
	if err != nil {
		return err
	}
	u.Document.Kind = "nova drain --list"
	report := views.Drained{Schema: 1, Cloud: compute.URL, Status: drain.NewStatus(services)}
	return showReport(u, o.format, report, func() { report.Print(u) }, true)
}

func runNovaDrain(ctx context.Context, u *term.UI, g given, opts novaDrainOptions) error {
	if opts.list {
		return listDrained(ctx, u, g)
	}
	o, err := openObjects(ctx, u, g)
	if err != nil {
		return err
	}
	service, err := drain.Find(ctx, o.compute, opts.novaHost)
	if err != nil {
		return err
	}
	move, err := opts.plan(service, o.engine.Store)
	if err != nil {
		return err
	}
	left, shown := drain.Left{}, (*drain.Left)(nil)
	if !opts.step {
		if left, err = drain.NewLook(o.compute, service.Host, move.Before).Read(ctx); err != nil {
			return err
		}
		shown = &left
	}
	report := views.NewNovaDrain(o.head(ctx, move.Changed(), left.Ignored...), o.compute, service, move)
	report.Left = left
	if g.quiet && !move.Changed() && g.format == term.FormatTable { // decide prints nothing then
		u.Warn(report.Warnings...)
	}
	question := "change the reason?"
	if move.Before.Enabled {
		question = "disable it?"
	}
	err = decide(u, g, &report, question, views.ServiceSummary(move), func() { report.PrintPlan(u, shown) }, func() error {
		defer u.Run.End()
		return setService(ctx, u, o, "nova drain "+service.Host, move, &report)
	}, report.Warnings...)
	switch {
	case err != nil || opts.step:
		return err
	case !g.dryRun:
		return awaitEmpty(ctx, u, g, opts.waiting, drain.NewLook(o.compute, service.Host, move.After), left, &report)
	case !left.Drained():
		return errDifferent
	}
	return nil
}

// setService makes a change of a service. A text alone is not recorded.
func setService(ctx context.Context, u *term.UI, o objects, command string, move drain.Move, r *views.NovaDrain) error {
	made := drain.Kind(o.compute).New(move)
	if !move.Renames() {
		return applyWork(ctx, u, o.engine, o.format, change.Work{Command: command, Change: made}, r)
	}
	if err := u.Run.Begin(views.RemedyOf(made.Kind())); err != nil {
		return err
	}
	err := made.Make(ctx)
	if r.Applied = err == nil; r.Applied && o.format == term.FormatTable {
		u.Note("changed the reason of the compute service of %s", term.Printable(move.Host))
	}
	return err
}

// awaitEmpty waits for what is in progress on the host, and lists what is left, unless that is what
// the plan has shown. It changes nothing.
func awaitEmpty(ctx context.Context, u *term.UI, o given, w drain.Waiting, look *drain.Look, shown drain.Left, r *views.NovaDrain) error {
	name := r.Service.Host
	if o.format == term.FormatTable && !o.quiet {
		w.Progress = func(left drain.Left) { views.NoteLeft(u, name, left) }
	}
	left, err := look.Wait(ctx, w)
	if left != nil {
		r.Left = *left
		addWarnings(u, r, host.Filter(left.Ignored, func(warning string) bool { return !slices.Contains(r.Warnings, warning) })...)
		if o.format == term.FormatTable && (o.quiet || fmt.Sprint(*left) != fmt.Sprint(shown)) {
			views.PrintLeft(u, name, *left)
		}
	}
	switch {
	case errors.Is(err, drain.ErrChanged):
		return err
	case err != nil:
		return errors.Join(err, host.WithHint(fmt.Errorf("the compute service of %s stays disabled", name),
			host.Textf("'%s' enables it", host.NewCommand("nova enable").Arg(name))))
	case !left.Drained():
		return errDifferent
	}
	return nil
}

func newNovaEnableCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "enable",
		Usage:     "enable a compute service that nova drain has disabled",
		ArgsUsage: "HOST",
		Description: `
Shows the compute service of HOST, asks, enables it, reads it back and records the change.
"gpustack undo" disables it again, with the same reason. A service that was disabled by
other means is refused: its reason does not begin with "gpustack TIME ID: ". It does not
matter which machine has disabled it.

` + cloudHelp + `

EXAMPLES
  gpustack nova enable gpu7 --os-cloud lab --yes`,
		Flags:  changingCloud(),
		Action: action(u, oneArgument("HOST"), runNovaEnable),
	}
}

func runNovaEnable(ctx context.Context, u *term.UI, g given, novaHost string) error {
	o, err := openObjects(ctx, u, g)
	if err != nil {
		return err
	}
	service, err := drain.Find(ctx, o.compute, novaHost)
	if err != nil {
		return err
	}
	move, err := drain.NewEnabling(service)
	if err != nil {
		return err
	}
	report := views.NewNovaDrain(o.head(ctx, move.Changed()), o.compute, service, move)
	return decide(u, g, &report, "enable it?", views.ServiceSummary(move), func() { report.PrintPlan(u, nil) }, func() error {
		return setService(ctx, u, o, "nova enable "+service.Host, move, &report)
	}, report.Warnings...)
}
