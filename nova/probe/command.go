package probe

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"gpustack/host"
)

// maxUserData is the number of bytes of user data that Nova accepts, in base64 (nova/conf/api.py
// and nova/exception.py, MAX_USERDATA_SIZE).
const maxUserData = 65535

// Errors of commands.
var (
	errNoCommand = host.WithHint(errors.New("the command is empty"), "give a command line for sh, such as 'nvidia-smi -L'")
	errNUL       = host.WithHint(errors.New("the command contains a NUL byte"), "give a script: the image has to contain the programs that it starts")
	errShebang   = host.WithHint(errors.New("its first line does not name an interpreter"), "begin it with #!/bin/sh, or with the path of another interpreter")
	errTooLarge  = host.WithHint(errors.New("the command is too large for user data"),
		"let the command fetch what it needs, or put that into the image")
)

// Command is a command that a guest runs after it has counted its devices. The zero value is none.
type Command struct {
	text        string
	interpreter string // the words that run a file with the text, for a shell
	wait        time.Duration
}

// NewCommand returns the command of a text, which the guest's sh runs, or the interpreter that its
// first line names, for at most so long: a part of a second counts as a whole one.
//
// Errors: one for each text that no guest could run, and that of user data which Nova would reject.
func NewCommand(text string, wait time.Duration) (Command, error) {
	c := Command{text: text, interpreter: "sh", wait: wait}
	switch {
	case strings.TrimSpace(text) == "":
		return Command{}, errNoCommand
	case strings.ContainsRune(text, 0):
		return Command{}, errNUL
	}
	if line, _, _ := strings.Cut(text, "\n"); strings.HasPrefix(line, "#!") {
		// As Linux does (fs/binfmt_script.c): a program, and all that follows is one argument.
		program, argument, _ := strings.Cut(strings.Trim(line[2:], " \t"), " ")
		argument = strings.Trim(argument, " \t")
		if !strings.HasPrefix(program, "/") || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
			return Command{}, fmt.Errorf("%w: %q", errShebang, line)
		}
		c.interpreter = host.ShellWord(program)
		if argument != "" {
			c.interpreter += " " + host.ShellWord(argument)
		}
	}
	script := len(Script("00000000", Options{Command: c}))
	if size := base64.StdEncoding.EncodedLen(script); size > maxUserData {
		return Command{}, fmt.Errorf("%w: a script of %d bytes, %d in base64, and Nova accepts %d", errTooLarge, script, size, maxUserData)
	}
	return c, nil
}

// IsNone reports whether there is no command.
func (c Command) IsNone() bool { return c.text == "" }

// Wait is how long the command may run.
func (c Command) Wait() time.Duration { return c.wait }

// Hash returns the hash of the text: journals and documents have it in place of the text, which may
// contain secrets. It is "" of no command.
func (c Command) Hash() string {
	if c.IsNone() {
		return ""
	}
	return host.Hash([]byte(c.text))
}

// escaped returns the text as an argument of printf %b (POSIX, printf) within single quotes: only
// printable characters of ASCII without a meaning there, and line feeds, stand for themselves.
func (c Command) escaped() string {
	var b strings.Builder
	for _, char := range []byte(c.text) {
		if char != '\n' && (char < ' ' || char > '~') || char == '\'' || char == '\\' {
			fmt.Fprintf(&b, `\0%03o`, char)
		} else {
			b.WriteByte(char)
		}
	}
	return b.String()
}
