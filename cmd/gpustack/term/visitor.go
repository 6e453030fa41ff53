package term

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"gpustack/host"
)

// visitor encodes the values of a document as encoding/json does, apart from these: commands, also
// those of texts, are completed, so that what an operator copies from a document is the same as what
// is printed for people; a nil list is an empty one; a field with the tag null:"zero" is null if its
// value is zero; and a field without a name in JSON is not printed, as in the schemas. A list of the
// document itself has a line for each element, so that lines can be searched and compared.
type visitor struct {
	command func(host.Command) string // completes one
	fields  map[reflect.Type][]field  // found once: a report has thousands of values of a type
	leaves  *json.Encoder             // writes to text
	text    bytes.Buffer
	err     error // the last one
}

// field is a printed field of a struct.
type field struct {
	name             string // in JSON, quoted
	index            []int
	omitempty, nulls bool
}

// of returns the printed fields of a struct, in the order of encoding/json. A field that hides one
// of an embedded struct has the same name in Go and in JSON.
func (v *visitor) of(t reflect.Type) (list []field) {
	list, known := v.fields[t]
	if known {
		return list
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			list = append(list, field{strconv.Quote(name), f.Index, options == "omitempty", f.Tag.Get("null") != ""})
		}
	}
	v.fields[t] = list
	return list
}

// document returns the members of a document that a struct has, or a pointer to one; nil has none.
func (v *visitor) document(of any) (list []string) {
	if of == nil {
		return nil
	}
	is := reflect.Indirect(reflect.ValueOf(of))
	for _, f := range v.of(is.Type()) {
		if text := v.member(nil, f, is, ",\n"); text != nil {
			list = append(list, string(text))
		}
	}
	return list
}

// member appends a member of a struct as it is printed, "name":value, or nothing. A list has a
// separator between its elements.
func (v *visitor) member(to []byte, f field, of reflect.Value, separator string) []byte {
	value, err := of.FieldByIndexErr(f.index)
	switch {
	case err != nil: // the field of an embedded pointer that is nil
	case f.nulls && value.IsZero():
		to = append(append(to, f.name...), ":null"...)
	case !f.omitempty || !value.IsZero() && (value.Kind() != reflect.Slice || value.Len() > 0):
		to = v.encode(append(append(to, f.name...), ':'), value, separator)
	}
	return to
}

// encode appends a value as it is printed, a list with a separator between its elements.
func (v *visitor) encode(to []byte, of reflect.Value, separator string) []byte {
	kind := of.Kind()
	if (kind == reflect.Pointer || kind == reflect.Interface) && !of.IsNil() {
		return v.encode(to, of.Elem(), separator)
	}
	switch is := of.Interface().(type) {
	case host.Text:
		return v.leaf(to, is.Render(v.command))
	case host.Command:
		return v.leaf(to, v.command(is))
	case json.Marshaler, encoding.TextMarshaler:
		return v.leaf(to, is)
	}
	switch {
	case kind == reflect.Struct:
		to = append(to, '{')
		for first, fields := len(to), v.of(of.Type()); len(fields) > 0; fields = fields[1:] {
			before := len(to)
			if before > first {
				to = append(to, ',')
			}
			at := len(to)
			if to = v.member(to, fields[0], of, ","); len(to) == at {
				to = to[:before]
			}
		}
		return append(to, '}')
	case kind == reflect.Slice && of.Type().Elem().Kind() != reflect.Uint8:
		to = append(to, '[')
		before := strings.TrimPrefix(separator, ",")
		for i := range of.Len() {
			to = v.encode(append(to, before...), of.Index(i), ",")
			before = separator
		}
		return append(to, ']')
	case kind == reflect.Map && !of.IsNil():
		values := reflect.MakeMap(reflect.MapOf(of.Type().Key(), reflect.TypeFor[json.RawMessage]()))
		for _, key := range of.MapKeys() {
			values.SetMapIndex(key, reflect.ValueOf(json.RawMessage(v.encode(nil, of.MapIndex(key), ","))))
		}
		return v.leaf(to, values.Interface())
	}
	return v.leaf(to, of.Interface())
}

// leaf appends a value as encoding/json prints it, without HTML's escapes.
func (v *visitor) leaf(to []byte, value any) []byte {
	if v.leaves == nil {
		v.leaves = json.NewEncoder(&v.text)
		v.leaves.SetEscapeHTML(false)
	}
	v.text.Reset()
	if err := v.leaves.Encode(value); err != nil {
		v.err = err
	}
	return append(to, bytes.TrimSuffix(v.text.Bytes(), []byte("\n"))...)
}
