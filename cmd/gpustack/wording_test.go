package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// repository is the top directory of the source tree.
const repository = "../.."

// A phrase is a regular expression of what a text must not contain, with the words to use instead.
type phrase struct{ pattern, instead string }

// forbidden are phrases that texts and comments must not contain. It lists only phrases that cannot
// be right in another sense.
var forbidden = []phrase{
	{`(hold|holds|held|holding)\b[^.;:"]{0,40}\bagainst`, "compare, check against"},
	{`(stand|stands|speak|speaks) against`, "conflict with, does not match"},
	{`anew`, "again; regenerate; plan again"},
	{`(take|takes|taken|took|taking)( \w+){0,3} back`, "undo, revert, return to the host driver"},
	{`(put|puts|putting)( \w+){0,2} right`, "repair, recover"},
	{`(let|lets|letting)( \w+){0,2} go`, "unbind, release"},
	{`(give|gives|gave|given) back`, "return to the host driver, restore"},
	{`(have|has|had|gets?|got) hold of|gets? hold`, "bind, open"},
	{`heeds?|heeded`, "ignores, accepts"},
	{`twins?`, "identical device"},
	{`(somebody|anybody|everybody|whoever|whosoever)`, "the user, operator, process or caller"},
	{`nobody (is|has|can|may|will|else|knows|reads|could)`, "no user, no process"},
	{`(can|could)(not| not) be told`, "cannot be determined, is unknown"},
	{`(is|are|was|were) (not )?told`, "name what is reported, and to whom"},
	{`(is|are) said`, "name what is printed"},
	{`(is|are|was|were) passed over`, "is skipped, is ignored"},
	{`(initramfs|image) makers?`, "initramfs generator"},
	{`(is|are) not so`, "stale, inconsistent"},
	{`the kernel does not return`, "the write is stuck in the kernel"},
	{`without a word`, "silently"},
	{`comes? of (it|leaving|this|that)`, "consequence, impact"},
	{`is too little`, "must be at least N"},
	{`(was|were|been) cut off`, "was interrupted, is truncated"},
	{`aloud`, "as a warning"},
	{`is back`, "was restored"},
	{`booted with it`, "when it is booted"},
	{`laid out`, "unpacked"},
	{`(files|kernel|firmware|tree) (does|do) not (say|tell)`, "does not show"},
	{`would ask (it|them|that)`, "needs it"},
	{`that contradict`, "that conflict"},
	{`hands? functions`, "returns functions to host drivers"},
	{`(ere|hither|thence|whence|wherefrom|thereof|therein|whereof)`, "plain words"},
}

// forbiddenInTemplates are words that comments of templates must not contain: their subjects are
// kernels, drivers and programs.
var forbiddenInTemplates = []phrase{
	{`takes|taken|took|taking`, "binds, assigns"},
	{`tells?|says?|knows?|asks?|refuses?`, "reports, prints, requests, fails"},
	{`made by`, "Written by gpustack COMMAND"},
	{`cards?`, "device, GPU, function"},
	{`contradicts?`, "conflict with"},
}

// allowedStrings are literals with a forbidden phrase that must stay, each with its reason.
var allowedStrings = map[string]string{
	"taken back": "the state of an undone repair in journals and JSON of earlier releases",
	"# Made by gpustack host prepare. \"gpustack undo\" takes it back.\n": "the first line of a file of earlier releases",
}

// TestWording: string literals and comments of the program, the files that it writes and the
// documentation contain none of the forbidden phrases.
func TestWording(t *testing.T) {
	check := checkPhrases(t, forbidden)
	for _, file := range sources(t, ".go") {
		if strings.HasSuffix(file, "_test.go") {
			continue // texts of tests
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, filepath.Join(repository, file), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range parsed.Comments {
			check(file, set.Position(group.Pos()).Line, group.Text())
		}
		if strings.HasPrefix(file, "integration/") {
			continue // texts of tests
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.Field:
				n.Tag = nil // not a text
			case *ast.BasicLit:
				text, err := strconv.Unquote(n.Value)
				if _, ok := allowedStrings[text]; n.Kind == token.STRING && err == nil && !ok {
					check(file, set.Position(n.Pos()).Line, text)
				}
			}
			return true
		})
	}
	for _, file := range sources(t, ".md") {
		text, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		prose := string(text)
		for allowed := range allowedStrings {
			prose = strings.ReplaceAll(prose, "`"+allowed+"`", "``")
		}
		check(file, 1, prose)
	}
	check = checkPhrases(t, slices.Concat(forbidden, forbiddenInTemplates))
	for file, lines := range templateLines(t) {
		for i, line := range lines {
			comment, isComment := strings.CutPrefix(strings.TrimSpace(line), "# ")
			if lines[i] = ""; isComment {
				lines[i] = comment
			}
		}
		check(file, 1, strings.Join(lines, "\n"))
	}
}

// TestAsRootIsOneHint: only host.AsRoot names root as the remedy, so that root gets another one.
func TestAsRootIsOneHint(t *testing.T) {
	asRoot, found := regexp.MustCompile(`\b(gpustack|run|it) as root\b`), false
	for _, file := range sources(t, ".go") {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "integration/") {
			continue // texts of tests
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			switch text, err := strconv.Unquote(literal.Value); {
			case err != nil:
				t.Errorf("%s: %v", file, err)
			case !asRoot.MatchString(text):
			case file == "host/hint.go":
				found = true
			default:
				t.Errorf("%s: %q: use: host.AsRoot, for errors of permission only", file, text)
			}
			return true
		})
	}
	if !found {
		t.Error("host/hint.go has no such text: this test finds nothing")
	}
}

// checkPhrases returns a function that reports the phrases in a text that begins at a line of a
// file.
func checkPhrases(t *testing.T, phrases []phrase) func(file string, line int, text string) {
	t.Helper()
	var patterns []*regexp.Regexp
	for _, p := range phrases {
		patterns = append(patterns, regexp.MustCompile(`(?i)\b(?:`+p.pattern+`)\b`))
	}
	return func(file string, line int, text string) {
		t.Helper()
		// A phrase may span a line break.
		flat := strings.NewReplacer("\n", " ", "\t", " ").Replace(text)
		for i, p := range patterns {
			for _, at := range p.FindAllStringIndex(flat, -1) {
				t.Errorf("%s:%d: %q: use: %s",
					file, line+strings.Count(text[:at[0]], "\n"), flat[at[0]:at[1]], phrases[i].instead)
			}
		}
	}
}

// templateLines returns the lines of the files in templates, by their names.
func templateLines(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	for _, file := range sources(t, "") {
		if !strings.HasPrefix(file, "templates/") || filepath.Ext(file) == ".go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		files[file] = strings.Split(string(text), "\n")
	}
	if len(files) < 5 {
		t.Fatalf("%d templates", len(files))
	}
	return files
}

// maxComment is the maximum number of characters of a comment line, its indentation included.
const maxComment = 100

// TestCommentWidth: comment lines of all Go files and templates have at most maxComment characters,
// except directives, code blocks and lines of one long word, such as an address.
func TestCommentWidth(t *testing.T) {
	for _, file := range sources(t, ".go") {
		text, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(text), "\n")
		for _, group := range parsed.Comments {
			for _, comment := range group.List {
				first := set.Position(comment.Pos()).Line
				for i := range strings.Split(comment.Text, "\n") {
					line := lines[first+i-1]
					bare := strings.TrimSpace(line)
					exempt := slices.ContainsFunc([]string{"//go:", "//nolint", "//\t"}, func(prefix string) bool {
						return strings.HasPrefix(bare, prefix)
					})
					if exempt || !strings.HasPrefix(bare, "//") || len(strings.Fields(bare)) <= 2 {
						continue // a directive or code block, behind code, or not breakable
					}
					if n := utf8.RuneCountInString(line); n > maxComment {
						t.Errorf("%s:%d: a comment line of %d characters, more than %d", file, first+i, n, maxComment)
					}
				}
			}
		}
	}
	for file, lines := range templateLines(t) {
		for i, line := range lines {
			if n := utf8.RuneCountInString(line); strings.HasPrefix(strings.TrimSpace(line), "#") && n > maxComment {
				t.Errorf("%s:%d: a comment line of %d characters, more than %d", file, i+1, n, maxComment)
			}
		}
	}
}

// sources returns the files of the repository with a suffix, without test data, generated and
// hidden directories.
func sources(t *testing.T, suffix string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(repository, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() && name != repository && (base == "testdata" || base == "build" || strings.HasPrefix(base, ".")) {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(base, suffix) {
			relative, err := filepath.Rel(repository, name)
			if err != nil {
				return err
			}
			files = append(files, relative)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 5 {
		t.Fatalf("%d files with suffix %s: not the repository", len(files), suffix)
	}
	return files
}
