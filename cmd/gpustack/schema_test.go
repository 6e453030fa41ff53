package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/document"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/operate/node"
)

// documents returns the type of the report of each command that prints documents. docs/schema and
// docs/json.md are made from the types: after a change of one, run make schema.
func documents() map[string]reflect.Type {
	return map[string]reflect.Type{
		"container check":   reflect.TypeFor[views.ContainerCheck](),
		"container prepare": reflect.TypeFor[views.ContainerPrepare](),
		"nova drain":        reflect.TypeFor[views.NovaDrain](),
		"nova drain --list": reflect.TypeFor[views.Drained](),
		"nova enable":       reflect.TypeFor[views.NovaDrain](),
		"fleet diff":        reflect.TypeFor[views.FleetDiff](),
		"fleet plan":        reflect.TypeFor[views.FleetPlan](),
		"fleet show":        reflect.TypeFor[views.FleetShow](),
		"flavor create":     reflect.TypeFor[views.FlavorPlan](),
		"flavor delete":     reflect.TypeFor[views.FlavorPlan](),
		"image check":       reflect.TypeFor[views.ImageCheck](),
		"image set":         reflect.TypeFor[views.ImageSet](),
		"flavor list":       reflect.TypeFor[views.FlavorList](),
		"flavor test":       reflect.TypeFor[views.FlavorTest](),
		"history":           reflect.TypeFor[views.History](),
		"host bind":         reflect.TypeFor[views.Drivers](),
		"host check":        reflect.TypeFor[views.HostCheck](),
		"status":            reflect.TypeFor[views.Status](),
		"host guests":       reflect.TypeFor[guest.Report](),
		"host prepare":      reflect.TypeFor[views.Prepare](),
		"host release":      reflect.TypeFor[views.Drivers](),
		"host scan":         reflect.TypeFor[node.Scan](),
		"rdma check":        reflect.TypeFor[views.RDMACheck](),
		"rdma scan":         reflect.TypeFor[node.RDMAScan](),
		"rdma test":         reflect.TypeFor[views.RDMATest](),
		"container test":    reflect.TypeFor[views.ContainerTest](),
		"nova check":        reflect.TypeFor[views.NovaCheck](),
		"nova configure":    reflect.TypeFor[views.NovaConfigure](),
		"nova devices":      reflect.TypeFor[views.NovaDevices](),
		"nova explain":      reflect.TypeFor[views.NovaExplain](),
		"rdma prepare":      reflect.TypeFor[views.RDMAPrepare](),
		"repair-migration":  reflect.TypeFor[views.Repair](),
		"undo":              reflect.TypeFor[views.Undo](),
	}
}

const (
	schemaDir  = "../../docs/schema"
	draft      = "https://json-schema.org/draft/2020-12/schema"
	howToMake  = "if the change is intended, run: make schema"
	failedOnly = "failure" // the schema of commands that print no other document
)

// schemaFile returns the name of the schema of a command.
func schemaFile(command string) string {
	return strings.NewReplacer(" --", "-", " ", "-").Replace(command) + ".json"
}

// TestSchemas compares docs/schema with the types of the documents. -update writes it.
func TestSchemas(t *testing.T) {
	made := map[string][]byte{}
	add := func(command string, report reflect.Type) {
		text, err := json.MarshalIndent(documentSchema(command, report), "", "  ")
		hosttest.NoError(t, err)
		made[schemaFile(command)] = append(text, '\n')
	}
	add(failedOnly, nil)
	for command, report := range documents() {
		add(command, report)
	}
	names, err := filepath.Glob(schemaDir + "/*")
	hosttest.NoError(t, err)
	for _, name := range names {
		if made[filepath.Base(name)] != nil {
			continue
		}
		if t.Errorf("%s: no command has this schema: remove it", name); *update {
			if err := os.Remove(name); err != nil {
				t.Error(err)
			}
		}
	}
	for name, text := range made {
		file := filepath.Join(schemaDir, name)
		if *update {
			hosttest.NoError(t, errors.Join(os.MkdirAll(schemaDir, 0o755), os.WriteFile(file, text, 0o644)))
		}
		if is, err := os.ReadFile(file); err != nil || !bytes.Equal(is, text) {
			t.Errorf("docs/schema/%s is not the schema of the document: %s (-file +document):\n%s", name, howToMake, cmp.Diff(string(is), string(text)))
		}
	}
}

// TestDocumentsAreKnown: documents has every command with a format for programs, and no other.
func TestDocumentsAreKnown(t *testing.T) {
	var with []string
	for path, c := range args.Commands(newApp(testUI(t), []string{"gpustack"}).Commands) {
		if printsDocuments(c) {
			with = append(with, path)
			if args.FindFlag(c.Flags, "list") != nil {
				with = append(with, path+" --list")
			}
		}
	}
	slices.Sort(with)
	hosttest.EqualIn(t, "commands with -o json (-commands +documents of schema_test.go)", with, slices.Sorted(maps.Keys(documents())))
}

func printsDocuments(c *cli.Command) bool {
	flag, ok := args.FindFlag(c.Flags, "output").(args.ChoiceFlag)
	return ok && slices.Contains(flag.Words, term.FormatJSON) && slices.Contains(flag.Words, term.FormatYAML)
}

// documentSchema returns the schema of a command's documents: the report, which may end with what
// it was refused for or has failed with, or that alone.
func documentSchema(command string, report reflect.Type) *jsonschema.Schema {
	failed := typeSchema(reflect.TypeFor[views.Failure]())
	beginning := func(s *jsonschema.Schema, kind any) {
		head := typeSchema(reflect.TypeFor[views.Head]())
		var added []string
		for _, name := range head.PropertyOrder {
			if s.Properties[name] == nil {
				s.Properties[name] = head.Properties[name]
				added = append(added, name)
			}
		}
		s.PropertyOrder = slices.Insert(s.PropertyOrder, 1, added...)
		s.Required = slices.Insert(s.Required, 1, added...)
		s.Properties["kind"] = &jsonschema.Schema{Type: "string", Const: &kind}
	}
	beginning(failed, string(document.Failure))
	failed.AnyOf = []*jsonschema.Schema{{Required: []string{"refusals"}}, {Required: []string{"errors"}}}
	whole := failed
	if report != nil {
		whole = &jsonschema.Schema{Defs: map[string]*jsonschema.Schema{"report": typeSchema(report), "failure": failed},
			AnyOf: []*jsonschema.Schema{{Ref: "#/$defs/report"}, {Ref: "#/$defs/failure"}}}
		of := whole.Defs["report"]
		beginning(of, command)
		for _, name := range []string{"refusals", "errors"} {
			of.Properties[name] = failed.Properties[name]
			of.PropertyOrder = append(of.PropertyOrder, name)
		}
	}
	whole.Schema = draft
	whole.Title = "gpustack " + command + " -o json"
	if report == nil {
		whole.Title = "a command line of gpustack that was refused or has failed, with -o json"
	}
	return whole
}

// typeSchema returns the schema of what encoding/json writes for a type. Pointers may be null, and
// so may fields with the tag null:"zero".
func typeSchema(of reflect.Type) *jsonschema.Schema {
	switch of {
	case reflect.TypeFor[pci.Address]():
		return &jsonschema.Schema{Type: "string", Pattern: `^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`}
	case reflect.TypeFor[pci.ID](), reflect.TypeFor[pci.Class]():
		return &jsonschema.Schema{Type: "string", Pattern: `^[0-9a-f]{4}$`}
	case reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return &jsonschema.Schema{}
	case reflect.TypeFor[host.Bool]():
		return orNull(&jsonschema.Schema{Type: "boolean"})
	}
	if of.Kind() == reflect.Pointer {
		return orNull(typeSchema(of.Elem()))
	}
	if of.Implements(reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()) {
		return &jsonschema.Schema{Type: "string"}
	}
	switch of.Kind() {
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}
	case reflect.String:
		if words := enumerated(of); words != nil {
			return words
		}
		return &jsonschema.Schema{Type: "string"}
	case reflect.Float64:
		return &jsonschema.Schema{Type: "number"}
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}
		}
		element := of.Elem()
		if element.Kind() == reflect.Pointer { // no list has null
			element = element.Elem()
		}
		return &jsonschema.Schema{Type: "array", Items: typeSchema(element)}
	case reflect.Map:
		return &jsonschema.Schema{Type: "object", AdditionalProperties: typeSchema(of.Elem())}
	case reflect.Interface: // the body of a request
		return &jsonschema.Schema{Types: []string{"object", "array", "null"}}
	case reflect.Struct:
		return structSchema(of)
	}
	if slices.Contains([]reflect.Kind{reflect.Int, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64}, of.Kind()) {
		return &jsonschema.Schema{Type: "integer"}
	}
	panic(fmt.Sprintf("no schema of %s", of))
}

func structSchema(of reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: map[string]*jsonschema.Schema{}, AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	for _, f := range members(of) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		property := typeSchema(f.Type)
		if f.Tag.Get("null") != "" {
			property = orNull(property)
		}
		if name == "schema" {
			one := any(1)
			property = &jsonschema.Schema{Const: &one}
		}
		s.Properties[name] = property
		s.PropertyOrder = append(s.PropertyOrder, name)
		if options != "omitempty" {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

// members returns the fields of a struct that encoding/json writes, in its order.
func members(of reflect.Type) []reflect.StructField {
	return slices.DeleteFunc(reflect.VisibleFields(of), func(f reflect.StructField) bool { return f.Anonymous || jsonName(f) == "" })
}

func orNull(s *jsonschema.Schema) *jsonschema.Schema {
	if s.Enum != nil {
		s.Enum = append(slices.Clip(s.Enum), nil)
	}
	if s.Type != "" {
		s.Types, s.Type = []string{s.Type, "null"}, ""
	}
	return s
}

// severalTypes are the words that do not have one type, each with the reason.
func severalTypes() map[string]string {
	return map[string]string{
		"changes": "of an entry of history it is what the entry changed, elsewhere the changes",
		"flavor":  "in history it is the change of a flavor, in flavor test its name",
		"guest":   "of host scan it is the guest that has a device, of flavor test the time of the guest",
		"seen":    "of host check it is what was found, of flavor test the devices by product",
		"id":      "of a row of Nova's database it is a number, of a flavor a text",
	}
}

// TestSchemaWords: a name has the same type in all documents, apart from null.
func TestSchemaWords(t *testing.T) {
	types := map[string]map[string]string{} // by name: the types, and where each is first
	var walk func(at string, s *jsonschema.Schema)
	walk = func(at string, s *jsonschema.Schema) {
		for _, name := range s.PropertyOrder {
			property, place := s.Properties[name], at+"."+name
			if types[name] == nil {
				types[name] = map[string]string{}
			}
			if kind := kindOf(property); types[name][kind] == "" {
				types[name][kind] = place
			}
			walk(place, property)
		}
		if s.Items != nil {
			walk(at+"[]", s.Items)
		}
	}
	for _, command := range slices.Sorted(maps.Keys(documents())) {
		walk(command, documentSchema(command, documents()[command]).Defs["report"])
	}
	walk(failedOnly, documentSchema(failedOnly, nil))
	reasons := severalTypes()
	for _, name := range slices.Sorted(maps.Keys(types)) {
		if several := len(types[name]) > 1; several != (reasons[name] != "") {
			t.Errorf("%s has these types, but a word has one type in all documents: %v", name, types[name])
		}
	}
}

// kindOf returns the type of a value in words, without null: "array of string".
func kindOf(s *jsonschema.Schema) string {
	types := slices.DeleteFunc(append([]string{s.Type}, s.Types...), func(name string) bool { return name == "" || name == "null" })
	kind := strings.Join(types, " or ")
	if s.Items != nil {
		kind += " of " + kindOf(s.Items)
	}
	return kind
}

// unlikeSchema is the exit status of runChecked for a document that is not as its schema.
const unlikeSchema = 99

// runChecked runs the program. If the command line asks for a document, it compares what is printed
// on standard output with the schema: so every document that a test prints is checked.
func runChecked(args []string) (status int) {
	a := newApp(term.New(os.Stdin, os.Stdout, os.Stderr, os.Getenv), args)
	info, err := os.Stdout.Stat()
	if !a.ui.Document.Requested() || a.line.Help || err != nil || info.Mode()&os.ModeCharDevice != 0 {
		return run(args)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	var printed bytes.Buffer
	ended, stdout := make(chan error), os.Stdout
	go func() {
		_, err := io.Copy(io.MultiWriter(&printed, stdout), reader)
		reader.Close() // the program then finds its standard output closed
		ended <- err
	}()
	os.Stdout = writer
	status = run(args)
	os.Stdout = stdout
	writer.Close()
	if err := <-ended; err == nil {
		err = checkDocument(strings.Join(a.line.Path, " "), a.ui.Document.Format, printed.Bytes())
		if err != nil {
			fmt.Fprintf(os.Stderr, "gpustack %s: %v\n", strings.Join(args[1:], " "), err)
			return unlikeSchema
		}
	}
	return status
}

// resolved are the schemas of documents that were checked.
var resolved sync.Map

// checkDocument returns an error unless what a command has printed is exactly one document, as its
// schema describes it.
func checkDocument(command, format string, text []byte) error {
	printed, err := onlyDocument(format, text)
	if err != nil {
		return fmt.Errorf("%w: %q", err, text)
	}
	if kind, _ := printed["kind"].(string); documents()[kind] != nil {
		command = kind
	}
	if _, known := documents()[command]; !known {
		command = failedOnly
	}
	// TestSchemas compares this schema with the file, which an unprivileged program may be unable to
	// read. The alternative that is meant gives the better message.
	alternative := map[bool]string{true: "failure", false: "report"}[printed["kind"] == string(document.Failure)]
	schema, ok := resolved.Load(command + " " + alternative)
	if !ok {
		of := documentSchema(command, documents()[command])
		if of.Defs != nil {
			of = of.Defs[alternative]
		}
		if schema, err = of.Resolve(nil); err != nil {
			return err
		}
		resolved.Store(command+" "+alternative, schema)
	}
	if err := schema.(*jsonschema.Resolved).Validate(printed); err != nil {
		return fmt.Errorf("docs/schema/%s: %w (%s): %s", schemaFile(command), err, howToMake, text)
	}
	return nil
}

// onlyDocument parses the one document that a text must consist of.
func onlyDocument(format string, text []byte) (fields map[string]any, err error) {
	next := json.NewDecoder(bytes.NewReader(text)).Decode
	if format == term.FormatYAML {
		next = yaml.NewDecoder(bytes.NewReader(text)).Decode
	}
	var more any
	if err := next(&fields); err != nil {
		return nil, fmt.Errorf("no document: %w", err)
	}
	if err := next(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("more than one document: %w", err)
	}
	if format == term.FormatYAML { // its numbers are of other types
		text, err := json.Marshal(fields)
		if err != nil {
			return nil, err
		}
		return fields, json.Unmarshal(text, &fields)
	}
	return fields, nil
}
