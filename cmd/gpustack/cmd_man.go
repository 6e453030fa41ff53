package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
)

// date is the day of the commit, YYYY-MM-DD, that make build links in for the manual.
var date string

func newManCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "man",
		Usage:     "print a page of the manual, or write all pages into a folder",
		ArgsUsage: "[COMMAND]",
		Description: `
Prints gpustack(8), or the page of COMMAND, for man and other programs that read roff. The
pages have the texts of --help. With --dir, it writes all pages into a folder, each in a file
with the name of the page. make install installs them.

EXAMPLES
  gpustack man | man -l -
  gpustack man host prepare | man -l -
  gpustack man --dir /usr/local/share/man/man8

EXIT STATUS
  0  the page is printed, or the pages are written
  1  there is no such command, or the pages could not be written`,
		Flags: []cli.Flag{
			args.Path(&cli.StringFlag{Name: "dir", Usage: "write all pages into `DIR`, which is made if necessary"}, args.PathRules{Kind: args.HandedOver}),
		},
		Action: action(u, parseMan, runMan),
	}
}

type manOptions struct {
	pages []args.Page // all of them, or the one to print
	dir   string      // "" to print
}

func parseMan(c *cli.Context, f *args.Faults) manOptions {
	opts := manOptions{args.ManualPages(c.App, date), c.String("dir")}
	words := c.Args().Slice()
	switch {
	case c.IsSet("dir") && opts.dir == "":
		f.Add(args.UsageError("--dir: the name of the folder is empty", f.SeeHelp()))
	case c.IsSet("dir") && len(words) > 0:
		f.Add(args.UsageError("--dir writes all pages: it cannot be combined with COMMAND", f.SeeHelp()))
	case !c.IsSet("dir"):
		page, err := args.FindPage(opts.pages, words)
		f.Add(err)
		opts.pages = []args.Page{page}
	}
	return opts
}

func runMan(_ context.Context, u *term.UI, opts manOptions) error {
	if opts.dir != "" {
		return args.WritePages(opts.dir, opts.pages)
	}
	u.Raw(opts.pages[0].Text)
	return nil
}
