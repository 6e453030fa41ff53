package term

import (
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
	err     error                     // the last one
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
func (v *visitor) document(of any) []string {
	if of == nil {
		return nil
	}
	return v.members(reflect.Indirect(reflect.ValueOf(of)), ",\n")
}

// members returns the members of a struct as they are printed: "name":value. A list has a separator
// between its elements.
func (v *visitor) members(of reflect.Value, separator string) (list []string) {
	for _, f := range v.of(of.Type()) {
		value, err := of.FieldByIndexErr(f.index)
		switch {
		case err != nil: // the field of an embedded pointer that is nil
		case f.nulls && value.IsZero():
			list = append(list, f.name+":null")
		case !f.omitempty || !value.IsZero() && (value.Kind() != reflect.Slice || value.Len() > 0):
			list = append(list, f.name+":"+v.encode(value, separator))
		}
	}
	return list
}

// encode returns a value as it is printed, a list with a separator between its elements.
func (v *visitor) encode(of reflect.Value, separator string) string {
	kind := of.Kind()
	if (kind == reflect.Pointer || kind == reflect.Interface) && !of.IsNil() {
		return v.encode(of.Elem(), separator)
	}
	switch is := of.Interface().(type) {
	case host.Text:
		return v.leaf(is.Render(v.command))
	case host.Command:
		return v.leaf(v.command(is))
	case json.Marshaler, encoding.TextMarshaler:
		return v.leaf(is)
	}
	switch {
	case kind == reflect.Struct:
		return "{" + strings.Join(v.members(of, ","), ",") + "}"
	case kind == reflect.Slice && of.Type().Elem().Kind() != reflect.Uint8:
		var b strings.Builder
		before := strings.TrimPrefix(separator, ",")
		for i := range of.Len() {
			b.WriteString(before + v.encode(of.Index(i), ","))
			before = separator
		}
		return "[" + b.String() + "]"
	case kind == reflect.Map && !of.IsNil():
		values := reflect.MakeMap(reflect.MapOf(of.Type().Key(), reflect.TypeFor[json.RawMessage]()))
		for _, key := range of.MapKeys() {
			values.SetMapIndex(key, reflect.ValueOf(json.RawMessage(v.encode(of.MapIndex(key), ","))))
		}
		return v.leaf(values.Interface())
	}
	return v.leaf(of.Interface())
}

// leaf returns a value as encoding/json prints it, without HTML's escapes.
func (v *visitor) leaf(value any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		v.err = err
	}
	return strings.TrimSuffix(b.String(), "\n")
}
