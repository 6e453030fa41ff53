package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"gopkg.in/yaml.v3"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
)

// ui prints all output. Data is written to out, messages to talk.
type ui struct {
	out      *bufio.Writer
	stdout   *output // the file that out writes to
	talk     io.Writer
	in       *os.File
	terminal bool // out is a terminal
	width    int  // of the terminal, in characters; 0 for none, or if it is unknown
	asks     bool // questions can be answered
	quiet    bool // --quiet was given: what programs print and what is waited for is not shown
	colour   bool
	unicode  bool
	root     string        // the value of --root, or ""
	argv     []string      // of the command line, without the name of the program
	stop     chan struct{} // closed by a second signal, which ends running programs too
	handled  chan struct{} // see settleSignals
	written  chan struct{} // closed when the document is printed
	format   string        // of the output, as the command line requests it
	document any           // see show
	progress
}

func newUI(stdin, stdout, stderr *os.File, getenv func(string) string) *ui {
	terminal := term.IsTerminal(int(stdout.Fd()))
	output := &output{file: stdout}
	return &ui{
		out:      bufio.NewWriterSize(output, 1<<16),
		stdout:   output,
		talk:     stderr,
		in:       stdin,
		terminal: terminal,
		width:    widthOf(stdout),
		asks:     term.IsTerminal(int(stdin.Fd())) && term.IsTerminal(int(stderr.Fd())),
		colour:   terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb",
		unicode:  isUTF8(getenv),
		stop:     make(chan struct{}),
		handled:  make(chan struct{}, 1),
		written:  make(chan struct{}),
	}
}

// widthOf returns the width of a terminal (ioctl_tty(2), TIOCGWINSZ), or 0 for another file and for
// a terminal that does not know it, such as a serial console.
func widthOf(f *os.File) int {
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// output is standard output. Once its reader has closed it, data is discarded without an error:
// head(1) has read what it needs, and a change must not be interrupted because tee(1) has ended.
type output struct {
	file   io.Writer
	closed bool // the reader has closed it
}

func (o *output) Write(data []byte) (int, error) {
	n, err := o.file.Write(data)
	if errors.Is(err, unix.EPIPE) {
		o.closed = true
		return len(data), nil
	}
	return n, err
}

// isUTF8 reports whether the locale uses UTF-8, according to the first locale variable that is set
// (locale(7)).
func isUTF8(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToUpper(getenv(name)); value != "" {
			return strings.HasSuffix(value, "UTF-8") || strings.HasSuffix(value, "UTF8")
		}
	}
	return false
}

// printf prints data. An error is returned when the output is flushed at the end.
func (u *ui) printf(format string, args ...any) {
	fmt.Fprintf(u.out, format, args...) //nolint:errcheck // the writer keeps the error
}

// warn prints warnings.
func (u *ui) warn(warnings ...string) {
	u.catchUp()
	for _, w := range warnings {
		fmt.Fprintf(u.talk, "gpustack: warning: %s\n", printable(u.atRoot(w))) //nolint:errcheck // there is no other place to report it
	}
}

// catchUp flushes data, so that it is printed before the messages that follow. An error is
// returned at the end.
func (u *ui) catchUp() {
	u.out.Flush() //nolint:errcheck // the writer keeps the error
}

// rooted matches the commands about a machine. Others that have --root are about a cloud.
var rooted = host.LazyRegexp(`\bgpustack (host (scan|check|prepare|bind|release|guests|snapshot)|nova (check|configure)|rdma (scan|check|prepare|test)|container (check|prepare)|repair-migration|history|undo)\b`)

// atRoot adds --root to the commands in hints, remedies and messages, one a line: they are for the
// same machine, and without --root they would look at this one, or change it. Lines that have it
// remain as they are, and so do those about documents, which come from other machines, and help.
func (u *ui) atRoot(text string) string {
	if u.root == "" || u.root == "/" {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !slices.ContainsFunc([]string{" --root ", " -o json", " --help"}, func(s string) bool { return strings.Contains(line, s) }) {
			lines[i] = rooted().ReplaceAllStringFunc(line, func(command string) string { return command + " --root " + shellWord(u.root) })
		}
	}
	return strings.Join(lines, "\n")
}

// note prints a message about what was done.
func (u *ui) note(format string, args ...any) {
	u.catchUp()
	fmt.Fprintf(u.talk, "gpustack: "+format+"\n", args...) //nolint:errcheck // there is no other place to report it
}

// waits prints a message about what is waited for, unless --quiet is given.
func (u *ui) waits(format string, args ...any) {
	if !u.quiet {
		u.note(format, args...)
	}
}

// confirm asks whether to go on. Without a terminal, and where the plan is printed as JSON or YAML,
// it returns an error: --yes is required there. While it waits for the answer, a signal ends the
// run.
func (u *ui) confirm(question, format string) error {
	const hint = "--yes continues without asking, --dry-run stops after the plan"
	switch {
	case !u.asks:
		return unconfirmed("nothing was changed: there is no terminal to ask on", hint)
	case format != formatTable:
		return unconfirmed("nothing was changed: with -o "+format+" no question is asked", hint)
	}
	if err := u.out.Flush(); err != nil {
		return err
	}
	if u.stdout.closed {
		return unconfirmed("nothing was changed: the plan cannot be shown: standard output is closed", hint)
	}
	u.end()
	if err := u.ask(); err != nil {
		return err
	}
	defer u.answered()
	// Input typed before the question is not an answer to it (tcflush(3)).
	if err := unix.IoctlSetInt(int(u.in.Fd()), unix.TCFLSH, unix.TCIFLUSH); err != nil {
		return fmt.Errorf("discard what was typed before the question: %w", err)
	}
	fmt.Fprintf(u.talk, "gpustack: %s [y/N] ", question) //nolint:errcheck // there is no other place to report it
	answer, err := u.readAnswer()
	if err != nil {
		u.settleSignals() // a lost terminal ends the input and sends SIGHUP
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !strings.HasSuffix(answer, "\n") {
		fmt.Fprintln(u.talk) //nolint:errcheck // there is no other place to report it
	}
	if word := strings.ToLower(strings.TrimSpace(answer)); err != nil || word != "y" && word != "yes" {
		return unconfirmed("nothing was changed", "")
	}
	return nil
}

// unconfirmed returns the refusal of a change that the operator has not confirmed.
func unconfirmed(problem, hint string) error {
	return host.WithCode(&usageError{problem, hint}, host.CodeUnconfirmed, "--yes")
}

// readAnswer reads a line from the terminal. Ctrl-C is read in its order among the typed
// characters: as a signal it could arrive after a y that was typed later. The terminal passes it
// as a character that ends the line (termios(3): ISIG, VINTR, VEOL), and readAnswer turns it into
// the signal.
func (u *ui) readAnswer() (string, error) {
	fd := int(u.in.Fd())
	modes, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return "", fmt.Errorf("read the terminal's settings: %w", err)
	}
	asking := *modes
	asking.Lflag &^= unix.ISIG
	asking.Cc[unix.VEOL] = modes.Cc[unix.VINTR]
	restore, err := u.change(func() error {
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
		n, err := u.in.Read(b)
		switch {
		case n == 0 || err != nil:
			return string(line), cmp.Or(err, io.EOF)
		case b[0] == modes.Cc[unix.VINTR] && b[0] != 0:
			restore()
			return "", interruptHere()
		}
	}
	restore()
	u.settleSignals()
	// Input typed together with the answer remains as a separate line.
	left, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	if err != nil || left == 0 {
		return string(line), err
	}
	more := make([]byte, left)
	if n, err := u.in.Read(more); err != nil || bytes.IndexByte(more[:n], modes.Cc[unix.VINTR]) >= 0 {
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

// fail prints all parts of an error, and its hints.
func (u *ui) fail(err error) {
	u.catchUp()
	for _, err := range split(err) {
		fmt.Fprintf(u.talk, "gpustack: error: %s\n", printable(err.Error())) //nolint:errcheck // there is no other place to report it
	}
	for _, h := range slices.Compact(hints(err)) {
		fmt.Fprintf(u.talk, "gpustack: hint: %s\n", printable(u.atRoot(h))) //nolint:errcheck // there is no other place to report it
	}
}

// split returns the parts of joined errors.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, split(e)...)
		}
		return all
	}
	return []error{err}
}

// hint returns the hint of an error, or "".
func hint(err error) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	if errors.Is(err, fs.ErrPermission) {
		return "run gpustack as root"
	}
	return ""
}

// printDiffs prints changes of files with added and removed lines in colour. Removed files and
// gpustack's own records are only named: the other formats contain their content.
func printDiffs(u *ui, changes []fileChange) {
	for _, c := range changes {
		if c.Action != edit.Delete && !strings.HasPrefix(c.File, change.Dir) {
			u.diff(c)
		}
	}
	var named strings.Builder
	for _, c := range changes {
		switch {
		case c.Action == edit.Delete:
			fmt.Fprintf(&named, "removes %s\n", printable(c.File))
		case strings.HasPrefix(c.File, change.Dir):
			fmt.Fprintf(&named, "records this in %s\n", printable(c.File))
		}
	}
	if named.Len() > 0 {
		u.printf("\n%s", named.String())
	}
}

func (u *ui) diff(c fileChange) {
	u.printf("\n")
	for line := range strings.Lines(c.Diff) {
		line = printable(strings.TrimSuffix(line, "\n"))
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"):
			line = u.paint(bold, line)
		case strings.HasPrefix(line, "+"):
			line = u.paint(green, line)
		case strings.HasPrefix(line, "-"):
			line = u.paint(red, line)
		}
		u.printf("%s\n", line)
	}
}

// plainStyle removes JSON's braces and quotes, except those of empty lists and of strings that
// a parser may read as another type: parsers of YAML 1.1, such as Python's, read 0000:24:00.0 as
// a number in base 60.
func plainStyle(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		return n.Encode(n.Value)
	}
	if len(n.Content) > 0 {
		n.Style = 0
	}
	var errs []error
	for _, child := range n.Content {
		errs = append(errs, plainStyle(child))
	}
	return errors.Join(errs...)
}

// SGR codes (ECMA-48).
const (
	bold  = "1"
	red   = "31"
	green = "32"
)

func (u *ui) paint(code, text string) string {
	if !u.colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// lines are the characters that draw trees and brackets.
type lines struct {
	tee, corner, pass, none    string // a tree's branch, last branch, passing trunk, nothing
	top, middle, bottom, alone string // a bracket's parts
}

func (u *ui) lines() lines {
	if u.unicode {
		return lines{"├─ ", "└─ ", "│  ", "   ", "┌ ", "│ ", "└ ", "  "}
	}
	return lines{"|- ", "`- ", "|  ", "   ", "/ ", "| ", "\\ ", "  "}
}

// printable replaces control characters, which a terminal would execute: names and values may
// come from an archive that another user has made.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) || r == '\n' || r == '\t' {
			return r
		}
		return '?'
	}, s)
}

func quoted(s string) string {
	return strconv.Quote(s)
}
