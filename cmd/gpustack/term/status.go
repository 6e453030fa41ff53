package term

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// Status is a line on a terminal that shows how far a run is.
type Status struct {
	out   io.Writer // nil: nothing is shown
	width int
	shown bool
}

// NewStatus returns a line for messages, if these are printed to a terminal, no document is printed
// and --quiet is not given.
func NewStatus(u *UI) *Status {
	f, ok := u.Talk.(*os.File)
	if !ok || u.Quiet || u.Document.Requested() || !term.IsTerminal(int(f.Fd())) {
		return &Status{}
	}
	u.CatchUp()
	return &Status{out: f, width: widthOf(f)}
}

// Show replaces the line, as far as the terminal is wide.
func (s *Status) Show(text string) {
	if s.out == nil {
		return
	}
	s.shown = true
	line := []rune(Printable(text))
	if most := s.width - 1; most > 0 && len(line) > most {
		line = line[:most]
	}
	fmt.Fprintf(s.out, "\r%s\x1b[K", string(line)) //nolint:errcheck // there is no other place to report it
}

// Clear removes the line.
func (s *Status) Clear() {
	if s.shown {
		fmt.Fprint(s.out, "\r\x1b[K") //nolint:errcheck // there is no other place to report it
	}
}
