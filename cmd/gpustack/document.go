package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// A document is what a command prints in a format for programs (docs/json.md). Each run prints
// exactly one, when it ends: the command's report, or what it was refused for or has failed with,
// or both.

// show sets the report that is printed when the run ends, with the changes that are made to it
// until then, if report is a pointer. Text output has no document.
func (u *ui) show(report any) {
	u.document = report
}

// finish prints the document of a run that ends with err.
func (u *ui) finish(err error) error {
	if !u.prints() || u.document == nil && err == nil || !u.claim() {
		return u.out.Flush()
	}
	defer close(u.written)
	text, encodeErr := encode(u.format, u.document, newFailure(err, u.atRoot), u.terminal)
	if encodeErr != nil {
		return encodeErr
	}
	u.out.Write(text) //nolint:errcheck // the writer keeps the error
	return u.out.Flush()
}

// finishInterrupted prints the document of a run that a signal ends immediately. Its report may be
// incomplete: the document has only the error. The command may still use u.out.
func (u *ui) finishInterrupted(p problem) {
	if !u.prints() {
		return
	}
	if !u.claim() { // the run had just ended
		select {
		case <-u.written:
		case <-time.After(stopping): // nothing reads it
		}
		return
	}
	if text, err := encode(u.format, nil, failure{Schema: 1, Errors: []problem{p}}, u.terminal); err == nil {
		u.stdout.Write(text) //nolint:errcheck // standard error has the message
	}
}

// prints reports whether the command line asks for a document.
func (u *ui) prints() bool {
	return u.format == formatJSON || u.format == formatYAML
}

// claim reports whether the caller may print the document of the run: only the first one may.
func (p *progress) claim() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.printed
	p.printed = true
	return first
}

// encode returns a document in a format for programs: a report, or nil, and then what it was
// refused for or has failed with.
func encode(format string, report any, f failure, indent bool) ([]byte, error) {
	members := fields(reflect.ValueOf(f))
	if report != nil {
		members = append(fields(reflect.Indirect(reflect.ValueOf(report))), members[1:]...) // schema is the first of both
	}
	text, err := encodeJSON(members)
	switch {
	case err != nil:
		return nil, err
	case format == formatYAML:
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
		b.WriteString(separator + quoted(f.name) + ":")
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
