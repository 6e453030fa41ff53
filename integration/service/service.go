package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	// patience is how long a service may take to start or to stop. It is far more
	// than any needs: a test machine may be busy with other tests.
	patience = 6 * time.Minute
	// beat is the time between two questions whether something has come about.
	beat = 200 * time.Millisecond
)

// errEnded is a service that went by itself.
var errEnded = errors.New("has ended")

// A Service is a program that is started, asked until it serves, and stopped. Its
// methods are not for use by several goroutines at once.
type Service struct {
	Program
	Prepare func(context.Context) error // if any, comes before each start
	Ready   func(context.Context) error // asked until it returns nil

	proc *process
}

// Start starts the service and returns when it serves. It fails as soon as the
// program ends; after a failure nothing of it runs.
func (s *Service) Start(ctx context.Context) error {
	if s.Running() {
		return fmt.Errorf("%s: is running", s.Name)
	}
	if s.Prepare != nil {
		if err := s.Prepare(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	var err error
	if s.proc, err = s.launch(); err != nil {
		return err
	}
	err = Wait(ctx, func(ctx context.Context) (again bool, err error) {
		if !s.proc.running() {
			return false, errors.Join(errEnded, s.proc.err)
		}
		return true, s.Ready(ctx)
	})
	if err != nil {
		return errors.Join(s.Doing(err), s.proc.kill())
	}
	return nil
}

// Doing returns an error with the end of what the service has printed. A program in Python that
// runs prints its stacks first (stacks.py).
func (s *Service) Doing(err error) error {
	if s.Running() && s.proc.os.Signal(syscall.SIGUSR1) == nil {
		time.Sleep(time.Second) // a first process of a PID namespace ignores a signal that it does not handle
	}
	return s.proc.failure(err)
}

// Running says whether the program runs.
func (s *Service) Running() bool {
	return s.proc != nil && s.proc.running()
}

// Stop asks the program to end, kills it if it does not, and returns when it is
// gone. A service that does not run is left.
func (s *Service) Stop() error {
	if !s.Running() {
		return nil
	}
	if err := s.proc.os.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	select {
	case <-s.proc.done:
		return nil
	case <-time.After(patience):
		return errors.Join(s.proc.failure(errors.New("did not stop")), s.proc.kill())
	}
}

// Kill ends the program in the middle of what it does, with SIGKILL.
func (s *Service) Kill() error {
	if !s.Running() {
		return fmt.Errorf("%s: does not run", s.Name)
	}
	return s.proc.kill()
}

// Wait asks until there is no error, or none that time can heal, and returns the
// last one.
func Wait(ctx context.Context, ask func(context.Context) (again bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		again, err := ask(ctx)
		if err == nil || !again {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(beat):
		}
	}
}
