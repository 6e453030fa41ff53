package flavor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova/cloud"
)

// Errors of recorded changes of flavors.
var (
	// errChanged says that a flavor has changed since the plan was made, or since the change that
	// is undone.
	errChanged = host.WithHint(host.WithCode(errors.New("has changed since"), host.CodeEdited, ""),
		host.Textf("'%s' shows the flavor as it is; change it back, or change it by hand", host.NewCommand("flavor list")))
)

// Type is the type of flavors in the journal.
const Type = "flavor"

// Record is what the journal stores of a change of a flavor, in the field objects of its entry. It
// contains no credentials.
type Record struct {
	Type string `json:"type"` // "flavor"
	cloud.Scope
	Before *State `json:"before"` // nil: the flavor was created
	After  *State `json:"after"`  // nil: the flavor was deleted
}

// ParseRecord returns the record of an entry of kind objects.
func ParseRecord(e change.Entry) (Record, error) { return change.ParseObject[Record](e, Type) }

// ObjectType returns the type that the record names.
func (r Record) ObjectType() string { return r.Type }

// Valid returns an error unless the record has one flavor, with its id.
func (r Record) Valid() error {
	if r.Before == nil && r.After == nil || r.Before != nil && r.After != nil && r.Before.ID != r.After.ID || r.state().ID == "" {
		return errors.New("not a change of a flavor")
	}
	return nil
}

// state returns the flavor after the change, or before it if it was deleted.
func (r Record) state() *State {
	if r.After != nil {
		return r.After
	}
	return r.Before
}

// Name returns the name of the flavor.
func (r Record) Name() string {
	return r.state().Name
}

// Kind is the kind of changes of flavors, in one cloud.
type Kind struct {
	Compute *cloud.Compute
}

// Name is the name of the kind in the journal.
func (Kind) Name() string { return change.KindObjects }

// Type is the type of the objects of the kind.
func (Kind) Type() string { return Type }

// Handles reports whether an entry belongs to the cloud, the region and the project of the kind.
// Others stay as they are.
func (k Kind) Handles(e change.Entry) bool {
	r, err := ParseRecord(e)
	return err == nil && r.Is(k.Compute.Scope())
}

// New returns the change that makes a move. A new flavor gets an id, by which it is found again if
// an answer is lost.
func (k Kind) New(m Move) *Change {
	if m.Before == nil {
		after := *m.After
		after.ID = uuid.NewString()
		m.After = &after
	}
	return &Change{Move: m, scope: k.Compute.Scope(), compute: k.Compute}
}

// Open returns the change that an entry records.
func (k Kind) Open(_ context.Context, e change.Entry) (change.Change, error) {
	r, err := ParseRecord(e)
	if err != nil {
		return nil, err
	}
	return &Change{Move: Move{Before: r.Before, After: r.After}, scope: r.Scope, compute: k.Compute, status: e.Status}, nil
}

// Change is a change of one flavor, planned or recorded.
type Change struct {
	Move
	scope   cloud.Scope
	compute *cloud.Compute
	status  change.Status // of the entry that it was opened from; "" for a planned change
}

// Kind is the name of its kind.
func (*Change) Kind() string { return change.KindObjects }

// Record writes the states of the flavor into an entry.
func (c *Change) Record(e *change.Entry) error {
	return e.SetDetail(Record{Type: Type, Scope: c.scope, Before: c.Before, After: c.After})
}

// Check returns an error if the credentials are for another cloud, or if the flavor is not as the
// change, or its undo, expects it. A flavor to be deleted must not be in use. Of an entry that was
// interrupted, the state of the flavor is not checked.
func (c *Change) Check(ctx context.Context, p change.Purpose) error {
	if p == change.ToLook {
		return nil
	}
	if err := c.scope.Expect(c.compute.Scope()); err != nil {
		return err
	}
	m := c.Move
	switch {
	case p == change.ToRecover, p == change.ToUndo && c.status != change.Done:
		return nil
	case p == change.ToUndo:
		m = m.Inverse()
	case m.Before == nil:
		return nil // a conflict is an error of the request
	}
	return c.expect(ctx, m)
}

// expect returns an error unless the flavor is as a move expects it.
func (c *Change) expect(ctx context.Context, m Move) error {
	is, err := c.read(ctx)
	if err != nil {
		return err
	}
	name := c.record().Name()
	if differ := is.differences(m.Before); len(differ) > 0 {
		return fmt.Errorf("flavor %s %w: %s", name, errChanged, strings.Join(differ, ", "))
	}
	if m.After == nil {
		servers, err := c.compute.Servers(ctx, is.ID)
		if err != nil {
			return err
		}
		return checkUnused(is.Flavor, servers)
	}
	if m.Before != nil {
		return nil
	}
	all, err := c.compute.Flavors(ctx)
	if i := slices.IndexFunc(all, func(f cloud.Flavor) bool { return f.Name == name }); i >= 0 {
		return fmt.Errorf("flavor %s %w: another flavor with id %s has the name", name, errChanged, all[i].ID)
	}
	return err
}

func (c *Change) record() Record {
	return Record{Before: c.Before, After: c.After}
}

// read returns the flavor as it is.
func (c *Change) read(ctx context.Context) (*State, error) {
	return Read(ctx, c.compute, c.record().state().ID)
}

// Apply makes the change, all of it or nothing.
func (c *Change) Apply(ctx context.Context, _ func() error) (change.Outcome, error) {
	return c.make(ctx, c.compute)
}

// Undo undoes the change, all of it or nothing. A flavor that was deleted is created again with its
// id.
func (c *Change) Undo(ctx context.Context, _ func() error) (change.Outcome, error) {
	outcome, err := c.Inverse().make(ctx, c.compute)
	return outcome.OfUndo(), err
}

// Recover determines from the cloud what an interrupted run has made. A new flavor that is
// incomplete is deleted, unless instances have it: then it is completed. One that another user has
// changed stays as it is. Of an existing flavor, the changes that were made stay. An undo that has
// begun is completed.
func (c *Change) Recover(ctx context.Context, _ func() error) (change.Outcome, string, error) {
	ctx = context.WithoutCancel(ctx)
	is, err := c.read(ctx)
	if err != nil {
		return change.Open, "", err
	}
	m, none, all := c.Move, change.None, change.Stands
	if c.status == change.Undoing {
		m, none, all = m.Inverse(), change.Stands, change.Reverted
	}
	made, left := m.progress(is)
	switch {
	case made == 0:
		return none, "", nil
	case left == 0:
		return all, "", nil
	case c.status != change.Undoing && m.Before != nil:
		c.After = m.reached(is)
		return change.Stands, "", nil
	case m.Before == nil && !is.same(m.reached(is)):
		return all, "was interrupted, and flavor " + is.Name + " was changed by another user since: it stays as it is", nil
	case m.Before == nil:
		servers, err := c.compute.Servers(ctx, is.ID)
		if err != nil {
			return change.Open, "", err
		}
		if len(servers) == 0 {
			if err := c.compute.DeleteFlavor(ctx, is.Flavor); err != nil {
				return change.Open, "", err
			}
			return none, "was interrupted: the incomplete flavor " + is.Name + " was deleted", nil
		}
	}
	steps := m.steps()
	if m.Before == nil {
		steps = steps[1:] // the flavor is created
	}
	for _, s := range steps {
		if err := s.do(ctx, c.compute); err != nil {
			return change.Open, "", err
		}
	}
	if all == change.Reverted {
		return all, "", nil
	}
	return all, "was interrupted: flavor " + is.Name + " was completed", nil
}

// part is one value of a flavor that a move changes.
type part struct {
	made  func(is *State) bool
	apply func(s *State) // sets it in a state
}

// parts returns the values that a move between two states of an existing flavor changes.
func (m Move) parts() []part {
	before := m.Before
	if before == nil {
		before = &State{Flavor: cloud.Flavor{Description: m.After.Description}}
	}
	var parts []part
	set, unset := between(before.ExtraSpecs, m.After.ExtraSpecs)
	for key, value := range set {
		parts = append(parts, part{func(is *State) bool { v, ok := is.ExtraSpecs[key]; return ok && v == value }, func(s *State) { s.ExtraSpecs[key] = value }})
	}
	for _, key := range unset {
		parts = append(parts, part{func(is *State) bool { _, ok := is.ExtraSpecs[key]; return !ok }, func(s *State) { delete(s.ExtraSpecs, key) }})
	}
	if after := m.After.Description; before.Description != after {
		parts = append(parts, part{func(is *State) bool { return is.Description == after }, func(s *State) { s.Description = after }})
	}
	for _, p := range m.After.Projects {
		if !slices.Contains(before.Projects, p) {
			parts = append(parts, part{func(is *State) bool { return slices.Contains(is.Projects, p) }, func(s *State) { s.Projects = append(s.Projects, p) }})
		}
	}
	for _, p := range before.Projects {
		if !slices.Contains(m.After.Projects, p) {
			parts = append(parts, part{func(is *State) bool { return !slices.Contains(is.Projects, p) }, func(s *State) {
				s.Projects = slices.DeleteFunc(s.Projects, func(other string) bool { return other == p })
			}})
		}
	}
	return parts
}

// progress returns how many parts of a move are made, and how many are left, if the flavor is as is
// says. A flavor that another user has deleted has no parts left or made.
func (m Move) progress(is *State) (made, left int) {
	switch {
	case m.After == nil && is == nil:
		return 1, 0
	case m.After == nil:
		return 0, 1
	case is == nil:
		return 0, 1
	case m.Before == nil:
		made++ // the flavor itself
	}
	for _, p := range m.parts() {
		if p.made(is) {
			made++
		} else {
			left++
		}
	}
	return made, left
}

// reached returns the state before a move, or that of a new flavor without extra specs and
// projects, with the parts of the move that are made.
func (m Move) reached(is *State) *State {
	s := *m.After
	if s.ExtraSpecs, s.Projects = nil, nil; m.Before != nil {
		s = *m.Before
	}
	s.ExtraSpecs, s.Projects = maps.Clone(s.ExtraSpecs), slices.Clone(s.Projects)
	if s.ExtraSpecs == nil {
		s.ExtraSpecs = map[string]string{}
	}
	for _, p := range m.parts() {
		if p.made(is) {
			p.apply(&s)
		}
	}
	return &s
}
