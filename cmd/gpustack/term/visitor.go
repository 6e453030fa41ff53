package term

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"

	"gpustack/host"
)

// visitor encodes the values of a document as encoding/json does, apart from these: commands and
// texts are completed, so that what an operator copies from a document is the same as what is
// printed for people; a nil list is an empty one; a field with the tag null:"zero" is null if its
// value is zero; and a field without a name in JSON is not printed, as in the schemas. A visitor without functions leaves commands and texts as
// they are.
type visitor struct {
	text    func(host.Text) string
	command func(host.Command) host.Command
}

// member is a member of a document: its name in JSON, and its value.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of a struct as they are printed, in the order of encoding/json. A
// field that hides one of an embedded struct has the same name in Go and in JSON.
func (v visitor) members(of reflect.Value) (list []member, err error) {
	for _, f := range reflect.VisibleFields(of.Type()) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		value, nilEmbedded := of.FieldByIndexErr(f.Index)
		switch {
		case name == "" || name == "-" || nilEmbedded != nil:
			continue
		case options == "omitempty" && (value.IsZero() || value.Kind() == reflect.Slice && value.Len() == 0):
			continue
		}
		m := member{name, json.RawMessage("null")}
		if f.Tag.Get("null") == "" || !value.IsZero() {
			if m.value, err = v.encode(value); err != nil {
				return nil, err
			}
		}
		list = append(list, m)
	}
	return list, nil
}

// encode returns a value as it is printed.
func (v visitor) encode(of reflect.Value) (json.RawMessage, error) {
	t := of.Type()
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[host.Text]() && v.text != nil:
		return encoded(v.text(host.Text(of.String())))
	case t == reflect.TypeFor[host.Command]() && v.command != nil:
		return encoded(v.command(of.Interface().(host.Command)))
	case (kind == reflect.Pointer || kind == reflect.Interface) && !of.IsNil():
		return v.encode(of.Elem())
	case kind == reflect.Pointer, t.Implements(reflect.TypeFor[json.Marshaler]()), t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
	case kind == reflect.Struct:
		list, err := v.members(of)
		b := []byte("{")
		for i, m := range list {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, `"`+m.name+`":`...), m.value...)
		}
		return append(b, '}'), err
	case kind == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		list := make([]json.RawMessage, of.Len())
		for i := range list {
			var err error
			if list[i], err = v.encode(of.Index(i)); err != nil {
				return nil, err
			}
		}
		return encoded(list)
	case kind == reflect.Map && !of.IsNil():
		values := reflect.MakeMap(reflect.MapOf(t.Key(), reflect.TypeFor[json.RawMessage]()))
		for _, key := range of.MapKeys() {
			value, err := v.encode(of.MapIndex(key))
			if err != nil {
				return nil, err
			}
			values.SetMapIndex(key, reflect.ValueOf(value))
		}
		return encoded(values.Interface())
	}
	return encoded(of.Interface())
}

// encoded returns a value as JSON, without HTML's escapes.
func encoded(value any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
