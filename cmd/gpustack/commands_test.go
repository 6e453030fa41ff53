package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/host"
)

// TestCommandsInTexts parses every command of gpustack that a text or a host.Command of any package
// names through the real command tree: the command exists, and has the flags.
func TestCommandsInTexts(t *testing.T) {
	visible := maps.Collect(args.Visible(newApp(testUI(t), []string{"gpustack"}).Commands))
	names := 0
	for name := range packages(t) {
		if strings.HasPrefix(name, "integration") || strings.HasPrefix(name, ".ci") || strings.HasSuffix(name, "test") {
			continue
		}
		files, err := filepath.Glob("../../" + name + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for at, line := range namedCommands(t, file) {
				names++
				if wrong := wrongCommand(visible, line); wrong != "" {
					t.Errorf("%s: %s: %s", at, strings.Join(line, " "), wrong)
				}
			}
		}
	}
	if names < 200 {
		t.Errorf("only %d commands were found", names)
	}
}

// namedInText are the files in which a text that is no help holds a command as words, with the
// reason. Every other text holds it as a host.Command.
var namedInText = map[string]string{
	"host/boot/older.go":                         "the header of files that earlier releases wrote",
	"host/container/containerprepare/toolkit.go": "the header of a file, by which gpustack knows it",
	"host/guest/token.go":                        "names the origin of a token, not what to run",
	"host/guest/judge.go":                        "reasons of reports, which are no hints",
	"nova/reporting.go":                          "the header of a file that gpustack writes",
	"cleanup/plan.go":                            "a note of a unit, which the journal keeps as words",
	"cleanup/repair/apply.go":                    "an error that repeats such a note",
}

// TestNoCommandsInWords: apart from help, no further file holds a command in the words of a text,
// which would lack the --root of the run.
func TestNoCommandsInWords(t *testing.T) {
	for name := range packages(t) {
		if strings.HasPrefix(name, "integration") || strings.HasPrefix(name, ".ci") || strings.HasSuffix(name, "test") {
			continue
		}
		files, err := filepath.Glob("../../" + name + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			short := strings.TrimPrefix(file, "../../")
			lines := commandsInWords(t, file)
			switch {
			case strings.HasSuffix(file, "_test.go"):
			case lines != nil && namedInText[short] == "":
				t.Errorf("%s: %q: make a host.Command of it", short, lines)
			case lines == nil && namedInText[short] != "":
				t.Errorf("%s holds no command in words any more: remove it from the list", short)
			}
		}
	}
}

// commandsInWords returns the texts of a file that hold a command in words, apart from help.
func commandsInWords(t *testing.T, file string) (found []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if e, ok := n.(*ast.BasicLit); ok {
			if text, _ := textOf(e); inText().MatchString(text) {
				found = append(found, text)
			}
		}
		return !isHelp(n)
	})
	return found
}

// isHelp reports whether a node is a text of the help of a command or of a flag.
func isHelp(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.KeyValueExpr:
		key, ok := n.Key.(*ast.Ident)
		return ok && slices.Contains([]string{"Description", "Usage", "description", "usage"}, key.Name)
	case *ast.CallExpr:
		switch f := n.Fun.(type) {
		case *ast.Ident:
			return strings.HasSuffix(f.Name, "Flag")
		case *ast.SelectorExpr:
			return strings.HasSuffix(f.Sel.Name, "Flag")
		}
	}
	return false
}

// hole stands for a part of a text that is known when the program runs.
const hole = "0000:84:00.0"

var (
	verb   = host.LazyRegexp(`%[a-z]`)
	inText = host.LazyRegexp(`\bgpustack ((?:host|rdma|container|nova|flavor|image|fleet) ` +
		`[a-z][a-z-]*|repair-migration|history|undo|completion|man)\b([^\n';)]*)`)
	oneFlag = host.LazyRegexp(`^--([a-z][a-z-]*)$`)
)

// namedCommands returns the commands that a file names, without "gpustack", by their places.
func namedCommands(t *testing.T, file string) map[string][]string {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	add := func(n ast.Node, line []string) {
		found[set.Position(n.Pos()).String()+" "+strconv.Itoa(len(found))] = line
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch e := n.(type) {
		case *ast.BinaryExpr, *ast.BasicLit:
			text, _ := textOf(e.(ast.Expr))
			for _, m := range inText().FindAllStringSubmatch(text, -1) {
				add(n, append(strings.Fields(m[1]), strings.Fields(m[2])...))
			}
		case *ast.CallExpr:
			if line := commandOf(e); line != nil {
				add(n, line)
			}
		}
		return true
	})
	return found
}

// textOf returns the text of a string, with a hole for each part that is not a literal. ok is false
// if no part is one.
func textOf(e ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return verb().ReplaceAllString(text, hole), err == nil
	case *ast.BinaryExpr:
		left, one := textOf(e.X)
		right, other := textOf(e.Y)
		if !one {
			left = hole
		}
		if !other {
			right = hole
		}
		return left + right, e.Op == token.ADD && (one || other)
	}
	return "", false
}

// commandOf returns the words of a host.Command that is made by one expression, nil for another
// call.
func commandOf(call *ast.CallExpr) []string {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return nil
	}
	first, ok := textOf(call.Args[0])
	if function.Sel.Name == "NewCommand" && ok {
		return strings.Fields(first)
	}
	made, isCall := function.X.(*ast.CallExpr)
	if function.Sel.Name != "Flag" || !isCall || !ok {
		return nil
	}
	if line := commandOf(made); line != nil {
		return append(line, "--"+first)
	}
	return nil
}

// wrongCommand returns what is wrong with a command, "" for nothing. Words after a word that is
// neither a flag nor the value of one are prose.
func wrongCommand(visible map[string]*cli.Command, line []string) string {
	name, rest := line[0], line[1:]
	if visible[name] == nil && len(rest) > 0 {
		name, rest = name+" "+rest[0], rest[1:]
	}
	c := visible[name]
	if c == nil || len(c.Subcommands) > 0 {
		return "no such command"
	}
	for i := 0; i < len(rest); i++ {
		word := strings.TrimRight(rest[i], ",:.")
		ends := word != rest[i] // a part of the sentence
		switch m := oneFlag().FindStringSubmatch(word); {
		case m != nil:
			flag := args.FindFlag(c.Flags, m[1])
			if flag == nil {
				return "no flag --" + m[1]
			}
			if args.TakesValue(flag) {
				i++
			}
		case word == "-o":
			i++
		case !strings.HasPrefix(word, hole) && !slices.Contains([]string{"ENTRY", "ALIAS", "ALIAS:COUNT", "FLAVOR", "IMAGE"}, word):
			return ""
		}
		if ends {
			return ""
		}
	}
	return ""
}
