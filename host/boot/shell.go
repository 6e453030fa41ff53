package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// script is a file of shell assignments.
type script struct {
	name string // on the machine
	text string
}

// fileError is an error at a line of a configuration file. Problem says how to fix it.
type fileError struct {
	Name    string
	Line    uint
	Problem string
}

func (e *fileError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Problem)
}

// Placeholders from Unicode's private use area, for use during evaluation. A carriage return is an
// ordinary character for a shell, but not for the parser used here; the output of a program is
// unknown.
const (
	carriageReturn = "\uE000"
	unknown        = "\uE001"
)

// endless is the time after which an evaluation does not end. Without while and functions it takes
// milliseconds, and seconds on a machine that is busy with all else; the rest is for ((;;)).
const endless = time.Minute

// evaluate sources scripts in order, as grub-mkconfig does, and returns the values of all
// variables. It starts no programs, so a value that depends on a program is unknown; it is an
// error if a variable in watched depends, or may depend, on one.
func evaluate(scripts []script, watched ...string) (map[string]string, error) {
	e := evaluation{watched: watched, assigned: map[string]*fileError{}, fromShell: map[string]bool{}}
	ctx, cancel := context.WithTimeout(context.Background(), endless)
	defer cancel()
	runner, err := interp.New(
		interp.Env(expand.ListEnviron("PATH=/usr/sbin:/usr/bin:/sbin:/bin")),
		interp.StdIO(nil, io.Discard, io.Discard),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return e.program }),
		interp.OpenHandler(open),
		interp.ReadDirHandler2(func(context.Context, string) ([]fs.DirEntry, error) { return nil, nil }),
		interp.StatHandler(func(_ context.Context, name string, _ bool) (fs.FileInfo, error) {
			e.outside++
			return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
		}),
	)
	if err != nil {
		return nil, err
	}
	for _, s := range scripts {
		file, err := e.parse(s)
		if err != nil {
			return nil, err
		}
		e.outside = 0
		err = runner.Run(ctx, file)
		var status interp.ExitStatus
		switch {
		case runner.Exited():
			return nil, &fileError{s.name, file.End().Line(), "exits, so the files after it are not read"}
		case err != nil && !errors.As(err, &status): // a status is only that of the last command
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if e.outside > 0 && e.conditional != nil {
			return nil, e.conditional
		}
	}
	values := map[string]string{}
	for name, v := range runner.Vars {
		values[name] = strings.ReplaceAll(v.String(), carriageReturn, "\r")
	}
	for _, name := range watched {
		if strings.Contains(values[name], unknown) {
			problem := *e.assigned[name]
			problem.Problem = name + " depends on the output of a program: write out the value"
			return nil, &problem
		}
	}
	return values, nil
}

type evaluation struct {
	watched     []string
	assigned    map[string]*fileError // the last assignment of each watched variable
	fromShell   map[string]bool       // variables that depend on those in setByShell
	conditional *fileError            // an assignment that may not be executed
	outside     int                   // number of files tested, and of programs outside of $(…)
}

// sourced returns an error for each command of a script that reads another file, except in command
// substitutions: what they set is gone, and their output is unknown.
func sourced(name string, file *syntax.File) (problems error) {
	syntax.Walk(file, func(node syntax.Node) bool {
		if n, ok := node.(*syntax.CallExpr); ok && len(n.Args) > 0 && slices.Contains([]string{".", "source"}, n.Args[0].Lit()) {
			problems = errors.Join(problems, &fileError{name, n.Pos().Line(), "reads another file: write its settings here"})
		}
		_, isOutput := node.(*syntax.CmdSubst)
		return !isOutput
	})
	return problems
}

// parse parses a script, and returns an error for everything whose effect on a watched variable
// cannot be determined here.
func (e *evaluation) parse(s script) (*syntax.File, error) {
	if i := strings.IndexByte(s.text, 0); i >= 0 {
		return nil, &fileError{s.name, uint(strings.Count(s.text[:i], "\n") + 1), "contains a zero byte"}
	}
	text := strings.ReplaceAll(s.text, "\r", carriageReturn)
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), s.name)
	if err != nil {
		var parse syntax.ParseError
		if errors.As(err, &parse) {
			return nil, &fileError{s.name, parse.Pos.Line(), parse.Text}
		}
		return nil, &fileError{s.name, 1, err.Error()}
	}
	e.conditional = nil
	topLevel := map[*syntax.CallExpr]bool{}
	for _, stmt := range file.Stmts {
		if call, ok := stmt.Cmd.(*syntax.CallExpr); ok {
			topLevel[call] = true
		}
	}
	problems := sourced(s.name, file)
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.WhileClause, *syntax.FuncDecl:
			at := &fileError{s.name, node.Pos().Line(), "loops and functions are not supported"}
			problems = errors.Join(problems, at)
		case *syntax.CallExpr:
			for _, a := range n.Assigns {
				unescape(a.Value)
				depends := e.dependsOnShell(a.Value)
				if a.Name != nil {
					kept := a.Append || !topLevel[n] // of the previous value
					e.fromShell[a.Name.Value] = depends || kept && e.fromShell[a.Name.Value]
				}
				if a.Name == nil || !slices.Contains(e.watched, a.Name.Value) {
					continue
				}
				at := &fileError{s.name, a.Pos().Line(), ""}
				e.assigned[a.Name.Value] = at
				switch {
				case e.fromShell[a.Name.Value]:
					at.Problem = a.Name.Value + " depends on a variable of the shell: write out the value"
					problems = errors.Join(problems, at)
				case len(n.Args) > 0:
					at.Problem = a.Name.Value + " is set for one command only: quote a value with spaces"
					problems = errors.Join(problems, at)
				case !topLevel[n]:
					at := *at
					at.Problem = "whether " + a.Name.Value + " is set depends on a program or file: set it unconditionally"
					e.conditional = &at
				}
			}
		}
		return true
	})
	return file, problems
}

// setByShell are variables that a shell sets before it reads a file (bash(1), dash(1)).
var setByShell = []string{
	"DIRSTACK", "EUID", "GROUPS", "HISTCMD", "HOME", "HOSTNAME", "HOSTTYPE", "IFS", "LC_ALL",
	"LINENO", "MACHTYPE", "OLDPWD", "OPTARG", "OPTERR", "OPTIND", "OSTYPE", "PATH", "PIPESTATUS",
	"PPID", "PS1", "PS2", "PS4", "PWD", "RANDOM", "SECONDS", "SHELL", "SHELLOPTS", "SHLVL",
	"SRANDOM", "TERM", "UID",
}

// dependsOnShell reports whether a value refers to a parameter that the shell itself sets,
// including $0 and $$, or to a variable that depends on one. Such a value differs between this
// evaluation and grub-mkconfig.
func (e *evaluation) dependsOnShell(value *syntax.Word) bool {
	depends := false
	if value == nil {
		return false
	}
	syntax.Walk(value, func(node syntax.Node) bool {
		if p, ok := node.(*syntax.ParamExp); ok && p.Param != nil {
			name := p.Param.Value
			depends = depends || e.fromShell[name] || !syntax.ValidName(name) || name == "_" ||
				slices.Contains(setByShell, name) || strings.HasPrefix(name, "BASH")
		}
		return true
	})
	return depends
}

// unescape replaces each backslash and the character after it by that character in single quotes,
// which means the same outside of double quotes. The interpreter would keep some of the
// backslashes.
func unescape(word *syntax.Word) {
	if word == nil {
		return
	}
	var parts []syntax.WordPart
	for _, part := range word.Parts {
		switch p := part.(type) {
		case *syntax.ParamExp:
			if p.Exp != nil {
				unescape(p.Exp.Word)
			}
		case *syntax.Lit:
			rest := p.Value
			for {
				before, after, found := strings.Cut(rest, `\`)
				if !found || after == "" {
					break
				}
				_, size := utf8.DecodeRuneInString(after)
				parts = append(parts, &syntax.Lit{ValuePos: p.ValuePos, ValueEnd: p.ValueEnd, Value: before},
					&syntax.SglQuoted{Left: p.ValuePos, Right: p.ValueEnd, Value: after[:size]})
				rest = after[size:]
			}
			part = &syntax.Lit{ValuePos: p.ValuePos, ValueEnd: p.ValueEnd, Value: rest}
		}
		parts = append(parts, part)
	}
	word.Parts = parts
}

// program replaces every program: in a command substitution its output is the placeholder unknown.
func (e *evaluation) program(ctx context.Context, _ []string) error {
	out := interp.HandlerCtx(ctx).Stdout
	if out == io.Discard {
		e.outside++
		return nil
	}
	_, err := io.WriteString(out, unknown)
	return err
}

// open opens only /dev/null, so that a script touches no file.
func open(_ context.Context, name string, _ int, _ fs.FileMode) (io.ReadWriteCloser, error) {
	if name == os.DevNull {
		return null{}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

type null struct{}

func (null) Read([]byte) (int, error)    { return 0, io.EOF }
func (null) Write(p []byte) (int, error) { return len(p), nil }
func (null) Close() error                { return nil }
