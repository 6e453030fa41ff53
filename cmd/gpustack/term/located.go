package term

import (
	"encoding"
	"encoding/json"
	"reflect"

	"gpustack/host"
)

// located completes the commands and texts of a report: what an operator copies from a document is
// the same as what is printed for people.
type located struct {
	text    func(host.Text) string
	command func(host.Command) host.Command
}

// of returns a copy of a report with its commands and texts completed. A report whose remedies are
// for other machines than the one that the command line names has a method Elsewhere that returns
// true, and remains as it is.
func (l located) of(report any) any {
	if elsewhere, ok := report.(interface{ Elsewhere() bool }); report == nil || l.text == nil || ok && elsewhere.Elsewhere() {
		return report
	}
	changed := reflect.New(reflect.TypeOf(report)).Elem()
	changed.Set(reflect.ValueOf(report))
	l.complete(changed)
	return changed.Interface()
}

// complete completes a value that can be set. What it refers to is copied first.
func (l located) complete(v reflect.Value) {
	if !v.CanSet() {
		return // encoding/json does not print it
	}
	switch is := v.Interface().(type) {
	case host.Text:
		v.Set(reflect.ValueOf(host.Text(l.text(is))))
		return
	case host.Command:
		v.Set(reflect.ValueOf(l.command(is)))
		return
	case json.Marshaler, encoding.TextMarshaler:
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			changed := reflect.New(v.Type().Elem())
			changed.Elem().Set(v.Elem())
			l.complete(changed.Elem())
			v.Set(changed)
		}
	case reflect.Slice:
		if !v.IsNil() {
			changed := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
			reflect.Copy(changed, v)
			for i := range changed.Len() {
				l.complete(changed.Index(i))
			}
			v.Set(changed)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			l.complete(v.Field(i))
		}
	default: // no other kind holds a text or a command
	}
}
