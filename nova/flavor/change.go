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
	"gpustack/nova/object"
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

// Kind returns the kind of changes of flavors, in one cloud.
func Kind(c *cloud.Compute) object.Kind[Move] { return object.Kind[Move]{Compute: c, Objects: Type} }

// Change is a change of one flavor, planned or recorded.
type Change = object.Change[Move]

// ParseRecord returns the record of an entry of kind objects.
func ParseRecord(e change.Entry) (Move, error) { return change.ParseObject[Move](e, Type) }

// Valid returns an error unless the record has one flavor, with its id.
func (m Move) Valid() error {
	if m.Before == nil && m.After == nil || m.Before != nil && m.After != nil && m.Before.ID != m.After.ID || m.state().ID == "" {
		return errors.New("not a change of a flavor")
	}
	return nil
}

// state returns the flavor after the change, or before it if it was deleted.
func (m Move) state() *State {
	if m.After != nil {
		return m.After
	}
	return m.Before
}

// Name returns the name of the flavor.
func (m Move) Name() string { return m.state().Name }

// With returns the move as it is recorded. A new flavor gets an id, by which it is found again if
// an answer is lost.
func (m Move) With(h object.Head) Move {
	if m.Head = h; m.Before == nil {
		after := *m.After
		after.ID = uuid.NewString()
		m.After = &after
	}
	return m
}

// Check returns an error if an existing flavor is not as the move expects it. A flavor to be deleted
// must not be in use.
func (m Move) Check(ctx context.Context, c *cloud.Compute) error {
	if m.Before == nil {
		return nil // a conflict is an error of the request
	}
	return m.expect(ctx, c)
}

// Back returns the move that undoes this one. A flavor that was deleted is created again with its id.
func (m Move) Back(ctx context.Context, c *cloud.Compute) (back Move, stays []string, err error) {
	back = m.Inverse()
	return back, nil, back.expect(ctx, c)
}

// expect returns an error unless the flavor is as a move expects it.
func (m Move) expect(ctx context.Context, c *cloud.Compute) error {
	is, err := Read(ctx, c, m.state().ID)
	if err != nil {
		return err
	}
	name := m.Name()
	if differ := is.differences(m.Before); len(differ) > 0 {
		return fmt.Errorf("flavor %s %w: %s", name, errChanged, strings.Join(differ, ", "))
	}
	if m.After == nil {
		servers, err := c.Servers(ctx, is.ID)
		if err != nil {
			return err
		}
		return checkUnused(is.Flavor, servers)
	}
	if m.Before != nil {
		return nil
	}
	all, err := c.Flavors(ctx)
	if i := slices.IndexFunc(all, func(f cloud.Flavor) bool { return f.Name == name }); i >= 0 {
		return fmt.Errorf("flavor %s %w: another flavor with id %s has the name", name, errChanged, all[i].ID)
	}
	return err
}

// Recover determines from the cloud what an interrupted run has made. A new flavor that is
// incomplete is deleted, unless instances have it: then it is completed. One that another user has
// changed stays as it is. Of an existing flavor, the changes that were made stay. An undo that has
// begun is completed.
func (m Move) Recover(ctx context.Context, c *cloud.Compute, undoing bool) (Move, change.Outcome, string, error) {
	is, err := Read(ctx, c, m.state().ID)
	if err != nil {
		return m, change.Open, "", err
	}
	if undoing {
		outcome, text, err := m.Inverse().complete(ctx, c, is, change.Stands, change.Reverted)
		return m, outcome, text, err
	}
	if made, left := m.progress(is); m.Before != nil && made > 0 && left > 0 {
		m.After = m.reached(is)
		return m, change.Stands, "", nil
	}
	outcome, text, err := m.complete(ctx, c, is, change.None, change.Stands)
	return m, outcome, text, err
}

// complete completes a move that was interrupted, where the flavor is as is says. none is the outcome
// if nothing of it was made, and all that if all of it is.
func (m Move) complete(ctx context.Context, c *cloud.Compute, is *State, none, all change.Outcome) (change.Outcome, string, error) {
	made, left := m.progress(is)
	switch {
	case made == 0:
		return none, "", nil
	case left == 0:
		return all, "", nil
	case m.Before == nil && !is.same(m.reached(is)):
		return all, "was interrupted, and flavor " + is.Name + " was changed by another user since: it stays as it is", nil
	case m.Before == nil:
		servers, err := c.Servers(ctx, is.ID)
		if err != nil {
			return change.Open, "", err
		}
		if len(servers) == 0 {
			if err := c.DeleteFlavor(ctx, is.Flavor); err != nil {
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
		if err := s.do(ctx, c); err != nil {
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
