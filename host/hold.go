package host

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Holding is a process of this program that holds something for this process.
type Holding struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ended chan struct{}
}

// HoldSelf runs this program in a new process, as [RunSelf] does, and returns the first line that
// the process writes to standard output. The process has to end when its standard input ends: that
// is at Release, or when this process ends. A process without a line is killed after timeout: the
// errors are ErrTimeout and ErrStuck.
func HoldSelf(timeout time.Duration, args ...string) (*Holding, string, error) {
	cmd := exec.Command("/proc/self/exe", args...) //nolint:gosec // this program itself
	cmd.Args[0] = os.Args[0]
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start gpustack as a new process: %w", Cause(err))
	}
	h := &Holding{cmd, stdin, make(chan struct{})}
	// A line, or "" at the end of the output: a process that ends has written what it will.
	first := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n') // an error ends the output too
		first <- line
		cmd.Wait() //nolint:errcheck // the line says whether the process holds it
		close(h.ended)
	}()
	failed := fmt.Errorf("%w (%s)", ErrTimeout, timeout)
	select {
	case line := <-first:
		if answer, whole := strings.CutSuffix(line, "\n"); whole {
			return h, answer, nil
		}
		failed = fmt.Errorf("%s: the process ended without an answer", cmd.Args[0])
	case <-time.After(timeout):
	}
	if err := h.Release(); err != nil {
		return nil, "", err
	}
	return nil, "", failed
}

// Release ends the process, and returns when it has ended, or ErrStuck. A second call does nothing.
func (h *Holding) Release() error {
	h.stdin.Close()      //nolint:errcheck // the process is killed too
	h.cmd.Process.Kill() //nolint:errcheck // the wait below shows whether it worked
	select {
	case <-h.ended:
		return nil
	case <-time.After(killed):
		return fmt.Errorf("%w for %s", ErrStuck, killed)
	}
}
