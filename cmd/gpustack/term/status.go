package term

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// Status is a line on a terminal that says what a run does or waits for. It appears after a second
// and is replaced by whatever is printed next; in a pipe there is none.
type Status struct {
	mu    sync.Mutex
	out   io.Writer // nil: nothing is shown
	width int
	timer *time.Timer // until the line appears
	text  string      // of the line; "": there is none
	shown bool
}

// patience is how long a run works before it says what it does.
const patience = time.Second

// newStatus returns the line for messages to a file, if that is a terminal.
func newStatus(f *os.File) *Status {
	if !term.IsTerminal(int(f.Fd())) {
		return &Status{}
	}
	return &Status{out: f, width: widthOf(f)}
}

// Show replaces the line, as far as the terminal is wide.
func (s *Status) Show(text string) {
	if s == nil || s.out == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	line := []rune(Printable(text))
	if most := s.width - 1; most > 0 && len(line) > most {
		line = line[:most]
	}
	s.text = string(line)
	switch {
	case s.shown:
		s.print()
	case s.timer == nil:
		s.timer = time.AfterFunc(patience, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.text != "" {
				s.print()
			}
		})
	}
}

func (s *Status) print() {
	s.shown = true
	fmt.Fprintf(s.out, "\r%s\x1b[K", s.text) //nolint:errcheck // there is no other place to report it
}

// Clear removes the line.
func (s *Status) Clear() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.shown {
		fmt.Fprint(s.out, "\r\x1b[K") //nolint:errcheck // there is no other place to report it
	}
	s.text, s.timer, s.shown = "", nil, false
}
