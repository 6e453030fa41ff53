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
// Unknown fields are ignored. Everything else is an error:
//
//   - a field that is missing, unless its tag says omitempty;
//   - a field whose name differs in case;
//   - null where v cannot hold it, unless the tag of the field says null:"zero";
//   - data after the document.
//
// The error names all missing fields in one line, by their place: functions[2].driver.
func DecodeJSON(data []byte, v any) error {
	if err := decode(data, v); err != nil {
		return err
	}
	document, err := decodeTree(data)
	if err != nil {
		return err
	}
	return complete(document, v)
}

// Schema is the number of the format of every file that gpustack reads again: the contract, the
// records, the journal's entries and documents.
const Schema = 1

// ErrSchema means that a file has another number of format than [Schema], or none.
var ErrSchema = WithHint(fmt.Errorf("this version of gpustack reads schema %d", Schema), "undo it with the version of gpustack that wrote it")

// DecodeSchema decodes a file of gpustack's own as [DecodeJSON] does. Its field schema must have the
// value [Schema], and its field kind the value kind, unless that is "". Both are checked first: in
// another format, the other fields may be others too.
//
// Errors: ErrSchema. All name the file.
func DecodeSchema(file, kind string, data []byte, v any) error {
	return OfFile(file, decodeSchema(kind, data, v))
}

func decodeSchema(kind string, data []byte, v any) error {
	document, err := decodeTree(data)
	if err != nil {
		return err
	}
	if fields, ok := document.(map[string]any); ok {
		switch found, ok := fields["schema"]; {
		case !ok:
			return fmt.Errorf("no schema: %w", ErrSchema)
		case found != json.Number(strconv.Itoa(Schema)):
			text, err := json.Marshal(found)
			return errors.Join(err, fmt.Errorf("schema %s: %w", text, ErrSchema))
		}
		if is := fields["kind"]; kind != "" && is != kind {
			text, err := json.Marshal(is)
			return errors.Join(err, fmt.Errorf("kind %s: expected %q", text, kind))
		}
	}
	if err := decode(data, v); err != nil {
		return err
	}
	return complete(document, v)
}

// decode decodes a document, which must be all of data.
func decode(data []byte, v any) error {
	return decodeWith(json.NewDecoder(bytes.NewReader(data)), v)
}

// decodeTree decodes a document into maps and lists, in which a field is either there or not.
func decodeTree(data []byte) (tree any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err = decodeWith(d, &tree)
	return tree, err
}

func decodeWith(d *json.Decoder, v any) error {
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("the JSON document ends early")
		}
		return fmt.Errorf("malformed JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("malformed JSON: more data after the document, at byte %d", d.InputOffset())
	}
	return nil
}

// complete returns an error if a document lacks anything that v, which was decoded from it, needs.
func complete(document, v any) error {
	if problems := missing("", document, reflect.TypeOf(v).Elem()); len(problems) > 0 {
		return fmt.Errorf("malformed JSON: %s", strings.Join(problems, ", "))
	}
	return nil
}

// missing returns a text for each place below at where a value of type t was decoded from less
// than t needs. The value has been decoded before, so its types are right.
func missing(at string, value any, t reflect.Type) (problems []string) {
	if value == nil {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
			return nil
		}
		if t == reflect.TypeFor[Bool]() {
			return nil
		}
		return []string{orDocument(at) + " is null"}
	}
	if decodesItself(t) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return missing(at, value, t.Elem())
	case reflect.Struct:
		fields, _ := value.(map[string]any)
		return missingFields(at, fields, t)
	case reflect.Slice, reflect.Array:
		elements, _ := value.([]any) // a string in base64 has none
		for i, element := range elements {
			if isWhole(element) {
				continue
			}
			problems = append(problems, missing(fmt.Sprintf("%s[%d]", at, i), element, t.Elem())...)
		}
	case reflect.Map:
		elements, _ := value.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(elements)) {
			problems = append(problems, missing(at+"."+key, elements[key], t.Elem())...)
		}
	}
	return problems
}

// isWhole reports whether nothing can be missing in a value: it is neither null nor has elements.
func isWhole(value any) bool {
	switch value.(type) {
	case nil, map[string]any, []any:
		return false
	}
	return true
}

func missingFields(at string, fields map[string]any, t reflect.Type) (problems []string) {
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
		value, ok := fields[name]
		if isWhole(value) {
			continue
		}
		place := strings.TrimPrefix(at+"."+name, ".")
		switch {
		case ok && value == nil && f.Tag.Get("null") == "zero":
		case ok:
			problems = append(problems, missing(place, value, f.Type)...)
		case !strings.Contains(options, "omitempty"):
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
