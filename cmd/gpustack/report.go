package main

import (
	"errors"
	"fmt"
	"reflect"
)

// report is the part of the output that all commands have which change something (docs/json.md).
type report struct {
	Schema         int      `json:"schema"`
	Changed        bool     `json:"changed"` // the plan has changes
	Applied        bool     `json:"applied"`
	Entry          *int     `json:"entry"` // id of the journal entry
	RebootRequired bool     `json:"reboot_required"`
	Restart        []string `json:"restart"`
	Warnings       []string `json:"warnings"`
}

// newReport returns the report of a plan.
func newReport(changed bool, warnings ...string) report {
	return report{Schema: 1, Changed: changed, Restart: []string{}, Warnings: append([]string{}, warnings...)}
}

// common returns the part that every report has.
func (r *report) common() *report { return r }

// reporter is a pointer to a report of a command.
type reporter interface{ common() *report }

// report prints warnings and adds them to the report.
func (u *ui) report(r reporter, warnings ...string) {
	u.warn(warnings...)
	r.common().Warnings = append(r.common().Warnings, warnings...)
}

// decision is the operator's answer in advance, given by --yes or --dry-run.
type decision struct {
	format      string
	dryRun, yes bool
}

// mayChange marks the options of commands that change something.
func (decision) mayChange() {}

// decide prints a plan's report and carries the plan out, if it has changes and the operator
// confirms them. act completes the report. Text output shows only the plan; the formats for
// programs are printed after act.
func (u *ui) decide(d decision, question string, r reporter, act func() error) error {
	show := func() error {
		if d.format == formatTable {
			return nil
		}
		return u.show(d.format, reflect.ValueOf(r).Elem().Interface())
	}
	switch {
	case !r.common().Changed:
		return show()
	case d.dryRun:
		return errors.Join(show(), errDifferent)
	}
	if !d.yes {
		if err := u.confirm(question, d.format); err != nil {
			return errors.Join(show(), err)
		}
	}
	u.catchUp() // print the plan before programs print anything
	if err := u.begin(); err != nil {
		return err
	}
	err := act()
	return errors.Join(show(), err)
}

// field is a part of a report: its name in JSON and its value.
type field struct {
	name  string
	value reflect.Value
}

// fields returns the parts of a report in the order of encoding/json, those of embedded structs
// first: a field hides one of the same name in an embedded struct.
func fields(report reflect.Value) (list []field) {
	var own, embedded []field
	names := map[string]bool{}
	for i := range report.NumField() {
		f := report.Type().Field(i)
		if f.Anonymous {
			embedded = append(embedded, fields(report.Field(i))...)
			continue
		}
		names[f.Tag.Get("json")] = true
		own = append(own, field{f.Tag.Get("json"), report.Field(i)})
	}
	for _, f := range embedded {
		if !names[f.name] {
			list = append(list, f)
		}
	}
	return append(list, own...)
}

// recorded prints that a change was made and recorded.
func (u *ui) recorded(entry int) {
	u.note("done, recorded as entry %d: 'gpustack undo %d' undoes it", entry, entry)
}

func entryName(id int, command string) string {
	return fmt.Sprintf("entry %d (%s)", id, command)
}
