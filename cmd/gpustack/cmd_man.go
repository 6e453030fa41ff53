package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
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
		name := c.App.Name // also "gpustack man gpustack-host-scan", as man(1) names it
		if given := strings.Join(words, "-"); given != "" && given != name {
			name += "-" + strings.TrimPrefix(given, name+"-")
		}
		i := slices.IndexFunc(opts.pages, func(p args.Page) bool { return p.Name == name })
		if i < 0 {
			command := strings.Join(words, " ")
			f.Add(args.UsageError("no manual page of a command "+strconv.Quote(command), "the pages are "+term.Listed(pageNames(opts.pages), "and")))
			return opts
		}
		opts.pages = opts.pages[i : i+1]
	}
	return opts
}

func pageNames(pages []args.Page) (names []string) {
	for _, p := range pages {
		names = append(names, p.Name)
	}
	return names
}

func runMan(_ context.Context, u *term.UI, opts manOptions) error {
	if opts.dir == "" {
		u.Printf("%s", opts.pages[0].Text)
		return nil
	}
	err := os.MkdirAll(opts.dir, 0o755) //nolint:gosec // every user reads the manual
	for _, p := range opts.pages {
		if err == nil {
			err = os.WriteFile(filepath.Join(opts.dir, p.File()), []byte(p.Text), 0o644) //nolint:gosec // every user reads the manual
		}
	}
	if err != nil {
		return host.WithHint(fmt.Errorf("write the manual: %w", withPath(err)), "choose a folder that this user may write to, with --dir")
	}
	return nil
}

// withPath returns an error of the file system with its file, and without the system call.
func withPath(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return fmt.Errorf("%s: %w", at.Path, at.Err)
	}
	return err
}
