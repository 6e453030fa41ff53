package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host/change"
)

// interruptedError is the cause of a context that SIGINT, SIGTERM or SIGHUP has ended. Engines
// wrap it, by context.Cause, to say what was kept and what was rolled back; main turns every
// error of such a run into exit status 130.
type interruptedError struct{}

func (interruptedError) Error() string { return "interrupted" }

// Is makes it a context.Canceled, which HTTP and database clients report.
func (interruptedError) Is(target error) bool { return target == context.Canceled }

// progress is how far a run has come. A signal ends the run at once unless something is being
// changed; then it ends the context, and the command ends its running step and rolls back.
type progress struct {
	mu          sync.Mutex
	interrupted bool
	mayChange   bool   // the command changes something
	asking      bool   // a question waits for its answer
	restore     func() // the terminal, while it does
	changing    bool
	changed     bool // by a part of the run that has ended
	// remedy is what an operator can do when the change is stopped at once.
	remedy string
}

// changes records that the command may change something.
func (p *progress) changes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mayChange = true
}

// begin must be called before the first write. After a signal it returns an error: nothing may
// be changed then.
func (p *progress) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.interrupted {
		return interruptedError{}
	}
	p.changing = true
	p.remedy = remedyUnrecorded
	// All that the run does to files it does on one thread from here on, so that a test can stop
	// it at each step (strace counts the system calls of each thread).
	runtime.LockOSThread()
	return nil
}

// What an operator can do about a change that a second signal has stopped. It may have been
// stopped before its entry in the journal was written.
const (
	remedyUnrecorded = "the running step may have been carried out: check before you run the command again"
	remedyMachine    = "if 'gpustack history' shows an interrupted entry, the next command that changes this machine recovers it first"
	remedyRows       = "if 'gpustack history' shows an interrupted entry, 'gpustack repair-migration --apply' determines what it has done, 'gpustack undo' undoes it"
)

// remedyOf returns what can be done about a change of a kind.
func remedyOf(kind string) string {
	if kind == change.KindObjects {
		return "if 'gpustack history' shows an interrupted entry, the next 'gpustack flavor create' or 'delete' in that cloud determines what it has done, 'gpustack undo' undoes it"
	}
	return remedyMachine
}

// beginRecorded is begin for a change that the journal records.
func (p *progress) beginRecorded(remedy string) error {
	if err := p.begin(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remedy = remedy
	return nil
}

// end must be called after the last write where the run goes on to read and to ask.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = p.changed || p.changing
	p.changing = false
}

// ask marks that a question waits for its answer. After a signal it returns an error: no
// question is asked then.
func (p *progress) ask() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.interrupted {
		return interruptedError{}
	}
	p.asking = true
	return nil
}

// change makes a change that a question needs, such as of the terminal's settings, and has a
// signal restore what was there. It returns what restores it when the question is answered. After
// a signal nothing is changed, and the error says so: between the change and the promise to
// restore it no signal could do that.
func (p *progress) change(change func() error, restore func()) (done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.interrupted {
		return nil, interruptedError{}
	}
	if err := change(); err != nil {
		return nil, err
	}
	p.restore = restore
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		restore()
		p.restore = nil
	}, nil
}

// answered marks that the question has got its answer.
func (p *progress) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = false
}

// interrupt handles the first signal. It returns whether something is being changed, so that
// the run must end in order; it may end at once otherwise. It prints to talk alone: the
// command still owns u.out.
func (u *ui) interrupt() (changing bool) {
	p := &u.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interrupted = true
	var text string
	switch {
	case p.changing:
		text = "gpustack: interrupted: ending the running step; a second interrupt stops at once\n"
	case p.changed:
		text = "gpustack: error: interrupted, nothing else was changed\n"
	case p.mayChange:
		text = "gpustack: error: interrupted, nothing was changed\n"
	default:
		text = "gpustack: error: interrupted\n"
	}
	if p.asking {
		text = "\n" + text // below the question
	}
	if p.restore != nil {
		p.restore()
	}
	fmt.Fprint(u.talk, text) //nolint:errcheck // there is no other place to report it
	return p.changing
}

// stopped prints that a second signal has ended the run, in the middle of a step most likely,
// and what can be done about that.
func (u *ui) stopped() {
	u.mu.Lock()
	defer u.mu.Unlock()
	const text = "gpustack: error: interrupted again, stopped at once\ngpustack: hint: %s\n"
	fmt.Fprintf(u.talk, text, u.remedy) //nolint:errcheck // there is no other place to report it
}

// settleSignal is how long an answer waits for a signal that was sent before it, or right after:
// the kernel and the Go runtime deliver the two in any order.
const settleSignal = 100 * time.Millisecond

// settleSignals waits until a signal that was sent before has been handled, which ends the run. On
// a busy machine that takes longer than settleSignal. So it sends itself a signal that is handled
// after it: of several pending signals the one with the lowest number is delivered first (Linux,
// kernel/signal.c, next_signal), and SIGWINCH has the highest number of those that are caught.
func (u *ui) settleSignals() {
	select {
	case <-u.handled: // of a window that was resized
	default:
	}
	if unix.Kill(os.Getpid(), unix.SIGWINCH) == nil {
		select {
		case <-u.handled:
		case <-time.After(time.Second):
		}
	}
	time.Sleep(settleSignal)
}

// caughtUp tells settleSignals that all earlier signals have been handled.
func (u *ui) caughtUp() {
	select {
	case u.handled <- struct{}{}:
	default:
	}
}
