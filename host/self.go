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

// Errors of [RunSelf]. Its callers run it to write to sysfs, which their texts name.
var (
	// ErrTimeout is the error of a process that was killed after its timeout.
	ErrTimeout = WithHint(errors.New("the write did not finish in time"),
		"raise --timeout; the kernel log may say why: journalctl -k")
	// ErrStuck is the error of a process that could not be killed: it is in uninterruptible
	// sleep inside the kernel, and only a reboot ends it.
	ErrStuck = WithHint(errors.New("the write is stuck in the kernel (uninterruptible sleep)"),
		"reboot the machine; until then do not use, bind or unbind the device")
)

// killed is the time that a killed process gets to end.
const killed = time.Second

// RunSelf runs this program in a new process with other arguments, and returns what the process
// wrote to standard output. A process that exceeds timeout is killed (ErrTimeout). A process
// that cannot be killed is left running (ErrStuck).
//
// The process has an empty environment, a session of its own without a terminal, and none of
// this process's open files.
func RunSelf(timeout time.Duration, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("/proc/self/exe", args...) //nolint:gosec // this program itself
	cmd.Args[0] = os.Args[0]
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start gpustack as a new process: %w", Cause(err))
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
			err = &ProgramError{cmd.Args, exit.String(), lines[len(lines)-1], stderr.String()}
		}
		return stdout.Bytes(), err
	case <-time.After(timeout):
	}
	cmd.Process.Kill() //nolint:errcheck // the wait below shows whether it worked
	select {
	case <-ended:
		return nil, fmt.Errorf("%w (%s)", ErrTimeout, timeout)
	case <-time.After(killed):
		return nil, fmt.Errorf("%w for %s", ErrStuck, timeout)
	}
}
