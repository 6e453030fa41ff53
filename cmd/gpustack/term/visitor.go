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

// visitor encodes the values of a document as encoding/json does, apart from these: commands and
// texts are completed, so that what an operator copies from a document is the same as what is
// printed for people; a nil list is an empty one; a field with the tag null:"zero" is null if its
// value is zero; and a field without a name in JSON is not printed, as in the schemas. A list of the
// document itself has a line for each element, so that lines can be searched and compared. A visitor
// without functions leaves commands and texts as they are.
type visitor struct {
	text    func(host.Text) string
	command func(host.Command) host.Command

	out    *bytes.Buffer
	leaves *json.Encoder            // to out
	fields map[reflect.Type][]field // of each struct, found once: a report has thousands of them
}

// newVisitor returns a visitor that completes texts and commands, or with nil leaves them.
func newVisitor(text func(host.Text) string, command func(host.Command) host.Command) *visitor {
	out := new(bytes.Buffer)
	v := visitor{text: text, command: command, out: out, leaves: json.NewEncoder(out), fields: map[reflect.Type][]field{}}
	v.leaves.SetEscapeHTML(false)
	return &v
}

// field is a printed field of a struct.
type field struct {
	name             string
	index            []int
	omitempty, nulls bool
}

// member is a member of a document: its name in JSON, and its value.
type member struct {
	name  string
	value json.RawMessage
}

// of returns the printed fields of a struct, in the order of encoding/json. A field that hides one of
// an embedded struct has the same name in Go and in JSON.
func (v *visitor) of(t reflect.Type) (list []field) {
	if known, ok := v.fields[t]; ok {
		return known
	}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			list = append(list, field{name, f.Index, options == "omitempty", f.Tag.Get("null") != ""})
		}
	}
	v.fields[t] = list
	return list
}

// each calls do with each printed field of a struct and its value, which is the zero value for null.
func (v *visitor) each(of reflect.Value, do func(name string, value reflect.Value) error) error {
	for _, f := range v.of(of.Type()) {
		value, nilEmbedded := of.FieldByIndexErr(f.index)
		switch {
		case nilEmbedded != nil, f.omitempty && (value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0):
			continue
		case f.nulls && value.IsZero():
			value = reflect.Value{}
		}
		if err := do(f.name, value); err != nil {
			return err
		}
	}
	return nil
}

// members returns the members of a document that a struct has.
func (v *visitor) members(of reflect.Value) (list []member, err error) {
	err = v.each(of, func(name string, value reflect.Value) error {
		encoded, err := v.encode(value, ",\n")
		list = append(list, member{name, encoded})
		return err
	})
	return list, err
}

// encode returns a value as it is printed, and nothing is left in out.
func (v *visitor) encode(of reflect.Value, separator string) (json.RawMessage, error) {
	start := v.out.Len()
	err := v.write(of, separator)
	encoded := bytes.Clone(v.out.Bytes()[start:])
	v.out.Truncate(start)
	return encoded, err
}

// write writes a value as it is printed, a list with a separator between its elements.
func (v *visitor) write(of reflect.Value, separator string) error {
	if !of.IsValid() {
		return v.leaf(nil)
	}
	t := of.Type()
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[host.Text]() && v.text != nil:
		return v.leaf(v.text(of.Interface().(host.Text)))
	case t == reflect.TypeFor[host.Command]() && v.command != nil:
		return v.leaf(v.command(of.Interface().(host.Command)))
	case (kind == reflect.Pointer || kind == reflect.Interface) && !of.IsNil():
		return v.write(of.Elem(), separator)
	case kind == reflect.Pointer, t.Implements(reflect.TypeFor[json.Marshaler]()), t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
	case kind == reflect.Struct:
		v.out.WriteString("{")
		before := ""
		err := v.each(of, func(name string, value reflect.Value) error {
			v.out.WriteString(before + strconv.Quote(name) + ":")
			before = ","
			return v.write(value, ",")
		})
		v.out.WriteString("}")
		return err
	case kind == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		v.out.WriteString("[")
		before := strings.TrimPrefix(separator, ",")
		for i := range of.Len() {
			v.out.WriteString(before)
			before = separator
			if err := v.write(of.Index(i), ","); err != nil {
				return err
			}
		}
		v.out.WriteString("]")
		return nil
	case kind == reflect.Map && !of.IsNil():
		values := reflect.MakeMap(reflect.MapOf(t.Key(), reflect.TypeFor[json.RawMessage]()))
		for _, key := range of.MapKeys() {
			value, err := v.encode(of.MapIndex(key), ",")
			if err != nil {
				return err
			}
			values.SetMapIndex(key, reflect.ValueOf(value))
		}
		return v.leaf(values.Interface())
	}
	return v.leaf(of.Interface())
}

// leaf writes a value as encoding/json does, without HTML's escapes.
func (v *visitor) leaf(value any) error {
	err := v.leaves.Encode(value)
	if err == nil {
		v.out.Truncate(v.out.Len() - len("\n"))
	}
	return err
}
