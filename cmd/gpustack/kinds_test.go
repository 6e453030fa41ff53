package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/views"
	"gpustack/host/document"
	"gpustack/host/machine"
)

// TestKindsOfDocuments: each document that a command prints is recognized by its fields as the
// output of that command, so that a reader of another kind can name it.
func TestKindsOfDocuments(t *testing.T) {
	kinds := documents()
	kinds[string(document.Contract)] = reflect.TypeFor[machine.Contract]()
	kinds[string(document.Failure)] = reflect.TypeFor[views.Failure]()
	for command, of := range kinds {
		fields := map[string]bool{}
		topFields(of, fields)
		kind := document.KindOf(fields)
		if !slices.Contains(strings.Split(string(kind), " or "), command) {
			t.Errorf("the document of %s is recognized as %q: see keys in host/document", command, kind)
		}
		fields["errors"], fields["refusals"] = true, true // a report may end with them
		if again := document.KindOf(fields); again != kind {
			t.Errorf("the document of %s with errors is recognized as %q", command, again)
		}
	}
}

// topFields adds the names of a struct's JSON fields.
func topFields(of reflect.Type, names map[string]bool) {
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Anonymous {
			topFields(field.Type, names)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = true
	}
}
