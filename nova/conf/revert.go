package conf

import (
	"fmt"
	"reflect"
	"slices"
)

// Edit is the change of one option: all its values in their order, none if it is not set. Without a
// key it is a section that the change began, and After are the lines that begin it.
type Edit struct {
	Name          Name
	Before, After []string
}

// Edits returns the options that differ between two versions of a file, and the sections that only
// the second one has.
func Edits(before, after *File) []Edit {
	var edits []Edit
	for _, s := range after.sections {
		header := Edit{Name: Name{Section: s.name}, Before: []string{}, After: []string{after.lines[s.at].text}}
		isIts := func(b section) bool { return sameSection(b.name, s.name) }
		if slices.ContainsFunc(before.sections, isIts) || slices.ContainsFunc(edits, func(e Edit) bool { return sameSection(e.Name.Section, s.name) }) {
			continue
		}
		if n := len(before.lines); n > 0 && !isBlank(before.lines[n-1].text) && s.at > 0 && after.lines[s.at-1].text == "" {
			header.After = append([]string{""}, header.After...)
		}
		edits = append(edits, header)
	}
	for _, o := range slices.Concat(before.options, after.options) {
		name := Name{o.Section, o.Key}
		if slices.ContainsFunc(edits, func(e Edit) bool { return e.Name.is(o) }) {
			continue
		}
		if was, is := before.values(name), after.values(name); !slices.Equal(was, is) {
			edits = append(edits, Edit{name, was, is})
		}
	}
	return edits
}

func (f *File) values(name Name) []string {
	values := []string{}
	for _, o := range f.Find(name) {
		values = append(values, o.Value)
	}
	return values
}

// Conflict is an option that does not have the values that an edit gave it.
type Conflict struct {
	Name           Name
	From           Name     // the option that had the removed values: another one if it was renamed
	Removed, Added []string // the values that only one of the two versions has
	Line           int      // from 1
	Now            []string // values that are of neither version
}

// Revert returns the file in which edits are reverted, each where the option still has the values
// that the edit gave it. Values of others, and an option that already is as before, remain.
func (f *File) Revert(edits []Edit) (*File, []Conflict, error) {
	var conflicts []Conflict
	after := f
	for _, e := range edits {
		if e.Name.Key == "" {
			continue
		}
		now := f.values(e.Name)
		target, extra, ok := merge(e.Before, e.After, now)
		if !ok {
			conflicts = append(conflicts, Conflict{
				Name: e.Name, From: e.Name, Removed: without(e.Before, e.After), Added: without(e.After, e.Before),
				Line: f.lineOf(e.Name, extra), Now: extra,
			})
			continue
		}
		conflicts = append(conflicts, f.lost(e, edits)...)
		if slices.Equal(target, now) {
			continue
		}
		var err error
		if after, err = after.Set(Setting{Names: []Name{e.Name}, Values: target, Multi: true, Continued: true}); err != nil {
			return nil, nil, err
		}
	}
	if conflicts != nil {
		return nil, conflicts, nil
	}
	for _, e := range edits {
		if e.Name.Key != "" {
			continue
		}
		var err error
		if after, err = after.withoutSection(e); err != nil {
			return nil, nil, err
		}
	}
	return after, nil, nil
}

// lost returns the values of an option that an edit has moved to another one, as to its newer name,
// and that are set in neither: they were removed by hand.
func (f *File) lost(e Edit, edits []Edit) (conflicts []Conflict) {
	removed := without(without(e.Before, e.After), f.values(e.Name))
	for _, to := range edits {
		if to.Name.Key == "" {
			continue
		}
		now := f.values(to.Name)
		if _, _, ok := merge(to.Before, to.After, now); !ok {
			continue // a conflict anyway
		}
		for _, v := range without(without(to.After, to.Before), now) {
			if len(without([]string{v}, removed)) == 0 {
				conflicts = append(conflicts, Conflict{Name: to.Name, From: e.Name, Removed: []string{v}, Added: []string{v}, Line: f.lineOf(to.Name, nil)})
			}
		}
	}
	return conflicts
}

// lineOf returns the line of the first option that has one of the values, else the last line of the
// option or of its section's header.
func (f *File) lineOf(name Name, values []string) int {
	line := 1
	for _, s := range f.sections {
		if sameSection(s.name, name.Section) {
			line = s.at + 1
		}
	}
	for _, o := range f.Find(name) {
		if line = o.Line(); slices.Contains(values, o.Value) {
			break
		}
	}
	return line
}

// merge returns the values of an option from which the difference between before and after is
// removed. It returns false, with the values that are in neither, if a value that was added has
// been changed since. A value that was added and is gone needs no undo.
func merge(before, after, now []string) (target, extra []string, ok bool) {
	switch {
	case slices.EqualFunc(now, after, sameValue):
		return before, nil, true
	case slices.EqualFunc(now, before, sameValue):
		return now, nil, true
	}
	added, removed := without(after, before), without(before, after)
	missing := without(added, now)
	extra = without(without(now, before), added)
	if len(missing) == len(added) && len(without(removed, now))+len(extra) == 0 {
		return now, nil, true // all was undone by hand
	}
	if len(missing) > 0 && len(removed)+len(extra) > 0 {
		return nil, extra, false
	}
	removed = without(removed, now)
	restore := removed
	for _, v := range now {
		i := slices.IndexFunc(added, func(a string) bool { return sameValue(a, v) })
		if i < 0 {
			target = append(target, v)
			continue
		}
		added = slices.Delete(slices.Clone(added), i, i+1)
		if len(restore) > 0 {
			target = append(target, restore[0])
			restore = restore[1:]
		}
	}
	for _, v := range restore {
		at := 0
		if i := slices.Index(before, v); i > 0 {
			at = slices.Index(target, before[i-1]) + 1
		}
		target = slices.Insert(target, at, v)
	}
	return target, nil, true
}

// without returns the values without those of others, each as often as it is there.
func without(values, others []string) []string {
	others = slices.Clone(others)
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool {
		i := slices.IndexFunc(others, func(o string) bool { return sameValue(o, v) })
		if i >= 0 {
			others = slices.Delete(others, i, i+1)
		}
		return i >= 0
	})
}

// sameValue reports whether two values are equal as text or as JSON.
func sameValue(a, b string) bool {
	if a == b {
		return true
	}
	x, y := ParseObjects(a), ParseObjects(b)
	return x != nil && y != nil && reflect.DeepEqual(x, y)
}

// withoutSection returns the file without the header of a section that is empty by now.
func (f *File) withoutSection(e Edit) (*File, error) {
	var headers []int
	for i, s := range f.sections {
		if sameSection(s.name, e.Name.Section) {
			headers = append(headers, i)
		}
	}
	if len(headers) != 1 {
		return f, nil
	}
	header, to := f.sections[headers[0]].at, len(f.lines)
	if next := headers[0] + 1; next < len(f.sections) {
		to = f.sections[next].at
	}
	if slices.ContainsFunc(f.lines[header+1:to], func(l line) bool { return !isBlank(l.text) }) {
		return f, nil // it has options or comments
	}
	from := header
	if len(e.After) > 1 && from > 0 && f.lines[from-1].text == "" {
		from--
	}
	var text []byte
	for i, l := range f.lines {
		if i < from || i > header {
			text = append(append(text, l.text...), l.end...)
		}
	}
	after, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVerify, err)
	}
	return after, nil
}
