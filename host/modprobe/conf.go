package modprobe

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// confDirs are where modprobe looks, a file in an earlier one hiding the file of
// the same name in a later (modprobe.d(5)).
var confDirs = []string{"/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"}

// Line is a command to modprobe.
type Line struct {
	File    string // on the machine
	Number  int
	Command string // options, softdep, blacklist, alias, install, remove
	Module  string // in the normal spelling
	Rest    []string
}

// Conf is all that modprobe is told, in the order in which it reads it.
type Conf []Line

// ReadConf reads what modprobe reads, but for the files that keep names.
func ReadConf(root host.Root, but ...string) (Conf, error) {
	files := map[string]string{} // by base name
	for _, dir := range confDirs {
		names, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
		}
		for _, name := range names {
			if _, hidden := files[name]; !hidden && path.Ext(name) == ".conf" && name[0] != '.' {
				files[name] = path.Join(dir, name)
			}
		}
	}
	var conf Conf
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if slices.Contains(but, files[name]) {
			continue
		}
		data, err := root.ReadFile(files[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", files[name], host.Cause(err))
		}
		conf = append(conf, parse(files[name], string(data))...)
	}
	return conf, nil
}

// parse reads the lines of one file. A backslash at a line's end continues it, and
// what is not understood is passed over, as modprobe does.
func parse(file, text string) Conf {
	var conf Conf
	number, joined := 0, ""
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if rest, ok := strings.CutSuffix(line, `\`); ok {
			joined += rest
			continue
		}
		words := strings.Fields(joined + line)
		joined = ""
		if len(words) < 2 || strings.HasPrefix(words[0], "#") {
			continue
		}
		conf = append(conf, Line{file, number, words[0], Normal(words[1]), words[2:]})
	}
	return conf
}

// Option is a value that a line gives a module's parameter.
type Option struct {
	Line
	Value string
}

// Options returns what a module's parameter is set to, in order: the kernel keeps
// the last.
func (c Conf) Options(module, parameter string) []Option {
	var options []Option
	for _, line := range c {
		if line.Command != "options" || line.Module != Normal(module) {
			continue
		}
		for _, word := range line.Rest {
			if name, value, ok := strings.Cut(word, "="); ok && Normal(name) == Normal(parameter) {
				options = append(options, Option{line, strings.Trim(value, `"`)})
			}
		}
	}
	return options
}
