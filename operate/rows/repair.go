package rows

import (
	"context"
	"slices"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/repair"
	"gpustack/host/change"
)

// Plan is the repairs that Apply makes.
type Plan struct {
	Units []cleanup.Unit
	// Placement is why Placement cannot be reached, nil if it can or no repair needs it. Repairs
	// that need it are skipped.
	Placement error
}

// Changes reports whether a repair is planned.
func (p Plan) Changes() bool {
	return slices.ContainsFunc(p.Units, func(u cleanup.Unit) bool { return u.State == cleanup.Planned })
}

// Plan plans the repair of the stale findings, at most most repairs. It changes nothing. With an
// error the plan has the answer of Placement, if it was asked.
//
// Errors: those of [repair.Repairer.Plan].
func (s *Session) Plan(ctx context.Context, findings []cleanup.Finding, most int) (Plan, error) {
	units, placement, err := s.repairer().Plan(ctx, findings, most)
	return Plan{append([]cleanup.Unit{}, units...), placement}, err
}

// Applying is how Apply records repairs and waits for nova-compute.
type Applying struct {
	Command string            // the command line, for the journal
	Wait    time.Duration     // at most, until nova-compute has freed the devices
	Waits   func(repairs int) // called with the number of repairs that wait, each time it changes
}

// Applied is what Apply has made.
type Applied struct {
	Entry int            // of the journal; 0 if nothing was recorded
	Units []cleanup.Unit // with their present states
}

// Written reports whether rows were written.
func (a Applied) Written() bool { return slices.ContainsFunc(a.Units, cleanup.Unit.Written) }

// Apply makes the planned repairs, records them, and waits until nova-compute has freed their
// devices. With an error it returns what was made.
func (s *Session) Apply(ctx context.Context, p Plan, a Applying) (Applied, error) {
	last := 0
	repairs := repair.NewChange(s.repairer(), p.Units, a.Wait, func(left int) {
		if left != last {
			last = left
			a.Waits(left)
		}
	})
	entry, err := s.engine(s.connections.open).Apply(ctx, change.Work{Command: a.Command, Change: repairs})
	return Applied{entry.ID, repairs.Units()}, err
}

// Offline reports whether rows were written while nova-compute of their host is down: Settle then
// has to be called.
func (a Applied) Offline() bool {
	return slices.ContainsFunc(a.Units, func(u cleanup.Unit) bool { return u.Repair == cleanup.Offline && u.State == cleanup.Repaired })
}

// Settle waits for a time, and returns an error for each host whose nova-compute was started since
// its rows were written offline.
func (s *Session) Settle(ctx context.Context, a Applied, wait time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait):
	}
	return s.repairer().Settled(ctx, a.Units)
}
