// Command gpustack configures GPU passthrough for OpenStack Nova on bare-metal hosts: it shows
// every change before it is made, applies it, verifies it and can undo it. See README.md and
// gpustack --help.
//
// newApp (app.go) lists the commands; a file cmd_NAME.go parses one or a few, calls the packages that
// decide, and prints. Nothing here decides about a machine, a cloud or a database.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
)

func main() {
	os.Exit(run(os.Args))
}

// run runs the program for one command line. Only run turns errors into exit statuses.
func run(args []string) int {
	// Most commands end before the first collection would be worth its time.
	debug.SetGCPercent(400)

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGWINCH)
	if !signal.Ignored(syscall.SIGHUP) { // nohup(1) ignores it
		signal.Notify(signals, syscall.SIGHUP)
	}
	// Unless SIGPIPE is handled, a write to a closed standard output or standard error ends the
	// run (os/signal), in the middle of a change too. Programs that gpustack starts would inherit
	// an ignored SIGPIPE, but not a handled one (execve(2)).
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)

	u := term.New(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	ended := make(chan result, 1)
	a := newApp(u, args)
	remove, err := a.unpack()
	defer remove() // however the run ends
	go func() { ended <- execute(ctx, u, a, err) }()
	r, ok := wait(u, ended, signals, cancel)
	if !ok {
		return exitInterrupted
	}
	interrupted := ctx.Err() != nil
	switch {
	case r.err != nil:
		u.Fail(r.err)
	case interrupted:
		u.Note("the running step was the last: everything is done")
	}
	switch {
	case r.err != nil && interrupted:
		return exitInterrupted
	case r.err != nil:
		return 1
	case r.different:
		return 2
	}
	return 0
}

// wait waits for the result of a run. The first signal ends the run immediately, without a result,
// unless a change is being made: then it cancels the context of the run. The second SIGINT or
// SIGTERM ends such a run after at most the [term.Stopping]. SIGHUP does not count as a second
// signal: a lost terminal may send it several times (bash(1), credentials(7)).
func wait(u *term.UI, ended <-chan result, signals <-chan os.Signal, cancel context.CancelCauseFunc) (r result, ok bool) {
	first := true
	for interrupts := 0; interrupts < 2; {
		select {
		case r := <-ended:
			return r, true
		case s := <-signals:
			if s == syscall.SIGWINCH {
				u.Run.CaughtUp()
				continue
			}
			// While nothing is being changed, the run ends without waiting for an answer to a
			// question, for a service, or for a read that hangs in the kernel.
			if first && !interrupt(u) {
				return result{}, false
			}
			first = false
			cancel(term.Interrupted())
			if s != syscall.SIGHUP {
				interrupts++
			}
		}
	}
	close(u.Run.Stop)
	select {
	case r := <-ended:
		return r, true
	case <-time.After(term.Stopping):
		stopped(u)
		return result{}, false
	}
}

// interrupt handles the first signal. It returns whether a change is being made, so that the run
// must end in order; otherwise it may end immediately.
func interrupt(u *term.UI) (changing bool) {
	u.Status.Clear()
	changing, message := u.Run.Interrupt(u.Talk)
	if !changing {
		u.Abort(views.Failure{Schema: 1, Errors: []views.Problem{{Message: message}}})
	}
	return changing
}

// stopped prints that a second signal has ended the run, probably in the middle of a step, and the
// remedy.
func stopped(u *term.UI) {
	message, remedy := "interrupted again, stopped at once", u.Run.Remedy()
	fmt.Fprintf(u.Talk, "gpustack: error: %s\ngpustack: hint: %s\n", message, term.Plain(u, remedy)) //nolint:errcheck // there is no other place to report it
	u.Abort(views.Failure{Schema: 1, Errors: []views.Problem{{Message: message, Remedy: views.Remedy{Hint: remedy}}}})
}

// exitInterrupted is the exit status of a run that SIGINT, SIGTERM or SIGHUP has ended: 128+2, as
// shells report SIGINT.
const exitInterrupted = 130

// result is the outcome of a run.
type result struct {
	different bool // see errDifferent
	err       error
}

// execute runs the command, unless err has ended it before, and prints its data.
func execute(ctx context.Context, u *term.UI, a app, err error) result {
	if err == nil {
		err = a.run(ctx)
	}
	different := errors.Is(err, errDifferent)
	if different {
		err = nil
	}
	return result{different, errors.Join(err, finish(u, err))}
}

// finish prints the document of a run that ends with err, and all data that is not yet printed.
func finish(u *term.UI, err error) error {
	if err == nil {
		return u.Finish(nil)
	}
	f := views.NewFailure(err)
	for i := range f.Errors {
		f.Errors[i].Message = u.Named(f.Errors[i].Message)
	}
	return u.Finish(f)
}

// errDifferent maps to exit status 2 (pending changes or failed checks). The output has already
// named them.
var errDifferent = errors.New("different")
