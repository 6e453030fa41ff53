package edit

import (
	"fmt"
	"strings"

	"gpustack/host"
)

// Meaning describes a change of a file that other programs write too, such as a boot entry or
// nova.conf, by the values that it sets. After the file was changed again, the change is undone by
// these values instead of by the file's bytes. The package of the file's grammar fills it in and
// interprets it.
type Meaning struct {
	Grammar string `json:"grammar"` // of the file
	// Whole is the text that contains the values. While it is as the change left it, it is restored
	// as a whole. It is nil if the values are always restored one by one.
	Whole  *Value  `json:"whole"`
	Values []Value `json:"values"`
}

// Value is something that a change sets: a kernel argument, a variable or an option.
type Value struct {
	Name   string   `json:"name"`
	Before []string `json:"before"` // its values before the change, in their order; none: it was not set
	After  []string `json:"after"`  // its values after the change; none: it is not set any more
}

// ChangedValue is the error of a value that was changed by hand after gpustack had set it.
type ChangedValue struct {
	File string // on the machine
	Line int    // from 1
	Now  []string
	Value
}

func (e *ChangedValue) Error() string {
	wrote := strings.Join(e.After, " ")
	switch {
	case len(e.Now) == 0 && len(e.After) > 0:
		return fmt.Sprintf("%s:%d: %s is not set any more, gpustack set it instead of %s", e.File, e.Line, wrote, strings.Join(e.Before, " "))
	case len(e.After) == 0:
		return fmt.Sprintf("%s:%d: %s was set since, gpustack removed %s", e.File, e.Line, strings.Join(e.Now, " "), strings.Join(e.Before, " "))
	}
	return fmt.Sprintf("%s:%d: %s was set since, gpustack set %s", e.File, e.Line, strings.Join(e.Now, " "), wrote)
}

// Refusal returns the code of the error: no option lifts it.
func (*ChangedValue) Refusal() (code host.Code, allow string) { return host.CodeEdited, "" }

// Hint returns the values with which the change can be undone.
func (e *ChangedValue) Hint() string { return e.HintText().String() }

// HintText returns the hint with its command as a part.
func (e *ChangedValue) HintText() host.Text {
	text := func(values []string) string {
		if len(values) == 0 {
			return "remove " + strings.Join(e.Now, " ")
		}
		return "set " + strings.Join(values, " ")
	}
	return host.Textf("in %s, %s as gpustack left it, or %s as before, then run %s again", e.File, text(e.After), text(e.Before), host.NewCommand("undo"))
}
