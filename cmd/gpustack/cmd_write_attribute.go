package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host/driver"
)

// newWriteAttributeCommand returns the hidden command with which gpustack starts itself for one
// write to sysfs, which may block in the kernel forever.
func newWriteAttributeCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      driver.WriteCommand,
		Usage:     "write a value to a file of sysfs",
		ArgsUsage: "-- FILE VALUE",
		Hidden:    true,
		Description: `
Writes VALUE to FILE in one piece, and prints the number of the kernel's error, nothing
for none.`,
		Action: action(u, parseWriteAttribute, runWriteAttribute),
	}
}

func parseWriteAttribute(c *cli.Context, f *args.Faults) driver.Write {
	arguments := f.Arguments(c, "FILE", "VALUE")
	return driver.Write{File: arguments[0], Value: arguments[1]}
}

func runWriteAttribute(_ context.Context, u *term.UI, w driver.Write) error {
	// Only the run that started this process ends the write, by its timeout.
	if err := u.Run.Begin(); err != nil {
		return err
	}
	if number := driver.WriteAttribute(w.File, w.Value); number != 0 {
		u.Printf("%d\n", number)
	}
	return nil
}
