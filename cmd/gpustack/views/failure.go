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
	Allow *string `json:"allow"`
	Hint  *string `json:"hint"` // what to do, one line for each way; null for none
	// the first command of the hint, as a next step; null if it has none
	Next *host.Next `json:"next"`
}

// Problem is any other error.
type Problem struct {
	Message string  `json:"message"` // for people: its wording may change
	Hint    *string `json:"hint"`    // what to do, one line for each way; null for none
	// the first command of the hint, as a next step; null if it has none
	Next *host.Next `json:"next"`
}

// NewFailure returns what a document says of an error, all of whose parts it has. completed returns
// the final text of a hint.
func NewFailure(err error, completed func(host.Text) string) Failure {
	f := Failure{Schema: 1}
	f.add(err, nil, completed)
	return f
}

// add adds each part of an error. given has the hint that replaces those of its parts, or is nil.
func (f *Failure) add(err error, given *explained, completed func(host.Text) string) {
	if err == nil {
		return
	}
	if hints, ok := term.Explained(err); ok && given == nil {
		given = &explained{lines(hints, completed), nextIn(hints)} // once: it may name as many functions as there are parts
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			f.add(e, given, completed)
		}
		return
	}
	if given == nil {
		given = &explained{lines(term.Hints(err), completed), nextIn(term.Hints(err))}
	}
	var r interface {
		Refusal() (host.Code, string)
	}
	if !errors.As(err, &r) {
		f.Errors = append(f.Errors, Problem{err.Error(), given.hint, given.next})
		return
	}
	code, allow := r.Refusal()
	refused := refusal{Code: code, Reason: err.Error(), Allow: Optional(allow), Hint: given.hint, Next: given.next}
	// Errors begin with what they are about.
	about, reason, _ := strings.Cut(refused.Reason, ": ")
	if address, err := pci.ParseAddress(about); err == nil {
		refused.Address, refused.Reason = &address, reason
	}
	f.Refusals = append(f.Refusals, refused)
}

// explained is the final text of the hints of an error, and its next step.
type explained struct {
	hint *string
	next *host.Next
}

// nextIn returns the first command of hints as a next step, nil if they have none.
func nextIn(hints []host.Text) *host.Next {
	for _, h := range hints {
		for _, c := range h.Commands() {
			return host.NewNext(c)
		}
	}
	return nil
}

// lines returns hints as a document has them, or nil if there are none.
func lines(hints []host.Text, completed func(host.Text) string) *string {
	var all []string
	for _, h := range slices.CompactFunc(slices.Clone(hints), host.Text.Equal) {
		all = append(all, completed(h))
	}
	return Optional(strings.Join(all, "\n"))
}

// Optional returns a pointer to a text, or nil if it is empty.
func Optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
