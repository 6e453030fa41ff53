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
)

// A Request asks to run a program.
type Request struct {
	Argv  []string
	Stdin string
	// Stay leaves the program running in the background once it has printed a line.
	Stay bool
}

// A Reply says what came of a request.
type Reply struct {
	Stdout, Stderr string
	Status         int
	PID            int    // of a program that stays
	Err            string // why it could not be run
}

// A Message is what a machine sends: one of both.
type Message struct {
	Boot  string `json:",omitempty"` // the greeting: /proc/sys/kernel/random/boot_id
	Reply *Reply `json:",omitempty"`
}

// Serve greets and answers until the line is cut.
func Serve(line io.ReadWriter, boot string) error {
	to, from := json.NewEncoder(line), json.NewDecoder(line)
	if err := to.Encode(Message{Boot: boot}); err != nil {
		return err
	}
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
	if r.Stay {
		return stay(cmd)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return Reply{Err: err.Error()}
	}
	return Reply{Stdout: stdout.String(), Stderr: stderr.String(), Status: cmd.ProcessState.ExitCode()}
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
