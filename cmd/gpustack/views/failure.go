package views

import (
	"errors"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/pci"
)

// Failure is what a document says of a command that was refused or has failed (docs/json.md). It is
// the whole document if there is no report, and otherwise its end.
type Failure struct {
	Schema int `json:"schema"`
	// what gpustack could do, and does not because of its effects
	Refusals []refusal `json:"refusals,omitempty"`
	Errors   []Problem `json:"errors,omitempty"` // all other errors
}

// refusal is something that gpustack could do and does not, because of its effects.
type refusal struct {
	// the function that is refused; null if the refusal is not of one function
	Address *pci.Address `json:"address"`
	Code    host.Code    `json:"code"`   // the reason, for programs
	Reason  string       `json:"reason"` // the reason, for people: its wording may change
	// the option that lifts the refusal, such as "--live"; null for none
	Allow *string   `json:"allow"`
	Hint  host.Text `json:"hint" null:"zero"` // what to do, one line for each way; null for none
	// the first command of the hint, as a next step; null if it has none
	Next *host.Next `json:"next"`
}

// Problem is any other error.
type Problem struct {
	Message string    `json:"message"`          // for people: its wording may change
	Hint    host.Text `json:"hint" null:"zero"` // what to do, one line for each way; null for none
	// the first command of the hint, as a next step; null if it has none
	Next *host.Next `json:"next"`
}

// NewFailure returns what a document says of an error, all of whose parts it has.
func NewFailure(err error) Failure {
	f := Failure{Schema: 1}
	f.add(err, nil)
	return f
}

// add adds each part of an error. given has the hints that replace those of its parts, or is nil.
func (f *Failure) add(err error, given []host.Text) {
	if err == nil {
		return
	}
	if hints, ok := term.Explained(err); ok && given == nil {
		given = hints
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			f.add(e, given)
		}
		return
	}
	if given == nil {
		given = term.Hints(err)
	}
	hint := lines(given)
	var next *host.Next
	if commands := hint.Commands(); len(commands) > 0 {
		next = host.NewNext(commands[0])
	}
	var r interface {
		Refusal() (host.Code, string)
	}
	if !errors.As(err, &r) {
		f.Errors = append(f.Errors, Problem{err.Error(), hint, next})
		return
	}
	code, allow := r.Refusal()
	refused := refusal{Code: code, Reason: err.Error(), Allow: Optional(allow), Hint: hint, Next: next}
	// Errors begin with what they are about.
	about, reason, _ := strings.Cut(refused.Reason, ": ")
	if address, err := pci.ParseAddress(about); err == nil {
		refused.Address, refused.Reason = &address, reason
	}
	f.Refusals = append(f.Refusals, refused)
}

// lines returns hints as a document has them, one line for each, nil if there are none.
func lines(hints []host.Text) (all host.Text) {
	for i, h := range slices.CompactFunc(slices.Clone(hints), host.Text.Equal) {
		if i > 0 {
			all = append(all, host.Plain("\n")...)
		}
		all = append(all, h...)
	}
	return all
}

// Optional returns a pointer to a text, or nil if it is empty.
func Optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
