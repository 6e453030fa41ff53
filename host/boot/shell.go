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

// script is a file of shell assignments, as it is read by a shell.
type script struct {
	name string // on the machine
	text string
}

// FileError is a fault at a place in a configuration file.
type FileError struct {
	Name    string
	Line    uint
	Problem string
}

func (e *FileError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.Name, e.Line, e.Problem)
}

// A carriage return is a character like others to a shell, but not to the parser
// used here; and what a program would have printed cannot be known. Both are
// written as characters of Unicode's private use area meanwhile.
const (
	carriageReturn = "\uE000"
	unknown        = "\uE001"
)

// evaluate sources scripts in order, as grub-mkconfig does, and returns the
// variables they leave. Programs are not started: what depends on one's output is
// unknown, and it is an error if one of watched does, or may.
func evaluate(scripts []script, watched ...string) (map[string]string, error) {
	e := evaluation{watched: watched, assigned: map[string]*FileError{}, ofShell: map[string]bool{}}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	runner, err := interp.New(
		interp.Env(expand.ListEnviron("PATH=/usr/sbin:/usr/bin:/sbin:/bin")),
		interp.StdIO(nil, io.Discard, io.Discard),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return e.program }),
		interp.OpenHandler(open),
		interp.ReadDirHandler2(func(context.Context, string) ([]fs.DirEntry, error) { return nil, nil }),
		interp.StatHandler(func(_ context.Context, name string, _ bool) (fs.FileInfo, error) {
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
		e.programs = 0
		err = runner.Run(ctx, file)
		var status interp.ExitStatus
		switch {
		case runner.Exited():
			return nil, &FileError{s.name, file.End().Line(), "exits, so that what follows is not read"}
		case err != nil && !errors.As(err, &status): // the status is the last command's
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if e.programs > 0 && e.conditional != nil {
			return nil, e.conditional
		}
	}
	values := map[string]string{}
	for name, v := range runner.Vars {
		values[name] = strings.ReplaceAll(v.String(), carriageReturn, "\r")
	}
	for _, name := range watched {
		if strings.Contains(values[name], unknown) {
			fault := *e.assigned[name]
			fault.Problem = name + " is made of what a program prints: write out the value"
			return nil, &fault
		}
	}
	return values, nil
}

type evaluation struct {
	watched     []string
	assigned    map[string]*FileError // where a watched variable is assigned last
	ofShell     map[string]bool       // variables made of what the shell sets by itself
	conditional *FileError            // an assignment that may not be made
	programs    int                   // started, but for those in command substitutions
}

// parse reads a script, and refuses what would make a watched variable another
// one to the shell than to a reader.
func (e *evaluation) parse(s script) (*syntax.File, error) {
	if i := strings.IndexByte(s.text, 0); i >= 0 {
		return nil, &FileError{s.name, uint(strings.Count(s.text[:i], "\n") + 1), "holds a zero byte"}
	}
	text := strings.ReplaceAll(s.text, "\r", carriageReturn)
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), s.name)
	if err != nil {
		var parse syntax.ParseError
		if errors.As(err, &parse) {
			return nil, &FileError{s.name, parse.Pos.Line(), parse.Text}
		}
		return nil, &FileError{s.name, 1, err.Error()}
	}
	e.conditional = nil
	topLevel := map[*syntax.CallExpr]bool{}
	for _, stmt := range file.Stmts {
		if call, ok := stmt.Cmd.(*syntax.CallExpr); ok {
			topLevel[call] = true
		}
	}
	var fault error
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.WhileClause, *syntax.FuncDecl:
			fault = errors.Join(fault, &FileError{s.name, node.Pos().Line(), "loops and functions are not understood here"})
		case *syntax.CallExpr:
			for _, a := range n.Assigns {
				unescape(a.Value)
				made := e.madeOfShell(a.Value)
				if a.Name != nil {
					e.ofShell[a.Name.Value] = made || e.ofShell[a.Name.Value] && (a.Append || !topLevel[n])
				}
				if a.Name == nil || !slices.Contains(e.watched, a.Name.Value) {
					continue
				}
				at := &FileError{s.name, a.Pos().Line(), ""}
				e.assigned[a.Name.Value] = at
				switch {
				case e.ofShell[a.Name.Value]:
					at.Problem = a.Name.Value + " is made of what the shell itself sets: write out the value"
					fault = errors.Join(fault, at)
				case len(n.Args) > 0:
					at.Problem = a.Name.Value + " is set for one command only: quote a value that has spaces"
					fault = errors.Join(fault, at)
				case !topLevel[n]:
					e.conditional = &FileError{s.name, at.Line, "whether " + a.Name.Value + " is set depends on a program: set it in any case"}
				}
			}
		}
		return true
	})
	return file, fault
}

// setByShell are variables that a shell has before it reads a file (bash(1), dash(1)).
var setByShell = []string{
	"DIRSTACK", "EUID", "GROUPS", "HISTCMD", "HOME", "HOSTNAME", "HOSTTYPE", "IFS", "LC_ALL", "LINENO", "MACHTYPE", "OLDPWD", "OPTARG", "OPTERR",
	"OPTIND", "OSTYPE", "PATH", "PIPESTATUS", "PPID", "PS1", "PS2", "PS4", "PWD", "RANDOM", "SECONDS", "SHELL", "SHELLOPTS", "SHLVL", "SRANDOM", "TERM", "UID",
}

// madeOfShell tells whether a value holds a parameter that the shell sets by itself,
// $0 and $$ among them, or a variable made of one. Its value here is not the one that
// grub-mkconfig would see.
func (e *evaluation) madeOfShell(value *syntax.Word) bool {
	made := false
	if value == nil {
		return false
	}
	syntax.Walk(value, func(node syntax.Node) bool {
		if p, ok := node.(*syntax.ParamExp); ok && p.Param != nil {
			name := p.Param.Value
			made = made || e.ofShell[name] || !syntax.ValidName(name) || slices.Contains(setByShell, name) || strings.HasPrefix(name, "BASH") || name == "_"
		}
		return true
	})
	return made
}

// unescape writes a backslash and the character that it quotes as that character in
// quotes, which is what it is outside of double quotes. The interpreter keeps the
// backslash before some.
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

// program stands for every program: it leaves a mark instead of its output.
func (e *evaluation) program(ctx context.Context, _ []string) error {
	out := interp.HandlerCtx(ctx).Stdout
	if out == io.Discard {
		e.programs++
		return nil
	}
	_, err := io.WriteString(out, unknown)
	return err
}

// open lets a script throw output away, and touches no file.
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
