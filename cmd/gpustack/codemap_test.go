package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gpustack/host/hosttest"
)

// TestCodeMap compares docs/code-map.md with the folders that contain Go files: each package is
// named, no other is, and each imports only what the map permits. Then it adds to what is imported
// one import at a time that the map does not permit.
func TestCodeMap(t *testing.T) {
	text := hosttest.Read(t, top+"/docs/code-map.md")
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > 120 {
		t.Errorf("%d lines, more than 120", len(lines))
	}
	for _, line := range lines {
		if n := utf8.RuneCountInString(line); n > 110 {
			t.Errorf("%d columns, more than 110: %s", n, line)
		}
	}
	m, code, tests := newCodeMap(t, text), packages(t), testImports(t)
	for name := range code {
		// Helpers of tests may be named in the line of another package.
		helper := regexp.MustCompile(`\b` + strings.TrimPrefix(name, "integration/") + `\b`)
		if _, ok := m.place[name]; !ok && (!isForTests(name) || !helper.MatchString(m.drawing)) {
			t.Errorf("%s is not named", name)
		}
	}
	for _, name := range m.names() {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(code)), func(p string) bool { return covers(name, p) }) {
			t.Errorf("%s is named and does not exist", name)
		}
	}
	for _, fault := range m.faults(code, tests) {
		t.Error(fault)
	}
	for _, test := range forbiddenImports {
		name, other, _ := strings.Cut(test, " ")
		imports := code
		if of, ok := strings.CutSuffix(other, " in a test"); ok {
			imports, other = tests, of
		}
		if imports[name] == nil || imports[name][other] {
			t.Errorf("%s: the import cannot be added", test)
			continue
		}
		imports[name][other] = true
		if got := m.faults(code, tests); len(got) != 1 || !strings.HasPrefix(got[0], name+" imports "+other+",") {
			t.Errorf("%s: errors %q, want one", test, got)
		}
		delete(imports[name], other)
	}
}

// forbiddenImports are imports, each of a package, that are errors: of each rule of the map and of
// each limit between layers at least one.
var forbiddenImports = []string{
	// Libraries, and packages of ours that only some import.
	"host/pci github.com/jaypipes/ghw", "host/pci github.com/jaypipes/ghw/pkg/cpu in a test",
	"host/driver os/exec", "host/hosttest os/exec", "cmd/gpustack os/exec",
	"operate/node github.com/urfave/cli/v2", "cmd/gpustack/views github.com/urfave/cli/v2 in a test", "integration/vm github.com/urfave/cli/v2",
	"nova/cloud database/sql", "cleanup database/sql", "operate/rows github.com/go-sql-driver/mysql", "operate/rows database/sql in a test",
	"operate/cloud github.com/gophercloud/gophercloud/v2", "operate/rows github.com/gophercloud/gophercloud/v2/openstack in a test",
	"operate/node host/journal", "host/machine host/journal", "host/guard host/journal in a test", "cmd/gpustack/offers cmd/gpustack/term",
	// The command line and use cases.
	"cmd/gpustack/args operate/node", "cmd/gpustack/args nova", "cmd/gpustack/args host/edit", "cmd/gpustack/views cmd/gpustack/args",
	"cmd/gpustack/term host/change", "cmd/gpustack/term host/edit", "operate/node cmd/gpustack/views", "operate/node operate/cloud",
	"operate/node nova/cloud", "operate/node cleanup", "operate/cloud host/driver", "operate/cloud cleanup/repair", "operate/cloud host/check",
	"operate/rows nova/flavor", "operate/rows host/driver", "operate/rows nova/conf",
	// Packages of host.
	"templates host", "host host/edit", "host/metrics host", "host/pci host/change", "host/edit host/pci", "host/journal host/change", "host/boot host/initramfs",
	"host/document host/edit", "host/checklist host/pci", "host/engine host/pci", "host/cuda host/edit", "host/snapshot host/edit",
	"host/change host/driver", "host/guard host/machine", "host/docker host/rdma", "host/rdma host/driver", "host/machine host/gate", "host/gate host/selection",
	"host/container host/steps", "host/steps host/startup", "host/selection host/prepare", "host/check host/prepare", "host/check nova", "host/bind cleanup",
	"host/container/containertest host/startup", "host/rdma/trial host/check", "host/guest nova/conf",
	// Packages of nova and cleanup.
	"nova/conf host/edit", "nova/devspec nova", "nova/devspec host/guest", "nova/probe host/edit", "nova nova/cloud", "nova host/machine",
	"nova/novacheck nova/cloud", "nova/cloud host/pci", "nova/cloud/cloudtest nova", "nova/explain nova/flavor", "nova/explain host/guest", "nova/pools nova/cloud",
	"fleet nova/explain", "fleet nova/cloud", "fleet host/driver", "nova/flavor nova/explain", "nova/flavor host/machine",
	"nova/servertest nova/image", "nova/servertest host/driver", "nova/image nova/servertest", "nova/drain host/machine",
	"cleanup host/change", "cleanup cleanup/novadb", "cleanup/novadb nova/cloud", "cleanup/novadb host/edit", "cleanup/find cleanup/repair", "cleanup/find nova",
	"cleanup/repair nova/conf", "cleanup/repair host/driver",
}

// isForTests reports whether a package is for tests.
func isForTests(name string) bool {
	switch name {
	case "host/container/containertest", "nova/servertest": // they test a container and a flavor, for commands
		return false
	}
	return strings.HasPrefix(name, "integration") || strings.HasSuffix(name, "test")
}

// A codeMap is what docs/code-map.md permits.
type codeMap struct {
	drawing string
	place   map[string]int      // of each package, from above; packages that a bracket joins have one
	alone   map[string][]string // by import, the packages that alone have it
	ours    map[string][]string // by package, what it imports of ours
}

// newCodeMap reads the page: the drawing, and the lines below it.
func newCodeMap(t *testing.T, text string) codeMap {
	t.Helper()
	blocks := strings.Split(text, "\n```\n")
	if len(blocks) != 5 {
		t.Fatalf("%d blocks, not a drawing and lines", len(blocks)/2)
	}
	m := codeMap{drawing: blocks[1], place: map[string]int{}, alone: map[string][]string{}, ours: map[string][]string{}}
	at := 0
	line := regexp.MustCompile(`(?m)^([ ┌│└]) ([a-z]+(?:/[a-z]+)*(?:, [a-z]+(?:/[a-z]+)*)*) `)
	for _, found := range line.FindAllStringSubmatch(m.drawing, -1) {
		if joined := found[1] == "│" || found[1] == "└"; !joined {
			at++
		}
		for name := range strings.SplitSeq(found[2], ", ") {
			m.place[name] = at
		}
	}
	for line := range strings.SplitSeq(blocks[3], "\n") {
		into := m.alone
		left, right, ok := strings.Cut(line, " ← ")
		if !ok {
			into = m.ours
			left, right, ok = strings.Cut(line, " → ")
		}
		if !ok {
			t.Errorf("no arrow: %s", line)
		}
		for name := range strings.SplitSeq(left, ", ") {
			into[name] = append(into[name], strings.Split(right, ", ")...)
		}
	}
	return m
}

// names returns the names of packages in the map.
func (m codeMap) names() []string {
	names := slices.Concat(slices.Collect(maps.Keys(m.place)), slices.Collect(maps.Keys(m.ours)))
	for _, lists := range []map[string][]string{m.alone, m.ours} {
		for _, list := range lists {
			names = append(names, list...)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "tests" })
}

// faults returns the imports that the map does not permit, and lines without an import: code has
// the imports of each package, and tests those of its tests.
func (m codeMap) faults(code, tests map[string]map[string]bool) (faults []string) {
	for name, imported := range code {
		ours, limited := m.oursOf(name)
		for other := range imported {
			switch at, ok := m.place[other]; {
			case ok && !isForTests(name) && at <= m.place[name]:
				faults = append(faults, fmt.Sprintf("%s imports %s, which is not below it", name, other))
			case limited && code[other] != nil && other != "host" && !permits(ours, other):
				faults = append(faults, fmt.Sprintf("%s imports %s, and may import %q", name, other, ours))
			}
		}
	}
	for only, by := range m.alone {
		found := false
		for in, imports := range map[string]map[string]map[string]bool{"": code, "tests": tests} {
			for name, imported := range imports {
				for other := range imported {
					if !covers(only+"/…", other) || name == only {
						continue
					}
					found = true
					if !permits(by, name) && !slices.Contains(by, in) {
						faults = append(faults, fmt.Sprintf("%s imports %s, and only %q may", name, other, by))
					}
				}
			}
		}
		if !found {
			faults = append(faults, "no package imports "+only)
		}
	}
	return faults
}

// oursOf returns what a package may import of ours: the line that names it most closely.
func (m codeMap) oursOf(name string) (ours []string, limited bool) {
	if ours, limited = m.ours[name]; limited {
		return ours, true
	}
	for at := name; at != "."; at = filepath.Dir(at) {
		if ours, limited = m.ours[at+"/…"]; limited {
			return ours, true
		}
	}
	return nil, false
}

// permits reports whether a name in the list covers a package.
func permits(list []string, name string) bool {
	return slices.ContainsFunc(list, func(in string) bool { return covers(in, name) })
}

// covers reports whether a name in the map, which may end with /… for its folders, is a package.
func covers(in, name string) bool {
	folder, all := strings.CutSuffix(in, "/…")
	return name == folder || all && strings.HasPrefix(name, folder+"/")
}

// packages returns the packages of the repository, without the name of the module, and what each
// imports, apart from its tests.
func packages(t *testing.T) map[string]map[string]bool {
	t.Helper()
	return importsOf(t, func(path string) bool { return !strings.HasSuffix(path, "_test.go") })
}

// testImports returns what the tests of each package import.
func testImports(t *testing.T) map[string]map[string]bool {
	t.Helper()
	return importsOf(t, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
}

// importsOf returns the packages of the repository, and what those of their files import that are
// meant.
func importsOf(t *testing.T, meant func(path string) bool) map[string]map[string]bool {
	t.Helper()
	imports := map[string]map[string]bool{}
	eachFile(t, func(path string) {
		name := strings.TrimPrefix(filepath.Dir(path), top+"/")
		if _, ok := imports[name]; !ok {
			imports[name] = map[string]bool{} // none, if no file is meant
		}
		if !meant(path) {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		hosttest.NoError(t, err)
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
	hosttest.NoError(t, err)
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
		hosttest.NoError(t, err)
		var files []*ast.File
		commented := 0
		for _, file := range found {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments)
			hosttest.NoError(t, err)
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
		hosttest.NoError(t, err)
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
