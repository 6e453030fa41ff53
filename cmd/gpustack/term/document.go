package term

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"gopkg.in/yaml.v3"

	"gpustack/host"
	"gpustack/host/document"
)

// Formats of output.
const (
	FormatTable = "table"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
)

// Document is what a command prints in a format for programs (docs/json.md). Each run prints
// exactly one, when it ends: the command's report, or what it was refused for or has failed with,
// or both.
type Document struct {
	Format string // of the output, as the command line requests it
	Kind   string // of a document with a report: the path of the command

	// Head returns the members that every document begins with, after the schema: a struct. A report
	// that has a member of the same name keeps its own.
	Head func(kind string) any
	// Command returns a command as it is to be run, with the root of the run; nil: as it is.
	Command func(host.Command) host.Command

	report  any           // see Show
	indent  bool          // it is printed to a terminal
	claimed atomic.Bool   // the document is printed, or being printed
	written chan struct{} // closed when the document is printed
}

// Show sets the report that is printed when the run ends, with the changes that are made to it
// until then, if report is a pointer. Text output has no document.
func (d *Document) Show(report any) {
	d.report = report
}

// located returns a command as the operator is to run it.
func (d *Document) located(c host.Command) string {
	if d.Command != nil {
		c = d.Command(c)
	}
	return c.String()
}

// Requested reports whether the command line asks for a document.
func (d *Document) Requested() bool {
	return d.Format == FormatJSON || d.Format == FormatYAML
}

// Finish prints the document of a run, and all data that is not yet printed. failure is a struct
// that says what the run was refused for or has failed with, or nil. Its members follow those of
// the report, apart from the first: both begin with the schema.
func (u *UI) Finish(failure any) error {
	d := &u.Document
	if d.Requested() && (d.report != nil || failure != nil) && !d.claimed.Swap(true) {
		defer close(d.written)
		text, err := d.encode(d.report, failure)
		if err != nil {
			return err
		}
		u.Out.Write(text) //nolint:errcheck // the writer keeps the error
	}
	return u.Out.Flush()
}

// Abort prints the document of a run that a signal ends immediately. Its report may be incomplete:
// the document has only the failure. The command may still print data.
func (u *UI) Abort(failure any) {
	d := &u.Document
	switch {
	case !d.Requested():
	case d.claimed.Swap(true): // the run had just ended
		select {
		case <-d.written:
		case <-time.After(Stopping): // nothing reads it
		}
	default:
		if text, err := d.encode(nil, failure); err == nil {
			u.Direct.Write(text) //nolint:errcheck // standard error has the message
		}
	}
}

// encode returns a document in its format for programs: a report, or nil, and then what it was
// refused for or has failed with, or nil.
func (d *Document) encode(report, failure any) ([]byte, error) {
	kind, v := string(document.Failure), newVisitor()
	if report != nil {
		kind = d.Kind
	}
	var head []member
	if d.Head != nil {
		head = v.members(d.Head(kind), d.located)
	}
	ofReport := d.located
	if elsewhere, ok := report.(interface{ Elsewhere() bool }); ok && elsewhere.Elsewhere() {
		ofReport = host.Command.String // its remedies are for other machines than the one that the command line names
	}
	members, failed := v.members(report, ofReport), v.members(failure, d.located)
	members = append(members, failed[min(1, len(members), len(failed)):]...)
	head = slices.DeleteFunc(head, func(h member) bool {
		return slices.ContainsFunc(members, func(m member) bool { return m.name == h.name })
	})
	text, err := v.encode(slices.Insert(members, min(1, len(members)), head...))
	if err != nil {
		return nil, err
	}
	switch {
	case d.Format == FormatYAML:
		return encodeYAML(text)
	case d.indent:
		var indented bytes.Buffer
		err := json.Indent(&indented, text, "", "  ")
		return indented.Bytes(), err
	}
	return text, nil
}

// encodeYAML returns the same document as a text in JSON in YAML.
func encodeYAML(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if err := plainStyle(&document); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	err := errors.Join(e.Encode(&document), e.Close())
	return b.Bytes(), err
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
	return errors.Join(host.Map(n.Content, plainStyle)...)
}
