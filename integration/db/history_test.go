package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gpustack/cleanup/novadb"
	"gpustack/host/hosttest"
)

// deniedUser is an account that may not update migrations.
const deniedUser = "denied"

// startHistories starts what histories need beside the databases.
func startHistories(t *testing.T) *historyLab {
	t.Helper()
	reset(t)
	p, err := database.StartPlacement(t.Context())
	hosttest.NoError(t, err)
	l := &historyLab{placement: p}
	t.Cleanup(func() {
		if err := errors.Join(p.Stop(), database.Reset(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	})
	hosttest.NoError(t, p.Provide(t.Context(), "gpu1", "gpu2"))
	for _, statement := range []string{
		"CREATE USER IF NOT EXISTS " + deniedUser + "@'127.0.0.1' IDENTIFIED BY '" + database.Password + "'",
		"GRANT SELECT ON nova_cell1.* TO " + deniedUser + "@'127.0.0.1'",
		"GRANT UPDATE ON nova_cell1.instances TO " + deniedUser + "@'127.0.0.1'",
		"GRANT UPDATE ON nova_cell1.instance_extra TO " + deniedUser + "@'127.0.0.1'",
		"GRANT UPDATE ON nova_cell1.pci_devices TO " + deniedUser + "@'127.0.0.1'",
	} {
		if _, err := database.Server.Query(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	l.sql(t, "CREATE TABLE placement.weight (n INT)")
	if l.databases, err = novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Database: database.URL("nova_cell1")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.databases.Close() })
	for _, name := range []string{"A", "B"} {
		l.operators = append(l.operators, newOperator(t, name, p))
	}
	return l
}

// dead is a cold migration that died while the disk was copied, with what proves it.
const deadMigration = "boot gpu1 84:00.0; migrate 1 gpu2 84:00.0 migrating; wait 30; start gpu1; start gpu2; wait 15; report gpu1 0; report gpu2 0; "

// offMachine is a PF of a host that is off, whose guest is deleted.
const offMachine = "boot gpu1 40:00.0; boot gpu2 84:00.0; off gpu1; delete 1; wait 15; believe gpu1; "

// siblings are two functions of a card in guests; siblingLeaves frees the second one by a repair.
const (
	siblings      = "boot gpu1 40:00.3; boot gpu1 40:00.2; boot gpu2 84:00.0; "
	siblingLeaves = "migrate 2 gpu2 40:00.1 finished; reset 2; wait 15; report gpu1 0; report gpu2 0; run A"
)

// knownHistories are short ones: first what must stay possible, with what must come of it, then
// what was wrong once.
var knownHistories = []struct{ name, history, progress string }{
	{"a dead cold migration, both reports", deadMigration + "run A", "online with both reports"},
	{"a dead cold migration, reports with tokens", "clock gpu1 8m; clock gpu2 -7m; " + strings.NewReplacer(" gpu1 0", " gpu1 0 token:0", " gpu2 0", " gpu2 0 token:1").Replace(deadMigration) + "run A",
		"online with both reports"},
	{"a lost COMMIT", deadMigration + "run A commit=lost; run A", "recovered after a lost COMMIT"},
	{"a lost answer to COMMIT", deadMigration + "run A commit=answer; run A", "recovered after a lost COMMIT"},
	{"a host that is off", offMachine + "run A", "offline on a host declared off"},
	{"a PF whose family is absent", "boot gpu2 84:00.0; row gpu1 40:00.0 allocated 0; row gpu1 40:00.1 unavailable; row gpu1 40:00.2 unavailable; row gpu1 40:00.3 unavailable; down gpu1; wait 15; report gpu1 0; run A",
		"a PF whose family is absent"},
	{"a PF whose family is absent, online", "boot gpu1 40:00.0; boot gpu1 84:00.0; migrate 1 gpu2 40:00.0 error; wait 15; report gpu1 0; report gpu2 0; run A", "a PF whose family is absent"},
	{"a VF whose sibling is in a guest", "boot gpu1 84:00.0; boot gpu1 40:00.2; row gpu1 40:00.1 allocated 0; down gpu1; wait 15; report gpu1 0; run A", "repaired offline"},
	{"two rows of one card", "boot gpu1 84:00.0; boot gpu1 40:00.1; row gpu1 40:00.3 bogus; delete 2 stays; off gpu1; wait 15; believe gpu1; run A; run A", "a status that is not Nova's"},
	{"deadlocks", deadMigration + "run A deadlock=2", "online with both reports"},
	{"Nova's audit and a save beside the repair", deadMigration + "run A 4=nova:gpu1 5=nova:gpu2 6=save:1; run B", ""},

	{"a PF is freed, its VF is in a guest, offline", "boot gpu2 84:00.0; row gpu1 40:00.0 allocated 0; stray 1 gpu1 40:00.1; down gpu1; wait 15; report gpu1 0; run A", ""},
	{"a PF is freed, a VF in a guest has no row", "boot gpu2 84:00.0; row gpu1 40:00.0 allocated 0; row gpu1 40:00.1 none; stray 1 gpu1 40:00.1; down gpu1; wait 15; report gpu1 0; run A", ""},
	{"a VF is freed, its PF is in a guest, offline", "boot gpu2 84:00.0; row gpu1 40:00.1 allocated 0; stray 1 gpu1 40:00.0; down gpu1; wait 15; report gpu1 0; run A", ""},
	{"a VF is freed, its PF is in a guest and has no VFs", "boot gpu2 84:00.0; vanish gpu1; row gpu1 40:00.1 allocated 0; stray 1 gpu1 40:00.0; down gpu1; wait 15; report gpu1 0; run A", ""},
	{"a PF is freed online, its VF is in a guest", "boot gpu1 40:00.0; boot gpu1 84:00.0; migrate 1 gpu2 40:00.0 error; stray 2 gpu2 40:00.1; wait 15; report gpu1 0; report gpu2 0; run A", ""},
	{"a VF is freed, its sibling has no row", "boot gpu2 84:00.0; row gpu1 40:00.0 unavailable; row gpu1 40:00.1 allocated 0; row gpu1 40:00.2 none; stray 1 gpu1 40:00.2; down gpu1; wait 15; report gpu1 0; run A", ""},
	{"a PF is freed, a vdpa device is in a guest", "boot gpu2 84:00.0; row gpu1 40:00.0 allocated 0; stray 1 gpu1 40:00.3; down gpu1; wait 15; report gpu1 0; run A", ""},
	{"a PF is freed, by a report without its VFs", "boot gpu2 84:00.0; row gpu1 40:00.0 allocated 0; row gpu1 40:00.3 none; stray 1 gpu1 40:00.3; down gpu1; wait 15; report gpu1 0 old; run A", ""},
	{"a status that Nova does not write, the PF is in a guest", "boot gpu1 40:00.0; row gpu1 40:00.1 bogus; down gpu1; wait 15; report gpu1 0; run A", ""},
	{"a VF row blocked by no row, the PF is in a guest", "boot gpu1 84:00.0; row gpu1 40:00.1 unavailable; stray 1 gpu1 40:00.0; down gpu1; wait 15; report gpu1 0; run A", ""},
	{"a vdpa device is freed offline, and its PF with it", "boot gpu1 40:00.3; boot gpu2 84:00.0; off gpu1; delete 1; wait 15; believe gpu1; run A", "offline on a host declared off"},
	{"a dead resize whose new flavor is in place", "boot gpu1 84:00.0; resize 1 gpu2 84:00.0 finished; reset 1; wait 15; report gpu1 0; report gpu2 0; run A", "a context applied"},
	{"a dead cold migration that had arrived", "boot gpu1 84:00.0; migrate 1 gpu2 84:00.0 post-migrating; wait 5; die 1; reset 1; start gpu1; start gpu2; wait 15; report gpu1 0; report gpu2 0; run A", "a context applied"},
	{"a dead resize that had arrived without its flavor", "boot gpu1 84:00.0; resize 1 gpu2 84:00.0 post-migrating; wait 5; die 1; reset 1; start gpu1; start gpu2; wait 15; report gpu1 0; report gpu2 0; run A", ""},
	{"the destination is off for good", "boot gpu1 84:00.0; migrate 1 gpu2 84:00.0 migrating; wait 5; off gpu2; die 1; reset 1; start gpu1; wait 15; report gpu1 0; believe gpu2; run A; run A", "online with a host declared off"},
	{"a confirmation died, the source is alive", "boot gpu1 84:00.0; resize 1 gpu2 84:00.0 confirming; wait 5; die 1; start gpu1; wait 15; report gpu1 0; run A; run B", "repaired reopen"},
	{"a confirmation died, the source is off", "boot gpu1 84:00.0; resize 1 gpu2 84:00.0 confirming; wait 5; off gpu1; wait 15; believe gpu1; run A; run A", "confirmed in place of a host that is off"},

	{"a PF is freed, its VF is a network interface", "boot gpu2 84:00.0; macvtap 1; row gpu1 40:00.0 allocated 0; stray 1 gpu1 40:00.1; down gpu1; wait 15; report gpu1 0; run A", ""},
	{"a PF is freed, a network interface cannot be mapped", "boot gpu2 84:00.0; macvtap 1; unmapped gpu1; row gpu1 40:00.0 allocated 0; stray 1 gpu1 40:00.1; down gpu1; wait 15; report gpu1 0; run A", ""},
	{"a VF that is a network interface, its migration died", "boot gpu1 40:00.1; macvtap 1; migrate 1 gpu2 40:00.1 error; stray 1 gpu2 40:00.1; wait 15; report gpu1 0; report gpu2 0; run A", ""},
	{"a restart ends the thread that would start a guest", "boot gpu1 84:00.0; boot gpu2 40:00.2; resize 2 gpu1 40:00.2 post-migrating; reset 2; row gpu1 40:00.0 allocated 0; row gpu1 40:00.2 unavailable; off gpu2; wait 15; report gpu1 0; believe gpu2; run A", ""},
	{"a VF of a deleted guest that runs, its sibling migrates", siblings + "delete 1 stays; " + siblingLeaves, ""},
	{"a VF of a guest that Nova does not find, its sibling migrates", siblings + "null 1; " + siblingLeaves, ""},
	{"a VF of a guest that runs, its sibling migrates", siblings + siblingLeaves, "online with both reports"},
	{"a row without an owner, the guest uses the device", "boot gpu1 84:00.0; row gpu1 84:00.0 allocated; wait 15; run A", ""},

	{"an answer is lost, another run repairs", deadMigration + "run A post1=lost 6=B", ""},
	{"an answer is lost while rows are locked", deadMigration + "run A post1=lost 6=deadlock:3", ""},
	{"an UPDATE is lost, another run repairs", deadMigration + "run A update=cut 6=B", ""},
	{"the account may not update migrations", deadMigration + "run A user=denied", ""},
	{"a living host is declared off", "boot gpu1 84:00.0; migrate 1 gpu2 84:00.0 error; wait 15; stray 1 gpu2 84:00.0; believe gpu2; report gpu1 0; run A", "refused: declared off and alive"},
	{"post_live_migration_at_destination failed", "boot gpu1 84:00.0; live 1 gpu2 84:00.0 completed; wait 15; run A", ""},
	{"a report of a host eight minutes ahead", "clock gpu2 8m; boot gpu1 84:00.0; wait 20; live 1 gpu2 84:00.0 arrived; wait 4; report gpu1 0; report gpu2 8; run A", ""},
	{"the same with a token of then", "clock gpu2 8m; boot gpu1 84:00.0; wait 20; live 1 gpu2 84:00.0 arrived; wait 4; report gpu1 0; report gpu2 8 token:0; run A", ""},
	{"a nova-compute that started before, by far", "clock gpu1 8m; boot gpu1 84:00.0; wait 30; start gpu1; wait 4; migrate 1 gpu2 84:00.0 migrating; reset 1; start gpu2; wait 20; report gpu1 8; report gpu2 0; run A", ""},
}

// TestHistories plays the short histories, those of runs that are killed, and then random ones.
func TestHistories(t *testing.T) {
	l := startHistories(t)
	for _, test := range knownHistories {
		t.Run(test.name, func(t *testing.T) {
			p := l.play(t, lines(test.history))
			if len(p.wrong) > 0 || test.progress != "" && p.progress[test.progress] == 0 {
				t.Errorf("%v", p)
			}
		})
	}
	t.Run("killed", func(t *testing.T) { l.killed(t, deadMigration) })
	t.Run("killed offline", func(t *testing.T) { l.killed(t, offMachine) })
	l.random(t)
}

// killed plays a history whose run is killed at each of its points. A second operator's run
// follows, and what the killed one has left is recovered by a run of its own.
func (l *historyLab) killed(t *testing.T, history string) {
	clean := l.play(t, lines(history+"run A"))
	recovered := 0
	for at := 1; at <= clean.points; at++ {
		p := l.play(t, lines(fmt.Sprintf("%srun A %d=kill; run B", history, at)))
		if len(p.wrong) > 0 || p.open(p.w.guests[0].uuid) {
			t.Errorf("killed at point %d: %v", at, p)
		}
		recovered += p.progress["recovered after a kill"]
	}
	if recovered == 0 {
		t.Errorf("no run of %d had to be recovered: %v", clean.points, clean)
	}
}

func lines(history string) (list []string) {
	for line := range strings.SplitSeq(history, ";") {
		list = append(list, strings.TrimSpace(line))
	}
	return list
}

// others are what goes on beside a run: Nova, and transactions of others.
type others struct {
	stop    context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	errs    []error

	deadlocks int // how many transactions of runs the server has ended
}

// begin begins something that may wait for the run's locks, and that ends with its context.
func (o *others) begin(ctx context.Context, act func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	before := o.stop
	o.stop = func() {
		if before != nil {
			before()
		}
		cancel()
	}
	o.running.Go(func() {
		err := act(ctx)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.errs = append(o.errs, err)
	})
}

// end waits until all has ended. It is called when no run holds locks.
func (o *others) end() error {
	if o.stop != nil {
		o.stop()
	}
	o.running.Wait()
	err := errors.Join(o.errs...)
	o.stop, o.errs = nil, nil
	return err
}

// nova has a nova-compute that runs do its audit, or Nova save an instance. If the run holds locks,
// Nova waits for them, and the run goes on.
func (p *play) nova(what, which string) {
	var act func(context.Context) error
	switch what {
	case "nova":
		h, err := p.w.host(which)
		hosttest.NoError(p.t, err)
		if !h.up() || h.deleted {
			p.note("nova-compute of %s does not run", which)
			return
		}
		node := p.w.nodes[slices.Index(p.w.hosts, h)]
		act = func(ctx context.Context) error {
			_, err := database.audit(ctx, database.Cell1, node, h.devices(), true)
			return err
		}
	case "save":
		n, err := strconv.Atoi(which)
		hosttest.NoError(p.t, err)
		g, err := p.w.guest(n)
		if err != nil {
			p.note("%s: %v", what, err)
			return
		}
		act = func(ctx context.Context) error {
			_, err := database.oracle.ask(ctx, map[string]any{"ask": "save", "database": database.Cell1.connection, "instance": g.uuid, "description": fmt.Sprint(time.Now())})
			return err
		}
	}
	// The oracle must not be interrupted.
	whole := func(ctx context.Context) error { return act(context.WithoutCancel(ctx)) }
	if rowsLocked(p.t) {
		p.note("%s %s waits for locks", what, which)
		p.others.begin(p.t.Context(), whole)
	} else {
		hosttest.NoError(p.t, whole(p.t.Context()))
	}
}

// deadlock has a transaction of others lock all devices and, when the run waits for one of them,
// ask for the instance that the run has locked. It has written more than the run, so the server
// ends the run's transaction. The next one of so many gets its locks before the run tries again.
func (p *play) deadlock(times string) {
	most, err := strconv.Atoi(times)
	hosttest.NoError(p.t, err)
	if rowsLocked(p.t) {
		p.note("no deadlock: rows are locked")
		return
	}
	for n := range most {
		locked := make(chan error, 1)
		p.others.begin(p.t.Context(), func(ctx context.Context) error { return p.others.deadlock(ctx, locked) })
		if n > 0 {
			continue
		}
		hosttest.NoError(p.t, <-locked)
	}
}

// deadlock ends a transaction of others when it has caused a deadlock, or with ctx.
func (o *others) deadlock(ctx context.Context, locked chan<- error) error {
	whole := context.WithoutCancel(ctx)
	tx, err := database.SQL.BeginTx(whole, nil)
	if err != nil {
		locked <- err
		return err
	}
	defer tx.Rollback()
	exec := func(statement string) {
		if err == nil {
			_, err = tx.ExecContext(whole, statement)
		}
	}
	exec("INSERT INTO placement.weight VALUES (0)" + strings.Repeat(", (0)", 200))
	exec("SELECT id FROM nova_cell1.pci_devices FOR UPDATE")
	locked <- err
	waits := 0
	for err == nil && waits == 0 && ctx.Err() == nil {
		// innodb_trx shows what the server has collected if it was read less than a tenth of a
		// second before.
		time.Sleep(120 * time.Millisecond)
		err = tx.QueryRowContext(whole, "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE 'SELECT id FROM pci_devices%'").Scan(&waits)
	}
	if waits > 0 {
		exec("SELECT id FROM nova_cell1.instances FOR UPDATE")
	}
	if waits > 0 && err == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.deadlocks++
	}
	return err
}
