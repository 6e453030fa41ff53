package term

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"

	"gpustack/host"
)

// visitor walks the values of a document and returns them as they are printed: commands and texts
// completed, so that what an operator copies from a document is the same as what is printed for
// people, and empty lists in place of nil ones, which encoding/json would write as null. A list
// that may be null has the tag null:"zero", as in the schemas. A visitor without functions leaves
// commands and texts as they are.
type visitor struct {
	text    func(host.Text) string
	command func(host.Command) host.Command
	// fields has of each struct type that was met those fields that may be printed otherwise than
	// they are: a document has many values of few types.
	fields map[reflect.Type][]field
}

// field is a field of a struct that may be printed otherwise than it is.
type field struct {
	index    int
	embedded bool // a struct, whose fields are those of the outer one
	null     bool // without a value it is written as null
}

func newVisitor(text func(host.Text) string, command func(host.Command) host.Command) visitor {
	return visitor{text, command, map[reflect.Type][]field{}}
}

// member is a member of a document: its name in JSON, its value, and what the value is printed
// with.
type member struct {
	name    string
	value   reflect.Value
	visitor visitor
}

// members returns the members of a struct in the order of encoding/json, those of embedded structs
// first: a field hides one of the same name in an embedded struct.
func (v visitor) members(of reflect.Value) (list []member) {
	var own, embedded []member
	names := map[string]bool{}
	for i := range of.NumField() {
		f, value := of.Type().Field(i), of.Field(i)
		if f.Anonymous {
			embedded = append(embedded, v.members(value)...)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || options == "omitempty" && isEmpty(value) {
			continue
		}
		names[name] = true
		if value.Kind() == reflect.Slice && value.IsNil() && !mayBeNull(f, value) {
			value = reflect.MakeSlice(value.Type(), 0, 0)
		}
		own = append(own, member{name, value, v})
	}
	for _, m := range embedded {
		if !names[m.name] {
			list = append(list, m)
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

// printed returns a value as it is printed. What it refers to is copied.
func (v visitor) printed(value reflect.Value) reflect.Value {
	switch t := value.Type(); {
	case t == textType && v.text != nil:
		return reflect.ValueOf(host.Text(v.text(host.Text(value.String()))))
	case t == commandType && v.command != nil:
		return reflect.ValueOf(v.command(value.Interface().(host.Command)))
	case !changes(t):
		return value
	}
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			return value
		}
		to := reflect.New(value.Type().Elem())
		to.Elem().Set(v.printed(value.Elem()))
		return to
	case reflect.Interface:
		if value.IsNil() {
			return value
		}
		return v.printed(value.Elem())
	case reflect.Slice:
		if e := value.Type().Elem(); !value.IsNil() && !mayChange(e) {
			return value
		}
		to := reflect.MakeSlice(value.Type(), value.Len(), value.Len())
		for i := range value.Len() {
			to.Index(i).Set(v.printed(value.Index(i)))
		}
		return to
	case reflect.Map:
		if value.IsNil() {
			return value
		}
		to := reflect.MakeMapWithSize(value.Type(), value.Len())
		for _, key := range value.MapKeys() {
			to.SetMapIndex(key, v.printed(value.MapIndex(key)))
		}
		return to
	case reflect.Struct:
		to := reflect.New(value.Type()).Elem()
		to.Set(value)
		v.fill(to)
		return to
	}
	return value
}

// fill sets the fields of a struct that are printed, those of embedded structs too.
func (v visitor) fill(of reflect.Value) {
	for _, f := range v.fieldsOf(of.Type()) {
		switch value := of.Field(f.index); {
		case f.embedded:
			v.fill(value)
		case !f.null || !value.IsZero():
			value.Set(v.printed(value))
		}
	}
}

// fieldsOf returns the fields of a struct type that may be printed otherwise than they are.
func (v visitor) fieldsOf(t reflect.Type) []field {
	fields, known := v.fields[t]
	if known {
		return fields
	}
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			fields = append(fields, field{index: i, embedded: true})
		case f.IsExported() && f.Tag.Get("json") != "-" && mayChange(f.Type):
			fields = append(fields, field{index: i, null: f.Tag.Get("null") != ""})
		}
	}
	v.fields[t] = fields
	return fields
}

// mayChange reports whether a value of the type may be printed otherwise than it is.
func mayChange(t reflect.Type) bool {
	return t == textType || t == commandType || changes(t)
}

// mayBeNull reports whether a field without a value is written as null.
func mayBeNull(f reflect.StructField, value reflect.Value) bool {
	return f.Tag.Get("null") != "" && value.IsZero()
}

var (
	textType      = reflect.TypeFor[host.Text]()
	commandType   = reflect.TypeFor[host.Command]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// changes reports whether a value of the type, apart from a command or a text itself, may be
// printed otherwise than it is. encoding/json writes bytes as a text, and leaves types with a
// method to that method.
func changes(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice:
		return t.Elem().Kind() != reflect.Uint8 && !marshals(t)
	case reflect.Pointer:
		to := t.Elem()
		return to == textType || to == commandType || changes(to) && !marshals(t)
	case reflect.Interface, reflect.Map, reflect.Struct:
		return !marshals(t)
	}
	return false
}

func marshals(t reflect.Type) bool {
	return t.Implements(jsonMarshaler) || t.Implements(textMarshaler)
}
