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
func (u *ui) showEntry(opts historyOptions, all []change.Store) error {
	store, entries, i, err := findEntry(all, opts.id)
	if err != nil {
		return err
	}
	e, shown := entries[i], newHistoryEntry(store, entries, i)
	u.show(historyReport{1, []historyEntry{shown}})
	if opts.format != formatTable {
		return nil
	}
	u.entryHead(store, e)
	switch e.Kind {
	case change.KindFiles:
		u.entryFiles(shown.Changes)
	case change.KindDrivers:
		err = u.entryDrivers(e)
	case change.KindRows:
		err = u.entryRows(e)
	case change.KindObjects:
		err = u.entryObject(e)
	default:
		u.printf("\na change of kind %s, of another version of gpustack: the journal has it as it is recorded\n", quoted(e.Kind))
	}
	u.programs(shown.Programs, shown.Left)
	if len(e.Restart) > 0 {
		names, restartErr := restartNames(store.Root, e.Restart)
		if restartErr != nil {
			return errors.Join(err, restartErr)
		}
		u.printf("\nservices to restart, in this order: %s\n", printable(strings.Join(names, ", ")))
	}
	return err
}

// entryHead prints what an entry is.
func (u *ui) entryHead(store change.Store, e change.Entry) {
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

// entryFiles prints changes of files as their plan did, each with what its diff lacks.
func (u *ui) entryFiles(changes []recordedChange) {
	for _, c := range changes {
		u.diffs([]fileChange{{c.File, c.Action, c.Diff}})
		if c.Note != "" {
			u.printf("\n%s: %s\n", printable(c.File), c.Note)
		}
	}
}

// entryDrivers prints changes of drivers as their plan did.
func (u *ui) entryDrivers(e change.Entry) error {
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
	u.driverWrites(driverChanges(plan), plan)
	return nil
}

// entryRows prints repairs as their plan did, each with its state.
func (u *ui) entryRows(e change.Entry) error {
	units, err := repair.Units(e)
	if err != nil {
		return err
	}
	u.repairPlan(units)
	u.printf("\n")
	for _, unit := range units {
		u.printf("%s: %s\n", printable(unit.Name()), unit.State)
	}
	return nil
}

// entryObject prints the change of an object as its plan did.
func (u *ui) entryObject(e change.Entry) error {
	o, err := recordedObject(e)
	if err != nil {
		return err
	}
	u.printf("\nat %s\n", printable(o.scope.String()))
	u.diff(o.diff)
	u.requests(o.requests)
	return nil
}
