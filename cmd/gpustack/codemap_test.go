package main

import (
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCodeMap compares docs/code-map.md with the folders that contain Go files: each package is
// named, no other is, a package imports only packages in lines below its own and none that a
// bracket joins it with (apart from packages for tests), and the map fits one screen of 78 lines.
func TestCodeMap(t *testing.T) {
	text, err := os.ReadFile("../../docs/code-map.md")
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > 78 {
		t.Errorf("%d lines, more than 78", lines)
	}
	_, drawing, _ := strings.Cut(string(text), "\n```\n")
	drawing, _, ok := strings.Cut(drawing, "\n```\n")
	if !ok {
		t.Fatal("no drawing")
	}
	for line := range strings.Lines(drawing) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 132 {
			t.Errorf("%d columns, more than 132: %s", n, line)
		}
	}
	place := places(drawing)
	imports := packages(t)
	for name, imported := range imports {
		forTests := isForTests(name)
		own, ok := place[name]
		if !ok {
			// Helpers of tests may be named in the line of another package.
			helper := regexp.MustCompile(`\b` + strings.TrimPrefix(name, "integration/") + `\b`)
			if !forTests || !helper.MatchString(drawing) {
				t.Errorf("%s is not named", name)
			}
		}
		for other := range imported {
			if at, ok := place[other]; ok && !forTests && at <= own {
				t.Errorf("%s imports %s, which is not below it", name, other)
			}
		}
	}
	for name := range place {
		if _, ok := imports[name]; !ok {
			t.Errorf("%s is named and does not exist", name)
		}
	}
}

// isForTests reports whether a package is for tests.
func isForTests(name string) bool {
	return strings.HasPrefix(name, "integration") || strings.HasSuffix(name, "test")
}

// TestOperate: packages of operate import neither each other nor what knows the command line.
func TestOperate(t *testing.T) {
	found := 0
	for name, imported := range packages(t) {
		if !strings.HasPrefix(name, "operate/") {
			continue
		}
		found++
		for other := range imported {
			if strings.HasPrefix(other, "operate/") || strings.HasPrefix(other, "cmd/") || strings.Contains(other, "urfave/cli") {
				t.Errorf("%s imports %s", name, other)
			}
		}
	}
	if found < 3 {
		t.Errorf("%d packages of operate", found)
	}
}

// places returns the place of each package in the map, from above. Packages in one line, and in
// lines that a bracket joins, have the same place.
func places(drawing string) map[string]int {
	place, at := map[string]int{}, 0
	line := regexp.MustCompile(`(?m)^([ ┌│└]) ([a-z]+(?:/[a-z]+)*(?:, [a-z]+(?:/[a-z]+)*)*) `)
	for _, found := range line.FindAllStringSubmatch(drawing, -1) {
		if joined := found[1] == "│" || found[1] == "└"; !joined {
			at++
		}
		for name := range strings.SplitSeq(found[2], ", ") {
			place[name] = at
		}
	}
	return place
}

// packages returns the packages of the repository, without the name of the module, and what each
// imports, apart from its tests.
func packages(t *testing.T) map[string]map[string]bool {
	t.Helper()
	imports := map[string]map[string]bool{}
	eachFile(t, func(path string) {
		name := strings.TrimPrefix(filepath.Dir(path), top+"/")
		if _, ok := imports[name]; !ok {
			imports[name] = map[string]bool{} // none, if the package has tests only
		}
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			imports[name][strings.TrimPrefix(strings.Trim(spec.Path.Value, `"`), "gpustack/")] = true
		}
	})
	return imports
}

// top is the folder of the repository.
const top = "../.."

// eachFile calls do with the path of each Go file of the repository.
func eachFile(t *testing.T, do func(path string)) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch name := entry.Name(); {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || name == "build" || path != top && strings.HasPrefix(name, ".")):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			do(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPackageComments: one file of each package says what the package is for. Of a package that is
// not for tests the comment links to its entry point, and says what the package leaves to others.
func TestPackageComments(t *testing.T) {
	without := map[string]bool{"cmd/gpustack": true, "cmd/cudaprobe": true, "templates": true} // programs; texts
	limits := regexp.MustCompile(`(?i)\b(not|never|no|none|nothing|only|neither)\b`)
	unknown := regexp.MustCompile(`\[[A-Z][\w.]*\]`)
	for name := range packages(t) {
		set := token.NewFileSet()
		found, err := filepath.Glob(filepath.Join(top, name, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var files []*ast.File
		commented := 0
		for _, file := range found {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if parsed.Doc != nil {
				commented++
			}
			files = append(files, parsed)
		}
		if len(files) == 0 {
			continue // tests only
		}
		if commented != 1 {
			t.Errorf("%s: %d files have a comment of the package", name, commented)
			continue
		}
		p, err := doc.NewFromFiles(set, files, "gpustack/"+name)
		if err != nil {
			t.Fatal(err)
		}
		if begin := map[bool]string{true: "Command ", false: "Package " + p.Name + " "}[p.Name == "main"]; !strings.HasPrefix(p.Doc, begin) {
			t.Errorf("%s: the comment does not begin with %q", name, begin)
		}
		links := 0
		for _, block := range p.Parser().Parse(p.Doc).Content {
			links += linksIn(block)
		}
		for _, link := range unknown.FindAllString(string(p.Printer().Text(p.Parser().Parse(p.Doc))), -1) {
			t.Errorf("%s: the comment links to %s, which does not exist", name, link)
		}
		if isForTests(name) {
			continue
		}
		if links == 0 && !without[name] {
			t.Errorf("%s: the comment links to no entry point", name)
		}
		if !limits.MatchString(p.Doc) {
			t.Errorf("%s: the comment does not say what the package leaves to others", name)
		}
	}
}

// linksIn counts the links to declarations in a block of a comment.
func linksIn(block comment.Block) (links int) {
	var all []comment.Text
	switch b := block.(type) {
	case *comment.Paragraph:
		all = b.Text
	case *comment.List:
		for _, item := range b.Items {
			for _, inner := range item.Content {
				links += linksIn(inner)
			}
		}
	}
	for _, text := range all {
		if _, ok := text.(*comment.DocLink); ok {
			links++
		}
	}
	return links
}
