package term

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
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
	command func(host.Command) string // completes one of the current member
	shapes  map[reflect.Type]shape    // found once: a report has thousands of values of a type
	leaves  *json.Encoder             // writes to leaf
	leaf    bytes.Buffer
	text    []byte
	err     error // the last one
}

// newVisitor returns a visitor whose text has space that most documents do not fill, and of which
// the kernel provides only what is written.
func newVisitor() *visitor {
	v := &visitor{shapes: map[reflect.Type]shape{}, text: make([]byte, 0, 1<<20)}
	v.leaves = json.NewEncoder(&v.leaf)
	v.leaves.SetEscapeHTML(false)
	return v
}

// shape is how values of a type are printed.
type shape struct {
	own    bool    // they do not have the encoding of their kind
	fields []field // of a struct, in the order of encoding/json
}

// field is a printed field of a struct.
type field struct {
	name             string // in JSON, quoted
	index            []int
	omitempty, nulls bool
}

// member is a printed field of a document, whose commands command completes.
type member struct {
	field
	value   reflect.Value
	command func(host.Command) string
}

// of returns the shape of a type. A field that hides one of an embedded struct has the same name in
// Go and in JSON.
func (v *visitor) of(t reflect.Type) shape {
	s, known := v.shapes[t]
	if known {
		return s
	}
	s.own = t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
	if t.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(t) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" && name != "-" {
				s.fields = append(s.fields, field{strconv.Quote(name), f.Index, options == "omitempty", f.Tag.Get("null") != ""})
			}
		}
	}
	v.shapes[t] = s
	return s
}

// members returns the printed members of a struct, or of a pointer to one; nil has none.
func (v *visitor) members(of any, command func(host.Command) string) (list []member) {
	if of == nil {
		return nil
	}
	is := reflect.Indirect(reflect.ValueOf(of))
	for _, f := range v.of(is.Type()).fields {
		if value, ok := f.in(is); ok {
			list = append(list, member{f, value, command})
		}
	}
	return list
}

// in returns the value of the field in a struct; ok is false if it is not printed.
func (f field) in(of reflect.Value) (value reflect.Value, ok bool) {
	value, err := of.FieldByIndexErr(f.index) // fails in an embedded pointer that is nil
	return value, err == nil && (!f.omitempty || !value.IsZero() && (value.Kind() != reflect.Slice || value.Len() > 0))
}

// encode returns a document of these members.
func (v *visitor) encode(members []member) ([]byte, error) {
	v.text = append(v.text, '{')
	for i, m := range members {
		if i > 0 {
			v.text = append(v.text, ",\n"...)
		}
		v.command = m.command
		v.member(m.field, m.value, ",\n")
	}
	return append(v.text, "}\n"...), v.err
}

// member appends a member, "name":value. A list has a separator between its elements.
func (v *visitor) member(f field, value reflect.Value, separator string) {
	v.text = append(append(v.text, f.name...), ':')
	if f.nulls && value.IsZero() {
		v.text = append(v.text, "null"...)
		return
	}
	v.append(value, separator)
}

// append appends a value as it is printed, a list with a separator between its elements.
func (v *visitor) append(of reflect.Value, separator string) {
	kind, form := of.Kind(), v.of(of.Type())
	switch {
	case (kind == reflect.Pointer || kind == reflect.Interface) && of.IsNil():
		v.text = append(v.text, "null"...)
	case kind == reflect.Pointer || kind == reflect.Interface:
		v.append(of.Elem(), separator)
	case form.own:
		switch is := of.Interface().(type) {
		case host.Text:
			v.string(is.Render(v.command))
		case host.Command:
			v.string(v.command(is))
		case json.Marshaler:
			v.any(is)
		case encoding.TextMarshaler:
			text, err := is.MarshalText()
			v.err = cmp.Or(err, v.err)
			v.string(string(text))
		}
	case kind == reflect.Struct:
		v.text = append(v.text, '{')
		first := len(v.text)
		for _, f := range form.fields {
			if value, ok := f.in(of); ok {
				if len(v.text) > first {
					v.text = append(v.text, ',')
				}
				v.member(f, value, ",")
			}
		}
		v.text = append(v.text, '}')
	case kind == reflect.Slice && of.Type().Elem().Kind() != reflect.Uint8:
		v.text = append(v.text, '[')
		before := strings.TrimPrefix(separator, ",")
		for i := range of.Len() {
			v.text = append(v.text, before...)
			v.append(of.Index(i), ",")
			before = separator
		}
		v.text = append(v.text, ']')
	case kind == reflect.Map && !of.IsNil():
		start, values := len(v.text), reflect.MakeMap(reflect.MapOf(of.Type().Key(), reflect.TypeFor[json.RawMessage]()))
		for _, key := range of.MapKeys() {
			v.append(of.MapIndex(key), ",")
			values.SetMapIndex(key, reflect.ValueOf(json.RawMessage(slices.Clone(v.text[start:]))))
			v.text = v.text[:start]
		}
		v.any(values.Interface())
	case kind == reflect.String:
		v.string(of.String())
	default:
		v.any(of.Interface())
	}
}

// string appends a string. Most have nothing to escape.
func (v *visitor) string(s string) {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
		v.any(s)
		return
	}
	v.text = append(append(append(v.text, '"'), s...), '"')
}

// any appends a value as encoding/json prints it, without HTML's escapes.
func (v *visitor) any(value any) {
	v.leaf.Reset()
	v.err = cmp.Or(v.leaves.Encode(value), v.err)
	v.text = append(v.text, bytes.TrimSuffix(v.leaf.Bytes(), []byte("\n"))...)
}
