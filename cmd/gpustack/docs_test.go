package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/cmd/gpustack/views"
	"gpustack/host/rdma"
)

// TestJSONIsDescribed compares docs/json.md with the types: each field of a report is in its
// section, and no other. Fields that the reports of all changes have are in a section of their own.
func TestJSONIsDescribed(t *testing.T) {
	text, err := os.ReadFile("../../docs/json.md")
	if err != nil {
		t.Fatal(err)
	}
	described := documents()
	described["Every command that changes something"] = reflect.TypeFor[views.Report]()
	described["Every document"] = reflect.TypeFor[views.Head]()
	described["Refusals and errors"] = reflect.TypeFor[views.Failure]()
	for command, report := range described {
		t.Run(command, func(t *testing.T) {
			_, section, ok := strings.Cut(string(text), "\n## "+command+"\n")
			if !ok {
				t.Fatal("no section")
			}
			section, _, _ = strings.Cut(section, "\n## ")
			var described []string
			for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(section, -1) {
				for _, name := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
					described = append(described, name[1])
				}
			}
			if diff := cmp.Diff(fieldNames(report), described); diff != "" {
				t.Errorf("fields in the order of the types, (-types +docs):\n%s", diff)
			}
		})
	}
}

// fieldNames lists a type's JSON fields, its own first, then those of the
// objects in it, as docs/json.md has them.
func fieldNames(of reflect.Type) []string {
	return newFields(of, map[reflect.Type]bool{})
}

// newFields is fieldNames without the types that once lists already.
func newFields(of reflect.Type, once map[reflect.Type]bool) []string {
	var names []string
	var nested []reflect.Type
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Type == reflect.TypeFor[views.Report]() {
			continue
		}
		if field.Anonymous { // its fields are ours
			names = append(names, newFields(field.Type, once)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" { // encoding/json writes neither
			continue
		}
		names = append(names, name)
		inner := field.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && !inner.Implements(reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()) {
			if !slices.Contains(nested, inner) {
				nested = append(nested, inner)
			}
		}
	}
	for _, inner := range nested {
		if onlyOnce := inner == reflect.TypeFor[rdma.Node](); onlyOnce && once[inner] {
			continue
		}
		once[inner] = true
		names = append(names, newFields(inner, once)...)
	}
	return names
}
