// Package term is the terminal of a run: it prints data and messages, asks questions, arranges
// tables, and prints the document of a run for programs. [New] returns the [UI] of a run; only
// this package prints.
//
// It knows no subject of gpustack, and changes nothing.
package term

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"gpustack/host"
)

// UI prints all output of a run, and asks its questions.
type UI struct {
	Out      *bufio.Writer // of data; Finish flushes it
	Direct   *output       // the file that Out writes to
	Talk     io.Writer     // of messages
	In       *os.File
	Page     Page   // of data
	TalkPage Page   // of messages
	Terminal bool   // data is printed to a terminal
	Full     bool   // --diff was given: plans are printed in full
	InFull   func() // prints the plan of a question in full; nil where it has none
	answers  bool   // questions can be answered
	Quiet    bool   // --quiet was given: what programs print and what is waited for is not shown
	Status   Status
	Colour   bool
	Words    []string // of the command line, for records: without the program's name and without secrets
	// Complete completes the commands of warnings; nil if they are complete.
	Complete func(text string) string
	Snapshot string // the file that --root names, if it is a snapshot, below which nothing is written
	Tree     string // the temporary folder that has its files, or ""
	Document Document
	Run      Run
}

// New returns the UI of a run with these files and environment variables.
func New(stdin, stdout, stderr *os.File, getenv func(string) string) *UI {
	terminal := term.IsTerminal(int(stdout.Fd()))
	u := &UI{
		Talk:     stderr,
		In:       stdin,
		Terminal: terminal,
		Page:     newPage(stdout, getenv),
		TalkPage: newPage(stderr, getenv),
		Colour:   terminal && getenv("NO_COLOR") == "" && getenv("TERM") != "dumb",
		Document: Document{indent: terminal, written: make(chan struct{})},
		Run:      Run{Stop: make(chan struct{}), handled: make(chan struct{}, 1)},
	}
	u.Direct = &output{file: stdout, status: &u.Status}
	u.Out = bufio.NewWriterSize(u.Direct, 1<<16)
	if term.IsTerminal(int(stderr.Fd())) {
		u.Status.out, u.Status.page = stderr, u.TalkPage
		u.answers = term.IsTerminal(int(stdin.Fd()))
	}
	return u
}

// newPage returns the page of a file. COLUMNS is its width, if it is a number, as for other
// programs that arrange text (POSIX, "Other Environment Variables"), or else that of a terminal
// (ioctl_tty(2), TIOCGWINSZ); another file has none, and a terminal that does not know it, such as
// a serial console.
func newPage(f *os.File, getenv func(string) string) Page {
	width, err := strconv.Atoi(getenv("COLUMNS"))
	if err != nil || width <= 0 {
		width, _, _ = term.GetSize(int(f.Fd()))
	}
	return Page{width, isUTF8(getenv)}
}

// output is standard output. Once its reader has closed it, data is discarded without an error:
// head(1) has read what it needs, and a change must not be interrupted because tee(1) has ended.
type output struct {
	file   io.Writer
	status *Status
	closed bool // the reader has closed it
}

func (o *output) Write(data []byte) (int, error) {
	o.status.Clear()
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
	locale := strings.ToUpper(cmp.Or(getenv("LC_ALL"), getenv("LC_CTYPE"), getenv("LANG")))
	return strings.HasSuffix(locale, "UTF-8") || strings.HasSuffix(locale, "UTF8")
}

// Printf prints lines of data, broken where the page is too narrow (wrap.go). An error is returned
// when the output is flushed at the end.
func (u *UI) Printf(format string, args ...any) {
	u.Raw(spaced(u.Page.Fold(fmt.Sprintf(format, args...))))
}

// Raw prints data whose lines must not be broken: what is arranged already, and files.
func (u *UI) Raw(text string) {
	u.Out.WriteString(text) //nolint:errcheck // the writer keeps the error
}

// say prints a message, broken where the page is too narrow.
func say(u *UI, format string, args ...any) {
	u.CatchUp()
	text := u.Named(fmt.Sprintf("gpustack: "+format+"\n", args...))
	io.WriteString(u.Talk, spaced(u.TalkPage.Fold(text))) //nolint:errcheck // there is no other place to report it
}

// Named returns a text in which the snapshot has its name, and not that of the temporary folder.
func (u *UI) Named(text string) string {
	if u.Tree == "" {
		return text
	}
	return strings.ReplaceAll(text, u.Tree, u.Snapshot)
}

// Warn prints warnings.
func (u *UI) Warn(warnings ...string) {
	for _, w := range warnings {
		if u.Complete != nil {
			w = u.Complete(w)
		}
		say(u, "warning: %s", Printable(w))
	}
}

// CatchUp flushes data, so that it is printed before the messages that follow. An error is
// returned at the end.
func (u *UI) CatchUp() {
	u.Status.Clear()
	u.Out.Flush() //nolint:errcheck // the writer keeps the error
}

// Command returns a command as the operator is to run it, for a line that this package prints: it
// is not broken (wrap.go).
func (u *UI) Command(c host.Command) string {
	return joined(Plain(u, c.Text()))
}

// Text returns a text with its commands as the operator is to run them, for a line that this
// package prints: they are not broken (wrap.go).
func (u *UI) Text(t host.Text) string {
	return t.Render(u.Command)
}

// Plain returns a text with its commands as the operator is to run them, for a document.
func Plain(u *UI, t host.Text) string {
	return t.Render(u.Document.located)
}

// Elsewhere returns a text for a line that this package prints, with its commands as they are.
func Elsewhere(t host.Text) string {
	return t.Render(func(c host.Command) string { return joined(Printable(c.String())) })
}

// Note prints a message about what was done.
func (u *UI) Note(format string, args ...any) {
	say(u, "%s", Printable(fmt.Sprintf(format, args...)))
}

// Waits says on a terminal what takes long, unless --quiet is given or a document is printed.
func (u *UI) Waits(format string, args ...any) {
	if !u.Quiet && !u.Document.Requested() {
		u.Status.Show(fmt.Sprintf(format, args...))
	}
}

// Fail prints all parts of an error, and its hints, each once.
func (u *UI) Fail(err error) {
	u.CatchUp()
	if errors.Is(err, errDeclined) {
		u.Note("%s", errDeclined)
		return
	}
	var hints []string
	for _, part := range host.Split(err) {
		say(u, "error: %s", OneLine(part.Error()))
		hints = host.Union(hints, strings.Split(u.Text(Hint(part)), "\n")...)
	}
	for _, hint := range host.Filter(hints, func(line string) bool { return line != "" }) {
		say(u, "hint: %s", hint)
	}
}

// Diff prints a unified diff below an empty line, with added and removed lines in colour.
func (u *UI) Diff(text string) {
	u.Raw("\n")
	for line := range strings.Lines(text) {
		line = Printable(strings.TrimSuffix(line, "\n"))
		switch {
		case strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"):
			line = u.Paint(Bold, line)
		case strings.HasPrefix(line, "+"):
			line = u.Paint(Green, line)
		case strings.HasPrefix(line, "-"):
			line = u.Paint(Red, line)
		}
		u.Raw(line + "\n")
	}
}

// Colours for Paint, as SGR codes (ECMA-48).
const (
	Bold  = "1"
	Red   = "31"
	Green = "32"
)

// Paint returns a text in a colour, where output is coloured.
func (u *UI) Paint(code, text string) string {
	if !u.Colour {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
