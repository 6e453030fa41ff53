package term

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// Asker asks questions on the terminal of a run.
type Asker struct {
	in      *os.File
	talk    io.Writer     // of questions
	out     *bufio.Writer // of what they are about, which is shown before
	run     *Run
	closed  func() bool // the reader of standard output has closed it
	answers bool        // questions can be answered
	status  *Status
	// Diff prints the plan in full; nil where a question has no plan.
	Diff func()
}

// errDeclined says that the operator has answered no. It is no error: u.Fail prints it as it is.
var errDeclined = errors.New("nothing was changed")

// keys are the answers to a question, and what each means.
const keys = "gpustack: y: apply the plan and record it\ngpustack: n, Ctrl-D: change nothing\n"

// Confirm asks whether to go on. Without a terminal, and where the plan is printed as JSON or YAML,
// it returns an error: --yes is required there. While it waits for the answer, a signal ends the
// run.
func (a Asker) Confirm(question, format string) error {
	const hint = "--yes continues without asking, --dry-run stops after the plan"
	switch {
	case !a.answers:
		return unconfirmed("nothing was changed: there is no terminal to ask on", hint)
	case format != FormatTable:
		return unconfirmed("nothing was changed: with -o "+format+" no question is asked", hint)
	}
	if err := a.out.Flush(); err != nil {
		return err
	}
	if a.closed() {
		return unconfirmed("nothing was changed: the plan cannot be shown: standard output is closed", hint)
	}
	a.status.Clear()
	a.run.End()
	if err := a.run.ask(); err != nil {
		return err
	}
	defer a.run.answered()
	for {
		answer, err := a.ask(question)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case err == nil && (answer == "y" || answer == "yes"):
			return nil
		case err != nil, answer == "", answer == "n", answer == "no":
			return host.WithCode(errDeclined, host.CodeUnconfirmed, "--yes")
		case a.Diff != nil && answer == "d":
			a.Diff()
			if err := a.out.Flush(); err != nil {
				return err
			}
		case a.Diff != nil:
			fmt.Fprint(a.talk, keys+"gpustack: d: show the plan in full, each file as a diff\n") //nolint:errcheck // there is no other place to report it
		default:
			fmt.Fprint(a.talk, keys) //nolint:errcheck // there is no other place to report it
		}
	}
}

// ask asks once and returns the word that is answered.
func (a Asker) ask(question string) (answer string, err error) {
	// Input typed before the question is not an answer to it (tcflush(3)).
	if err := unix.IoctlSetInt(int(a.in.Fd()), unix.TCFLSH, unix.TCIFLUSH); err != nil {
		return "", fmt.Errorf("discard what was typed before the question: %w", err)
	}
	choices := "[y/n/?]"
	if a.Diff != nil {
		choices = "[y/n/d/?]"
	}
	fmt.Fprintf(a.talk, "gpustack: %s %s ", Printable(question), choices) //nolint:errcheck // there is no other place to report it
	answer, err = readAnswer(a.in, a.run)
	if err != nil {
		a.run.settleSignals() // a lost terminal ends the input and sends SIGHUP
	}
	if !strings.HasSuffix(answer, "\n") {
		fmt.Fprintln(a.talk) //nolint:errcheck // there is no other place to report it
	}
	return strings.ToLower(strings.TrimSpace(answer)), err
}

// unconfirmed returns the refusal of a change that the operator has not confirmed.
func unconfirmed(problem, hint string) error {
	return host.WithCode(host.WithHint(errors.New(problem), hint), host.CodeUnconfirmed, "--yes")
}

// readAnswer reads a line from the terminal. Ctrl-C is read in its order among the typed
// characters: as a signal it could arrive after a y that was typed later. The terminal passes it
// as a character that ends the line (termios(3): ISIG, VINTR, VEOL), and readAnswer turns it into
// the signal.
func readAnswer(in *os.File, run *Run) (string, error) {
	fd := int(in.Fd())
	modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return "", fmt.Errorf("read the terminal's settings: %w", err)
	}
	asking := *modes
	asking.Lflag &^= unix.ISIG
	asking.Cc[unix.VEOL] = modes.Cc[unix.VINTR]
	restore, err := run.change(func() error {
		if err := unix.IoctlSetTermios(fd, unix.TCSETS, &asking); err != nil {
			return fmt.Errorf("change the terminal's settings: %w", err)
		}
		return nil
	}, func() { unix.IoctlSetTermios(fd, unix.TCSETS, modes) }) //nolint:errcheck // the terminal may be gone
	if err != nil {
		return "", err
	}
	defer restore()
	var line []byte
	for b := make([]byte, 1); !bytes.HasSuffix(line, []byte("\n")); line = append(line, b[0]) {
		n, err := in.Read(b)
		switch {
		case n == 0 || err != nil:
			return string(line), cmp.Or(err, io.EOF)
		case b[0] == modes.Cc[unix.VINTR] && b[0] != 0:
			restore()
			return "", interruptHere()
		}
	}
	restore()
	run.settleSignals()
	// Input typed together with the answer remains as a separate line.
	left, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil || left == 0 {
		return string(line), err
	}
	more := make([]byte, left)
	if n, err := in.Read(more); err != nil || bytes.IndexByte(more[:n], modes.Cc[unix.VINTR]) >= 0 {
		return "", cmp.Or(err, interruptHere())
	}
	return string(line), nil
}

// interruptHere sends the signal of a Ctrl-C that was read as a character, which ends the run.
func interruptHere() error {
	if err := unix.Kill(os.Getpid(), unix.SIGINT); err != nil {
		return err
	}
	select {}
}
