package rows

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/repair"
	"gpustack/host/change"
)

// UndoPlan is what Undo does to an entry.
type UndoPlan struct {
	Entry change.Entry
	Units []cleanup.Unit
	// Standings are where the repairs whose outcome is unknown were found, by their index in Units.
	Standings map[int]repair.Standing
}

// PlanUndo reads the evidence, which the undo of a claim needs, and nova.conf, connects to the
// databases, and plans the undo of an entry of repairs.
// It changes nothing: repairs whose outcome is unknown are determined first when the undo is made.
//
// Errors: change.ErrLocked if another run is working on rows; those of novadb.Open and of
// databases that could not be read; repair.ErrTooLate.
func (s *Session) PlanUndo(ctx context.Context, e change.Entry, evidence Evidence) (UndoPlan, error) {
	engine := s.engine(s.connections.openAll)
	if _, err := engine.Interrupted(ctx, change.ToLook); err != nil {
		return UndoPlan{}, err
	}
	if err := errors.Join(s.options.Find.ReadReports(evidence.Reports, evidence.Off), s.readConf()); err != nil {
		return UndoPlan{}, fmt.Errorf("entry %d (%s): %w", e.ID, e.Command, err)
	}
	if err := s.readyToRelease(ctx, e); err != nil {
		return UndoPlan{}, err
	}
	plan, err := engine.PlanUndo(ctx, e.ID)
	if err != nil {
		return UndoPlan{}, err
	}
	repairs := plan.Change.(*repair.Change)
	p := UndoPlan{e, repairs.Units(), map[int]repair.Standing{}}
	for i, unit := range p.Units {
		if unit.Open() {
			p.Standings[i] = repairs.Standing(i)
		}
	}
	return p, nil
}

// readyToRelease prepares what proves that the devices of an entry's claims may be released: a token
// of the databases' time, and hosts that are declared off, whose nova-compute must be silent.
func (s *Session) readyToRelease(ctx context.Context, e change.Entry) error {
	units, err := repair.Units(e)
	if err != nil || !slices.ContainsFunc(units, func(u cleanup.Unit) bool { return len(u.Claimed()) > 0 }) {
		return err
	}
	if err := s.connections.openAll(ctx); err != nil {
		return err
	}
	if _, err := find.CheckGiven(ctx, s.connections.databases, s.options.Find); err != nil {
		return err
	}
	s.options.Find.Token, err = find.Token(ctx, s.connections.databases)
	return err
}

// Undo undoes the repairs of an entry. It returns them with their present states, also with an
// error, unless the entry cannot be read.
func (s *Session) Undo(ctx context.Context, p UndoPlan) ([]cleanup.Unit, error) {
	undone, err := s.engine(s.connections.openAll).Undo(ctx, p.Entry.ID)
	units, unitsErr := repair.Units(undone)
	if unitsErr != nil {
		units = p.Units
	}
	return units, err
}
