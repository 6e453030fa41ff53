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
// wrap it, through context.Cause, to name the changes that were kept and rolled back; main turns
// every error of such a run into exit status 130.
type interruptedError struct{}

func (interruptedError) Error() string { return "interrupted" }

// Is reports that it is a context.Canceled, which HTTP and database clients return.
func (interruptedError) Is(target error) bool { return target == context.Canceled }

// progress is the progress of a run. A signal ends the run immediately unless a change is being
// made; then it cancels the context, and the command completes its current step and rolls back.
type progress struct {
	mu          sync.Mutex
	interrupted bool
	mayChange   bool   // the command may change something
	asking      bool   // a question waits for an answer
	restore     func() // restores the terminal while asking
	changing    bool
	changed     bool // an ended part of the run has changed something
	printed     bool // the document is printed, or being printed
	// remedy is what an operator can do if the change is stopped immediately.
	remedy string
}

// changes records that the command may change something.
func (p *progress) changes() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mayChange = true
}

// begin must be called before the first write. After a signal it returns an error, and no change
// may be made.
func (p *progress) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.interrupted {
		return interruptedError{}
	}
	p.changing = true
	p.remedy = remedyUnrecorded
	// From here on the run changes files on one thread only, so that a test can stop it at each step
	// (strace counts the system calls of each thread).
	runtime.LockOSThread()
	return nil
}

// Remedies for a change that a second signal has stopped, possibly before its entry in the journal
// was written.
const (
	remedyUnrecorded = "the running step may have been carried out: check before you run the command again"
	remedyMachine    = "if 'gpustack history' shows an interrupted entry, the next command that changes this machine recovers it first"
	remedyRows       = "if 'gpustack history' shows an interrupted entry, 'gpustack repair-migration --apply' determines what it has done, 'gpustack undo' undoes it"
)

// remedyOf returns the remedy for a change of a kind.
func remedyOf(kind string) string {
	if kind == change.KindObjects {
		return "if 'gpustack history' shows an interrupted entry, the next gpustack command that changes objects of that cloud, such as flavor create, determines what it has done, 'gpustack undo' undoes it"
	}
	return remedyMachine
}

// beginRecorded does the same as begin for a change that the journal records.
func (p *progress) beginRecorded(remedy string) error {
	if err := p.begin(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remedy = remedy
	return nil
}

// end must be called after the last write if the run goes on to read or ask.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = p.changed || p.changing
	p.changing = false
}

// ask marks that a question waits for an answer. After a signal it returns an error, and no
// question may be asked.
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
// signal restore the former state. It returns the function that restores it after the answer.
// After a signal it changes nothing and returns an error: a signal that is already handled would
// not restore the state.
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

// answered marks that the question was answered.
func (p *progress) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = false
}

// interrupt handles the first signal. It returns whether a change is being made, so that the run
// must end in order; otherwise it may end immediately. It prints only to talk, because the command
// still uses u.out.
func (u *ui) interrupt() (changing bool) {
	changing, message := u.interruptedBy()
	if !changing {
		u.finishInterrupted(problem{Message: message})
	}
	return changing
}

// interruptedBy prints what the first signal does. It returns whether a change is being made, and
// else the error that the run ends with.
func (u *ui) interruptedBy() (changing bool, message string) {
	p := &u.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interrupted = true
	message = "interrupted"
	switch {
	case p.changed:
		message += ", nothing else was changed"
	case p.mayChange:
		message += ", nothing was changed"
	}
	text := "gpustack: error: " + message + "\n"
	if p.changing {
		text = "gpustack: interrupted: ending the running step; a second interrupt stops at once\n"
	}
	if p.asking {
		text = "\n" + text // below the question
	}
	if p.restore != nil {
		p.restore()
	}
	fmt.Fprint(u.talk, text) //nolint:errcheck // there is no other place to report it
	return p.changing, message
}

// stopped prints that a second signal has ended the run, probably in the middle of a step, and the
// remedy.
func (u *ui) stopped() {
	u.mu.Lock()
	message, remedy := "interrupted again, stopped at once", u.atRoot(u.remedy)
	fmt.Fprintf(u.talk, "gpustack: error: %s\ngpustack: hint: %s\n", message, remedy) //nolint:errcheck // there is no other place to report it
	u.mu.Unlock()
	u.finishInterrupted(problem{message, &remedy})
}

// settleSignal is how long an answer waits for a signal that was sent just before or after it: the
// kernel and the Go runtime deliver the two in any order.
const settleSignal = 100 * time.Millisecond

// settleSignals waits until a signal that was sent before has been handled, which ends the run. On
// a busy machine that takes longer than settleSignal. So it sends itself a signal that is handled
// after it: of several pending signals the one with the lowest number is delivered first (Linux,
// kernel/signal.c, next_signal), and SIGWINCH has the highest number of those that are caught.
func (u *ui) settleSignals() {
	select {
	case <-u.handled: // SIGWINCH of a resized window
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

// caughtUp signals settleSignals that all earlier signals have been handled.
func (u *ui) caughtUp() {
	select {
	case u.handled <- struct{}{}:
	default:
	}
}
