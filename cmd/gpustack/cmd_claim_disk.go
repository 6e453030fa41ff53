package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host/guard"
)

// newClaimDiskCommand returns the hidden command with which gpustack starts itself to keep a disk
// open exclusively, which may block in the kernel forever.
func newClaimDiskCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      guard.ClaimCommand,
		Usage:     "keep a disk open exclusively",
		ArgsUsage: "-- FILE",
		Hidden:    true,
		Description: `
Opens FILE exclusively, prints the number of the kernel's error, or 0, and keeps FILE
open until standard input ends.`,
		Action: action(u, parseClaimDisk, runClaimDisk),
	}
}

func parseClaimDisk(c *cli.Context, f *args.Faults) string {
	return f.Arguments(c, "FILE")[0]
}

func runClaimDisk(_ context.Context, u *term.UI, disk string) error {
	// Only the run that started this process ends it.
	if err := u.Run.Begin(); err != nil {
		return err
	}
	return guard.ServeClaim(disk, os.Stdin, u.Direct)
}
