package main

import (
	"errors"
	"fmt"
	"reflect"
)

// report is the part of the output that every command that changes something has, in the form
// that docs/json.md describes.
type report struct {
	Schema         int      `json:"schema"`
	Changed        bool     `json:"changed"` // there is something to do
	Applied        bool     `json:"applied"`
	Entry          *int     `json:"entry"` // in the journal
	RebootRequired bool     `json:"reboot_required"`
	Restart        []string `json:"restart"`
	Warnings       []string `json:"warnings"`
}

// newReport returns a report of a plan.
func newReport(changed bool, warnings ...string) report {
	return report{Schema: 1, Changed: changed, Restart: []string{}, Warnings: append([]string{}, warnings...)}
}

// common returns the part that every report has.
func (r *report) common() *report { return r }

// reporter is a pointer to a report of some command.
type reporter interface{ common() *report }

// warn prints a warning and adds it to the report.
func (u *ui) report(r reporter, warnings ...string) {
	u.warn(warnings...)
	r.common().Warnings = append(r.common().Warnings, warnings...)
}

// decision is what the operator has said about a plan beforehand.
type decision struct {
	format      string
	dryRun, yes bool
}

// mayChange marks the options of commands that change something.
func (decision) mayChange() {}

// decide shows a plan's report and carries it out, if there is something to do and the operator
// confirms it. act completes the report, which is printed in formats for machines: people have
// seen the plan.
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
	u.catchUp() // the plan is there before programs talk
	if err := u.begin(); err != nil {
		return err
	}
	err := act()
	return errors.Join(show(), err)
}

// field is a part of a report: its name in JSON, and its value.
type field struct {
	name  string
	value reflect.Value
}

// fields returns the parts of a report in their order, those of embedded structs first, as
// encoding/json has them: a field hides one of the same name in an embedded struct.
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

// recorded tells of a change that was made and recorded.
func (u *ui) recorded(entry int) {
	u.note("done, recorded as entry %d: 'gpustack undo %d' undoes it", entry, entry)
}

func entryName(id int, command string) string {
	return fmt.Sprintf("entry %d (%s)", id, command)
}
