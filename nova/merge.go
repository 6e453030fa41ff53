package nova

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"gpustack/nova/conf"
)

// item is one value of an option with several values.
type item struct {
	text  string
	same  map[string]any            // the value as an object
	about func(map[string]any) bool // reports whether an object defines the same thing
}

// equals reports whether an object is the item.
func (i item) equals(object map[string]any) bool {
	have := maps.Clone(object)
	if name, ok := have["name"].(string); ok {
		have["name"] = strings.TrimSpace(name)
	}
	return reflect.DeepEqual(have, i.same)
}

// sameIDs reports whether an object has the ids of the item.
func (i item) sameIDs(object map[string]any) bool {
	return object["vendor_id"] == i.same["vendor_id"] && object["product_id"] == i.same["product_id"]
}

func newItem(value any, about func(map[string]any) bool) (item, error) {
	same, err := conf.Object(value)
	if err != nil {
		return item{}, err
	}
	written, err := conf.FormatJSON(value)
	return item{written, same, about}, err
}

// multi sets an option whose values in all files and under all names count, for programs. Existing
// values stay; values that define the same thing as an item are updated. An item in a file that not
// all of the programs read is moved to one that they do.
func (p *planner) multi(what string, names []conf.Name, items []item, programs ...string) error {
	m := merge{planner: p, what: what, items: items, programs: programs, values: map[*source][]string{}}
	sources := p.of(programs...)
	m.satisfied = m.presentIn(sources, names)
	var errs []error
	for _, s := range sources {
		for _, o := range s.file.Find(names...) {
			errs = append(errs, m.take(s, o)...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	m.addMissing(p.target())
	for _, s := range sources {
		if p.isFixed(s) {
			continue
		}
		setting := conf.Setting{Names: names, Values: m.values[s], Multi: true, Same: sameButBreaks}
		if err := p.set(s, setting, programs...); err != nil {
			return err
		}
	}
	return nil
}

// merge is the values of an option with several values, while they are planned.
type merge struct {
	*planner
	what      string // what a value defines, for messages
	items     []item // the wanted values
	programs  []string
	satisfied []bool               // the items that a value of the plan is
	values    map[*source][]string // as they are planned
}

// fate is what becomes of an existing value.
type fate int

const (
	stays   fate = iota // it is not gpustack's
	isItem              // it is an item, or becomes one
	isMoved             // it is an item in a file that not all programs read, and goes elsewhere
)

// presentIn reports for each item whether a value that all programs read is the item.
func (m *merge) presentIn(sources []*source, names []conf.Name) []bool {
	present := make([]bool, len(m.items))
	for _, s := range sources {
		if !m.serves(s, m.programs) {
			continue
		}
		for _, o := range s.file.Find(names...) {
			have := conf.ParseObjects(o.Value)
			for i, it := range m.items {
				present[i] = present[i] || slices.ContainsFunc(have, it.equals)
			}
		}
	}
	return present
}

// take plans an existing value.
func (m *merge) take(s *source, o conf.Option) []error {
	have := conf.ParseObjects(o.Value)
	fate, value, errs := m.judge(s, o, have)
	switch {
	case fate == isItem:
		m.values[s] = append(m.values[s], onOneLine(value))
	case fate == isMoved:
	case m.removes(have):
		errs = append(errs, m.remove(s, o))
	default:
		for _, fault := range m.faultsOf(o) {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %w", s.name, o.Line(), fault, ErrAlias))
		}
		m.plan.Kept = append(m.plan.Kept, fmt.Sprintf("%s:%d: %s", s.name, o.Line(), onOneLine(o.Value)))
		m.values[s] = append(m.values[s], onOneLine(value))
	}
	return errs
}

// judge compares an existing value with the items, and returns the value that the plan has instead.
func (m *merge) judge(s *source, o conf.Option, have []map[string]any) (f fate, value string, errs []error) {
	isCommon := m.serves(s, m.programs)
	if isCommon && slices.ContainsFunc(m.items, func(it item) bool { return slices.ContainsFunc(have, it.equals) }) {
		return isItem, o.Value, nil
	}
	isAbout := func(it item) bool { return len(have) == 1 && it.about(have[0]) }
	switch {
	case !slices.ContainsFunc(m.items, isAbout):
		return stays, o.Value, nil
	case !isCommon && m.isFixed(s):
		return stays, o.Value, []error{m.fixed(s, o.Line(), "the same "+m.what, "exists in a file that only "+ReadBy(s.name, m.where.File)+" reads")}
	case !isCommon:
		return isMoved, "", nil
	}
	i := m.successor(have[0], isAbout)
	if i < 0 {
		return stays, o.Value, nil
	}
	if m.isFixed(s) {
		errs = append(errs, m.fixed(s, o.Line(), "the same "+m.what, "exists with different values"))
	}
	m.satisfied[i] = true
	return isItem, m.items[i].text, errs
}

// successor returns the index of the item that a value becomes, or -1: of those that no value is
// yet, the one with its ids, else the first. A name may have several products.
func (m *merge) successor(have map[string]any, isAbout func(item) bool) int {
	first := -1
	for i, it := range m.items {
		switch {
		case m.satisfied[i] || !isAbout(it):
		case it.sameIDs(have):
			return i
		case first < 0:
			first = i
		}
	}
	return first
}

// remove notes a value that --remove-alias removes.
func (m *merge) remove(s *source, o conf.Option) (err error) {
	switch {
	case isPackaged(s.name):
		err = m.fixed(s, o.Line(), "--remove-alias", "would remove the line")
	case m.isFixed(s):
		err = fmt.Errorf("%s:%d: %w", s.name, o.Line(), ErrRemoveDropIn)
	}
	m.plan.Removed = append(m.plan.Removed, fmt.Sprintf("%s:%d: %s", s.name, o.Line(), onOneLine(o.Value)))
	return err
}

// addMissing adds the items that no existing value is, or becomes.
func (m *merge) addMissing(target *source) {
	for i, it := range m.items {
		if !m.satisfied[i] {
			m.values[target] = append(m.values[target], it.text)
		}
	}
}

// faultsOf returns the reasons for which Nova rejects a value of the option alias.
func (p *planner) faultsOf(o conf.Option) (seen []string) {
	_, faults := AliasFaults(o.Value, p.options.Release)
	for _, f := range faults {
		seen = append(seen, f.Seen)
	}
	return seen
}
