package term

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"gpustack/host"

	"golang.org/x/sys/unix"
)

// interrupted is the type of the error that [Interrupted] returns.
type interrupted struct{}

func (interrupted) Error() string { return "interrupted" }

// Is reports that it is a context.Canceled, which HTTP and database clients return.
func (interrupted) Is(target error) bool { return target == context.Canceled }

// Interrupted returns the cause of a context that SIGINT, SIGTERM or SIGHUP has ended. Engines wrap
// it, through context.Cause, to name the changes that were kept and rolled back; main turns every
// error of such a run into exit status 130.
func Interrupted() error { return interrupted{} }

// Stopping is the maximum time for a run to end after a second signal.
const Stopping = time.Second

// Run is the progress of a run. A signal ends the run immediately unless a change is being made;
// then it cancels the context, and the command completes its current step and rolls back.
type Run struct {
	Stop    chan struct{} // closed by a second signal, which ends running programs too
	handled chan struct{} // see settleSignals

	mu          sync.Mutex
	interrupted bool
	mayChange   bool // the command may change something
	asking      bool // a question waits for an answer
	changing    bool
	changed     bool // an ended part of the run has changed something
	// remedy is what an operator can do if the change is stopped immediately.
	remedy host.Text
}

// MayChange records that the command may change something.
func (r *Run) MayChange() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mayChange = true
}

// remedyUnrecorded is the remedy for a change that a second signal has stopped before its entry in
// the journal was written.
const remedyUnrecorded = "the running step may have been carried out: check before you run the command again"

// Begin must be called before the first write. After a signal it returns an error, and no change
// may be made. remedy is what an operator can do if a second signal stops a change that the journal
// records, or whose rest can be found otherwise; nil for another change.
func (r *Run) Begin(remedy host.Text) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.interrupted {
		return interrupted{}
	}
	if r.changing, r.remedy = true, remedy; remedy == nil {
		r.remedy = host.Plain(remedyUnrecorded)
	}
	// From here on the run changes files on one thread only, so that a test can stop it at each step
	// (strace counts the system calls of each thread).
	runtime.LockOSThread()
	return nil
}

// End must be called after the last write if the run goes on to read or ask.
func (r *Run) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = r.changed || r.changing
	r.changing = false
}

// ask marks whether a question waits for an answer. After a signal it returns false, and no question
// may be asked.
func (r *Run) ask(waits bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking = waits && !r.interrupted
	return !r.interrupted
}

// Interrupt handles the first signal and prints to talk what it does: data may still be being
// printed. It returns whether a change is being made, so that the run must end in order; otherwise
// it may end immediately, with message as its error.
func (r *Run) Interrupt(talk io.Writer) (changing bool, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.interrupted = true
	message = "interrupted"
	switch {
	case r.changed:
		message += ", nothing else was changed"
	case r.mayChange:
		message += ", nothing was changed"
	}
	text := "gpustack: error: " + message + "\n"
	if r.changing {
		text = "gpustack: interrupted: ending the running step; a second interrupt stops at once\n"
	}
	if r.asking {
		text = "\n" + text // below the question
	}
	fmt.Fprint(talk, text) //nolint:errcheck // there is no other place to report it
	return r.changing, message
}

// Remedy returns what an operator can do if the change that is being made is stopped immediately.
func (r *Run) Remedy() host.Text {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.remedy
}

// settleSignal is how long an answer waits for a signal that was sent just before or after it: the
// kernel and the Go runtime deliver the two in any order.
const settleSignal = 100 * time.Millisecond

// settleSignals waits until a signal that was sent before has been handled, which ends the run. On
// a busy machine that takes longer than settleSignal. So it sends itself a signal that is handled
// after it: of several pending signals the one with the lowest number is delivered first (Linux,
// kernel/signal.c, next_signal), and SIGWINCH has the highest number of those that are caught.
func (r *Run) settleSignals() {
	select {
	case <-r.handled: // SIGWINCH of a resized window
	default:
	}
	if unix.Kill(os.Getpid(), unix.SIGWINCH) == nil {
		select {
		case <-r.handled:
		case <-time.After(time.Second):
		}
	}
	time.Sleep(settleSignal)
}

// CaughtUp signals settleSignals that all earlier signals have been handled.
func (r *Run) CaughtUp() {
	select {
	case r.handled <- struct{}{}:
	default:
	}
}
