package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/journal"
	"gpustack/nova/conf"
)

func newUndoCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:      "undo",
		Usage:     "take back what gpustack has changed",
		ArgsUsage: "[ENTRY]",
		Description: `
Puts every file of an entry of the journal back as it was, byte for byte, with its
permissions, owner and attributes, removes those that were made, and runs the
programs again that make what derives from them. Without ENTRY it takes the latest
that is not undone yet. A file that somebody has changed since is named, and then
nothing is touched.

EXAMPLES
  gpustack undo
  gpustack undo 3 --dry-run

EXIT STATUS
  0  the files are as they were
  1  they could not be put back
  2  --dry-run: there is something to put back`,
		Flags:  []cli.Flag{rootFlag(), outputFlag(formatTable, formatJSON, formatYAML), dryRunFlag(), yesFlag()},
		Action: action(u, parseUndo, runUndo),
	}
}

type undoOptions struct {
	decision
	root string
	id   int // 0: the latest
}

func parseUndo(c *cli.Context, f *faults) undoOptions {
	opts := undoOptions{decision: parseDecision(c, f), root: c.String("root")}
	for i, arg := range c.Args().Slice() {
		id, err := strconv.Atoi(arg)
		switch {
		case i > 0:
			f.add(&usageError{"unexpected argument " + quoted(arg), f.seeHelp()})
		case err != nil || id < 1:
			f.add(&usageError{"ENTRY: not a number of the journal: " + quoted(arg), "gpustack history lists them"})
		}
		opts.id = id
	}
	return opts
}

// undoReport is what undo prints, in the form that docs/json.md describes.
type undoReport struct {
	Schema         int          `json:"schema"`
	Changed        bool         `json:"changed"`
	Changes        []fileChange `json:"changes"`
	Programs       []string     `json:"programs"`
	Left           []string     `json:"left"`
	RebootRequired bool         `json:"reboot_required"`
	Restart        []string     `json:"restart"`
	Applied        bool         `json:"applied"`
	Entry          int          `json:"entry"`
}

func runUndo(ctx context.Context, u *ui, opts undoOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	entries, err := journal.List(root)
	if err != nil {
		return err
	}
	entry, err := journal.Pick(entries, opts.id)
	if err != nil {
		return err
	}
	runner := host.Runner{Root: root, Talk: u.talk}
	// An entry that only waits for its programs, or is on its way back, can be
	// undone as it is.
	if s := entry.Status; s == journal.Applying {
		if err := u.recover(ctx, runner, opts.dryRun, opts.yes); err != nil || !opts.dryRun {
			return err
		}
	}
	plan, err := entry.Back(root)
	if err != nil {
		return err
	}
	for i, f := range slices.Backward(entry.Files) {
		if f.Secret {
			plan[len(plan)-1-i].Shown = conf.Masked
		}
	}
	report := undoReport{
		Schema: 1, Changed: true, Changes: fileChanges(plan), Programs: commandLines(entry.Programs), Left: commandLines(entry.Left),
		RebootRequired: len(entry.Programs)+len(entry.Left) > 0, Restart: append([]string{}, entry.Restart...), Entry: entry.ID,
	}
	if err := runner.Ready(entry.Programs); len(entry.Programs) > 0 && err != nil {
		return err
	}
	if opts.format == formatTable {
		u.printf("takes back entry %d: %s\n", entry.ID, entry.Command)
		u.diffs(report.Changes)
		u.programs(report.Programs, report.Left)
		if len(report.Restart) > 0 {
			u.printf("\nto be restarted, in this order: %s\n", strings.Join(report.Restart, ", "))
		}
	}
	return u.decide(opts.decision, true, "take it back?", &report, func() error {
		err := undo(ctx, runner, entry.ID)
		report.Applied = err == nil
		if err == nil && opts.format == formatTable {
			u.note("entry %d is undone", entry.ID)
		}
		return err
	})
}

func undo(ctx context.Context, runner host.Runner, id int) (err error) {
	j, err := openJournal(runner)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	_, err = j.Undo(ctx, id)
	return err
}
