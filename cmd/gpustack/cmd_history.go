package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/journal"
)

func newHistoryCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "history",
		Usage: "show what gpustack has changed on this machine",
		Description: `
Lists the journal's entries, oldest first, with the files, drivers or rows that each has
changed.

EXAMPLES
  gpustack history
  gpustack history -o json

EXIT STATUS
  0  the list is printed
  1  the journal could not be read`,
		Flags:  []cli.Flag{rootFlag(), outputFlag(formatTable, formatJSON, formatYAML)},
		Action: action(u, parseHistory, runHistory),
	}
}

type historyOptions struct {
	root, format string
}

func parseHistory(c *cli.Context, f *faults) historyOptions {
	f.arguments(c)
	return historyOptions{c.String("root"), f.choice(c, "output")}
}

// historyReport is what history prints, in the form that docs/json.md describes.
type historyReport struct {
	Schema  int             `json:"schema"`
	Entries []journal.Entry `json:"entries"`
}

func runHistory(_ context.Context, u *ui, opts historyOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	entries, err := journal.List(root)
	if err != nil {
		return err
	}
	if opts.format != formatTable {
		return u.show(opts.format, historyReport{1, append([]journal.Entry{}, entries...)})
	}
	if len(entries) == 0 {
		u.printf("gpustack has changed nothing here\n")
		return nil
	}
	var rows [][]string
	for _, e := range entries {
		rows = append(rows, []string{strconv.Itoa(e.ID), e.Started.Format("2006-01-02 15:04:05Z"), string(e.Status), e.Command, fileNames(e)})
	}
	u.table([]string{"ENTRY", "BEGUN", "STATUS", "COMMAND", "CHANGED"}, rows)
	return nil
}

func fileNames(e journal.Entry) string {
	switch e.Kind {
	case journal.KindRows:
		return "rows of Nova's databases"
	case journal.KindDrivers:
		record, err := driver.ParseRecord(e)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("drivers of %d functions", len(record.Functions))
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
