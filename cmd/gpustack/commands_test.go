package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/host/hosttest"
)

// TestCommandsOfHints: each host.Command that a package makes, to be copied from a hint, is one of
// gpustack, with flags that it has.
func TestCommandsOfHints(t *testing.T) {
	app := newApp(testUI(t), []string{"gpustack"}).App
	commands := 0
	eachFile(t, func(path string) {
		if isForTests(strings.TrimPrefix(filepath.Dir(path), top+"/")) || strings.HasSuffix(path, "_test.go") {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		hosttest.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			words := commandOf(n)
			if words == nil {
				return true
			}
			commands++
			hosttest.EqualIn(t, fmt.Sprintf("%s: %s", set.Position(n.Pos()), strings.Join(words, " ")), "", wrongCommand(app, words))
			return true
		})
	})
	if commands < 150 {
		t.Errorf("only %d commands were found", commands)
	}
}

// commandOf returns the words of a host.Command that is made by one expression, nil for another
// expression.
func commandOf(n ast.Node) []string {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return nil
	}
	function, isMethod := call.Fun.(*ast.SelectorExpr)
	first, isLiteral := call.Args[0].(*ast.BasicLit)
	if !isMethod || !isLiteral {
		return nil
	}
	text, err := strconv.Unquote(first.Value)
	switch {
	case err != nil:
		return nil
	case function.Sel.Name == "NewCommand":
		return strings.Fields(text)
	case function.Sel.Name == "Flag":
		if made := commandOf(function.X); made != nil {
			return append(made, "--"+text)
		}
	}
	return nil
}

// wrongCommand returns what is wrong with the words of a command, "" for nothing.
func wrongCommand(app *cli.App, words []string) string {
	line := args.Parse(app, append([]string{"gpustack"}, words...))
	if line.Command == nil || line.Unknown || len(line.Command.Subcommands) > 0 {
		return "no such command"
	}
	for _, word := range words {
		name, isFlag := strings.CutPrefix(word, "--")
		if name, _, _ = strings.Cut(name, "="); isFlag && name != "" && args.FindFlag(line.Command.Flags, name) == nil {
			return "no flag --" + name
		}
	}
	return ""
}
