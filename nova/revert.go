package nova

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/nova/conf"
)

// Grammar is the name of the grammar of nova.conf in the journal (edit.Meaning).
const Grammar = "nova.conf"

// meaning returns the change of a file by its options.
func meaning(before, after *conf.File) *edit.Meaning {
	m := &edit.Meaning{Grammar: Grammar, Values: []edit.Value{}}
	for _, e := range conf.Edits(before, after) {
		m.Values = append(m.Values, edit.Value{Name: e.Name.String(), Before: e.Before, After: e.After})
	}
	return m
}

// Written returns the values of options that nova configure has written, by the entries of the
// machine's journal. Values that it has moved from another name of the option are not among them.
func Written(entries []change.Entry) (values []string) {
	for _, e := range entries {
		for _, f := range e.Files {
			if e.Status != change.Done || f.Meaning == nil || f.Meaning.Grammar != Grammar {
				continue
			}
			var before []string
			for _, v := range f.Meaning.Values {
				before = append(before, host.Map(v.Before, onOneLine)...)
			}
			for _, v := range f.Meaning.Values {
				values = append(values, slices.DeleteFunc(v.After, func(text string) bool { return slices.Contains(before, text) })...)
			}
		}
	}
	return values
}

// Revert returns the content of a configuration file in which the options of a change are as before
// it. Values that others have added since, and everything else, remain.
//
// Errors: [OwnedError], and all options that were changed since, each an *edit.ChangedValue.
func Revert(file string, m edit.Meaning, now []byte, _ bool) ([]byte, error) {
	if owner, where := conf.Owner(file, now); owner != "" {
		return nil, &OwnedError{File: file, Owner: owner, Where: where}
	}
	f, err := parseConf(file, now)
	if err != nil {
		return nil, err
	}
	var edits []conf.Edit
	for _, v := range m.Values {
		name, ok := conf.ParseName(v.Name)
		if !ok {
			return nil, host.WithHint(fmt.Errorf("%s: %q is not the name of an option", file, v.Name), "use the release of gpustack that made the change")
		}
		edits = append(edits, conf.Edit{Name: name, Before: v.Before, After: v.After})
	}
	after, conflicts, err := f.Revert(edits)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var errs []error
	for _, c := range conflicts {
		lines := func(name conf.Name, values []string) (lines []string) {
			return host.Map(values, func(v string) string { return name.Key + " = " + strings.ReplaceAll(v, "\n", " ") })
		}
		errs = append(errs, &edit.ChangedValue{File: file, Line: c.Line, Now: lines(c.Name, c.Now),
			Value: edit.Value{Name: c.Name.String(), Before: lines(c.From, c.Removed), After: lines(c.Name, c.Added)}})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return after.Bytes(), nil
}
