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
	list := func(name string, values []any) {
		fmt.Fprintf(&b, "%s  %q: [", separator, name)
		for i, value := range values {
			if i > 0 {
				b.WriteString(",")
			}
			line, err := json.Marshal(value)
			errs = append(errs, err)
			fmt.Fprintf(&b, "\n    %s", line)
		}
		b.WriteString("]")
		separator = ",\n"
	}
	files := func(name string, hashes []Hash) { list(name, host.Map(hashes, func(h Hash) any { return h })) }
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
	}
	for _, f := range guests.All() {
		functions = append(functions, recordLine{f.Address, f})
	}
	for _, f := range containers.All() {
		functions = append(functions, recordLine{f.Address, roled{OfContainer, f}})
	}
	slices.SortStableFunc(functions, func(a, b recordLine) int { return a.address.Compare(b.address) })
	list("functions", host.Map(functions, func(l recordLine) any { return l.value }))
	if guests != nil {
		field("arguments", guests.Arguments)
		files("files", guests.Files)
	}
	if containers != nil {
		field("containers", containers.Options)
		files("container_files", containers.Files)
	}
	b.WriteString("\n}\n")
	return b.Bytes(), errors.Join(errs...)
}

// recordLine is a line of the list of functions, with the address by which it is ordered.
type recordLine struct {
	address pci.Address
	value   any
}
