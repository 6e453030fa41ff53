package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestNothingIsCompiledAtStart: no variable of a package is initialized with a compiled regular
// expression or template. Every run would compile it before main, and most runs do not use it.
func TestNothingIsCompiledAtStart(t *testing.T) {
	files := 0
	for name := range packages(t) {
		if strings.HasPrefix(name, "integration") || strings.HasSuffix(name, "test") {
			continue
		}
		matches, err := filepath.Glob(filepath.Join(top, name, "*.go"))
		hosttest.NoError(t, err)
		for _, file := range matches {
			// Tests run this package's test binary as the program.
			if strings.HasSuffix(file, "_test.go") && name != "cmd/gpustack" {
				continue
			}
			files++
			positions := token.NewFileSet()
			source, err := parser.ParseFile(positions, file, nil, 0)
			hosttest.NoError(t, err)
			for _, call := range callsAtStart(source) {
				switch name := calledName(call); name {
				case "regexp.MustCompile", "template.Must":
					t.Errorf("%s: %s at the start of every run: use host.LazyRegexp, or parse the template where it is executed", positions.Position(call.Pos()), name)
				}
			}
		}
	}
	if files < 100 {
		t.Errorf("%d files found", files)
	}
}

// callsAtStart returns the calls in the variables of a package, without those in functions.
func callsAtStart(source *ast.File) (calls []*ast.CallExpr) {
	for _, d := range source.Decls {
		if g, ok := d.(*ast.GenDecl); !ok || g.Tok != token.VAR {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				calls = append(calls, call)
			}
			_, function := n.(*ast.FuncLit)
			return !function
		})
	}
	return calls
}

// calledName returns the name of the function that a call names with its package, or "".
func calledName(call *ast.CallExpr) string {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		if p, ok := s.X.(*ast.Ident); ok {
			return p.Name + "." + s.Sel.Name
		}
	}
	return ""
}

func TestVersion(t *testing.T) {
	commit := []debug.BuildSetting{{Key: "vcs", Value: "git"},
		{Key: "vcs.revision", Value: "72aac5b1b2c3d4e5f60718293a4b5c6d7e8f9012"}, {Key: "vcs.modified", Value: "false"}}
	modified := append(commit[:2:2], debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	for _, test := range []struct {
		name, linked string
		info         *debug.BuildInfo
		want         string
	}{
		{"make build", "v1.2.0", &debug.BuildInfo{Main: debug.Module{Version: "v1.1.0"}}, "v1.2.0"},
		{"go install of a version", "", &debug.BuildInfo{Main: debug.Module{Version: "v1.2.0"}}, "v1.2.0"},
		{"go build of a commit", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: commit}, "72aac5b1b2c3"},
		{"go build of a modified checkout", "", &debug.BuildInfo{Settings: modified}, "72aac5b1b2c3-dirty"},
		{"a short commit", "", &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: "72aac5b"}}}, "72aac5b"},
		{"-buildvcs=false", "", &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "unreleased"},
		{"no build information", "", nil, "unreleased"},
	} {
		hosttest.EqualIn(t, test.name, test.want, versionOf(test.linked, func() (*debug.BuildInfo, bool) { return test.info, test.info != nil }))
	}
	if got := programVersion(); got == "" {
		t.Error("no version")
	}
}
