package main

import (
	"context"

	"github.com/urfave/cli/v2"
)

func newManCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "man",
		Usage: "print the manual page",
		Description: `
Prints gpustack(8), which contains the same texts as --help.

EXAMPLES
  gpustack man | man -l -

EXIT STATUS
  0  the page is printed`,
		Action: action(u, parseMan, runMan),
	}
}

func parseMan(c *cli.Context, f *faults) *cli.App {
	f.arguments(c)
	return c.App
}

func runMan(_ context.Context, u *ui, a *cli.App) error {
	u.printf("%s", manPage(a))
	return nil
}
