package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/guard"
	"gpustack/host/steps"
)

// newBootCommand returns the hidden command that gpustack-boot.service runs.
func newBootCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:   "boot",
		Usage:  "carry out the recorded steps of every boot",
		Hidden: true,
		Description: `
Carries out what gpustack has recorded for every boot: VFs, their identities and
drivers, and what containers get: device nodes and CDI specs. Each step has a deadline, and
a step that fails fails only the steps that need it. The result is in
/run/gpustack/boot.json. Run again, it completes what is missing and changes nothing else;
VFs that are in use are never destroyed.

With --revert it restores what the steps of this boot have changed and the records no
longer want, and remakes VFs that are recorded otherwise, or refuses if a VF that would go
is in use. Then it makes the nodes and CDI specs of containers as they are recorded.`,
		Flags: []cli.Flag{
			args.RootFlag(),
			&cli.BoolFlag{Name: "revert", Usage: "restore what the records no longer want"},
		},
		Action: action(u, func(c *cli.Context, _ *args.Faults) bool { return c.Bool("revert") }, runBoot),
	}
}

func runBoot(ctx context.Context, u *term.UI, o given, revert bool) error {
	if err := u.Run.Begin(host.Plain("run: systemctl restart " + steps.Unit)); err != nil {
		return err
	}
	if revert {
		return newNode(u, o.root).Steps().Revert(ctx)
	}
	result, err := newNode(u, o.root).Steps().Run(ctx)
	for _, s := range result.Steps {
		u.Printf("%s\n", term.Printable(term.Join(": ", s.ID, string(s.Status), s.Error)))
	}
	return err
}

// newHelperCommands returns the hidden commands with which gpustack starts itself for one step that
// may block in the kernel forever.
func newHelperCommands(u *term.UI) []*cli.Command {
	return []*cli.Command{
		newHelperCommand(u, driver.WriteCommand, "write a value to a file of sysfs",
			"Writes VALUE to FILE in one piece, and prints the number of the kernel's error, nothing for none.",
			[]string{"FILE", "VALUE"}, func(given []string) error {
				if number := driver.WriteAttribute(given[0], given[1]); number != 0 {
					u.Printf("%d\n", number)
				}
				return nil
			}),
		newHelperCommand(u, driver.RequestCommand, "make a request over netlink",
			"Makes one request to the kernel, and prints its answer as JSON.",
			[]string{"KIND", "DEVICE", "VF", "VALUE"}, func(given []string) error {
				r, err := driver.ParseRequest(given)
				if err != nil {
					return err
				}
				text, err := json.Marshal(driver.MakeRequest(r))
				u.Printf("%s\n", text)
				return err
			}),
		newHelperCommand(u, guard.ClaimCommand, "keep a disk open exclusively",
			"Opens FILE exclusively, prints the number of the kernel's error, or 0, and keeps FILE open until standard input ends.",
			[]string{"FILE"}, func(given []string) error { return guard.ServeClaim(given[0], os.Stdin, u.Direct) }),
	}
}

// newHelperCommand returns a command that does a step with these arguments. Only the run that
// started such a process ends it, by its timeout.
func newHelperCommand(u *term.UI, name, usage, description string, arguments []string, step func(given []string) error) *cli.Command {
	parse := func(c *cli.Context, f *args.Faults) []string { return f.Arguments(c, arguments...)[:len(arguments)] }
	return &cli.Command{
		Name: name, Usage: usage, Description: description, ArgsUsage: "-- " + strings.Join(arguments, " "), Hidden: true,
		Action: action(u, parse, func(_ context.Context, u *term.UI, _ given, given []string) error {
			if err := u.Run.Begin(nil); err != nil {
				return err
			}
			return step(given)
		}),
	}
}
