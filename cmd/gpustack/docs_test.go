package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/rdma"
	"gpustack/operate/node"
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

// TestReportsSayEverything: every field is there on a machine that says nothing.
func TestReportsSayEverything(t *testing.T) {
	text, err := json.Marshal(node.Scan{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range fieldNames(reflect.TypeFor[node.Scan]())[:5] {
		if !strings.Contains(string(text), `"`+name+`":`) {
			t.Errorf("%s is left out of %s", name, text)
		}
	}
}

// TestHelpIsWhole: each command that people see says what it does, gives an
// example, and tells its exit status.
func TestHelpIsWhole(t *testing.T) {
	a := newApp(testUI(t), []string{"gpustack"})
	var seen []string
	for path, c := range args.Commands(a.Commands) {
		if len(c.Subcommands) > 0 {
			continue
		}
		seen = append(seen, path)
		if c.Usage == "" || c.Usage != strings.ToLower(c.Usage[:1])+c.Usage[1:] || strings.HasSuffix(c.Usage, ".") {
			t.Errorf("%s: usage %q", path, c.Usage)
		}
		if !strings.Contains(c.Description, "\n\nEXIT STATUS\n  0  ") {
			t.Errorf("%s: no exit status", path)
		}
		changes := slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), "yes") })
		if changes && !strings.Contains(c.Description, "\n  130  interrupted: ") {
			t.Errorf("%s: no exit status of an interrupted run", path)
		}
		if !c.Hidden && !strings.Contains(c.Description, "\n\nEXAMPLES\n  ") {
			t.Errorf("%s: no example", path)
		}
		for line := range strings.Lines(args.CommandHelp(path, c)) {
			if len(line) > 120 {
				t.Errorf("%s: a long line of help: %s", path, line)
			}
		}
		for _, flag := range c.Flags {
			if spelling, usage := args.DescribeFlag(flag); usage == "" || strings.Contains(usage, "`") || strings.HasSuffix(spelling, " ") {
				t.Errorf("%s: flag %q: %q", path, spelling, usage)
			}
		}
	}
	if !slices.Contains(seen, "host scan") {
		t.Errorf("looked at %q only", seen)
	}
}

// TestCasesAreDescribed: docs/repair.md has a heading for the letter of each case that
// repair-migration prints, and no other.
func TestCasesAreDescribed(t *testing.T) {
	text, err := os.ReadFile("../../docs/repair.md")
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, heading := range regexp.MustCompile(`(?m)^### Case ([A-Z]): \S`).FindAllStringSubmatch(string(text), -1) {
		described = append(described, heading[1])
	}
	sources, err := filepath.Glob("../../cleanup/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var printed []string
	for _, name := range sources {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, constant := range regexp.MustCompile(`(?m)^\s*(?:const )?Case\w+\s+Case = "([A-Z])"`).FindAllStringSubmatch(string(source), -1) {
			printed = append(printed, constant[1])
		}
	}
	slices.Sort(printed)
	if len(printed) < 18 {
		t.Errorf("only these cases were found: %q", printed)
	}
	if diff := cmp.Diff(printed, described); diff != "" {
		t.Errorf("cases (-cleanup +docs/repair.md):\n%s", diff)
	}
}
