package main

import (
	"context"
	"encoding/json"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host/driver"
)

// newNetlinkRequestCommand returns the hidden command with which gpustack starts itself for one
// request over netlink, which may block in the kernel forever.
func newNetlinkRequestCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      driver.RequestCommand,
		Usage:     "make a request over netlink",
		ArgsUsage: "-- KIND DEVICE VF VALUE",
		Hidden:    true,
		Description: `
Makes one request to the kernel, and prints its answer as JSON.`,
		Action: action(u, parseNetlinkRequest, runNetlinkRequest),
	}
}

func parseNetlinkRequest(c *cli.Context, f *args.Faults) driver.Request {
	arguments := f.Arguments(c, "KIND", "DEVICE", "VF", "VALUE")
	if f.Err() != nil {
		return driver.Request{}
	}
	r, err := driver.ParseRequest(arguments[:4])
	if err != nil {
		f.Add(args.UsageError(err.Error(), f.SeeHelp()))
	}
	return r
}

func runNetlinkRequest(_ context.Context, u *term.UI, r driver.Request) error {
	// Only the run that started this process ends the request, by its timeout.
	if err := u.Run.Begin(); err != nil {
		return err
	}
	text, err := json.Marshal(driver.MakeRequest(r))
	if err != nil {
		return err
	}
	u.Printf("%s\n", text)
	return nil
}
