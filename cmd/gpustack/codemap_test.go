package main

import (
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
