package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gpustack/cleanup"
	"gpustack/host"
	"gpustack/host/change"
)

// Kind is the kind of changes of rows in Nova's databases, together with Placement's allocations.
type Kind struct {
	// Connect returns a Repairer for the databases. It is called when a recorded change is checked
	// for an undo or recovered, at most once for each change, and may return the same Repairer.
	Connect func(ctx context.Context) (*Repairer, error)
	// Accept is the number of the entry that Recover closes with its rows and allocations as they
	// are, 0 for none.
	Accept int
}

// Name returns the kind's name in the journal.
func (*Kind) Name() string { return change.KindRows }

// Open returns the change that an entry records.
func (k *Kind) Open(_ context.Context, e change.Entry) (change.Change, error) {
	units, err := Units(e)
	if err != nil {
		return nil, err
	}
	return &Change{kind: k, entry: e.ID, undoing: e.Status == change.Undoing, units: units}, nil
}

// Units returns the units that an entry records. A state that this release does not know is an
// error: the rows of the unit may be written.
func Units(e change.Entry) ([]cleanup.Unit, error) {
	var units []cleanup.Unit
	err := host.DecodeJSON(e.Detail(), &units)
	if err == nil && len(units) == 0 {
		err = errors.New("no repair is recorded")
	}
	for _, u := range units {
		if !u.State.Known() {
			err = errors.Join(err, fmt.Errorf("%s: unknown state %q", u.Name(), u.State))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("entry %d: rows: %w", e.ID, err)
	}
	return units, nil
}

// Change is a list of units: planned, or recorded in an entry. Each unit stands by itself.
type Change struct {
	kind      *Kind
	entry     int  // 0 for a planned change
	undoing   bool // whether the run that left the entry open was undoing it
	units     []cleanup.Unit
	standings []Standing // of the open units, for Standing
	repairer  *Repairer

	wait     time.Duration
	progress func(left int)
}

// NewChange returns the change that makes planned units. Apply then waits for at most wait until
// nova-compute has freed the devices, and calls progress with the number of units left.
func NewChange(r *Repairer, units []cleanup.Unit, wait time.Duration, progress func(left int)) *Change {
	units = slices.Clone(units)
	for i := range units {
		if units[i].State == cleanup.Planned {
			units[i].Rows = []cleanup.Row{} // recorded when the unit is begun
		}
	}
	return &Change{units: units, repairer: r, wait: wait, progress: progress}
}

// Kind returns the name of the change's kind.
func (*Change) Kind() string { return change.KindRows }

// Units returns the units with their present states.
func (c *Change) Units() []cleanup.Unit { return c.units }

// Standing returns where Check has found an open unit.
func (c *Change) Standing(unit int) Standing { return c.standings[unit] }

// Record writes the units into an entry.
func (c *Change) Record(e *change.Entry) error { return e.SetDetail(c.units) }

// Check returns an error unless each unit can be undone, and determines where open units are. For
// other purposes it checks nothing: Apply judges the rows of each unit again, and Recover ends
// what it can.
func (c *Change) Check(ctx context.Context, p change.Purpose) error {
	if p != change.ToUndo {
		return nil
	}
	err := c.connect(ctx, func(u cleanup.Unit) bool { return u.Written() || u.Open() })
	if err != nil {
		return err
	}
	if err := c.repairer.checkUndo(ctx, c.units); err != nil {
		return err
	}
	c.standings = make([]Standing, len(c.units))
	for i := range c.units {
		if u := &c.units[i]; u.Open() {
			if c.standings[i], err = c.repairer.Stand(ctx, u); err != nil {
				return fmt.Errorf("entry %d, %s: %w", c.entry, u.Name(), err)
			}
		}
	}
	return nil
}

// connect connects to the databases, and to Placement if one of these units changes allocations.
func (c *Change) connect(ctx context.Context, these func(cleanup.Unit) bool) (err error) {
	if c.repairer == nil {
		if c.repairer, err = c.kind.Connect(ctx); err != nil {
			return err
		}
	}
	c.repairer.entry = c.entry
	if slices.ContainsFunc(c.units, func(u cleanup.Unit) bool { return u.Placement != nil && these(u) }) {
		return c.repairer.signIn(ctx)
	}
	return nil
}

// Apply makes the units, and waits until nova-compute has freed the devices.
func (c *Change) Apply(ctx context.Context, save func() error) (change.Outcome, error) {
	c.repairer.Record = func([]cleanup.Unit) error { return save() }
	err := c.repairer.Apply(ctx, c.units)
	if err == nil {
		err = c.repairer.Wait(ctx, c.units, c.wait, c.progress)
	}
	outcome := c.outcome()
	if outcome == change.Reverted {
		outcome = change.None // undo would pick an entry that undoes nothing
	}
	return outcome, err
}

// Undo undoes the written units, the last first. If an error or the end of ctx leaves some of
// them written, the outcome is Partly: the rest can be undone later.
func (c *Change) Undo(ctx context.Context, save func() error) (change.Outcome, error) {
	c.repairer.Record = func([]cleanup.Unit) error { return save() }
	err := c.repairer.Undo(ctx, c.units)
	outcome := c.outcome()
	if outcome == change.Stands {
		outcome = change.Partly
	}
	return outcome, err
}

// Recover determines the outcome of the open units and completes or reverts them, or closes them
// as they are where the kind accepts the entry.
func (c *Change) Recover(ctx context.Context, save func() error) (change.Outcome, string, error) {
	if err := c.connect(ctx, func(u cleanup.Unit) bool { return u.Open() || c.undoing }); err != nil {
		return change.Open, "", fmt.Errorf("entry %d: %w", c.entry, err)
	}
	c.repairer.Record = func([]cleanup.Unit) error { return save() }
	end := c.repairer.Recover
	if c.kind.Accept == c.entry {
		end = c.repairer.Accept
	}
	err := end(ctx, c.units, c.undoing)
	if err != nil {
		err = fmt.Errorf("entry %d: %w", c.entry, err)
	}
	return c.outcome(), "", err
}

// outcome returns what the units leave of an entry. The entry stays open while the outcome of one
// of its units is unknown. It is undone when no unit is written: undo without a number then picks
// an earlier entry.
func (c *Change) outcome() change.Outcome {
	switch {
	case slices.ContainsFunc(c.units, cleanup.Unit.Open):
		return change.Open
	case slices.ContainsFunc(c.units, cleanup.Unit.Written):
		return change.Stands
	}
	return change.Reverted
}

// errNoPlacement says that a unit changes allocations and there is no Placement to change them in.
var errNoPlacement = host.WithHint(errors.New("Placement is required but not configured"),
	"give its credentials by the OS_ variables, as for openstack, or in [placement] of nova.conf")

// signIn signs in to Placement, once.
func (r *Repairer) signIn(ctx context.Context) error {
	switch {
	case r.Placement != nil:
		return nil
	case r.SignIn == nil:
		return errNoPlacement
	}
	placement, err := r.SignIn(ctx)
	if err == nil {
		r.Placement = placement
	}
	return err
}
