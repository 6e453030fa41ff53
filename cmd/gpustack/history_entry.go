package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/cleanup/repair"
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
func showEntry(u *ui, opts historyOptions, all []change.Store) error {
	store, entries, i, err := findEntry(all, opts.id)
	if err != nil {
		return err
	}
	e, shown := entries[i], newHistoryEntry(store, entries, i)
	u.show(historyReport{1, []historyEntry{shown}})
	if opts.format != formatTable {
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
		u.printf("\na change of kind %s, of another version of gpustack: the journal has it as it is recorded\n", quoted(e.Kind))
	}
	printPrograms(u, shown.Programs, shown.Left)
	if len(e.Restart) > 0 {
		names, restartErr := restartNames(store.Root, e.Restart)
		if restartErr != nil {
			return errors.Join(err, restartErr)
		}
		u.printf("\nservices to restart, in this order: %s\n", printable(strings.Join(names, ", ")))
	}
	return err
}

// printEntryHead prints what an entry is.
func printEntryHead(u *ui, store change.Store, e change.Entry) {
	const notRecorded = "not recorded"
	at := func(t time.Time) string { return t.Format("2006-01-02 15:04:05Z") }
	origin := change.Origin{User: notRecorded, Host: notRecorded, Version: notRecorded}
	line := notRecorded
	if e.Origin != nil {
		origin = *e.Origin
		words := []string{"gpustack"}
		for _, word := range origin.Argv {
			words = append(words, shellWord(word))
		}
		line = strings.Join(words, " ")
	}
	ended := "-"
	if e.Ended != nil {
		ended = at(*e.Ended)
	}
	u.printf("%s\n", printable(entryName(e.ID, e.Command)))
	for _, field := range [][2]string{
		{"begun", at(e.Started)}, {"ended", ended}, {"status", string(e.Status)}, {"user", orDash(origin.User)}, {"host", orDash(origin.Host)},
		{"version", orDash(origin.Version)}, {"command", line}, {"journal", store.Path()},
	} {
		u.printf("  %-8s %s\n", field[0], printable(field[1]))
	}
}

// printEntryFiles prints changes of files as their plan did, each with what its diff lacks.
func printEntryFiles(u *ui, changes []recordedChange) {
	for _, c := range changes {
		printDiffs(u, []fileChange{{c.File, c.Action, c.Diff}})
		if c.Note != "" {
			u.printf("\n%s: %s\n", printable(c.File), c.Note)
		}
	}
}

// printEntryDrivers prints changes of drivers as their plan did.
func printEntryDrivers(u *ui, e change.Entry) error {
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
		rows = append(rows, []string{c.Address.String(), number(c.Group), orDash(string(c.Before.Driver)), orDash(then)})
	}
	u.printf("\n")
	u.table([]string{"FUNCTION", "GROUP", "BEFORE", "AFTER"}, rows)
	plan := driver.Plan{Release: record.Release, Changes: record.Functions, Services: record.Services, Containers: record.Containers}
	printDriverWrites(u, driverChanges(plan), plan)
	return nil
}

// printEntryRows prints repairs as their plan did, each with its state.
func printEntryRows(u *ui, e change.Entry) error {
	units, err := repair.Units(e)
	if err != nil {
		return err
	}
	printRepairPlan(u, units)
	u.printf("\n")
	for _, unit := range units {
		u.printf("%s: %s\n", printable(unit.Name()), unit.State)
	}
	return nil
}

// printEntryObject prints the change of an object as its plan did.
func printEntryObject(u *ui, e change.Entry) error {
	o, err := recordedObject(e)
	if err != nil {
		return err
	}
	u.printf("\nat %s\n", printable(o.scope.String()))
	u.diff(o.diff)
	printRequests(u, o.requests)
	return nil
}
