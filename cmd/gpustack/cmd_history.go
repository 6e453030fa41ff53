package main

import (
	"context"
	"strconv"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/operate/node"
)

func newHistoryCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "history",
		Usage:     "list the changes made by gpustack on this machine",
		ArgsUsage: "[ENTRY]",
		Description: `
Lists the entries of the journal, oldest first, with the files, drivers, database rows or
API objects that each has changed. Users other than root see what they have changed through
OpenStack's APIs, and the machine's journal where they may read it.

With ENTRY, it shows that entry: when the change was made, its status, the user who called
gpustack (also by sudo), the host, the version and the command line, and then the change as
its plan showed it. The journal contains only what undo needs. If a file was changed since
by others, or the change is undone, the diff has the lines or values that are recorded, and
says so.

EXAMPLES
  gpustack history
  gpustack history 3`,
		Flags:  reading(),
		Action: action(u, entryOf, runHistory),
	}
}

// entryOf returns the only argument, the number of an entry of the journal, or 0 without one.
func entryOf(c *cli.Context, f *args.Faults) int {
	number := 0
	for i, arg := range c.Args().Slice() {
		id, err := strconv.Atoi(arg)
		switch {
		case i > 0:
			f.Add(args.UsageError("unexpected argument "+strconv.Quote(arg), f.SeeHelp()))
		case err != nil || id < 1:
			f.Add(args.UsageError("ENTRY: not a number of the journal: "+strconv.Quote(arg), host.Textf("%s lists them", host.NewCommand("history"))))
		}
		number = id
	}
	return number
}

func runHistory(_ context.Context, u *term.UI, o given, id int) error {
	all, err := change.Stores(o.root.Path("/"))
	if err != nil {
		return err
	}
	entries, err := node.ReadHistory(all, id)
	if err != nil {
		return err
	}
	report := views.NewHistory(entries)
	u.Document.Show(report)
	switch {
	case o.format != term.FormatTable:
		return nil
	case id != 0:
		return views.PrintEntry(u, report.Entries[0], entries[0])
	}
	views.PrintHistory(u, report, len(all) > 1)
	return nil
}
