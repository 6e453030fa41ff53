package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gpustack/host"
)

// Decode parses a report that gpustack host guests printed, in JSON. A missing field is an error,
// unlike an empty one; unknown fields are ignored. Its error joins everything that is wrong with the
// fields.
func Decode(text []byte) (Report, error) {
	var fields any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		return Report{}, err
	}
	var r Report
	var f problems
	f.fill(reflect.ValueOf(&r).Elem(), fields, "")
	if len(f.all) == 0 {
		f.check(r)
	}
	if err := errors.Join(f.all...); err != nil {
		return Report{}, err
	}
	return r, nil
}

type problems struct {
	all []error
}

func (f *problems) addf(format string, args ...any) {
	f.all = append(f.all, fmt.Errorf(format, args...))
}

// fill copies parsed fields into a value of the same structure, field by field. at is the path
// of the field, for messages.
func (f *problems) fill(into reflect.Value, document any, at string) {
	_, isText := into.Addr().Interface().(interface{ UnmarshalText([]byte) error })
	switch {
	case into.Kind() == reflect.Struct && !isText:
		object, ok := document.(map[string]any)
		if !ok {
			f.addf("%s: not an object", at)
			return
		}
		for i := range into.NumField() {
			name := into.Type().Field(i).Tag.Get("json")
			if name == "-" {
				continue
			}
			value, ok := object[name]
			if !ok {
				f.addf("%s is missing", join(at, name))
				continue
			}
			f.fill(into.Field(i), value, join(at, name))
		}
	case document == nil && (into.Kind() == reflect.Pointer || into.Kind() == reflect.Slice):
		// Stays nil: unknown.
	case into.Kind() == reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		f.fill(into.Elem(), document, at)
	case into.Kind() == reflect.Slice:
		list, ok := document.([]any)
		if !ok {
			f.addf("%s: not a list", at)
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(list), len(list)))
		for i := range list {
			f.fill(into.Index(i), list[i], fmt.Sprintf("%s[%d]", at, i))
		}
	default:
		text, err := json.Marshal(document)
		if err == nil && document == nil {
			err = errors.New("is null")
		}
		if err == nil {
			err = json.Unmarshal(text, into.Addr().Interface())
		}
		if err != nil {
			f.addf("%s: %w", at, err)
		}
	}
}

func join(at, name string) string {
	return strings.TrimPrefix(at+"."+name, ".")
}

// check checks the parts of a report against each other.
func (f *problems) check(r Report) {
	complete := true
	var names []string
	for i, s := range r.Sources {
		names = append(names, s.Name)
		switch s.State {
		case Read:
		case Absent, Unreadable:
			complete = false
		default:
			f.addf("sources[%d].state: unknown state %q", i, s.State)
		}
	}
	if !slices.Equal(names, sourceNames()) {
		f.addf("sources: must be %s", strings.Join(sourceNames(), ", "))
	}
	if r.Complete != complete {
		f.addf("complete: %t, but the sources say %t", r.Complete, complete)
	}
	if r.Collected.IsZero() {
		f.addf("time: not a time")
	}
	for _, text := range []struct {
		name  string
		value *string
	}{
		{"nova_host", r.NovaHost}, {"host", r.Hostname},
		{"machine_id", r.MachineID}, {"boot_id", r.BootID},
	} {
		if r.Complete && text.value == nil || text.value != nil && *text.value == "" {
			f.addf("%s: is null or empty", text.name)
		}
	}
	for _, text := range []struct {
		name  string
		value *string
	}{{"nova_host", r.NovaHost}, {"host", r.Hostname}} {
		if text.value != nil && *text.value != "" {
			if _, err := host.ParseName(*text.value); err != nil {
				f.addf("%s: %w", text.name, err)
			}
		}
	}
	if r.MachineID != nil && *r.MachineID != "" {
		if _, err := host.ParseMachineID(*r.MachineID); err != nil {
			f.addf("machine_id: %w", err)
		}
	}
	if r.Token != nil {
		if _, err := ParseToken(*r.Token); err != nil {
			f.addf("token: %w", err)
		}
	}
	if r.Clock != nil && r.Clock.MaxErrorUS < 0 {
		f.addf("clock.max_error_us: %d is negative", r.Clock.MaxErrorUS)
	}
	f.checkLists(r)
}

func (f *problems) checkLists(r Report) {
	known := func(name string, isNil bool) {
		if r.Complete && isNil {
			f.addf("%s: is null although the report is complete", name)
		}
	}
	uuid := func(name string, value *string) {
		if value == nil {
			return
		}
		if parsed, err := parseUUID(*value); err != nil || parsed != *value {
			f.addf("%s: not a uuid in lower case: %.40q", name, *value)
		}
	}
	known("virtual_functions", r.VirtualFunctions == nil)
	known("booted", r.Booted == nil)
	known("nova_compute", r.NovaCompute == nil)
	for i, n := range r.NovaCompute {
		at := fmt.Sprintf("nova_compute[%d]", i)
		known(at+".started", n.Started == nil)
		if n.AgeSeconds != nil && *n.AgeSeconds < 0 {
			f.addf("%s.age_seconds: %d is negative", at, *n.AgeSeconds)
		}
	}
	known("holders", r.Holders == nil)
	for i, h := range r.Holders {
		at := fmt.Sprintf("holders[%d]", i)
		known(at+".functions", h.Functions == nil)
		known(at+".asked", h.Asked == nil)
		uuid(at+".uuid", h.UUID)
		if open := count(h.Group != nil, h.Device != nil, h.VDPA != nil); open != 1 {
			f.addf("%s: must have one of iommu_group, vfio_device and vdpa_device, has %d", at, open)
		}
	}
	known("guests", r.Guests == nil)
	for i, g := range r.Guests {
		at := fmt.Sprintf("guests[%d]", i)
		known(at+".asked", g.Asked == nil)
		uuid(at+".uuid", g.UUID)
	}
	known("domains", r.Domains == nil)
	for i, d := range r.Domains {
		at := fmt.Sprintf("domains[%d]", i)
		known(at+".functions", d.Functions == nil)
		known(at+".files", d.Files == nil)
		uuid(at+".uuid", &d.UUID)
	}
}

// count returns how many of the conditions are true.
func count(conditions ...bool) (n int) {
	for _, is := range conditions {
		if is {
			n++
		}
	}
	return n
}
