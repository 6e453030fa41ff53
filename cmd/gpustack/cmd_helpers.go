package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host/driver"
	"gpustack/host/guard"
)

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
