package term

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Status is a line on a terminal that says what a run does or waits for. It appears after a second
// and is replaced by whatever is printed next; in a pipe there is none.
type Status struct {
	out   io.Writer // nil: nothing is shown
	page  Page
	mu    sync.Mutex
	timer *time.Timer // until the line appears
	text  string      // of the line; "": there is none
	shown bool
}

// patience is how long a run works before it says what it does.
const patience = time.Second

// Show replaces the line, as far as the terminal is wide.
func (s *Status) Show(text string) {
	if s.out == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	line := []rune(Printable(text))
	if most := s.page.Width - 1; most > 0 {
		line = line[:min(most, len(line))]
	}
	s.text = string(line)
	switch {
	case s.timer == nil:
		s.timer = time.AfterFunc(patience, s.print)
	case s.shown:
		s.timer.Reset(0)
	}
}

func (s *Status) print() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text != "" {
		s.shown = true
		fmt.Fprintf(s.out, "\r%s\x1b[K", s.text) //nolint:errcheck // there is no other place to report it
	}
}

// Clear removes the line.
func (s *Status) Clear() {
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
