package rows

import (
	"context"
	"fmt"

	"gpustack/cleanup"
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

// PlanUndo reads nova.conf, connects to the databases, and plans the undo of an entry of repairs.
// It changes nothing: repairs whose outcome is unknown are determined first when the undo is made.
//
// Errors: change.ErrLocked if another run is working on rows; those of novadb.Open and of
// databases that could not be read; repair.ErrTooLate.
func (s *Session) PlanUndo(ctx context.Context, e change.Entry) (UndoPlan, error) {
	engine := s.engine(s.connections.openAll)
	if _, err := engine.Interrupted(ctx, change.ToLook); err != nil {
		return UndoPlan{}, err
	}
	if err := s.readConf(); err != nil {
		return UndoPlan{}, fmt.Errorf("entry %d (%s): %w", e.ID, e.Command, err)
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
