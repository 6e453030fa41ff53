package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

const jsonDoc = "../../docs/json.md"

// TestJSONDoc compares docs/json.md with the types of the documents and the comments of their
// fields. -update writes it.
func TestJSONDoc(t *testing.T) {
	made := newDocWriter(t).write()
	if *update {
		hosttest.NoError(t, os.WriteFile(jsonDoc, []byte(made), 0o644))
	}
	if is, err := os.ReadFile(jsonDoc); err != nil || string(is) != made {
		t.Errorf("docs/json.md does not have the comments of the documents' fields: %s (-file +comments):\n%s", howToMake, cmp.Diff(string(is), made))
	}
}

// docWriter writes docs/json.md.
type docWriter struct {
	t        *testing.T
	packages map[string]*commented
	titles   map[reflect.Type]string // headings of types that are described once and linked
	text     strings.Builder
}

// newDocWriter finds the types that several fields have: each gets a heading of its own.
func newDocWriter(t *testing.T) *docWriter {
	d := &docWriter{t: t, packages: map[string]*commented{}, titles: map[reflect.Type]string{
		reflect.TypeFor[views.Head]():    "Every document",
		reflect.TypeFor[views.Report]():  "Every command that changes something",
		reflect.TypeFor[views.Failure](): "Refusals and errors",
	}}
	uses := map[reflect.Type]int{}
	var count func(reflect.Type)
	count = func(of reflect.Type) {
		switch of = element(of); {
		case isObject(of):
			if uses[of]++; uses[of] > 1 {
				return
			}
			for i := range of.NumField() {
				if f := of.Field(i); f.Anonymous || jsonName(f) != "" {
					count(f.Type)
				}
			}
		case d.described(of):
			uses[of]++
		}
	}
	seen := map[reflect.Type]bool{}
	for _, report := range documents() {
		if !seen[report] { // two commands may have one report
			seen[report] = true
			count(report)
		}
	}
	count(reflect.TypeFor[views.Failure]())
	words := func(of reflect.Type) string {
		return strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(of.Name(), "$1 $2"))
	}
	named := map[string]int{}
	for of, n := range uses {
		if n > 1 && d.titles[of] == "" {
			named[words(of)]++
		}
	}
	for of, n := range uses {
		if n > 1 && d.titles[of] == "" {
			d.titles[of] = words(of)
			if named[words(of)] > 1 {
				d.titles[of] = filepath.Base(of.PkgPath()) + " " + words(of)
			}
		}
	}
	return d
}

// write returns the page.
func (d *docWriter) write() string {
	commands := slices.Sorted(maps.Keys(documents()))
	d.printf("# The documents\n\n")
	d.printf("<!-- Written by make schema, from the types of the documents and the comments of their fields. -->\n\n")
	d.printf("The fields of what each command prints with `-o json` and `-o yaml`, each with its type and its meaning. " +
		"[json-conventions.md](json-conventions.md) says what all documents have in common.\n")
	first := []reflect.Type{reflect.TypeFor[views.Head](), reflect.TypeFor[views.Report](), reflect.TypeFor[views.Failure]()}
	for _, of := range first {
		d.printf("\n- %s", link(d.titles[of]))
	}
	group := ""
	for _, command := range commands {
		before := "\n- "
		if words := strings.Fields(command); words[0] == group {
			before = " · "
		} else {
			group = words[0]
		}
		d.printf("%s%s", before, link(command))
	}
	d.printf("\n- %s\n", link("Shared by several fields"))
	for _, of := range first {
		d.printf("\n## %s\n\n", d.titles[of])
		d.fields(of, "", false)
	}
	sections := map[reflect.Type]string{}
	for _, command := range commands {
		d.printf("\n## %s\n\n", command)
		of := documents()[command]
		if sections[of] != "" {
			d.printf("The document is that of %s.\n", link(sections[of]))
			continue
		}
		sections[of] = command
		d.fields(of, "", true)
		d.checks(command)
	}
	d.printf("\n## Shared by several fields\n")
	shared := map[string]reflect.Type{}
	for of, title := range d.titles {
		if !slices.Contains(first, of) {
			shared[title] = of
		}
	}
	for _, title := range slices.Sorted(maps.Keys(shared)) {
		of := shared[title]
		d.printf("\n### %s\n\n%s\n\n", title, d.intro(of))
		if isObject(of) {
			d.fields(of, "", false)
		} else {
			d.words(of, "")
		}
	}
	return d.text.String()
}

func (d *docWriter) printf(format string, args ...any) { fmt.Fprintf(&d.text, format, args...) }

// fields writes a line for each field of an object, and below it those of objects in it. In
// documents, fields that all of them have are left out unless a comment says what is special.
func (d *docWriter) fields(of reflect.Type, indent string, document bool) {
	properties := structSchema(of).Properties
	for i := range of.NumField() {
		f := of.Field(i)
		in, name := element(f.Type), jsonName(f)
		switch comment := d.source(of).comments[of.Name()+"."+f.Name]; {
		case f.Anonymous && d.titles[in] != "":
			d.printf("%s- the fields of %s\n", indent, link(d.titles[in]))
		case f.Anonymous:
			d.fields(in, indent, false)
		case name == "", properties[name].Const != nil, comment == "" && document && inHead(name):
		case comment == "":
			d.t.Errorf("%s.%s, the field %s of documents, has no comment that says what it means", of, f.Name, name)
		default:
			d.printf("%s- `%s` · %s · %s", indent, name, d.fieldKind(f), inJSON(f.Name, comment))
			d.inside(in, indent+"  ")
		}
	}
}

// inHead returns whether all documents have a field of this name.
func inHead(name string) bool {
	return slices.ContainsFunc(members(reflect.TypeFor[views.Head]()), func(f reflect.StructField) bool { return jsonName(f) == name })
}

// inside ends the line of a field, and writes what its type has unless that is under a heading.
func (d *docWriter) inside(of reflect.Type, indent string) {
	d.printf("\n")
	switch {
	case d.titles[of] != "":
	case isObject(of):
		d.fields(of, indent, false)
	case d.described(of):
		d.words(of, indent)
	}
}

// fieldKind returns what JSON has for a field, in words.
func (d *docWriter) fieldKind(f reflect.StructField) string {
	kind := d.kind(f.Type)
	if f.Tag.Get("null") != "" {
		kind = orNullWords(kind)
	}
	if strings.HasSuffix(f.Tag.Get("json"), ",omitempty") {
		kind += ", may be absent"
	}
	return kind
}

// intro returns the first sentence of the comment of a type, without its name.
func (d *docWriter) intro(of reflect.Type) string {
	sentence, _, _ := strings.Cut(d.source(of).comments[of.Name()]+" ", ". ")
	text := []rune(inJSON(of.Name(), sentence))
	if len(text) == 0 {
		d.t.Errorf("%s, a type of documents, has no comment", of)
		return ""
	}
	return strings.ToUpper(string(text[:1])) + string(text[1:]) + "."
}

// words writes a line for each value that a text can have.
func (d *docWriter) words(of reflect.Type, indent string) {
	for _, w := range d.constants(of) {
		if w.comment == "" {
			if of == reflect.TypeFor[host.Code]() {
				d.t.Errorf("the code %s has no comment that says what is refused", w.name)
			}
			d.printf("%s- %s\n", indent, value(w.name))
			continue
		}
		d.printf("%s- %s: %s\n", indent, value(w.name), inJSON("", w.comment))
	}
}

// checks writes a line for each check of a command: the first sentence of its method's comment.
func (d *docWriter) checks(command string) {
	folder := map[string]string{
		"host check":      "gpustack/host/check",
		"rdma check":      "gpustack/host/rdma/rdmacheck",
		"container check": "gpustack/host/container/containercheck",
	}[command]
	if folder == "" {
		return
	}
	of := d.sourceOf(folder)
	d.printf("\nThe checks, in their order:\n\n")
	for _, check := range of.checks {
		sentence, _, _ := strings.Cut(of.comments["view."+check.comment]+" ", ". ")
		d.printf("- `%s` %s\n", check.name, inJSON("", strings.TrimPrefix(sentence, check.comment+" ")))
	}
	if len(of.checks) < 10 {
		d.t.Errorf("%s: only %d checks were found", command, len(of.checks))
	}
}

// kind returns what JSON has for a type, in words.
func (d *docWriter) kind(of reflect.Type) string {
	switch of {
	case reflect.TypeFor[pci.Address]():
		return "PCI address"
	case reflect.TypeFor[pci.ID]():
		return "PCI ID"
	case reflect.TypeFor[pci.Class]():
		return "PCI class"
	case reflect.TypeFor[time.Time]():
		return "time"
	}
	if title := d.titles[of]; title != "" {
		return link(title)
	}
	if list := d.constants(of); len(list) > 0 && !d.described(of) {
		var values []string
		for _, w := range list {
			values = append(values, value(w.name))
		}
		return "one of " + strings.Join(values, ", ")
	}
	switch of.Kind() {
	case reflect.Pointer:
		return orNullWords(d.kind(of.Elem()))
	case reflect.Slice:
		if schema := typeSchema(of); schema.Type == "array" {
			kind := d.kind(of.Elem())
			if of.Elem().Kind() == reflect.Pointer { // no list has null
				kind = d.kind(of.Elem().Elem())
			}
			return "list of " + plural(kind)
		}
	case reflect.Map:
		return "object of " + plural(d.kind(of.Elem()))
	}
	schema := typeSchema(of)
	types := slices.DeleteFunc(append([]string{schema.Type}, schema.Types...), func(name string) bool { return name == "" })
	if len(types) == 0 {
		return "any value"
	}
	words := strings.Join(types, " or ")
	if schema.Types != nil {
		words = strings.NewReplacer("object or array or", "object, list or").Replace(words)
	}
	return strings.ReplaceAll(words, "integer", "number")
}

// value returns a text that a field can have as the page has it.
func value(text string) string {
	if text == "" {
		text = `""`
	}
	return "`" + text + "`"
}

func orNullWords(kind string) string {
	if strings.HasSuffix(kind, " or null") {
		return kind
	}
	return kind + " or null"
}

func plural(kind string) string {
	switch {
	case strings.HasPrefix(kind, "["), strings.HasPrefix(kind, "any"):
		return kind
	case strings.HasSuffix(kind, " or null"):
		return plural(strings.TrimSuffix(kind, " or null")) + " or nulls"
	case strings.HasPrefix(kind, "list of"), strings.HasPrefix(kind, "object of"):
		return strings.Replace(kind, " of", "s of", 1)
	case strings.HasSuffix(kind, "s"):
		return kind + "es"
	}
	return kind + "s"
}

// link returns a link to a heading of the page.
func link(heading string) string {
	return "[" + heading + "](#" + strings.ReplaceAll(strings.ToLower(heading), " ", "-") + ")"
}

// inJSON returns a comment as the page has it: without the name of the Go field, and with JSON's
// null.
func inJSON(field, comment string) string {
	for _, verb := range []string{" is ", " are ", " reports "} {
		comment = strings.TrimPrefix(comment, field+verb)
	}
	comment = strings.TrimSuffix(comment, ".")
	comment = regexp.MustCompile(`\bnil\b`).ReplaceAllString(comment, "null")
	comment = regexp.MustCompile(`\bdocs/([a-z-]+\.md)\b`).ReplaceAllString(comment, "[$1]($1)")
	return regexp.MustCompile(`(^|[ (])(--[a-z-]+(?:=\w+)?)`).ReplaceAllString(comment, "$1`$2`")
}

// element returns the type of the elements of lists, maps and pointers. A host.Text is none: JSON has
// a string.
func element(of reflect.Type) reflect.Type {
	for slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map}, of.Kind()) && of != reflect.TypeFor[host.Text]() {
		of = of.Elem()
	}
	return of
}

// isObject returns whether encoding/json writes a type as an object with its fields.
func isObject(of reflect.Type) bool {
	return of.Kind() == reflect.Struct && typeSchema(of).Properties != nil
}

// jsonName returns the name of a field in documents, "" if they do not have it.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// described returns whether a type is of texts whose values have comments.
func (d *docWriter) described(of reflect.Type) bool {
	return slices.ContainsFunc(d.constants(of), func(w named) bool { return w.comment != "" })
}

// constants returns the values of a type of texts with their comments, none if it may have others.
func (d *docWriter) constants(of reflect.Type) []named {
	if of.Kind() != reflect.String || !strings.HasPrefix(of.PkgPath(), "gpustack/") ||
		openWords[strings.TrimPrefix(of.PkgPath(), "gpustack/")+"."+of.Name()] != "" {
		return nil
	}
	if list := d.source(of).constants[of.Name()]; len(list) > 1 {
		return list
	}
	return nil
}

// named is a constant or a check, and its comment or its method.
type named struct{ name, comment string }

// commented is what the sources of a package say.
type commented struct {
	comments  map[string]string  // by the names of type and field, or of type and method
	constants map[string][]named // by the type's name
	checks    []named            // the elements of lists of checks
}

func (d *docWriter) source(of reflect.Type) *commented { return d.sourceOf(of.PkgPath()) }

// sourceOf parses the sources of a package once.
func (d *docWriter) sourceOf(path string) *commented {
	if c := d.packages[path]; c != nil {
		return c
	}
	c := &commented{comments: map[string]string{}, constants: map[string][]named{}}
	d.packages[path] = c
	files, err := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(path, "gpustack/"), "*.go"))
	hosttest.NoError(d.t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		hosttest.NoError(d.t, err)
		ast.Inspect(parsed, c.read)
	}
	return c
}

// read adds what a node says.
func (c *commented) read(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if n.Recv != nil {
			if of, ok := n.Recv.List[0].Type.(*ast.Ident); ok {
				c.comments[of.Name+"."+n.Name.Name] = oneLine(n.Doc)
			}
		}
	case *ast.GenDecl:
		if len(n.Specs) != 1 {
			break
		}
		if of, ok := n.Specs[0].(*ast.TypeSpec); ok {
			c.comments[of.Name.Name] = oneLine(n.Doc)
		}
	case *ast.TypeSpec:
		if of, ok := n.Type.(*ast.StructType); ok {
			for _, f := range of.Fields.List {
				for _, name := range f.Names {
					c.comments[n.Name.Name+"."+name.Name] = oneLine(f.Doc, f.Comment)
				}
			}
		}
	case *ast.ValueSpec:
		if of, ok := n.Type.(*ast.Ident); ok && len(n.Values) == 1 {
			if literal, ok := n.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				c.constants[of.Name] = append(c.constants[of.Name], named{unquoted(literal), oneLine(n.Doc, n.Comment)})
			}
		}
	case *ast.CompositeLit:
		var check named
		for _, e := range n.Elts {
			pair, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			switch key, _ := pair.Key.(*ast.Ident); value := pair.Value.(type) {
			case *ast.BasicLit:
				if key != nil && key.Name == "Name" && value.Kind == token.STRING {
					check.name = unquoted(value)
				}
			case *ast.SelectorExpr:
				if key != nil && key.Name == "Judge" {
					check.comment = value.Sel.Name
				}
			}
		}
		if check.name != "" && check.comment != "" {
			c.checks = append(c.checks, check)
		}
	}
	return true
}

func unquoted(literal *ast.BasicLit) string {
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		panic(err) // a literal that go/parser accepts
	}
	return text
}

// oneLine joins comments.
func oneLine(groups ...*ast.CommentGroup) string {
	var words []string
	for _, g := range groups {
		words = append(words, strings.Fields(g.Text())...)
	}
	return strings.Join(words, " ")
}
