package nova

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gpustack/nova/conf"
)

// Errors of device_spec. Nova gives a device the tags of the first spec that matches it
// (nova/pci/whitelist.py, get_devspec), and nothing of those that follow.
var (
	// ErrSpecConflict says that no order of two specs keeps what both of them say.
	ErrSpecConflict = errors.New("conflicts with the planned device_spec")
	// ErrSpecOrder says that the files that hold specs are read in an order that depends
	// on how nova-compute is started.
	ErrSpecOrder = errors.New("the order in which Nova reads these files depends on how nova-compute is started")
	// ErrNotStartable says that nova-compute would refuse to start.
	ErrNotStartable = errors.New("nova-compute would not start")
)

// value is one value of device_spec on its way into the plan.
type value struct {
	source *source
	line   specLine
	text   string
	gone   bool
	ours   bool
	before []string // that go in front of it
}

func (v *value) where() string {
	if v.line.option.Key == "" {
		return v.source.name
	}
	return v.line.where()
}

func (s *source) group() string {
	return fileGroup(s.name)
}

// inOrder returns the sources in the order in which their specs are read.
func (p *planner) inOrder() []*source {
	sources := slices.Clone(p.sources)
	slices.SortStableFunc(sources, func(a, b *source) int {
		if a.group() == "" || b.group() == "" {
			return cmp.Compare(len(a.group()), len(b.group()))
		}
		return cmp.Compare(a.name, b.name)
	})
	return sources
}

// values returns all values of device_spec, in the order in which Nova reads them.
func (p *planner) values() []*value {
	var all []*value
	for _, s := range p.inOrder() {
		for _, line := range p.options.Release.specLines([]SideFile{{s.name, s.file}}) {
			// A value that moves to another line is written on one.
			all = append(all, &value{source: s, line: line, text: onOneLine(line.option.Value)})
		}
	}
	return all
}

// onOneLine writes a value of several lines, or with tabs, on one. To JSON they are blanks.
func onOneLine(value string) string {
	return strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(value)
}

// specs sets device_spec: others' values stay in their order, ours are brought up to date
// or come before the first that would shadow them. Older names of the option are
// replaced: whatever they hold is read before the values of the current one.
func (p *planner) specs(wanted []Spec) error {
	all := p.values()
	for _, v := range all {
		if !v.line.isJSON {
			p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf("%s: the value of %s is no JSON object, and makes every device_spec of this machine useless", v.where(), v.line.option.Key))
		}
		for _, fault := range v.line.faults {
			p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf("%s: %s: %v: nova-compute does not start with it", v.where(), v.line.option.Key, fault))
		}
	}
	var errs []error
	hardware := newHardware(p.options.Here)
	last := map[*source][]string{} // values that come after all others
	for _, w := range wanted {
		end, err := p.place(hardware, all, w)
		errs = append(errs, err)
		if end != "" {
			last[p.target()] = append(last[p.target()], end)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, s := range p.sources {
		var values []string
		for _, v := range all {
			if v.source != s {
				continue
			}
			values = append(values, v.before...)
			if !v.gone {
				values = append(values, v.text)
			}
			if !v.ours {
				p.plan.Kept = append(p.plan.Kept, v.where()+": "+onOneLine(v.line.option.Value))
			}
		}
		if p.where.DropIn && !s.isOurs {
			continue // nothing of it changes
		}
		file, err := s.file.Set(conf.Setting{
			Names: p.options.Release.specNames(), Values: append(values, last[s]...), Multi: true, Ordered: true,
			Same: func(have, want string) bool { return onOneLine(have) == want },
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if file != s.file {
			p.services("nova-compute")
		}
		s.file = file
	}
	return nil
}

// place finds the place of one spec among the values. It returns the spec's text where
// that is after all others.
func (p *planner) place(h hardware, all []*value, want Spec) (end string, err error) {
	o, err := object(want)
	if err != nil {
		return "", err
	}
	planned, err := parseSpec(o)
	if err != nil {
		return "", err
	}
	written, err := text(want)
	if err != nil {
		return "", err
	}
	var errs []error
	var exact *value                       // has the spec, or one that lacks some of its tags
	var need, like *value                  // the first that it must precede, and the first with the same tags that it should
	var groups []*value                    // the first of each group that it has to come before
	var item int                           // of exact, where it is a list
	var exactAt, needAt, likeAt, count int // in specs
	for _, v := range all {
		if v.gone {
			continue
		}
		for i, s := range v.line.specs {
			count++
			if s.faulty || !sameIDs(s, planned) {
				continue
			}
			broader, narrower := h.contains(s, planned), h.contains(planned, s)
			lost, gained := s.lost(planned), planned.lost(s)
			switch {
			case broader && narrower && len(lost) == 0 && exact == nil:
				exact, item, exactAt = v, i, count
			case !broader && !narrower && !s.opaque() && !h.share(s, planned):
				continue
			case len(lost)+len(gained) == 0:
				if broader && !narrower && like == nil {
					like, likeAt = v, count
				}
			case len(lost) > 0, s.opaque(), narrower && !broader:
				errs = append(errs, conflict(v, s, written, lost, gained))
			default:
				if need == nil {
					need, needAt = v, count
				}
				if !slices.ContainsFunc(groups, func(g *value) bool { return g.source.group() == v.source.group() }) {
					groups = append(groups, v)
				}
			}
		}
	}
	if len(errs) > 0 {
		return "", errors.Join(errs...)
	}
	if len(groups) > 1 {
		return "", fmt.Errorf("%s and %s: both match devices of the planned device_spec %s, and %w", groups[0].where(), groups[1].where(), written, ErrSpecOrder)
	}
	first, firstAt := need, needAt
	if like != nil && (need == nil || like.source.group() == need.source.group() && likeAt < needAt) {
		first, firstAt = like, likeAt
	}
	fixed := func(v *value) bool { return p.where.DropIn && !v.source.isOurs }
	if exact != nil && (first == nil || exactAt < firstAt && (need == nil || exact.source.group() == need.source.group())) {
		have, isList := exact.line.specs[item], len(exact.line.specs) > 1
		switch {
		case reflect.DeepEqual(have.object, o), isList && len(planned.lost(have)) == 0:
			exact.ours = true
			return "", nil
		case fixed(exact):
			return "", fmt.Errorf("%s: defines the same device_spec otherwise: without --drop-in it is brought up to date", exact.where())
		case !isList:
			exact.ours, exact.text = true, written
			return "", nil
		}
		first = exact
	}
	switch {
	case need != nil && (fixed(first) || exact != nil && fixed(exact)):
		return "", fmt.Errorf("%s: would shadow the planned device_spec %s: %w", first.where(), written, ErrSpecOrder)
	case first != nil && fixed(first) && exact != nil:
		return "", nil // the tags are the same either way
	case first != nil && fixed(first):
		return written, nil
	}
	if exact != nil {
		exact.ours = true
		if err := exact.drop(item); err != nil {
			return "", err
		}
	}
	if first == nil {
		return written, nil
	}
	first.before = append(first.before, written)
	return "", nil
}

// drop removes one spec of the value.
func (v *value) drop(item int) error {
	if len(v.line.specs) == 1 {
		v.gone = true
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal([]byte(v.text), &list); err != nil {
		return fmt.Errorf("%s: %w", v.where(), err)
	}
	var kept []string
	for i, spec := range list {
		if i != item {
			kept = append(kept, string(spec))
		}
	}
	v.text = "[" + strings.Join(kept, ", ") + "]"
	v.line.specs = slices.Delete(slices.Clone(v.line.specs), item, item+1)
	return nil
}

// conflict says why no order of two specs keeps what both say.
func conflict(v *value, s deviceSpec, planned string, lost, gained []string) error {
	var why string
	switch {
	case s.opaque():
		why = "gpustack cannot evaluate its address, and their tags differ"
	case len(lost) > 0:
		why = "devices that both match would lose its " + strings.Join(lost, ", ")
	default:
		why = "devices that it matches would not get " + strings.Join(gained, ", ")
	}
	return fmt.Errorf("%s: %s %w %s: %s", v.where(), written(s.object), ErrSpecConflict, planned, why)
}
