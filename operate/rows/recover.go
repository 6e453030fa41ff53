package rows

import (
	"context"
	"errors"
	"io/fs"

	"gpustack/cleanup"
	"gpustack/cleanup/repair"
	"gpustack/host"
	"gpustack/host/change"
)

// Interrupted returns the repairs that earlier runs have left open, oldest first: the plan of
// Recover. It changes nothing.
//
// Errors: change.ErrLocked if another run is working on rows; those of reading the journal.
func (s *Session) Interrupted(ctx context.Context) ([]change.Left, error) {
	left, err := s.engine(s.connections.open).Interrupted(ctx, change.ToLook)
	if err != nil {
		return nil, err
	}
	return host.Filter(left, func(l change.Left) bool { return l.Here }), nil
}

// Unsettled is Interrupted for a run that changes nothing, which a journal that is locked or
// belongs to root does not stop. locked is the reason why rows may change while they are read, nil
// for none.
func (s *Session) Unsettled(ctx context.Context) (open []change.Left, locked, err error) {
	open, err = s.Interrupted(ctx)
	switch {
	case errors.Is(err, change.ErrLocked):
		return nil, err, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, nil, nil
	}
	return open, nil, err
}

// Recovered has the repairs of an interrupted entry with their present states.
type Recovered struct {
	Entry int
	Units []cleanup.Unit
}

// Recover determines the outcome of open entries and completes or reverts their repairs, or closes
// the one of Options.Accept with its rows and allocations as they are. With an error it returns
// what was recovered before.
func (s *Session) Recover(ctx context.Context, open []change.Left) (done []Recovered, err error) {
	recovered, err := s.engine(s.connections.open).Recover(ctx, host.Map(open, func(l change.Left) int { return l.Entry.ID }))
	for _, r := range recovered {
		if c, ok := r.Change.(*repair.Change); ok {
			done = append(done, Recovered{r.Entry.ID, c.Units()})
		}
	}
	return done, err
}
