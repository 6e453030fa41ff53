package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/pci"
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
	separator := "{\n"
	field := func(name string, value any) {
		line, err := json.Marshal(value)
		errs = append(errs, err)
		fmt.Fprintf(&b, "%s  %q: %s", separator, name, line)
		separator = ",\n"
	}
	list := func(name string, lines []string) {
		fmt.Fprintf(&b, "%s  %q: [", separator, name)
		for i, line := range lines {
			if i > 0 {
				b.WriteString(",")
			}
			b.WriteString("\n    " + line)
		}
		b.WriteString("]")
		separator = ",\n"
	}
	field("schema", host.Schema)
	field("kind", contractKind)
	var functions []recordLine
	if guests != nil {
		field("driver", guests.Driver)
		field("selected", guests.Selected)
		field("allowed", guests.Allowed)
		field("allow_unsafe_interrupts", guests.Unsafe)
		field("nvswitch", guests.NVSwitch)
		field("take_over", guests.TakeOver)
		for _, f := range guests.Functions {
			functions = append(functions, recordLine{f.Address, f})
		}
	}
	if containers != nil {
		for _, f := range containers.Functions {
			functions = append(functions, recordLine{f.Address, roled{OfContainer, f}})
		}
	}
	slices.SortStableFunc(functions, func(a, b recordLine) int { return a.address.Compare(b.address) })
	lines, err := texts(functions, func(l recordLine) any { return l.value })
	errs = append(errs, err)
	list("functions", lines)
	if guests != nil {
		field("arguments", guests.Arguments)
		lines, err := texts(guests.Files, func(h Hash) any { return h })
		errs = append(errs, err)
		list("files", lines)
	}
	if containers != nil {
		field("containers", containers.Options)
		lines, err := texts(containers.Files, func(h Hash) any { return h })
		errs = append(errs, err)
		list("container_files", lines)
	}
	b.WriteString("\n}\n")
	return b.Bytes(), errors.Join(errs...)
}

// recordLine is a line of the list of functions, with the address by which it is ordered.
type recordLine struct {
	address pci.Address
	value   any
}

func texts[T any](list []T, value func(T) any) ([]string, error) {
	var lines []string
	for _, element := range list {
		line, err := json.Marshal(value(element))
		if err != nil {
			return nil, err
		}
		lines = append(lines, string(line))
	}
	return lines, nil
}
