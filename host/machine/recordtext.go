package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"gpustack/host"
)

// RecordText returns the content of the contract's file: what is recorded for guests and for
// containers, either of which may be nil. It is nil if both are. Each field, function and file has
// a line, so that its diff is readable.
func RecordText(guests *Contract, containers *Containers) ([]byte, error) {
	if guests == nil && containers == nil {
		return nil, nil
	}
	var b bytes.Buffer
	var errs []error
	write := func(format string, value any) {
		line, err := json.Marshal(value)
		errs = append(errs, err)
		fmt.Fprintf(&b, format, line)
	}
	section := func(name string, of reflect.Value) {
		if of.IsNil() {
			fmt.Fprintf(&b, ",\n  %q: null", name)
			return
		}
		of = of.Elem()
		separator := fmt.Sprintf(",\n  %q: {\n", name)
		for i := range of.NumField() {
			value := of.Field(i)
			fmt.Fprintf(&b, "%s    %q: ", separator, of.Type().Field(i).Tag.Get("json"))
			separator = ",\n"
			switch value.Interface().(type) {
			case []Function, []ContainerFunction, []Hash:
				b.WriteString("[")
				for k := range value.Len() {
					write(strings.Repeat(",", min(k, 1))+"\n      %s", value.Index(k).Interface())
				}
				b.WriteString("]")
			default:
				write("%s", value.Interface())
			}
		}
		b.WriteString("\n  }")
	}
	write("{\n  \"schema\": %s", host.Schema)
	write(",\n  \"kind\": %s", contractKind)
	section("guests", reflect.ValueOf(guests))
	section("containers", reflect.ValueOf(containers))
	b.WriteString("\n}\n")
	return b.Bytes(), errors.Join(errs...)
}
