// Package agent is the talk between a test and the machine that it started: lines of
// JSON over a serial port. The machine greets first, whenever it has booted; then it
// answers one request after the other.
package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// A Request asks to run a program.
type Request struct {
	Argv  []string
	Stdin string
	User  uint32 // whom the program runs as
	// Stay leaves the program running in the background once it has printed a line.
	Stay bool
	// Kill has the program, and it alone, killed after that time, unless it has ended.
	Kill time.Duration
}

// A Reply says what came of a request.
type Reply struct {
	Stdout, Stderr string
	Status         int           // -1 where it was killed
	Took           time.Duration // from its start to its end
	PID            int           // of a program that stays
	Err            string        // why it could not be run
}

// A Message is what a machine sends: one of both.
type Message struct {
	Boot  string `json:",omitempty"` // the greeting: /proc/sys/kernel/random/boot_id
	Reply *Reply `json:",omitempty"`
}

// Nudge writes white space, which both ends pass over, to a line from time to time, until stop is
// called. It keeps a serial port going that has lost an interrupt.
func Nudge(line io.Writer) (stop func()) {
	return nudge(line, 5*time.Second)
}

func nudge(line io.Writer, every time.Duration) (stop func()) {
	ticker, ended := time.NewTicker(every), make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				_, _ = line.Write([]byte("\n")) // a line that is cut shows to its reader
			case <-ended:
				return
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(ended)
	}
}

// Serve greets and answers until the line is cut.
func Serve(line io.ReadWriter, boot string) error {
	to, from := json.NewEncoder(line), json.NewDecoder(line)
	if err := to.Encode(Message{Boot: boot}); err != nil {
		return err
	}
	defer Nudge(line)()
	for {
		var request Request
		if err := from.Decode(&request); err != nil {
			return err
		}
		reply := serve(request)
		if err := to.Encode(Message{Reply: &reply}); err != nil {
			return err
		}
	}
}

func serve(r Request) Reply {
	if len(r.Argv) == 0 {
		return Reply{Err: "no program is named"}
	}
	cmd := exec.Command(r.Argv[0], r.Argv[1:]...)
	cmd.Stdin = strings.NewReader(r.Stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: r.User, Gid: r.User}}
	if r.Stay {
		return stay(cmd)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begin := time.Now()
	err := cmd.Start()
	if err == nil {
		err = wait(cmd, r.Kill)
	}
	took := time.Since(begin)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Reply{Err: err.Error()}
	}
	return Reply{Stdout: stdout.String(), Stderr: stderr.String(), Status: cmd.ProcessState.ExitCode(), Took: took}
}

// errImmortal means that a program was killed but does not end: it is stuck in the kernel.
var errImmortal = errors.New("it was killed, and does not go")

// wait waits for a program's end, and kills it after a time unless that is 0.
func wait(cmd *exec.Cmd, kill time.Duration) error {
	const grace = 10 * time.Second
	if kill == 0 {
		return cmd.Wait()
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(kill):
	}
	_ = cmd.Process.Kill() // it may have ended meanwhile, which its status tells
	select {
	case err := <-ended:
		return err
	case <-time.After(grace):
		return errImmortal
	}
}

// stay waits for a program's first line and leaves it running.
func stay(cmd *exec.Cmd) Reply {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return Reply{Err: err.Error()}
	}
	first, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil { // it has ended
		_ = cmd.Wait() // the status tells
		return Reply{Stdout: first, Stderr: stderr.String(), Status: cmd.ProcessState.ExitCode()}
	}
	go func() { _ = cmd.Wait() }() // so that it leaves no trace once it ends
	return Reply{Stdout: first, PID: cmd.Process.Pid}
}
