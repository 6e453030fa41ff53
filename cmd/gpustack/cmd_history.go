package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/host/driver"
)

func newHistoryCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "history",
		Usage:     "list the changes made by gpustack on this machine, or show one",
		ArgsUsage: "[ENTRY]",
		Description: `
Lists the entries of the journal, oldest first, with the files, drivers, database rows or
API objects that each has changed. Users other than root see what they have changed through
OpenStack's APIs, and the machine's journal where they may read it.

With ENTRY, it shows that entry: when the change was made, its status, the user who called
gpustack (also by sudo), the host, the version and the command line, and then the change as
its plan showed it. The journal contains only what undo needs. If a file was changed since
by others, or the change is undone, the diff has the lines or values that are recorded, and
says so. Entries of earlier versions do not record user, host and version.

EXAMPLES
  gpustack history
  gpustack history 3
  gpustack history -o json

EXIT STATUS
  0  the list or the entry is printed
  1  the journal could not be read, or has no such entry`,
		Flags:  []cli.Flag{args.RootFlag(), args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML)},
		Action: action(u, parseHistory, runHistory),
	}
}

type historyOptions struct {
	root, format string
	id           int // 0: all
}

func parseHistory(c *cli.Context, f *args.Faults) historyOptions {
	return historyOptions{c.String("root"), f.Choice(c, "output"), entryOf(c, f)}
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
			f.Add(args.UsageError("ENTRY: not a number of the journal: "+strconv.Quote(arg), "gpustack history lists them"))
		}
		number = id
	}
	return number
}

// historyReport is the output of history (docs/json.md).
type historyReport struct {
	Schema  int            `json:"schema"`
	Entries []historyEntry `json:"entries"`
}

func runHistory(_ context.Context, u *term.UI, opts historyOptions) error {
	all, err := change.Stores(opts.root)
	if err != nil {
		return err
	}
	if opts.id != 0 {
		return showEntry(u, opts, all)
	}
	report := historyReport{1, []historyEntry{}}
	var rows [][]string
	for _, store := range all {
		entries, err := store.List()
		if err != nil {
			return err
		}
		for i, e := range entries {
			report.Entries = append(report.Entries, newHistoryEntry(store, entries, i))
			row := []string{strconv.Itoa(e.ID), e.Started.Format("2006-01-02 15:04:05Z"), views.OrDash(userOf(e)), string(e.Status), e.Command, changed(e)}
			if len(all) > 1 {
				row = append(row, store.Path())
			}
			rows = append(rows, row)
		}
	}
	u.Document.Show(report)
	switch {
	case opts.format != term.FormatTable:
		return nil
	case len(rows) == 0:
		u.Printf("gpustack has changed nothing here\n")
		return nil
	}
	header := []string{"ENTRY", "BEGUN", "USER", "STATUS", "COMMAND", "CHANGED"}
	if len(all) > 1 {
		header = append(header, "JOURNAL")
	}
	u.Table(header, rows)
	return nil
}

// userOf returns the user who made a change, "" if it is not recorded.
func userOf(e change.Entry) string {
	if e.Origin == nil {
		return ""
	}
	return e.Origin.User
}

// changed returns a short description of what an entry has changed.
func changed(e change.Entry) string {
	switch e.Kind {
	case change.KindRows:
		return "rows of Nova's databases"
	case change.KindDrivers:
		record, err := driver.ParseRecord(e)
		if err != nil {
			return inOneLine(err)
		}
		return "drivers of " + term.Numbered(len(record.Functions), "function")
	case change.KindObjects:
		o, err := recordedObject(e)
		if err != nil {
			return inOneLine(err)
		}
		return o.name
	case change.KindFiles:
	default:
		return e.Kind
	}
	if len(e.Files) == 0 {
		return "-"
	}
	first := e.Files[0].Name
	if len(e.Files) == 1 {
		return first
	}
	return fmt.Sprintf("%s and %d more", strings.TrimSpace(first), len(e.Files)-1)
}

// inOneLine returns the text of an error as a cell of a table.
func inOneLine(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
