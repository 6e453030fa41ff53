// Command gpustack takes a bare GPU server to GPU instances booting under
// OpenStack Nova, and back again. See README.md and gpustack --help.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

// version is set by the linker (see Makefile).
var version = "unreleased"

func main() {
	os.Exit(run(os.Args))
}

// run is the whole program, and the only place that turns an error into an exit
// status.
func run(args []string) int {
	// Most commands end before the first collection would be worth its time.
	debug.SetGCPercent(400)

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)

	u := newUI(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	ended := make(chan result, 1)
	go func() { ended <- execute(ctx, u, args) }()
	var r result
	select {
	case r = <-ended:
	case <-signals:
		// While nothing is being changed, nothing has to be waited for: neither an answer
		// to a question, nor a service, nor a file that the kernel does not return.
		if !u.interrupt() {
			return exitInterrupted
		}
		cancel(interruptedError{})
		select {
		case r = <-ended:
		case <-signals:
			close(u.stop)
			select {
			case r = <-ended:
			case <-time.After(stopping):
				u.stopped()
				return exitInterrupted
			}
		}
	}
	if r.err != nil {
		u.fail(r.err)
	}
	switch {
	case r.err != nil && ctx.Err() != nil:
		return exitInterrupted
	case r.err != nil:
		return 1
	case r.different:
		return 2
	}
	return 0
}

// exitInterrupted is the exit status of a run that a signal has ended, as shells have it for
// SIGINT: 128+2.
const exitInterrupted = 130

// stopping is how long a run has to end after a second signal.
const stopping = time.Second

// result is what became of a run.
type result struct {
	different bool // see errDifferent
	err       error
}

// execute runs the command and prints all of its output.
func execute(ctx context.Context, u *ui, args []string) result {
	err := newApp(u, args).run(ctx)
	different := errors.Is(err, errDifferent)
	if different {
		err = nil
	}
	return result{different, errors.Join(err, u.out.Flush())}
}

// errDifferent is no failure: what was looked at is not as it should be, which the
// output has said.
var errDifferent = errors.New("different")
