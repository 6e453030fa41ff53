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

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends what does not heed the first

	u := newUI(os.Stdin, os.Stdout, os.Stderr, os.Getenv)
	err := newApp(u, args).run(ctx)
	different := errors.Is(err, errDifferent)
	if different {
		err = nil
	}
	if err = errors.Join(err, u.out.Flush()); err != nil {
		u.fail(err)
		return 1
	}
	if different {
		return 2
	}
	return 0
}

// errDifferent is no failure: what was looked at is not as it should be, which the
// output has said.
var errDifferent = errors.New("different")
