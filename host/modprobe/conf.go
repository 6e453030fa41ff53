package modprobe

import (
	"fmt"
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
		if slices.Contains(except, files[name]) {
			continue
		}
		data, err := root.ReadFile(files[name])
		if host.IsAbsent(err) { // absent is only a whole configuration
			return nil, fmt.Errorf("%s: link to a missing file", files[name])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", files[name], host.Cause(err))
		}
		conf = append(conf, parse(files[name], string(data))...)
	}
	return conf, nil
}

// parse parses the lines of a file as modprobe does: a backslash at the end continues a line, and
// malformed lines are ignored.
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
			if name, value, ok := strings.Cut(word, "="); ok && Normal(name) == Normal(parameter) {
				options = append(options, Option{line, strings.Trim(value, `"`)})
			}
		}
	}
	return options
}
