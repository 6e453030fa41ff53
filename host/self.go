package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Errors of a process that did not end within its time.
var (
	// ErrTimeout says that it was killed.
	ErrTimeout = errors.New("did not return in time")
	// ErrStuck says that it could not even be killed: it is inside the kernel, which
	// does not return.
	ErrStuck = errors.New("the kernel does not return")
)

// killed is how long a process may take to go after it was killed.
const killed = time.Second

// RunSelf runs this very program with other arguments, as a process of its own, and
// returns what it wrote to standard output. One that is still there after timeout is
// killed; one that cannot be killed is left behind, and not waited for.
//
// It gets no environment, no terminal and no signal that is meant for us, and holds
// nothing of ours open.
func RunSelf(timeout time.Duration, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("/proc/self/exe", args...) //nolint:gosec // it is ourselves
	cmd.Args[0] = os.Args[0]
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting ourselves: %w", Cause(err))
	}
	ended := make(chan struct{})
	var err error
	go func() {
		err = cmd.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
			err = &ProgramError{cmd.Args, exit.String(), lines[len(lines)-1]}
		}
		return stdout.Bytes(), err
	case <-time.After(timeout):
	}
	cmd.Process.Kill() //nolint:errcheck // whether it goes is seen now
	select {
	case <-ended:
		return nil, fmt.Errorf("%w (%s)", ErrTimeout, timeout)
	case <-time.After(killed):
		return nil, fmt.Errorf("%w (%s)", ErrStuck, timeout)
	}
}
