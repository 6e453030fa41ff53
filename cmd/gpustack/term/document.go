package term

import (
	"bufio"
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"gopkg.in/yaml.v3"

	"gpustack/host"
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

	// Head returns the members that every document begins with: a struct. A report that has a member
	// of the same name keeps its own.
	Head func() any
	// Text and Command return texts and commands as they are to be run, with the root of the run.
	Text    func(host.Text) string
	Command func(host.Command) host.Command

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
	text, err := d.encode(located{d.Text, d.Command}.of(d.report), failure)
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
	if text, err := d.encode(nil, failure); err == nil {
		d.direct.Write(text) //nolint:errcheck // standard error has the message
	}
}

// encode returns a document in its format for programs: a report, or nil, and then what it was
// refused for or has failed with, or nil.
func (d *Document) encode(report, failure any) ([]byte, error) {
	var members []field
	if failure != nil {
		members = fields(reflect.ValueOf(failure))
	}
	if report != nil {
		members = append(fields(reflect.Indirect(reflect.ValueOf(report))), members[min(1, len(members)):]...)
	}
	if d.Head != nil {
		head := slices.DeleteFunc(fields(reflect.ValueOf(d.Head())), func(f field) bool {
			return slices.ContainsFunc(members, func(m field) bool { return m.name == f.name })
		})
		members = slices.Insert(members, min(1, len(members)), head...)
	}
	text, err := encodeJSON(members)
	switch {
	case err != nil:
		return nil, err
	case d.Format == FormatYAML:
		return encodeYAML(text)
	case d.indent:
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
		value := report.Field(i)
		if value.Kind() == reflect.Slice && value.IsNil() && !mayBeNull(f, value) {
			value = reflect.MakeSlice(value.Type(), 0, 0)
		}
		own = append(own, field{name, value})
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
		err := e.Encode(withLists(value).Interface())
		b.Truncate(b.Len() - min(1, b.Len())) // the line's end
		return err
	}
	separator := "{"
	for _, f := range members {
		b.WriteString(separator + strconv.Quote(f.name) + ":")
		separator = ",\n"
		switch {
		case f.value.Kind() != reflect.Slice:
			if err := add("", f.value); err != nil {
				return nil, err
			}
			continue
		case f.value.IsNil():
			b.WriteString("null")
			continue
		case f.value.Len() == 0:
			b.WriteString("[]")
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

// withLists returns a value with an empty list in place of each nil one, which encoding/json would
// write as null. A list that may be null has the tag null:"zero", as in the schemas.
func withLists(v reflect.Value) reflect.Value {
	if !holdsLists(v.Type()) {
		return v
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		to := reflect.New(v.Type().Elem())
		to.Elem().Set(withLists(v.Elem()))
		return to
	case reflect.Interface:
		if v.IsNil() {
			return v
		}
		return withLists(v.Elem())
	case reflect.Slice:
		to := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			to.Index(i).Set(withLists(v.Index(i)))
		}
		return to
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		to := reflect.MakeMapWithSize(v.Type(), v.Len())
		for _, key := range v.MapKeys() {
			to.SetMapIndex(key, withLists(v.MapIndex(key)))
		}
		return to
	case reflect.Struct:
		to := reflect.New(v.Type()).Elem()
		to.Set(v)
		fillLists(to)
		return to
	}
	return v
}

// fillLists does that to the fields of a struct.
func fillLists(v reflect.Value) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		switch {
		case f.Anonymous && value.Kind() == reflect.Struct:
			fillLists(value)
		case f.IsExported() && !mayBeNull(f, value):
			value.Set(withLists(value))
		}
	}
}

// mayBeNull reports whether a field without a value is written as null.
func mayBeNull(f reflect.StructField, value reflect.Value) bool {
	return f.Tag.Get("null") != "" && value.IsZero()
}

// holdsLists reports whether encoding/json may write a list for a value of the type. It writes
// bytes as a text, and leaves types with a method to that method.
func holdsLists(t reflect.Type) bool {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return false
	}
	switch t.Kind() {
	case reflect.Slice:
		return t.Elem().Kind() != reflect.Uint8
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Struct:
		return true
	}
	return false
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
