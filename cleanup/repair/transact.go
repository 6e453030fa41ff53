package repair

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// step decides what becomes of a unit while its rows are locked. It returns the changes of rows to
// write, and the side that Placement's allocations are brought to afterwards: Neither to write them as
// they are, "" not to write them.
type step func(ctx context.Context, tx *sql.Tx, cell novadb.Cell) (rows []cleanup.Row, to Side, err error)

// bring brings the rows and the allocations of a unit to where a step leads, or leaves both as they
// are. Each try is one transaction, which locks the evidence and takes the step, writes the rows,
// writes Placement, and is committed: the database may refuse before Placement is asked, and for other
// clients Placement changes first. The end of ctx, and unless insists is set a write that Placement has
// not confirmed, do not end a running transaction, but prevent another try. asked is whether Placement
// was asked to change the allocations.
//
// Errors: ErrUnknown if the outcome of COMMIT is unknown. After any other error the rows are not
// written.
func (r *Repairer) bring(ctx context.Context, u *cleanup.Unit, tries int, insists bool, decide step) (asked bool, err error) {
	confirmed := true
	for try := 0; try == 0 || try < tries && (confirmed || insists) && again(err) && ctx.Err() == nil; try++ {
		err = r.locked(context.WithoutCancel(ctx), u, func(ctx context.Context, tx *sql.Tx, cell novadb.Cell) (writes bool, err error) {
			early, cancel := beforeLast(ctx)
			defer cancel()
			rows, to, err := decide(early, tx, cell)
			if err == nil {
				err = write(ctx, tx, rows)
			}
			if err != nil || u.Placement == nil || to == "" {
				return len(rows) > 0, err
			}
			limited, end := context.WithTimeoutCause(ctx, postLimit, errSilent)
			defer end()
			err = r.allocate(limited, u, to, &asked)
			confirmed = err == nil || !asked
			return len(rows) > 0, err
		})
	}
	return asked, err
}

// again returns whether a transaction that failed may succeed when it is tried again.
func again(err error) bool {
	return !errors.Is(err, ErrUnknown) && (novadb.MayRetry(err) || errors.Is(err, errHeld) || errors.Is(err, errSilent))
}

// carry brings a unit to one side, where rows returns the changes of rows within the transaction, or an
// error if they must not be made. It records the unit as begun before the first write. A try that
// fails after Placement was asked is settled.
//
// Errors: without ErrUnknown nothing was changed.
func (r *Repairer) carry(ctx context.Context, units []cleanup.Unit, u *cleanup.Unit, to Side,
	rows func(context.Context, *sql.Tx, novadb.Cell) ([]cleanup.Row, error)) error {
	const tries = 3
	state := u.State
	asked, err := r.bring(ctx, u, tries, false, func(ctx context.Context, tx *sql.Tx, cell novadb.Cell) ([]cleanup.Row, Side, error) {
		u.State = state
		changes, err := rows(ctx, tx, cell)
		if err != nil {
			return nil, "", err
		}
		if to == After {
			u.Rows = changes
		}
		u.State = cleanup.Begun
		return changes, to, r.Record(units)
	})
	if err == nil {
		return nil
	}
	u.State = state
	if errors.Is(err, ErrUnknown) || !asked {
		return err
	}
	_, settleErr := r.settle(context.WithoutCancel(ctx), u, to == Before, false)
	return errors.Join(err, settleErr)
}

// Limits of a transaction that locks Nova's rows. Nova's own saves wait for a lock for 50 s
// (innodb_lock_wait_timeout) and then fail. No lock is held for longer than holdLimit, apart
// from a COMMIT that is running: a statement that the context ends goes on in the server for as
// long as it waits for a lock, so none that may wait is begun in the last second.
const (
	holdLimit = 5500 * time.Millisecond
	postLimit = 5 * time.Second // for Placement's answer within holdLimit
	nextLock  = 1               // seconds to wait for each lock but the first (novadb.LockWait), when one is held
	idleLimit = 6               // seconds after which the server ends a transaction whose client is frozen

	forUpdate = " FOR UPDATE"
)

// beforeLast returns the context for statements that may wait for a lock.
func beforeLast(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithDeadlineCause(ctx, deadline.Add(-nextLock*time.Second), errHeld)
}

// locked calls act in a transaction that has locked the rows of the unit's evidence, and commits
// the transaction if act says that it writes. The context of act ends when the locks must be released.
//
// Errors: ErrUnknown if the outcome of COMMIT is unknown. After any other error the transaction is
// rolled back and holds no lock.
func (r *Repairer) locked(ctx context.Context, u *cleanup.Unit, act func(context.Context, *sql.Tx, novadb.Cell) (writes bool, err error)) error {
	cell, err := r.cell(u)
	if err != nil {
		return err
	}
	conn, err := cell.DB.Conn(ctx)
	if err != nil {
		return novadb.Explain("cell "+cell.Name, err)
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d, SESSION wait_timeout = %d",
		novadb.LockWait, idleLimit)); err != nil {
		return novadb.Explain("cell "+cell.Name, err)
	}
	// A lost connection has lost its variables too.
	defer conn.ExecContext(context.WithoutCancel(ctx), "SET SESSION wait_timeout = DEFAULT") //nolint:errcheck // as above
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return novadb.Explain("cell "+cell.Name, err)
	}
	defer tx.Rollback() //nolint:errcheck // of no effect once it is committed
	limited, cancel, err := lock(ctx, tx, u)
	defer cancel()
	writes := false
	if err == nil {
		writes, err = act(limited, tx, cell)
	}
	if err != nil {
		if cause := context.Cause(limited); cause != nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w: %w", cause, err)
		}
		return err
	}
	if !writes {
		return nil
	}
	if err = novadb.Commit(conn, tx); errors.Is(err, novadb.ErrCommitUnknown) {
		return unknownBecause(err)
	}
	return err // the server has rolled back
}

// errHeld goes with a transaction that was rolled back so that Nova does not have to wait.
var errHeld = fmt.Errorf("rows of Nova would have been locked for longer than %s", holdLimit)

// errSilent goes with a write that Placement has not answered.
var errSilent = fmt.Errorf("no answer within %s", postLimit)

// lock locks the rows of the unit's evidence, in the order of Nova's instance_destroy
// (nova/db/main/api.py). The index of migrations begins with deleted and instance_uuid, so no
// migration of the instance can be added meanwhile. The returned context ends when the locks must
// be released.
func lock(ctx context.Context, tx *sql.Tx, u *cleanup.Unit) (limited context.Context, cancel context.CancelFunc, err error) {
	type statement struct {
		table, text string
		args        []any
	}
	var ids, with []any
	for _, d := range u.Devices {
		ids = append(ids, d.ID)
	}
	if u.Repair == cleanup.Offline { // which may write any row of their cards
		for _, d := range u.Devices {
			for _, other := range d.Card {
				if !slices.Contains(ids, any(other.ID)) && !slices.Contains(with, any(other.ID)) {
					with = append(with, other.ID)
				}
			}
		}
	}
	var statements []statement
	if u.Instance != "" {
		statements = []statement{
			{"instances", "SELECT id FROM instances WHERE uuid = ? FOR UPDATE", []any{u.Instance}},
			{"instance_extra", "SELECT id FROM instance_extra WHERE instance_uuid = ? FOR UPDATE", []any{u.Instance}},
			{"migrations", "SELECT id FROM migrations WHERE deleted = 0 AND instance_uuid = ? FOR UPDATE", []any{u.Instance}},
		}
	}
	for _, some := range [][]any{ids, with} {
		if len(some) > 0 {
			statements = append(statements, statement{"pci_devices",
				"SELECT id FROM pci_devices WHERE id IN (" + novadb.Places(len(some)) + ") ORDER BY id FOR UPDATE", some})
		}
	}
	limited, cancel = context.WithCancel(ctx)
	waiting := limited
	for i, s := range statements {
		if err := novadb.Query(waiting, tx, s.table, func(*sql.Rows) error { return nil }, s.text, s.args...); err != nil {
			return limited, cancel, err
		}
		if i > 0 {
			continue
		}
		cancel()
		limited, cancel = context.WithTimeoutCause(ctx, holdLimit, errHeld)
		early, ended := beforeLast(limited)
		defer ended()
		waiting = early
		if _, err := tx.ExecContext(early, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", nextLock)); err != nil {
			return limited, cancel, err
		}
	}
	return limited, cancel, nil
}
