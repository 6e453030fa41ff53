package host

import (
	"slices"
	"strings"
)

// Command is a command line of gpustack as data: what a hint or a remedy tells the operator to run.
// It names what it does and to what; where it is run, such as below another root, is added by
// cmd/gpustack, which alone knows the command line. The zero Command is none.
type Command struct {
	name      string // "host prepare"
	words     []word
	elsewhere bool
}

// word is a flag with its value, or an argument.
type word struct{ flag, value string }

// NewCommand returns the command with this name, such as "host prepare".
func NewCommand(name string) Command {
	return Command{name: name}
}

// Flag returns the command with a flag, and its value if there is one. A name of one letter is
// written with one dash.
func (c Command) Flag(name string, value ...string) Command {
	return c.with(word{name, strings.Join(value, ",")})
}

// Arg returns the command with an argument.
func (c Command) Arg(value string) Command {
	return c.with(word{"", value})
}

func (c Command) with(w word) Command {
	c.words = append(slices.Clip(c.words), w)
	return c
}

// Elsewhere returns the command for another machine than the one that this run is about.
func (c Command) Elsewhere() Command {
	c.elsewhere = true
	return c
}

// IsElsewhere reports whether the command is for another machine.
func (c Command) IsElsewhere() bool { return c.elsewhere }

// IsZero reports whether there is no command.
func (c Command) IsZero() bool { return c.name == "" }

// Name returns the name of the command, without "gpustack".
func (c Command) Name() string { return c.name }

// HasFlag reports whether the command has a flag.
func (c Command) HasFlag(name string) bool {
	return slices.ContainsFunc(c.words, func(w word) bool { return w.flag == name })
}

// At returns the command with a flag before all others.
func (c Command) At(flag, value string) Command {
	c.words = slices.Concat([]word{{flag, value}}, c.words)
	return c
}

// Argv returns the words of the command line, "gpustack" first.
func (c Command) Argv() []string {
	if c.IsZero() {
		return nil
	}
	argv := append([]string{"gpustack"}, strings.Fields(c.name)...)
	for _, w := range c.words {
		switch {
		case len(w.flag) == 1:
			argv = append(argv, "-"+w.flag)
		case w.flag != "":
			argv = append(argv, "--"+w.flag)
		}
		if w.value != "" {
			argv = append(argv, w.value)
		}
	}
	return argv
}

// String returns the command line for a shell, "" for none.
func (c Command) String() string {
	words := c.Argv()
	for i := range words {
		words[i] = ShellWord(words[i])
	}
	return strings.Join(words, " ")
}

// MarshalText returns the command line for a shell: documents hold it as text.
func (c Command) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

var plainWord = LazyRegexp(`^[A-Za-z0-9_@%+=:,./-]+$`)

// ShellWord quotes a word for a shell if necessary.
func ShellWord(s string) string {
	if plainWord().MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
