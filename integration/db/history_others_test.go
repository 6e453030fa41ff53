package db

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gpustack/host/hosttest"
)

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
