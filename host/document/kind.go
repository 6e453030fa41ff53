package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Schema is the version of gpustack's documents (docs/json.md) that this program reads.
const Schema = 1

// Kind is a kind of documents, as their field kind has it: the command that printed a document
// (docs/json.md), or one of those below.
type Kind string

// The kinds of documents that are read, and kinds that no command has as its own.
const (
	HostScan      Kind = "host scan"
	HostCheck     Kind = "host check"
	HostGuests    Kind = "host guests"
	NovaConfigure Kind = "nova configure"

	NovaConf     Kind = "nova.conf"     // no document: a configuration file of Nova
	Contract     Kind = "contract"      // what host prepare records on a machine
	JournalEntry Kind = "journal entry" // what each change records on a machine
	Failure      Kind = "failure"       // errors or refusals instead of a command's report
	Unknown      Kind = ""              // not a document of gpustack, or without a kind
)

// lastFields are the last fields of the documents that are read, apart from guest reports, whose
// fields are all required: without it, a document in YAML was truncated after a line.
var lastFields = map[Kind]string{HostScan: "warnings", HostCheck: "warnings", NovaConfigure: "rendered"}

// Recognize returns the first document in a text. It is of the kind Unknown if it is malformed.
func Recognize(text []byte) (first Document) {
	split("", bytes.NewReader(text))(func(d Document, err error) bool {
		if first = d; err != nil {
			first.Kind = Unknown
		}
		return false
	})
	return first
}

// String returns the name for messages: "the output of host scan".
func (k Kind) String() string {
	switch k {
	case NovaConf:
		return "a configuration file of Nova"
	case Contract:
		return "the record of host prepare"
	case JournalEntry:
		return "an entry of the journal"
	case Failure:
		return "the error report of a failed command"
	}
	return "the output of " + string(k)
}

// isOutput reports whether a command prints documents of the kind when it has not failed.
func (k Kind) isOutput() bool {
	return !slices.Contains([]Kind{Contract, JournalEntry, Failure, Unknown}, k)
}

// Kinds are kinds of documents, any of which is read.
type Kinds []Kind

// String returns the names for messages: "the output of host scan or host check".
func (want Kinds) String() string {
	if len(want) == 1 {
		return want[0].String()
	}
	names := host.Map(want, func(k Kind) string { return string(k) })
	last := len(names) - 1
	return "the output of " + strings.Join(names[:last], ", ") + " or " + names[last]
}

// hint returns the command that prints a document of the kind.
func (k Kind) hint() string {
	if k == NovaConf {
		return "give /etc/nova/nova.conf of that machine, or a copy"
	}
	return "on the compute node, run: gpustack " + string(k) + " -o json > FILE"
}

// hintFor returns the hint for a file that does not exist. A word that could be the name of a host
// is taken for one.
func (k Kind) hintFor(file string) string {
	if strings.ContainsAny(file, "/") || isDocument(file) {
		return k.hint()
	}
	return fmt.Sprintf("a file is expected; of a host of this name: ssh %s gpustack %s -o json > %s.json", file, string(k), file)
}

// Expected returns the error of a text that is not a document of the kinds that were expected. It
// names the kind that it is, and has the command to run as a hint.
func (want Kinds) Expected(name string, is Kind) error {
	err := fmt.Errorf("%s: not %s", name, want)
	if is != Unknown {
		err = fmt.Errorf("%s: is %s; expected %s", name, is, want)
	}
	return host.WithHint(err, want[0].hint())
}

// Malformed returns the error of a document of a kind whose fields are not as docs/json.md
// describes them, for each of joined errors.
func Malformed(name string, is Kind, err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for i, err := range all {
		all[i] = host.WithHint(fmt.Errorf("%s: malformed: %w", name, err), is.hint())
	}
	return errors.Join(all...)
}

// check returns an error unless a document is of one of the kinds, in the version that this program
// reads.
func (d Document) check(want Kinds) error {
	is := d.Kind
	switch {
	case is == Failure:
		return host.WithHint(fmt.Errorf("%s: is %s; expected %s: %s", d.Name, is, want, failures(d.Text)), want[0].hint())
	case is != Unknown && !slices.Contains(want, is), d.schema == "":
		return want.Expected(d.Name, is)
	case d.schema != schemaText:
		// The fields of another version may have other names.
		return host.WithHint(fmt.Errorf("%s: schema %s is of another version of gpustack; this version reads schema %s", d.Name, d.schema, schemaText),
			"with this version of gpustack, "+want[0].hint())
	case is == Unknown:
		return host.WithHint(fmt.Errorf("%s: has no kind; expected %s", d.Name, want), want[0].hint())
	}
	return nil
}

// schemaText is Schema as a document has it.
var schemaText = strconv.Itoa(Schema)

// failures returns the first message of a document of the kind Failure.
func failures(text []byte) string {
	var report struct {
		Errors, Refusals []struct{ Message, Address, Reason string }
	}
	_ = json.Unmarshal(text, &report) // what has another form is left out
	for _, m := range slices.Concat(report.Errors, report.Refusals) {
		switch {
		case m.Message != "":
			return m.Message
		case m.Address != "":
			return m.Address + ": " + m.Reason
		case m.Reason != "":
			return m.Reason
		}
	}
	return "without a message"
}
