package boot

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
)

// grubEnv is where GRUB of RHEL and Fedora keeps variables: a link to the EFI system
// partition on some machines.
const grubEnv = "/boot/grub2/grubenv"

// envSize is the size that GRUB gives that file. It keeps the size that it has: GRUB
// writes into its blocks and cannot make it longer (GNU GRUB manual, "Environment
// block").
const envSize = 1024

const envHeader = "# GRUB Environment Block\n"

// environment is GRUB's environment block: lines NAME=VALUE, a backslash before
// newlines and backslashes in values, and # up to its size.
type environment struct {
	file  *edit.File // nil: not there
	lines []string   // those of variables, as they are written
}

// errEnvironment says that a file is not what GRUB writes.
var errEnvironment = errors.New("is no environment block of GRUB's")

func readEnvironment(root host.Root) (environment, error) {
	f, err := edit.Read(root, grubEnv)
	if err != nil || f == nil {
		return environment{}, err
	}
	text, ok := strings.CutPrefix(string(f.Content), envHeader)
	if !ok {
		return environment{}, fmt.Errorf("%s: %w", grubEnv, errEnvironment)
	}
	env := environment{file: f}
	for len(text) > 0 && text[0] != '#' {
		end := 0
		for end < len(text) && text[end] != '\n' {
			if text[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(text) {
			return environment{}, fmt.Errorf("%s: %w", grubEnv, errEnvironment)
		}
		env.lines = append(env.lines, text[:end])
		text = text[end+1:]
	}
	if rest := strings.Trim(text, "#"); rest != "" && strings.Trim(rest, "#\n") != "" {
		return environment{}, fmt.Errorf("%s: %w", grubEnv, errEnvironment)
	}
	return env, nil
}

var (
	envQuoted = regexp.MustCompile(`\\(?s:(.))`)
	envQuote  = regexp.MustCompile(`[\\\n]`)
)

// get returns a variable's value.
func (env environment) get(name string) (string, bool) {
	for _, line := range env.lines {
		if n, value, ok := strings.Cut(line, "="); ok && n == name {
			return envQuoted.ReplaceAllString(value, "$1"), true
		}
	}
	return "", false
}

// set returns the environment with a variable at another value.
func (env environment) set(name, value string) environment {
	line := name + "=" + envQuote.ReplaceAllString(value, `\$0`)
	lines := slices.Clone(env.lines)
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, name+"=") })
	if at < 0 {
		lines = append(lines, line)
	} else {
		lines[at] = line
	}
	return environment{env.file, lines}
}

// plan plans that the file holds the environment.
func (env environment) plan(root host.Root) (edit.Change, error) {
	text := envHeader
	for _, line := range env.lines {
		text += line + "\n"
	}
	size, mode := envSize, uint32(0o644)
	if env.file != nil {
		size, mode = len(env.file.Content), env.file.Mode
	}
	if len(text) > size {
		return edit.Change{}, fmt.Errorf("%s: %w: it has room for %d bytes, and would need %d", grubEnv, ErrNotInEffect, size, len(text))
	}
	return edit.Put(root, grubEnv, []byte(text+strings.Repeat("#", size-len(text))), mode, false)
}

var envReference = regexp.MustCompile(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

// expand fills in the variables that entries name, as GRUB's blscfg does: one that is
// not set is empty.
func (env environment) expand(text string) string {
	return envReference.ReplaceAllStringFunc(text, func(reference string) string {
		value, _ := env.get(strings.Trim(reference, "${}"))
		return value
	})
}
