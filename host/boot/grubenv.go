package boot

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
)

// grubEnv contains the variables of RHEL's and Fedora's GRUB. On some machines it is a link to the
// EFI system partition.
const grubEnv = "/boot/grub2/grubenv"

// envSize is the size of a new environment block in bytes. An existing file must keep its size,
// because GRUB writes into its disk blocks and cannot extend it (GNU GRUB manual, "Environment
// block").
const envSize = 1024

const envHeader = "# GRUB Environment Block\n"

// environment is GRUB's environment block: lines NAME=VALUE, in which backslashes escape newlines
// and backslashes, and comments, padded with # to its size. grub-editenv writes a comment before
// the variables since GRUB 2.06 (util/grub-editenv.c); GRUB skips lines that begin with #
// (grub-core/lib/envblk.c, grub_envblk_iterate).
type environment struct {
	file  *edit.File // nil: absent
	lines []string   // NAME=VALUE, still escaped, and comments
}

var errEnvironment = host.WithHint(errors.New("not a GRUB environment block"),
	"grub-editenv (grub2-editenv) FILE list shows its entries; FILE create writes an empty one, without them")

func readEnvironment(root host.Root) (environment, error) {
	f, err := edit.Read(root, grubEnv)
	if err != nil || f == nil {
		return environment{}, err
	}
	return parseEnvironment(grubEnv, f)
}

func parseEnvironment(name string, f *edit.File) (environment, error) {
	text, ok := strings.CutPrefix(string(f.Content), envHeader)
	if !ok {
		return environment{}, fmt.Errorf("%s: %w", name, errEnvironment)
	}
	env := environment{file: f}
	for len(text) > 0 && (text[0] != '#' || strings.HasPrefix(text, "# ")) {
		end, isComment := 0, text[0] == '#'
		for end < len(text) && text[end] != '\n' {
			if text[end] == '\\' && !isComment {
				end++
			}
			end++
		}
		if end >= len(text) {
			return environment{}, fmt.Errorf("%s: %w", name, errEnvironment)
		}
		env.lines = append(env.lines, text[:end])
		text = text[end+1:]
	}
	if strings.Trim(text, "#\n") != "" { // more than the padding
		return environment{}, fmt.Errorf("%s: %w", name, errEnvironment)
	}
	return env, nil
}

var (
	envQuoted = host.LazyRegexp(`\\(?s:(.))`)
	envQuote  = host.LazyRegexp(`[\\\n]`)
)

// get returns a variable's value.
func (env environment) get(name string) (string, bool) {
	for _, line := range env.lines {
		if n, value, ok := strings.Cut(line, "="); ok && n == name {
			return envQuoted().ReplaceAllString(value, "$1"), true
		}
	}
	return "", false
}

// setKernelOpts returns the environment with another value of kernelopts.
func (env environment) setKernelOpts(value string) environment {
	line := kernelOpts + "=" + envQuote().ReplaceAllString(value, `\$0`)
	lines := slices.Clone(env.lines)
	at := slices.IndexFunc(lines, isKernelOpts)
	if at < 0 {
		lines = append(lines, line)
	} else {
		lines[at] = line
	}
	return environment{env.file, lines}
}

// withoutKernelOpts returns the environment without kernelopts.
func (env environment) withoutKernelOpts() environment {
	return environment{env.file, slices.DeleteFunc(slices.Clone(env.lines), isKernelOpts)}
}

func isKernelOpts(line string) bool {
	return strings.HasPrefix(line, kernelOpts+"=")
}

// content returns the environment as it is in its file.
func (env environment) content() ([]byte, error) {
	text := envHeader
	for _, line := range env.lines {
		text += line + "\n"
	}
	size := envSize
	if env.file != nil {
		size = len(env.file.Content)
	}
	if len(text) > size {
		return nil, fmt.Errorf("%s: %w: needs %d bytes, the file has %d",
			grubEnv, ErrNotInEffect, len(text), size)
	}
	return []byte(text + strings.Repeat("#", size-len(text))), nil
}

// plan plans to write the environment to its file.
func (env environment) plan(files edit.Files) (edit.Change, error) {
	content, err := env.content()
	if err != nil {
		return edit.Change{}, err
	}
	mode := uint32(0o644)
	if env.file != nil {
		mode = env.file.Mode
	}
	return files.Put(grubEnv, content, mode, false)
}

var envReference = host.LazyRegexp(`\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))`)

// expand replaces references to variables as GRUB's blscfg does. A variable that is not set is
// empty.
func (env environment) expand(text string) string {
	return envReference().ReplaceAllStringFunc(text, func(reference string) string {
		value, _ := env.get(strings.Trim(reference, "${}"))
		return value
	})
}
