package modprobe

import (
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// confDirs are the directories of modprobe's configuration. A file overrides files of the same name
// in later directories (modprobe.d(5)).
var confDirs = []string{
	"/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d",
	"/lib/modprobe.d",
}

// Line is a command in modprobe's configuration.
type Line struct {
	File    string // on the machine
	Number  int
	Command string // options, softdep, blacklist, alias, install, remove
	Module  string // as Normal returns it
	Rest    []string
}

// Conf is modprobe's configuration in the order in which modprobe reads it.
type Conf []Line

// ReadConf reads modprobe's configuration without the files in except.
func ReadConf(root host.Root, except ...string) (Conf, error) {
	files := map[string]string{} // by base name
	for _, dir := range confDirs {
		names, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			return nil, err
		}
		for _, name := range names {
			if _, hidden := files[name]; !hidden && path.Ext(name) == ".conf" && name[0] != '.' {
				files[name] = path.Join(dir, name)
			}
		}
	}
	var conf Conf
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if slices.Contains(except, files[name]) {
			continue
		}
		data, err := root.ReadFile(files[name])
		if host.IsAbsent(err) { // absent is only a whole configuration
			return nil, fmt.Errorf("%s: link to a missing file", files[name])
		}
		if err != nil {
			return nil, err
		}
		conf = append(conf, parse(files[name], string(data))...)
	}
	return conf, nil
}

// parse parses the lines of a file as kmod does (libkmod/libkmod-config.c, kmod_config_parse): it
// splits them at spaces and tabs only, and ignores malformed ones.
func parse(file, text string) Conf {
	var conf Conf
	for line, number := range joined(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		command, rest := cutWord(line)
		module, rest := cutWord(rest)
		if module == "" || strings.HasPrefix(command, "#") {
			continue
		}
		conf = append(conf, Line{file, number, command, Normal(module), words(command, rest)})
	}
	return conf
}

// joined returns the lines of a text with the numbers of their last lines in the file, as kmod
// reads them (shared/util.c, freadline_wrapped): without backslashes, of which one at the end of a
// line continues it, and with the byte FF for one at the end of the file.
func joined(text string) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		var line []byte
		number := 1
		for i := 0; i < len(text); i++ {
			switch c := text[i]; {
			case c == '\n':
				if !yield(string(line), number) {
					return
				}
				line = line[:0]
				number++
			case c != '\\':
				line = append(line, c)
			case i+1 == len(text):
				line = append(line, 0xff)
			default:
				if i++; text[i] == '\n' {
					number++
				} else {
					line = append(line, text[i])
				}
			}
		}
		if len(line) > 0 {
			yield(string(line), number)
		}
	}
}

// cutWord returns the first word of a line and what follows it.
func cutWord(line string) (word, rest string) {
	line = strings.TrimLeft(line, " \t")
	if end := strings.IndexAny(line, " \t"); end >= 0 {
		return line[:end], line[end:]
	}
	return line, ""
}

// words splits what follows a module's name. kmod passes it on: options to the kernel, for which
// the byte A0 is a space too (Linux, lib/ctype.c and lib/cmdline.c, next_arg).
func words(command, rest string) []string {
	var words []string
	start := 0
	for i := range len(rest) + 1 {
		if i < len(rest) && strings.IndexByte(" \t\n\v\f\r", rest[i]) < 0 && (rest[i] != 0xa0 || command != "options") {
			continue
		}
		if i > start {
			words = append(words, rest[start:i])
		}
		start = i + 1
	}
	return words
}

// Option is the value of a module's parameter in a line of configuration.
type Option struct {
	Line
	Value string
}

// Options returns the values of a module's parameter in order. The kernel uses the last one.
func (c Conf) Options(module, parameter string) []Option {
	var options []Option
	for _, line := range c {
		if line.Command != "options" || line.Module != Normal(module) {
			continue
		}
		for _, word := range line.Rest {
			if name, value, ok := strings.Cut(strings.Trim(word, `"`), "="); ok && Normal(name) == Normal(parameter) {
				options = append(options, Option{line, strings.Trim(value, `"`)})
			}
		}
	}
	return options
}
