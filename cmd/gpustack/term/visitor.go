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
	command func(host.Command) host.Command
	out     bytes.Buffer
	leaves  *json.Encoder          // to out
	shapes  map[reflect.Type]shape // found once: a report has thousands of values of a type
	err     error                  // the last one
}

// shape is how values of a type are printed: a leaf by the type's own method, or a struct.
type shape struct {
	isLeaf bool
	fields []field // of a struct
}

// newVisitor returns a visitor that completes commands, or with nil leaves them.
func newVisitor(command func(host.Command) host.Command) *visitor {
	if command == nil {
		command = func(c host.Command) host.Command { return c }
	}
	v := visitor{command: command, shapes: map[reflect.Type]shape{}}
	v.leaves = json.NewEncoder(&v.out)
	v.leaves.SetEscapeHTML(false)
	return &v
}

// field is a printed field of a struct.
type field struct {
	name, quoted     string
	index            []int
	omitempty, nulls bool
}

// member is a member of a document: its name in JSON, and its value.
type member struct {
	name  string
	value json.RawMessage
}

// of returns the shape of a type. The fields of a struct are in the order of encoding/json. A field
// that hides one of an embedded struct has the same name in Go and in JSON.
func (v *visitor) of(t reflect.Type) shape {
	is, known := v.shapes[t]
	if known {
		return is
	}
	is.isLeaf = t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
	if t.Kind() == reflect.Struct {
		is.fields = fieldsOf(t)
	}
	v.shapes[t] = is
	return is
}

func fieldsOf(t reflect.Type) (list []field) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			list = append(list, field{name, strconv.Quote(name) + ":", f.Index, options == "omitempty", f.Tag.Get("null") != ""})
		}
	}
	return list
}

// each calls do with each printed field of a struct and its value, which is the zero value for null.
func (v *visitor) each(of reflect.Value, do func(f field, value reflect.Value)) {
	for _, f := range v.of(of.Type()).fields {
		value, nilEmbedded := of.FieldByIndexErr(f.index)
		switch {
		case nilEmbedded != nil, f.omitempty && (value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0):
			continue
		case f.nulls && value.IsZero():
			value = reflect.Value{}
		}
		do(f, value)
	}
}

// members returns the members of a document that a struct has, or a pointer to one; nil has none.
func (v *visitor) members(of any) (list []member) {
	if of != nil {
		v.each(reflect.Indirect(reflect.ValueOf(of)), func(f field, value reflect.Value) {
			list = append(list, member{f.name, v.encode(value, ",\n")})
		})
	}
	return list
}

// encode returns a value as it is printed, and nothing is left in out.
func (v *visitor) encode(of reflect.Value, separator string) json.RawMessage {
	start := v.out.Len()
	v.write(of, separator)
	encoded := bytes.Clone(v.out.Bytes()[start:])
	v.out.Truncate(start)
	return encoded
}

// write writes a value as it is printed, a list with a separator between its elements.
func (v *visitor) write(of reflect.Value, separator string) {
	if !of.IsValid() || of.Kind() == reflect.Pointer && of.IsNil() {
		v.out.WriteString("null")
		return
	}
	t := of.Type()
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[host.Text]():
		v.leaf(located(of.Interface().(host.Text), v.command))
	case t == reflect.TypeFor[host.Command]():
		v.leaf(v.command(of.Interface().(host.Command)))
	case (kind == reflect.Pointer || kind == reflect.Interface) && !of.IsNil():
		v.write(of.Elem(), separator)
	case v.of(t).isLeaf:
		v.leaf(of.Interface())
	case kind == reflect.Struct:
		v.out.WriteString("{")
		before := ""
		v.each(of, func(f field, value reflect.Value) {
			v.out.WriteString(before)
			v.out.WriteString(f.quoted)
			before = ","
			v.write(value, ",")
		})
		v.out.WriteString("}")
	case kind == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		v.out.WriteString("[")
		before := strings.TrimPrefix(separator, ",")
		for i := range of.Len() {
			v.out.WriteString(before)
			before = separator
			v.write(of.Index(i), ",")
		}
		v.out.WriteString("]")
	case kind == reflect.Map && !of.IsNil():
		values := reflect.MakeMap(reflect.MapOf(t.Key(), reflect.TypeFor[json.RawMessage]()))
		for _, key := range of.MapKeys() {
			values.SetMapIndex(key, reflect.ValueOf(v.encode(of.MapIndex(key), ",")))
		}
		v.leaf(values.Interface())
	default:
		v.leaf(of.Interface())
	}
}

// leaf writes a value as encoding/json does, without HTML's escapes.
func (v *visitor) leaf(value any) {
	if err := v.leaves.Encode(value); err != nil {
		v.err = err
		return
	}
	v.out.Truncate(v.out.Len() - len("\n"))
}
