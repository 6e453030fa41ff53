package term

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// errDeclined says that the operator has answered no. It is no error: u.Fail prints it as it is.
var errDeclined = errors.New("nothing was changed")

// Confirm asks whether to go on. Without a terminal, and where the plan is printed as JSON or YAML,
// it returns an error: --yes is required there. While it waits for the answer, a signal ends the
// run.
func (u *UI) Confirm(question string) error {
	switch {
	case !u.answers:
		return unconfirmed("there is no terminal to ask on")
	case u.Document.Requested():
		return unconfirmed("with -o " + u.Document.Format + " no question is asked")
	}
	if err := u.Out.Flush(); err != nil {
		return err
	}
	if u.Direct.closed {
		return unconfirmed("the plan cannot be shown: standard output is closed")
	}
	u.Status.Clear()
	u.Run.End()
	if !u.Run.ask(true) {
		return interrupted{}
	}
	defer u.Run.ask(false)
	// The answers, and what each means.
	keys, meanings := "[y/n/?]", "gpustack: y: apply the plan and record it\ngpustack: n, Ctrl-D: change nothing\n"
	if u.InFull != nil {
		keys, meanings = "[y/n/d/?]", meanings+"gpustack: d: show the plan in full, each file as a diff\n"
	}
	for {
		answer, err := u.ask(question + " " + keys + " ")
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case err == nil && (answer == "y" || answer == "yes"):
			return nil
		case err != nil, answer == "", answer == "n", answer == "no":
			return host.WithCode(errDeclined, host.CodeUnconfirmed, "--yes")
		case u.InFull != nil && answer == "d":
			u.InFull()
			if err := u.Out.Flush(); err != nil {
				return err
			}
		default:
			fmt.Fprint(u.Talk, meanings) //nolint:errcheck // there is no other place to report it
		}
	}
}

// ask asks once and returns the word that is answered.
func (u *UI) ask(question string) (answer string, err error) {
	// Input typed before the question is not an answer to it (tcflush(3)).
	if err := unix.IoctlSetInt(int(u.In.Fd()), unix.TCFLSH, unix.TCIFLUSH); err != nil {
		return "", fmt.Errorf("discard what was typed before the question: %w", err)
	}
	fmt.Fprintf(u.Talk, "gpustack: %s", Printable(question)) //nolint:errcheck // there is no other place to report it
	answer, err = bufio.NewReader(u.In).ReadString('\n')     // a terminal returns one line at a time
	u.Run.settleSignals()                                    // Ctrl-C before or with the answer; a lost terminal ends the input and sends SIGHUP
	if !strings.HasSuffix(answer, "\n") {
		fmt.Fprintln(u.Talk) //nolint:errcheck // there is no other place to report it
	}
	return strings.ToLower(strings.TrimSpace(answer)), err
}

// unconfirmed returns the refusal of a change that the operator has not confirmed.
func unconfirmed(why string) error {
	err := host.WithHint(errors.New("nothing was changed: "+why), "--yes continues without asking, --dry-run stops after the plan")
	return host.WithCode(err, host.CodeUnconfirmed, "--yes")
}
