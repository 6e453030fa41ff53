package host

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// DecodeJSON decodes a document of gpustack's own, such as the journal's entries and the contract,
// into v, which must be a pointer.
//
// Unknown fields are ignored, so that this release can undo what a later one recorded. Everything
// else is an error:
//
//   - a field that is missing, unless its tag says omitempty or absent:"zero" (early releases did
//     not write it);
//   - a field whose name differs in case;
//   - null where v cannot hold it, unless the tag of the field says null:"zero";
//   - data after the document.
//
// The error names all missing fields in one line, by their place: functions[2].driver.
func DecodeJSON(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("the JSON document ends early")
		}
		return fmt.Errorf("malformed JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("malformed JSON: more data after the document, at byte %d", d.InputOffset())
	}
	if problems := missing("", data, reflect.TypeOf(v).Elem()); len(problems) > 0 {
		return fmt.Errorf("malformed JSON: %s", strings.Join(problems, ", "))
	}
	return nil
}

// DecodeSchema is DecodeJSON for a document whose field schema must have the value schema. That is
// checked first: with another one, the other fields may be others too.
func DecodeSchema(data []byte, schema int, v any) error {
	var document struct {
		Schema json.RawMessage `json:"schema"`
	}
	if err := DecodeJSON(data, &document); err != nil {
		return err
	}
	if found := string(document.Schema); found != strconv.Itoa(schema) {
		return fmt.Errorf("schema %s was written by another release of gpustack, this one reads schema %d", found, schema)
	}
	return DecodeJSON(data, v)
}

// missing returns a text for each place below at where a value of type t was decoded from less
// than t needs. The data has been decoded before, so its types are right.
func missing(at string, data []byte, t reflect.Type) (problems []string) {
	if isNull(data) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
			return nil
		}
		return []string{orDocument(at) + " is null"}
	}
	if decodesItself(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return missing(at, data, t.Elem())
	case reflect.Struct:
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			return []string{fmt.Sprintf("%s: %v", orDocument(at), err)}
		}
		return missingFields(at, fields, t)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return nil // base64
		}
		var elements []json.RawMessage
		if err := json.Unmarshal(data, &elements); err != nil {
			return []string{fmt.Sprintf("%s: %v", orDocument(at), err)}
		}
		for i, element := range elements {
			problems = append(problems, missing(fmt.Sprintf("%s[%d]", at, i), element, t.Elem())...)
		}
	case reflect.Map:
		var elements map[string]json.RawMessage
		if err := json.Unmarshal(data, &elements); err != nil {
			return []string{fmt.Sprintf("%s: %v", orDocument(at), err)}
		}
		for _, key := range slices.Sorted(maps.Keys(elements)) {
			problems = append(problems, missing(at+"."+key, elements[key], t.Elem())...)
		}
	}
	return problems
}

func isNull(data []byte) bool {
	return bytes.Equal(bytes.TrimSpace(data), []byte("null"))
}

func missingFields(at string, fields map[string]json.RawMessage, t reflect.Type) (problems []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			problems = append(problems, missingFields(at, fields, f.Type)...)
			continue
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		place := strings.TrimPrefix(at+"."+name, ".")
		value, ok := fields[name]
		switch {
		case ok && f.Tag.Get("null") == "zero" && isNull(value):
		case ok:
			problems = append(problems, missing(place, value, f.Type)...)
		case !strings.Contains(options, "omitempty") && f.Tag.Get("absent") != "zero":
			problems = append(problems, place+" is missing")
		}
	}
	return problems
}

// decodesItself reports whether values of the type are decoded by a method of the type.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func orDocument(at string) string {
	if at == "" {
		return "the document"
	}
	return at
}
