package term

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gopkg.in/yaml.v3"
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

	report  any // see Show
	out     *bufio.Writer
	direct  io.Writer // the file that out writes to
	indent  bool
	claimed atomic.Bool   // the document is printed, or being printed
	written chan struct{} // closed when the document is printed
}

// Show sets the report that is printed when the run ends, with the changes that are made to it
// until then, if report is a pointer. Text output has no document.
func (d *Document) Show(report any) {
	d.report = report
}

// Requested reports whether the command line asks for a document.
func (d *Document) Requested() bool {
	return d.Format == FormatJSON || d.Format == FormatYAML
}

// Finish prints the document of a run, and all data that is not yet printed. failure is a struct
// that says what the run was refused for or has failed with, or nil. Its members follow those of
// the report, apart from the first: both begin with the schema.
func (d *Document) Finish(failure any) error {
	if !d.Requested() || d.report == nil && failure == nil || d.claimed.Swap(true) {
		return d.out.Flush()
	}
	defer close(d.written)
	text, err := encode(d.Format, d.report, failure, d.indent)
	if err != nil {
		return err
	}
	d.out.Write(text) //nolint:errcheck // the writer keeps the error
	return d.out.Flush()
}

// Abort prints the document of a run that a signal ends immediately. Its report may be incomplete:
// the document has only the failure. The command may still print data.
func (d *Document) Abort(failure any) {
	if !d.Requested() {
		return
	}
	if d.claimed.Swap(true) { // the run had just ended
		select {
		case <-d.written:
		case <-time.After(Stopping): // nothing reads it
		}
		return
	}
	if text, err := encode(d.Format, nil, failure, d.indent); err == nil {
		d.direct.Write(text) //nolint:errcheck // standard error has the message
	}
}

// encode returns a document in a format for programs: a report, or nil, and then what it was
// refused for or has failed with, or nil.
func encode(format string, report, failure any, indent bool) ([]byte, error) {
	var members []field
	if failure != nil {
		members = fields(reflect.ValueOf(failure))
	}
	if report != nil {
		members = append(fields(reflect.Indirect(reflect.ValueOf(report))), members[min(1, len(members)):]...)
	}
	text, err := encodeJSON(members)
	switch {
	case err != nil:
		return nil, err
	case format == FormatYAML:
		return encodeYAML(text)
	case indent:
		var b bytes.Buffer
		err := json.Indent(&b, text, "", "  ")
		return b.Bytes(), err
	}
	return text, nil
}

// field is a member of a document: its name in JSON and its value.
type field struct {
	name  string
	value reflect.Value
}

// fields returns the members of a report in the order of encoding/json, those of embedded structs
// first: a field hides one of the same name in an embedded struct.
func fields(report reflect.Value) (list []field) {
	var own, embedded []field
	names := map[string]bool{}
	for i := range report.NumField() {
		f := report.Type().Field(i)
		if f.Anonymous {
			embedded = append(embedded, fields(report.Field(i))...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || options == "omitempty" && isEmpty(report.Field(i)) {
			continue
		}
		names[name] = true
		own = append(own, field{name, report.Field(i)})
	}
	for _, f := range embedded {
		if !names[f.name] {
			list = append(list, f)
		}
	}
	return append(list, own...)
}

// isEmpty reports whether encoding/json omits a value with omitempty.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// encodeJSON returns a document with one line for each element of its lists, so that lines can be
// searched and compared.
func encodeJSON(members []field) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	add := func(before string, value reflect.Value) error {
		b.WriteString(before)
		err := e.Encode(value.Interface())
		b.Truncate(b.Len() - min(1, b.Len())) // the line's end
		return err
	}
	separator := "{"
	for _, f := range members {
		b.WriteString(separator + strconv.Quote(f.name) + ":")
		separator = ",\n"
		if f.value.Kind() != reflect.Slice || f.value.Len() == 0 {
			if err := add("", f.value); err != nil {
				return nil, err
			}
			continue
		}
		before := "[\n"
		for k := range f.value.Len() {
			if err := add(before, f.value.Index(k)); err != nil {
				return nil, err
			}
			before = ",\n"
		}
		b.WriteString("]")
	}
	b.WriteString("}\n")
	return b.Bytes(), nil
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
	if err := e.Encode(&document); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
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
	var errs []error
	for _, child := range n.Content {
		errs = append(errs, plainStyle(child))
	}
	return errors.Join(errs...)
}
