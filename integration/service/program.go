package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// A Program is what there is to know to start one.
type Program struct {
	Name string   // for messages
	Argv []string // the program and its arguments
	Env  []string // the whole environment: nothing of the caller's is handed on
	Log  string   // the file that gets what it prints, after what is there
	// Files are what it inherits beside that, from descriptor 3 on.
	Files []*os.File
}

// Run runs the program to its end, which must be a good one.
func (p Program) Run(ctx context.Context) error {
	proc, err := p.launch()
	if err != nil {
		return err
	}
	select {
	case <-proc.done:
	case <-ctx.Done():
		proc.kill()
		return fmt.Errorf("%s: %w", p.Name, context.Cause(ctx))
	}
	if proc.err != nil {
		return proc.failure(proc.err)
	}
	return nil
}

// A process is a program that was started. Its err may be read once done is closed.
type process struct {
	Program
	os   *os.Process
	from int64 // where in the log its own lines begin
	done chan struct{}
	err  error
}

// launch starts the program. The kernel sends the death signal when the thread that
// started the program ends, not only when the whole process does (PR_SET_PDEATHSIG
// in prctl(2)), so that one thread stays with each program for as long as it runs.
func (p Program) launch() (*process, error) {
	log, err := os.OpenFile(p.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	defer log.Close()
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	proc := &process{Program: p, from: from, done: make(chan struct{})}
	cmd := exec.Command(p.Argv[0], p.Argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = p.Env, log, log, p.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			proc.err = cmd.Wait()
			close(proc.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%s: %w", p.Name, err)
	}
	proc.os = cmd.Process
	return proc, nil
}

// running says whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends the process and all that it started, and returns when they are gone.
func (p *process) kill() error {
	if err := p.os.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	<-p.done
	return nil
}

// failure is an error with the end of what the process printed.
func (p *process) failure(err error) error {
	const lines = 80
	log, readErr := os.ReadFile(p.Log)
	if readErr != nil {
		return fmt.Errorf("%s: %w (and %w)", p.Name, err, readErr)
	}
	own := bytes.TrimSpace(log[min(p.from, int64(len(log))):])
	all := strings.Split(string(own), "\n")
	return fmt.Errorf("%s: %w; the end of %s:\n%s", p.Name, err, p.Log, strings.Join(all[max(0, len(all)-lines):], "\n"))
}
