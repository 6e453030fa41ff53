package views

import (
	"errors"
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
	Allow string `json:"allow" null:"zero"`
	Remedy
}

// Problem is any other error.
type Problem struct {
	Message string `json:"message"` // for people: its wording may change
	Remedy
}

// Remedy is what to do about a refusal or an error.
type Remedy struct {
	Hint host.Text `json:"hint" null:"zero"` // what to do, one line for each way; null for none
	// the first command of the hint, as a next step; null if it has none
	Next *host.Next `json:"next"`
}

// NewFailure returns what a document says of an error, all of whose parts it has.
func NewFailure(err error) Failure {
	f := Failure{Schema: 1}
	for _, part := range host.Split(err) {
		f.add(part)
	}
	return f
}

// add adds a part of an error.
func (f *Failure) add(err error) {
	remedy := Remedy{Hint: term.Hint(err)}
	if commands := remedy.Hint.Commands(); len(commands) > 0 {
		remedy.Next = host.NewNext(commands[0])
	}
	var r interface {
		Refusal() (host.Code, string)
	}
	if !errors.As(err, &r) {
		f.Errors = append(f.Errors, Problem{err.Error(), remedy})
		return
	}
	code, allow := r.Refusal()
	refused := refusal{Code: code, Reason: err.Error(), Allow: allow, Remedy: remedy}
	// Errors begin with what they are about.
	about, reason, _ := strings.Cut(refused.Reason, ": ")
	if address, err := pci.ParseAddress(about); err == nil {
		refused.Address, refused.Reason = &address, reason
	}
	f.Refusals = append(f.Refusals, refused)
}
