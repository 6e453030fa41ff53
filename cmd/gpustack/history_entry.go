package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/cleanup/repair"
	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/host/driver"
)

// findEntry returns the first store that has entry id, its entries, and the place of the entry.
func findEntry(all []change.Store, id int) (change.Store, []change.Entry, int, error) {
	for _, store := range all {
		entries, err := store.List()
		if err != nil {
			return store, nil, 0, err
		}
		if i := slices.IndexFunc(entries, func(e change.Entry) bool { return e.ID == id }); i >= 0 {
			return store, entries, i, nil
		}
	}
	return change.Store{}, nil, 0, fmt.Errorf("entry %d: %w", id, change.ErrNoEntry)
}

// showEntry prints one entry with its change.
func showEntry(u *term.UI, opts historyOptions, all []change.Store) error {
	store, entries, i, err := findEntry(all, opts.id)
	if err != nil {
		return err
	}
	e, shown := entries[i], newHistoryEntry(store, entries, i)
	u.Document.Show(historyReport{1, []historyEntry{shown}})
	if opts.format != term.FormatTable {
		return nil
	}
	printEntryHead(u, store, e)
	switch e.Kind {
	case change.KindFiles:
		printEntryFiles(u, shown.Changes)
	case change.KindDrivers:
		err = printEntryDrivers(u, e)
	case change.KindRows:
		err = printEntryRows(u, e)
	case change.KindObjects:
		err = printEntryObject(u, e)
	default:
		u.Printf("\na change of kind %s, of another version of gpustack: the journal has it as it is recorded\n", strconv.Quote(e.Kind))
	}
	views.PrintPrograms(u, shown.Programs, shown.Left)
	if len(e.Restart) > 0 {
		names, restartErr := restartNames(store.Root, e.Restart)
		if restartErr != nil {
			return errors.Join(err, restartErr)
		}
		u.Printf("\nservices to restart, in this order: %s\n", term.Printable(strings.Join(names, ", ")))
	}
	return err
}

// printEntryHead prints what an entry is.
func printEntryHead(u *term.UI, store change.Store, e change.Entry) {
	const notRecorded = "not recorded"
	at := func(t time.Time) string { return t.Format("2006-01-02 15:04:05Z") }
	origin := change.Origin{User: notRecorded, Host: notRecorded, Version: notRecorded}
	line := notRecorded
	if e.Origin != nil {
		origin = *e.Origin
		words := []string{"gpustack"}
		for _, word := range origin.Argv {
			words = append(words, args.ShellWord(word))
		}
		line = strings.Join(words, " ")
	}
	ended := "-"
	if e.Ended != nil {
		ended = at(*e.Ended)
	}
	u.Printf("%s\n", term.Printable(views.EntryName(e.ID, e.Command)))
	for _, field := range [][2]string{
		{"begun", at(e.Started)}, {"ended", ended}, {"status", string(e.Status)}, {"user", views.OrDash(origin.User)}, {"host", views.OrDash(origin.Host)},
		{"version", views.OrDash(origin.Version)}, {"command", line}, {"journal", store.Path()},
	} {
		u.Printf("  %-8s %s\n", field[0], term.Printable(field[1]))
	}
}

// printEntryFiles prints changes of files as their plan did, each with what its diff lacks.
func printEntryFiles(u *term.UI, changes []recordedChange) {
	for _, c := range changes {
		views.PrintDiffs(u, []views.FileChange{{File: c.File, Action: c.Action, Diff: c.Diff}})
		if c.Note != "" {
			u.Printf("\n%s: %s\n", term.Printable(c.File), c.Note)
		}
	}
}

// printEntryDrivers prints changes of drivers as their plan did.
func printEntryDrivers(u *term.UI, e change.Entry) error {
	record, err := driver.ParseRecord(e)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, c := range record.Functions {
		then := string(c.After.Driver)
		if c.Any && then == "" {
			then = "(any that matches)"
		}
		rows = append(rows, []string{c.Address.String(), views.Number(c.Group), views.OrDash(string(c.Before.Driver)), views.OrDash(then)})
	}
	u.Printf("\n")
	u.Table([]string{"FUNCTION", "GROUP", "BEFORE", "AFTER"}, rows)
	plan := driver.Plan{Release: record.Release, Changes: record.Functions, Services: record.Services, Containers: record.Containers}
	views.PrintDriverWrites(u, views.DriverChanges(plan), plan)
	return nil
}

// printEntryRows prints repairs as their plan did, each with its state.
func printEntryRows(u *term.UI, e change.Entry) error {
	units, err := repair.Units(e)
	if err != nil {
		return err
	}
	views.PrintRepairPlan(u, units)
	u.Printf("\n")
	for _, unit := range units {
		u.Printf("%s: %s\n", term.Printable(unit.Name()), unit.State)
	}
	return nil
}

// printEntryObject prints the change of an object as its plan did.
func printEntryObject(u *term.UI, e change.Entry) error {
	o, err := recordedObject(e)
	if err != nil {
		return err
	}
	u.Printf("\nat %s\n", term.Printable(o.scope.String()))
	u.Diff(o.diff)
	printRequests(u, o.requests)
	return nil
}
