package repair

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
)

// evidenceHolds judges the unit's rows again, within the transaction, and returns the changes that
// repair them. It returns an error unless the same repair is planned from them.
//
// Which other rows of the cards are written may have changed, by an earlier repair of the same card:
// the proof of the findings covers all that may be freed, and the unit writes those of now.
func (r *Repairer) evidenceHolds(ctx context.Context, tx *sql.Tx, cell novadb.Cell, u *cleanup.Unit) ([]cleanup.Row, error) {
	if err := novadb.QueryRow(ctx, tx, "cell "+cell.Name, []any{&u.Database}, "SELECT DATABASE()"); err != nil {
		return nil, err
	}
	var ids []int64
	for _, f := range u.Findings {
		ids = append(ids, f.Device.ID)
	}
	judged, now, err := find.Judge(ctx, tx, r.Databases, cell, r.Options, ids)
	if err != nil {
		return nil, err
	}
	for _, is := range cleanup.NewPlan(judged) {
		if is.Same(*u) {
			u.Devices, u.FreedWith = is.Devices, is.FreedWith
			return rowsOf(ctx, tx, now, u, forUpdate)
		}
	}
	for _, was := range u.Findings {
		i := slices.IndexFunc(judged, func(f cleanup.Finding) bool { return f.Device.ID == was.Device.ID })
		if i < 0 {
			return nil, fmt.Errorf("%s of %s has %w: the row is gone", was.Device.Address, was.Host, errChanged)
		}
		if is := judged[i]; is.Reason != was.Reason || is.Needs != was.Needs {
			return nil, fmt.Errorf("%s of %s has %w: %s", was.Device.Address, was.Host, errChanged, cmp.Or(is.Needs, is.Reason))
		}
	}
	return nil, fmt.Errorf("what the repair of %s frees has %w", u.Name(), errChanged)
}
