package repair

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
	"gpustack/host"
)

// ErrTooLate goes with a repair that Nova has acted on: undoing it would make the rows wrong again.
var ErrTooLate = host.WithHint(host.WithCode(errors.New("too late to undo"), host.CodeTooLate, ""),
	host.Textf("%s shows the rows as they are now", host.NewCommand("repair-migration")))

// checkUndo returns an error unless each written unit can be undone: an online repair until
// nova-compute has freed a device, an offline one until nova-compute of a host has reported again,
// and only while rows and allocations are as they were written. The error has all reasons.
func (r *Repairer) checkUndo(ctx context.Context, units []cleanup.Unit) error {
	var errs []error
	for i := range units {
		u := &units[i]
		if !u.Written() {
			continue
		}
		cell, err := r.cell(u)
		if err == nil {
			err = sameDatabase(ctx, cell.DB, u)
		}
		if err == nil {
			err = r.undoable(ctx, cell.DB, u, "")
		}
		if err == nil && u.Placement != nil {
			now, side, standErr := r.stand(ctx, u)
			if standErr == nil && side != After {
				standErr = neither(u, now)
			}
			err = errors.Join(checkMoved(u), standErr)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", u.Name(), err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// checkMoved returns an error if a unit has closed a migration that was not in error, and left the
// allocations as they were: another run, or an operator, had moved them before. Nova never leaves
// such a migration without its allocations.
func checkMoved(u *cleanup.Unit) error {
	if !unchanged(u) {
		return nil
	}
	for _, row := range u.Rows {
		if was := row.Before["status"]; row.Table == "migrations" && was != nil && *was != "error" {
			return fmt.Errorf("%w: Placement had the allocations of after the repair before it, which would contradict migration %s in status %s", ErrTooLate, row.Key, *was)
		}
	}
	return nil
}

// undoable returns an error unless a unit's rows are as they were written and Nova has not acted
// on them. locking is "" or forUpdate, and is appended to the statements.
func (r *Repairer) undoable(ctx context.Context, q novadb.Querier, u *cleanup.Unit, locking string) error {
	if err := r.releasable(ctx, q, u); err != nil {
		return err
	}
	if u.Repair == cleanup.Online {
		kept, err := kept(ctx, q, u, locking)
		if err != nil {
			return err
		}
		if kept < len(u.Devices) {
			return fmt.Errorf("%w: nova-compute has freed the device", ErrTooLate)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(u.Reports)) {
		reports, err := reportCount(ctx, q, host, locking)
		if err != nil {
			return err
		}
		if reports != u.Reports[host] {
			return fmt.Errorf("%w: nova-compute on %s has run since", ErrTooLate, host)
		}
	}
	for _, row := range u.Rows {
		if side, err := sideOf(ctx, q, []cleanup.Row{row}); err != nil || side != After {
			return errors.Join(err, fmt.Errorf("row %s of %s has been changed since", row.Key, row.Table))
		}
	}
	return nil
}

// releasable returns an error unless it is proved that no guest uses the devices that the undo of a
// claim frees.
func (r *Repairer) releasable(ctx context.Context, q novadb.Querier, u *cleanup.Unit) error {
	claimed := u.Claimed()
	if len(claimed) == 0 {
		return nil
	}
	var f cleanup.Facts
	if err := novadb.QueryRow(ctx, q, "the clock", []any{&f.Now}, "SELECT UTC_TIMESTAMP(6)"); err != nil {
		return err
	}
	f.Proof = cmp.Or(r.Options.Proof, cleanup.NoProof()).At(f.Now)
	var errs []error
	for _, d := range claimed {
		since := f.Now
		for _, row := range u.Rows { // when the claim was written
			if at := row.After["updated_at"]; row.Table == "pci_devices" && row.Key == fmt.Sprint(d.ID) && at != nil {
				if t, err := time.Parse(time.DateTime, *at); err == nil {
					since = t
				}
			}
		}
		devices, why, err := withPF(ctx, q, u, d)
		if err != nil {
			return err
		}
		if why != "" {
			err := fmt.Errorf("%s of %s would be freed with %s, but %s", *d.Parent, d.Host, d.Address, why)
			errs = append(errs, host.WithHint(err, host.Textf("undo the later claim first, which %s lists", host.NewCommand("history"))))
			continue
		}
		if why := f.Unused(d.Host, "", devices, since); why != "" {
			errs = append(errs, host.WithHint(fmt.Errorf("%s of %s would be freed, and that no guest uses it is not proved: %s", d.Address, d.Host, why),
				host.Textf("%s; then: %s, or --host-is-off %s if the host is off", cleanup.ReportStep(r.Options.Token, d.Host),
					host.NewCommand("undo").Arg(strconv.Itoa(r.entry)).Flag("guests", d.Host+".json"), d.Host)))
		}
	}
	return errors.Join(errs...)
}

// withPF returns a claimed device with its PF, if the undo of the claim makes the PF available again,
// and why it must not: Nova frees a PF only if none of its functions is taken
// (nova/objects/pci_device.py, PciDevice.free).
func withPF(ctx context.Context, q novadb.Querier, u *cleanup.Unit, d cleanup.Held) (devices []cleanup.Device, why string, err error) {
	devices = []cleanup.Device{d.Device}
	claimed := []any{d.Node, d.Parent}
	claimed = append(claimed, host.Map(u.Claimed(), func(c cleanup.Held) any { return c.ID })...)
	unblocks := slices.ContainsFunc(u.Rows, func(row cleanup.Row) bool {
		own := slices.ContainsFunc(u.Claimed(), func(c cleanup.Held) bool { return fmt.Sprint(c.ID) == row.Key })
		was := row.Before["status"]
		return !own && was != nil && *was == cleanup.StatusAvailable
	})
	if d.Parent == nil || !unblocks {
		return devices, "", nil
	}
	devices = append(devices, cleanup.Device{Node: d.Node, Address: *d.Parent, Type: cleanup.TypePF})
	err = novadb.QueryRow(ctx, q, "pci_devices", []any{&why}, "SELECT COALESCE(CONCAT(MIN(address), ' of the same card is ', MIN(status)), '') "+
		"FROM pci_devices WHERE deleted = 0 AND status IN ('claimed', 'allocated') "+
		"AND compute_node_id = ? AND parent_addr = ? AND id NOT IN ("+novadb.Places(len(claimed)-2)+")", claimed...)
	return devices, why, err
}

// Undo undoes the written units, the last first, each in one transaction, and records each. When
// ctx ends, a unit that was begun is finished, and no other is begun.
//
// Errors: ErrUnknown goes with a unit whose outcome is unknown, which has the state Begun.
func (r *Repairer) Undo(ctx context.Context, units []cleanup.Unit) error {
	if err := r.checkUndo(ctx, units); err != nil {
		return err
	}
	for i := range slices.Backward(units) {
		u := &units[i]
		if !u.Written() {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		err := r.carry(ctx, units, u, Before, func(ctx context.Context, tx *sql.Tx, _ novadb.Cell) ([]cleanup.Row, error) {
			return u.Back(), r.undoable(ctx, tx, u, forUpdate)
		})
		switch {
		case err == nil:
			u.State = cleanup.Undone
		case errors.Is(err, ErrUnknown):
			u.State, u.Note = cleanup.Begun, err.Error()
		}
		recordErr := r.Record(units)
		if err != nil {
			err = fmt.Errorf("%s: %w", u.Name(), err)
		}
		if err := errors.Join(err, recordErr); err != nil {
			return err
		}
	}
	return nil
}

// kept returns how many devices of a unit its instance still has, or for a repair of the migration
// context, whether it has one.
func kept(ctx context.Context, q novadb.Querier, u *cleanup.Unit, locking string) (n int, err error) {
	table, where, args := "instance_extra", "migration_context IS NOT NULL", []any{u.Instance}
	if u.Repair != cleanup.ClearContext {
		table, where = "pci_devices", "id IN ("+novadb.Places(len(u.Devices))+")"
		args = append(args, host.Map(u.Devices, func(d cleanup.Held) any { return d.ID })...)
	}
	err = novadb.QueryRow(ctx, q, table, []any{&n}, "SELECT COUNT(*) FROM "+table+" WHERE deleted = 0 AND instance_uuid = ? AND "+where+locking, args...)
	return n, err
}

// checkOurs returns an error unless a row that was read from a journal has an id, and names only tables
// and columns that gpustack repairs.
func checkOurs(r cleanup.Row) error {
	known := map[string][]string{
		"pci_devices":    {"status", "instance_uuid", "request_id", "deleted", "deleted_at", "updated_at"},
		"migrations":     {"status", "updated_at"},
		"instances":      {"host", "node", "compute_id", "vm_state", "task_state", "updated_at"},
		"instance_extra": {"migration_context", "pci_requests", "numa_topology", "resources", "updated_at"},
	}
	for _, columns := range []map[string]*string{r.Before, r.After} {
		for c := range columns {
			if !slices.Contains(known[r.Table], c) {
				return fmt.Errorf("the journal names %s.%s, which gpustack does not repair", r.Table, c)
			}
		}
	}
	if _, err := strconv.ParseInt(r.Key, 10, 64); err != nil {
		return fmt.Errorf("row %q of %s: %w", r.Key, r.Table, err)
	}
	return nil
}

// reportCount returns how often nova-compute of a host has reported, 0 if the host has no service.
// locking is "" or forUpdate: in a transaction, forUpdate reads the present value.
func reportCount(ctx context.Context, q novadb.Querier, host, locking string) (n int64, err error) {
	err = novadb.QueryRow(ctx, q, "services", []any{&n},
		"SELECT COALESCE(MAX(report_count), 0) FROM services WHERE deleted = 0 AND `binary` = 'nova-compute' AND host = ?"+locking, host)
	return n, novadb.IgnoreNoName(err)
}
