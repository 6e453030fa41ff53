package find

import (
	"cmp"
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

// ErrUnreported goes with a database to which no service reports, so that no host can be seen to
// work: heartbeats go to memcached, whatever passes them on is down, or it is a copy.
var ErrUnreported = host.WithHint(errors.New("no service of Nova reports to this database, so that it shows no host as working"),
	"start nova-conductor of the cell; with servicegroup_driver = mc, and in a copy, give guest reports instead (--guests)")

// off returns the hosts that are declared off, by the names that were given.
func (o Options) off() []string {
	proof := cmp.Or(o.Proof, cleanup.NoProof())
	return slices.DeleteFunc(proof.Hosts(), func(name string) bool { return !proof.Off(name) })
}

// checkOff returns an error for each host that is declared off although nova-compute on it has
// reported to the reader's cell within cleanup.Silence. Each reader asks it, in the transaction of a
// repair too. forced_down makes no difference. Where no service at all has reported, it returns an
// error too, if the cell has one of the hosts.
//
// Errors: ErrAlive, ErrUnreported.
func (r *reader) checkOff(ctx context.Context) error {
	var errs []error
	known := false
	for _, name := range r.options.off() {
		spelling, seen, err := r.lastSeen(ctx, name)
		if err != nil {
			return err
		}
		known = known || !seen.IsZero()
		if ago := r.now.Sub(seen); !seen.IsZero() && ago < cleanup.Silence(r.options.Down) {
			errs = append(errs, fmt.Errorf("host %s %w: at %s, %s ago by the database's clock, less than %s", spelling, ErrAlive,
				seen.UTC().Format(time.RFC3339), ago.Round(time.Second), cleanup.Silence(r.options.Down)))
		}
	}
	if known && len(errs) == 0 {
		var newest sql.NullTime
		err := novadb.QueryRow(ctx, r.tx, "services", []any{&newest},
			"SELECT MAX("+r.column("services", "last_seen_up", "updated_at")+") FROM services WHERE deleted = 0")
		if err == nil && (!newest.Valid || r.now.Sub(newest.Time) >= cleanup.Silence(r.options.Down)) {
			err = ErrUnreported
		}
		return err
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
