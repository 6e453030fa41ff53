package main

import (
	"reflect"
	"strings"
	"testing"

	"gpustack/host/document"
	"gpustack/host/machine"
)

// TestKindsOfDocuments: each document that a command prints is recognized by its fields as the
// output of that command, so that a reader of another kind can name it.
func TestKindsOfDocuments(t *testing.T) {
	kinds := map[document.Kind]reflect.Type{
		document.HostScan:        reflect.TypeFor[scanReport](),
		document.HostGuests:      reflect.TypeFor[guestsReport](),
		document.HostCheck:       reflect.TypeFor[hostCheckReport](),
		document.HostPrepare:     reflect.TypeFor[prepareReport](),
		document.HostBind:        reflect.TypeFor[driversReport](),
		document.NovaCheck:       reflect.TypeFor[novaCheckReport](),
		document.NovaConfigure:   reflect.TypeFor[novaReport](),
		document.FlavorCreate:    reflect.TypeFor[flavorReport](),
		document.FlavorDelete:    reflect.TypeFor[flavorDeleteReport](),
		document.FlavorList:      reflect.TypeFor[flavorListReport](),
		document.RepairMigration: reflect.TypeFor[repairReport](),
		document.History:         reflect.TypeFor[historyReport](),
		document.Undo:            reflect.TypeFor[undoReport](),
		document.Contract:        reflect.TypeFor[machine.Contract](),
	}
	recognized := map[string]bool{}
	for kind, of := range kinds {
		fields := map[string]bool{}
		topFields(of, fields)
		if got := document.KindOf(fields); got != kind {
			t.Errorf("the document of %s is recognized as %s", kind, got)
		}
		for _, name := range strings.Split(string(kind), " or ") {
			recognized[name] = true
		}
	}
	a := newApp(testUI(t), []string{"gpustack"})
	for path, c := range commands(a.Commands) {
		if findFlag(c.Flags, "output") != nil && !recognized[path] {
			t.Errorf("%s prints a document that host/document does not recognize: add a Kind", path)
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
