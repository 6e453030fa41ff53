package repair

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
)

// evidenceHolds judges the unit's rows again, within the transaction, and returns the changes that
// repair them.
func (r *Repairer) evidenceHolds(ctx context.Context, tx *sql.Tx, cell novadb.Cell, u *cleanup.Unit) ([]cleanup.Row, error) {
	if err := tx.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&u.Database); err != nil {
		return nil, novadb.Explain("cell "+cell.Name, err)
	}
	now, err := r.check(ctx, tx, cell, u)
	if err != nil {
		return nil, err
	}
	return rowsOf(ctx, tx, now, u, forUpdate)
}

// check judges the unit's rows again, within the transaction, and returns an error unless the
// findings are those that the unit was planned from. It returns the time by the database's clock.
func (r *Repairer) check(ctx context.Context, tx *sql.Tx, cell novadb.Cell, u *cleanup.Unit) (now time.Time, err error) {
	var ids []int64
	for _, f := range u.Findings {
		ids = append(ids, f.Device.ID)
	}
	judged, err := find.Judge(ctx, tx, r.Databases, cell, r.Options, ids)
	if err != nil {
		return now, err
	}
	for _, was := range u.Findings {
		i := slices.IndexFunc(judged.Findings, func(f cleanup.Finding) bool { return f.Device.ID == was.Device.ID })
		if i < 0 {
			return now, fmt.Errorf("%s of %s has %w: the row is gone", was.Device.Address, was.Host, errChanged)
		}
		if is := judged.Findings[i]; !sameFinding(is, was) {
			return now, fmt.Errorf("%s of %s has %w: %s", was.Device.Address, was.Host, errChanged, is.Reason)
		}
	}
	if err := checkPlan(u, cleanup.NewPlan(judged.Findings)); err != nil || u.Repair != cleanup.Offline {
		return judged.Now, err
	}
	// forced_down does not stop nova-compute from reporting, so only silence counts.
	for _, d := range u.Devices {
		if silent, known := judged.Silent(d.Host); known && silent < cleanup.Silence(r.Options.Down) {
			return now, fmt.Errorf("nova-compute on %s has %w: it reported %s ago", d.Host, errChanged, silent.Round(time.Second))
		}
	}
	return judged.Now, nil
}

// checkPlan returns an error unless the unit's findings, judged again, are planned as the same
// unit: what it frees altogether depends on more rows than each finding does.
//
// Which rows are freed with the devices may have changed, by an earlier repair of the same card:
// the proof of the findings covers all that may be, and the unit writes those of now.
func checkPlan(u *cleanup.Unit, again []cleanup.Unit) error {
	for _, is := range again {
		if is.State == cleanup.Planned && slices.Equal(is.Closings, u.Closings) &&
			is.Applies == u.Applies && is.Confirms == u.Confirms && sameDevices(is.Devices, u.Devices) {
			u.FreedWith = is.FreedWith
			return nil
		}
	}
	return fmt.Errorf("what the repair of %s frees has %w", u.Name(), errChanged)
}

// sameFinding returns whether a row was judged the same twice, for the same reason and with the
// same repair.
func sameFinding(a, b cleanup.Finding) bool {
	return a.Case == b.Case && a.Verdict == b.Verdict && a.Repair == b.Repair && slices.Equal(a.Closings, b.Closings) &&
		a.Applies == b.Applies && a.Needs == b.Needs &&
		a.Claims == b.Claims && a.Request == b.Request && sameDevices(a.Frees, b.Frees) && sameDevice(a.Device, b.Device)
}

func sameDevices(a, b []cleanup.Held) bool {
	return slices.EqualFunc(a, b, func(x, y cleanup.Held) bool { return sameDevice(x.Device, y.Device) })
}

func sameDevice(a, b cleanup.Device) bool {
	same := func(x, y *string) bool { return x == nil && y == nil || x != nil && y != nil && *x == *y }
	sameTime := a.Updated == nil && b.Updated == nil || a.Updated != nil && b.Updated != nil && a.Updated.Equal(*b.Updated)
	return a.ID == b.ID && a.Status == b.Status && same(a.Instance, b.Instance) && same(a.Request, b.Request) && sameTime
}
