package image

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/nova/object"
)

// Move is a change of values of one image.
type Move struct {
	object.Head
	ID     string  `json:"id"`     // the image
	Name   string  `json:"name"`   // the image's name
	Owner  string  `json:"owner"`  // the id of the image's project
	Values []Value `json:"values"` // the values that were changed
}

// Value is a change of one value of an image: a property, min_disk or min_ram.
type Value struct {
	Name   string  `json:"name"`      // a property, "min_disk" or "min_ram"
	Before *string `json:"old_value"` // nil: the image does not have the property
	After  *string `json:"new_value"` // nil: the property is removed
	// why it is changed, for people; null: the operator has given it
	Why string `json:"reason" null:"zero"`
}

func equal(a, b *string) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func (v Value) same() bool { return equal(v.Before, v.After) }

// inverse returns the move that undoes this one.
func (m Move) inverse() Move {
	values := make([]Value, 0, len(m.Values))
	for _, v := range m.Values {
		values = append(values, Value{v.Name, v.After, v.Before, ""})
	}
	m.Values = values
	return m
}

func (m Move) after() map[string]*string {
	return host.By(m.Values, func(v Value) (string, *string) { return v.Name, v.After })
}

func (m Move) patches() []cloud.ImagePatch {
	patches := make([]cloud.ImagePatch, 0, len(m.Values))
	for _, v := range m.Values {
		patches = append(patches, cloud.ImagePatch{Name: v.Name, Exists: v.Before != nil, Value: v.After})
	}
	return patches
}

// Requests returns the request that makes the move; none if it changes nothing.
func (m Move) Requests() []cloud.Request {
	if len(m.Values) == 0 {
		return nil
	}
	body, err := cloud.PatchBody(m.patches())
	if err != nil {
		return nil // of a record that was edited; Check reports it
	}
	return []cloud.Request{{Method: "PATCH", Path: "/v2/images/" + m.ID, Body: body}}
}

// Side returns the name of the image, and the values that the move changes, before or after it.
func (m Move) Side(after bool) (name, text string) {
	var b strings.Builder
	for _, v := range m.Values {
		value := v.Before
		if after {
			value = v.After
		}
		if value != nil {
			b.WriteString(line(v.Name, *value))
		}
	}
	return "image " + m.Name, b.String()
}

// Text returns the values of an image that gpustack can change, a line for each, for diffs.
func Text(i cloud.Image) string {
	var b strings.Builder
	for _, name := range append([]string{cloud.MinDisk, cloud.MinRAM}, slices.Sorted(maps.Keys(i.Properties))...) {
		b.WriteString(line(name, *i.Value(name)))
	}
	return b.String()
}

func line(name, value string) string {
	switch name {
	case cloud.MinDisk:
		return fmt.Sprintf("%-12s %s GiB\n", "min-disk", value)
	case cloud.MinRAM:
		return fmt.Sprintf("%-12s %s MiB\n", "min-ram", value)
	}
	return fmt.Sprintf("%-12s %s=%s\n", "property", name, strings.ReplaceAll(value, "\n", `\n`))
}
