package nova

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gpustack/host/pci"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// wantedSpec is a planned device_spec: as Nova reads it, and as it is written.
type wantedSpec struct {
	devspec.Spec
	vendor, product pci.ID
	text            string
}

func newWantedSpec(s Spec) (wantedSpec, error) {
	spec, err := parsed(s)
	if err != nil {
		return wantedSpec{}, err
	}
	text, err := conf.FormatJSON(s)
	return wantedSpec{spec, s.VendorID, s.ProductID, text}, err
}

// placeSpec finds the place of one spec among the values. It returns the text of the spec if the
// place is after all others.
func placeSpec(read sources, h devspec.Hardware, all []*value, want wantedSpec) (end string, warnings []string, err error) {
	n, err := neighborsOf(h, specsOf(all), want)
	if err != nil {
		return "", nil, err
	}
	first := n.next()
	exact := n.exact(first)
	switch isInPlace := exact != nil && n.precedes(exact, first); {
	case isInPlace && sameTags(exact.Spec, want.Spec):
		exact.ours = true
		return "", n.warnings, nil
	case isInPlace && read.isFixed(exact.line.File):
		return "", nil, read.fixed(exact.line.File, exact.line.Option.Line(), "the same device_spec", "exists with different tags")
	case isInPlace:
		first = exact
	case exact == nil && len(n.replaced) > 0 && n.precedes(n.replaced[0], first):
		first = n.replaced[0]
	}
	end, changed, err := insertSpec(read, n, want, first, exact)
	return end, append(n.warnings, changed...), err
}

// neighbors are the specs that match devices of a planned one, by what they mean for its place.
type neighbors struct {
	exacts   []*at   // match the same devices, and can become the planned one
	same     []*at   // match more devices and give them the same tags: better if it precedes them
	needs    []*at   // match more devices without its tags: it must precede them
	replaced []*at   // are replaced by it
	moved    []error // the conflicts if it moves from one group of files to another
	warnings []string
}

// neighborsOf finds the specs that match devices of a planned one.
//
// Errors: ErrSpecConflict, ErrSpecOrder.
func neighborsOf(h devspec.Hardware, specs []*at, want wantedSpec) (n neighbors, err error) {
	for _, s := range specs {
		if s.replaced && devspec.SameIDs(s.Spec, want.Spec) {
			n.replaced = append(n.replaced, s)
		}
	}
	var errs []error
	for _, s := range specs {
		isCovered := n.covers(s)
		switch relate(h, s, want.Spec, len(n.exacts) > 0) {
		case equal:
			n.exacts = append(n.exacts, s)
		case alike:
			n.same = append(n.same, s)
		case broader:
			n.needs = append(n.needs, s)
		case uncertain:
			n.warnings = append(n.warnings, fmt.Sprintf("%s: cannot determine which function devname %q names: if the planned device_spec %s matches it too, "+
				"the first of the two gives it its tags", s.line.Where(), s.Object["devname"], want.text))
		case conflicting:
			if err := conflict(s, want); isCovered {
				n.moved = append(n.moved, err)
			} else {
				errs = append(errs, err)
			}
		}
	}
	other := slices.IndexFunc(n.needs, func(s *at) bool { return s.group() != n.needs[0].group() })
	if len(errs) == 0 && other > 0 { // it would have to precede specs of both groups of files
		errs = append(errs, fmt.Errorf("%s and %s: both match devices of the planned device_spec %s, but %w", n.needs[0].line.Where(),
			n.needs[other].line.Where(), want.text, ErrSpecOrder))
	}
	return n, errors.Join(errs...)
}

// covers reports whether devices of the planned spec get no tags of s, because a spec of the same
// group of files that the planned one takes the place of comes before it.
func (n neighbors) covers(s *at) bool {
	return inGroup(n.exacts, s) || inGroup(n.replaced, s) && !slices.ContainsFunc(n.replaced, func(r *at) bool { return r.number > s.number })
}

// next returns the first spec that the planned one must precede, or should without loss; nil if it
// may be the last.
func (n neighbors) next() *at {
	var first *at
	if len(n.needs) > 0 {
		first = n.needs[0]
	}
	for _, s := range n.same {
		if first == nil || s.group() == first.group() && s.number < first.number {
			return s
		}
	}
	return first
}

// precedes reports whether the place of s is before first, whatever the order of the groups of
// files is.
func (n neighbors) precedes(s *at, first *at) bool {
	return first == nil || s.number < first.number && (len(n.needs) == 0 || s.group() == n.needs[0].group())
}

// exact returns the spec that becomes the planned one: one before first if there is one; nil for
// none.
func (n neighbors) exact(first *at) *at {
	if i := slices.IndexFunc(n.exacts, func(s *at) bool { return n.precedes(s, first) }); i > 0 {
		return n.exacts[i]
	}
	if len(n.exacts) > 0 {
		return n.exacts[0]
	}
	return nil
}

// relation is what a spec in the files means for the place of a planned one.
type relation int

const (
	apart       relation = iota // they match no common device, or the order makes no difference
	equal                       // it matches the same devices, and can become the planned one
	alike                       // it matches more devices, with the same tags
	broader                     // it matches more devices, without tags of the planned one
	conflicting                 // no order keeps the effect of both
	uncertain                   // it may match a common device, whose address is unknown
)

// relate compares a spec with a planned one. isTaken reports whether another spec already becomes
// the planned one.
func relate(h devspec.Hardware, s *at, planned devspec.Spec, isTaken bool) relation {
	have := s.Spec
	if have.Faulty || s.replaced || !devspec.SameIDs(have, planned) {
		return apart
	}
	contains, isContained := h.Contains(have, planned), h.Contains(planned, have)
	loses, differ := len(have.Lost(planned)) > 0, !sameTags(have, planned)
	switch {
	case contains && isContained && updatable(have, planned) && (!isTaken || !differ):
		return equal
	case !contains && !isContained && !have.Opaque() && !h.Share(have, planned):
		if differ && h.MayMatch(have, planned) {
			return uncertain
		}
		return apart
	case !differ:
		if contains && !isContained {
			return alike
		}
		return apart
	case loses, have.Opaque(), isContained && !contains:
		return conflicting
	}
	return broader
}

// insertSpec adds a planned spec before first, and drops the exact one, which may be first; both
// may be nil. It returns the text of the spec if the place is after all others.
//
// Errors: ErrSpecOrder, ErrSpecConflict.
func insertSpec(read sources, n neighbors, want wantedSpec, first, exact *at) (end string, changed []string, err error) {
	isFixed := func(s *at) bool { return s != nil && read.isFixed(s.line.File) }
	switch {
	case len(n.needs) > 0 && (isFixed(first) || isFixed(exact)):
		return "", nil, fmt.Errorf("%s: shadows the planned device_spec %s: %w", first.line.Where(), want.text, ErrSpecOrder)
	case isFixed(first) && exact != nil:
		return "", nil, nil // the tags are the same either way
	case isFixed(first):
		return want.text, nil, nil
	}
	changesGroup := func(s *at) bool { return first == nil || first.group() != s.group() }
	if slices.ContainsFunc(n.exacts, changesGroup) || slices.ContainsFunc(n.replaced, changesGroup) {
		if err := errors.Join(n.moved...); err != nil {
			return "", nil, err
		}
	}
	if exact != nil {
		changed = exact.changes(want.Spec)
		exact.ours, exact.dropped = true, true
	}
	if first == nil {
		return want.text, changed, nil
	}
	first.before = append(first.before, want.text)
	return "", changed, nil
}

func inGroup(specs []*at, s *at) bool {
	return slices.ContainsFunc(specs, func(other *at) bool { return other.group() == s.group() })
}

// ownTags are the tags that gpustack writes.
var ownTags = []string{"resource_class", "traits", "managed", "live_migratable", "one_time_use"}

// sameTags reports whether devices get the same tags of two specs.
func sameTags(a, b devspec.Spec) bool { return reflect.DeepEqual(a.Tags(), b.Tags()) }

// updatable reports whether a spec becomes the planned one without losing a tag: tags that
// gpustack writes may change their values.
func updatable(s, planned devspec.Spec) bool {
	tags := planned.Tags()
	return !slices.ContainsFunc(s.Lost(planned), func(tag string) bool { return tags[tag] == nil || !slices.Contains(ownTags, tag) })
}

// conflict returns the error that explains why no order of two specs keeps the effect of both.
func conflict(s *at, want wantedSpec) error {
	var why string
	switch lost := s.Lost(want.Spec); {
	case s.Opaque():
		why = "its address cannot be evaluated, and the tags differ"
	case len(lost) > 0:
		why = "devices that both specs match would lose its " + strings.Join(lost, ", ")
	default:
		why = "devices that it matches would not get " + strings.Join(want.Lost(s.Spec), ", ")
	}
	return fmt.Errorf("%s: %s %w %s: %s", s.line.Where(), conf.Written(s.Object), ErrSpecConflict, want.text, why)
}
