package term

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"

	"gpustack/host"
)

// visitor copies the values of a document as they are printed: commands and texts completed, so
// that what an operator copies from a document is the same as what is printed for people, and empty
// lists in place of nil ones, which encoding/json would write as null. A list that may be null has
// the tag null:"zero", as in the schemas. A visitor without functions leaves commands and texts as
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

// members returns the members of a struct as they are printed, in the order of encoding/json.
func (v visitor) members(of any) (list []member, err error) {
	text, err := encoded(v.printed(reflect.ValueOf(of)).Interface())
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)}
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

// encoded returns a value as JSON, without HTML's escapes.
func encoded(value any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return b.Bytes(), err
}

// printed returns a copy of a value as it is printed.
func (v visitor) printed(value reflect.Value) reflect.Value {
	t := value.Type()
	switch {
	case t == reflect.TypeFor[host.Text]() && v.text != nil:
		return reflect.ValueOf(host.Text(v.text(host.Text(value.String()))))
	case t == reflect.TypeFor[host.Command]() && v.command != nil:
		return reflect.ValueOf(v.command(value.Interface().(host.Command)))
	case t.Kind() != reflect.Pointer && (t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]())):
		return value
	}
	to := reflect.New(t).Elem()
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return value
		}
		of := v.printed(value.Elem())
		if t.Kind() == reflect.Interface {
			return of
		}
		to.Set(reflect.New(t.Elem()))
		to.Elem().Set(of)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return value
		}
		to.Set(reflect.MakeSlice(t, value.Len(), value.Len()))
		for i := range value.Len() {
			to.Index(i).Set(v.printed(value.Index(i)))
		}
	case reflect.Map:
		if value.IsNil() {
			return value
		}
		to.Set(reflect.MakeMapWithSize(t, value.Len()))
		for _, key := range value.MapKeys() {
			to.SetMapIndex(key, v.printed(value.MapIndex(key)))
		}
	case reflect.Struct:
		to.Set(value)
		v.fill(to)
	default:
		return value
	}
	return to
}

// fill sets the fields of a struct that are printed, those of embedded structs too.
func (v visitor) fill(of reflect.Value) {
	for i := range of.NumField() {
		switch f, value := of.Type().Field(i), of.Field(i); {
		case f.Anonymous && value.Kind() == reflect.Struct:
			v.fill(value)
		case f.IsExported() && f.Tag.Get("json") != "-" && (f.Tag.Get("null") == "" || !value.IsZero()):
			value.Set(v.printed(value))
		}
	}
}
