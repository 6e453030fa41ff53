package prepare

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"gpustack/host/machine"
)

// contractText returns a contract as JSON with one line for each field, function and file, so that
// its diff is readable.
func contractText(c machine.Contract) ([]byte, error) {
	var b bytes.Buffer
	var errs []error
	field := func(before, name string, value any) {
		line, err := json.Marshal(value)
		errs = append(errs, err)
		fmt.Fprintf(&b, "%s  %q: %s", before, name, line)
	}
	field("{\n", "schema", c.Schema)
	field(",\n", "driver", c.Driver)
	field(",\n", "selected", c.Selected)
	field(",\n", "allowed", c.Allowed)
	field(",\n", "allow_unsafe_interrupts", c.Unsafe)
	if c.NVSwitch != "" { // keeps records without the choice byte for byte
		field(",\n", "nvswitch", c.NVSwitch)
	}
	b.WriteString(",\n  \"functions\": ")
	errs = append(errs, lines(&b, c.Functions))
	field(",\n", "arguments", c.Arguments)
	b.WriteString(",\n  \"files\": ")
	errs = append(errs, lines(&b, c.Files))
	b.WriteString("\n}\n")
	return b.Bytes(), errors.Join(errs...)
}

// lines writes a list with one line for each element.
func lines[T any](b *bytes.Buffer, list []T) error {
	separator := "[\n"
	for _, element := range list {
		line, err := json.Marshal(element)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s    %s", separator, line)
		separator = ",\n"
	}
	if len(list) == 0 {
		b.WriteString("[")
	}
	b.WriteString("]")
	return nil
}
