package main

import (
	_ "embed"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/jsonschema-go/jsonschema"
)

// enumerationsFile has the words of each type of words in documents, by the type's name.
const enumerationsFile = "testdata/enumerations.json"

//go:embed testdata/enumerations.json
var enumerationsText []byte

// enumerations are the words of enumerationsFile, read once.
var enumerations = sync.OnceValue(func() (words map[string][]string) {
	if err := json.Unmarshal(enumerationsText, &words); err != nil {
		panic(err)
	}
	return words
})

// enumerated returns the schema of a type of words: its constants, to which a later version may
// add. It returns nil for a text that may have any value.
func enumerated(of reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Description: "a later version may add values"}
	for _, word := range enumerations()[strings.TrimPrefix(of.PkgPath(), "gpustack/")+"."+of.Name()] {
		s.Enum = append(s.Enum, word)
	}
	if s.Enum == nil {
		return nil
	}
	return s
}

// openWords are types of texts that have constants and other values too.
var openWords = map[string]string{
	"nova/image.Property": "an image may have any property",
}

// TestEnumerations: the words of a type are the constants of its package. -update writes them; the
// schemas are made from them in the next run.
func TestEnumerations(t *testing.T) {
	found := map[string][]string{}
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(of reflect.Type) {
		if seen[of] {
			return
		}
		seen[of] = true
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(of.Elem())
		case reflect.Struct:
			for i := range of.NumField() {
				if of.Field(i).Tag.Get("json") != "-" {
					visit(of.Field(i).Type)
				}
			}
		case reflect.String:
			name, in := strings.TrimPrefix(of.PkgPath(), "gpustack/")+"."+of.Name(), strings.HasPrefix(of.PkgPath(), "gpustack/")
			if !in || openWords[name] != "" {
				return
			}
			if words := constantsOf(t, strings.TrimPrefix(of.PkgPath(), "gpustack/"), of.Name()); len(words) > 1 {
				found[name] = words
			}
		default:
		}
	}
	for _, report := range documents() {
		visit(report)
	}
	if len(found) < 10 {
		t.Errorf("only %d types of words", len(found))
	}
	text, err := json.MarshalIndent(found, "", "  ")
	hosttest.NoError(t, err)
	text = append(text, '\n')
	if *update {
		hosttest.NoError(t, os.WriteFile(enumerationsFile, text, 0o644))
		return
	}
	hosttest.EqualIn(t, "the words of documents in constants and in "+enumerationsFile+": "+howToMake, string(text), string(enumerationsText))
}

// constantsOf returns the values of the constants of a type, sorted.
func constantsOf(t *testing.T, in, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", in, "*.go"))
	hosttest.NoError(t, err)
	words := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		hosttest.NoError(t, err)
		for _, d := range parsed.Decls {
			group, ok := d.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				values := spec.(*ast.ValueSpec)
				if of, ok := values.Type.(*ast.Ident); !ok || of.Name != name {
					continue
				}
				for _, value := range values.Values {
					if literal, ok := value.(*ast.BasicLit); ok {
						word, err := strconv.Unquote(literal.Value)
						hosttest.NoError(t, err)
						words[word] = true
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(words))
}
