package find

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/host/guest"
)

// ErrAlive goes with a host that is declared off although its nova-compute has reported.
var ErrAlive = host.WithHint(errors.New("is declared off, but its nova-compute has reported"),
	"stop the host and repeat this when its nova-compute has been silent for long enough; while it runs, give its guest report instead (--guests)")

// CheckOff returns an error for each host that is declared off although nova-compute on it has
// reported within cleanup.Silence, in any cell. It reads nothing if no host is declared off. It is
// asked before anything else, for online repairs too, and again in each transaction. forced_down makes
// no difference.
//
// Errors: ErrAlive, and those of the databases.
func CheckOff(ctx context.Context, d *novadb.Databases, o Options) error {
	if len(o.off()) == 0 {
		return nil
	}
	var errs []error
	for _, c := range d.All() {
		if !c.IsCell0() {
			errs = append(errs, inCell(ctx, d, c, o, func(*reader) error { return nil }))
		}
	}
	return errors.Join(errs...)
}

// off returns the hosts that are declared off, by the names that were given.
func (o Options) off() []string {
	if o.Proof == nil {
		return nil
	}
	return slices.DeleteFunc(o.Proof.Hosts(), func(name string) bool { return !o.Proof.Off(name) })
}

// checkOff is CheckOff for the reader's cell.
func (r *reader) checkOff(ctx context.Context) error {
	var errs []error
	for _, name := range r.options.off() {
		spelling, seen, err := r.lastSeen(ctx, name)
		if err != nil {
			return err
		}
		if ago := r.now.Sub(seen); !seen.IsZero() && ago < cleanup.Silence(r.options.Down) {
			errs = append(errs, fmt.Errorf("host %s %w: at %s, %s ago by the database's clock, less than %s", spelling, ErrAlive,
				seen.UTC().Format(time.RFC3339), ago.Round(time.Second), cleanup.Silence(r.options.Down)))
		}
	}
	return errors.Join(errs...)
}

// lastSeen returns when nova-compute of a host reported last, or when its service was deleted if
// that was later: a nova-compute whose service is deleted goes on working, and its reports are
// lost.
func (r *reader) lastSeen(ctx context.Context, host string) (spelling string, last time.Time, err error) {
	err = r.query(ctx, "services", func(rows *sql.Rows) error {
		var name string
		var times [2]sql.NullTime
		err := rows.Scan(&name, &times[0], &times[1])
		if t := latest(times[:]...); t.After(last) {
			spelling, last = name, t
		}
		return err
	}, "SELECT host, COALESCE("+r.column("services", "last_seen_up", "updated_at")+", created_at), deleted_at FROM services WHERE `binary` = 'nova-compute' AND host = ?", host)
	return spelling, last, novadb.IgnoreNoName(err)
}

// Token returns a token of the present time for guest reports. Of the clocks of all cells the one
// that is behind all others counts: a report that is made with the token is then from after the
// token's time in each cell.
func Token(ctx context.Context, d *novadb.Databases) (string, error) {
	var first time.Time
	for _, c := range d.All() {
		if c.IsCell0() {
			continue
		}
		var now time.Time
		if err := novadb.QueryRow(ctx, c.DB, "cell "+c.Name, []any{&now}, "SELECT UTC_TIMESTAMP(6)"); err != nil {
			return "", err
		}
		if first.IsZero() || now.Before(first) {
			first = now
		}
	}
	return guest.NewToken(first), nil
}
