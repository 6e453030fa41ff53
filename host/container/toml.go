package container

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// tomlKeys are the keys that are read of configurations in TOML: each has one meaning in whichever
// table it is.
var tomlKeys = []string{"mode", "cgroup_manager", "BinaryName", "runtime_path", "SystemdCgroup", "imports"}

// setting is a value of a key, with the runtime whose table it is in, "" for none.
type setting struct{ runtime, key, value, file string }

// settings are those of several files, in the order in which they are read: the last one counts.
type settings []setting

// last returns the value of a key outside of the tables of runtimes.
func (s settings) last(key string) string { return s.of("", key) }

// of returns the value of a key of a runtime.
func (s settings) of(runtime, key string) (value string) {
	for _, one := range s {
		if one.runtime == runtime && one.key == key {
			value = one.value
		}
	}
	return value
}

// runtimeProgram is the program of a runtime with the file that names it.
type runtimeProgram struct{ name, value, file string }

// runtimes returns the programs of runtimes by name, each by the last file that has it.
func (s settings) runtimes(key string) (all []runtimeProgram) {
	for _, one := range s {
		if one.key != key {
			continue
		}
		all = slices.DeleteFunc(all, func(r runtimeProgram) bool { return r.name == one.runtime })
		all = append(all, runtimeProgram{one.runtime, one.value, one.file})
	}
	return all
}

// read returns the settings of the configuration, of the files that it imports (containerd,
// docs/man/containerd-config.toml.5.md), and of those that the engine reads anyway. It is an error
// if there may be more.
func (c criConf) read(root host.Root) (all settings, failed error) {
	all, failed = readTOML(root, c.file)
	imports := strings.FieldsFunc(all.last("imports"), func(r rune) bool {
		return strings.ContainsRune(`[]"'\, `, r)
	})
	for _, pattern := range append(imports, c.more...) {
		if !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(c.file), pattern)
		}
		names, err := host.IfPresent(root.ReadDir(path.Dir(pattern)))
		failed = errors.Join(failed, err)
		for _, name := range names {
			if ok, _ := path.Match(path.Base(pattern), name); !ok || pattern == c.file {
				continue
			}
			of, err := readTOML(root, path.Join(path.Dir(pattern), name))
			all, failed = append(all, of...), errors.Join(failed, err)
		}
	}
	for _, s := range all {
		whole := s.file == c.file && strings.HasSuffix(s.value, "]") && !strings.Contains(s.value, "*/")
		if s.key == "imports" && !whole {
			failed = errors.Join(failed, host.OfFile(s.file, fmt.Errorf("not judged: imports = %s", s.value)))
		}
	}
	return all, failed
}

// readTOML returns the settings of a file, none if it does not exist. A snapshot has these alone:
// configurations of engines have passwords of registries.
func readTOML(root host.Root, file string) (settings, error) {
	data, err := host.IfPresent(root.ReadReduced(file, func(data []byte) []byte {
		var kept strings.Builder
		for _, s := range parseTOML(data, file) {
			if s.runtime != "" {
				fmt.Fprintf(&kept, "[runtimes.%q]\n", s.runtime)
			} else {
				kept.WriteString("[table]\n")
			}
			fmt.Fprintf(&kept, "%s = %q\n", s.key, s.value)
		}
		return []byte(kept.String())
	}))
	return parseTOML(data, file), err
}

var (
	tomlTable = host.LazyRegexp(`^\[\[?([^\[\]]+)\]\]?\s*$`)
	tomlPart  = host.LazyRegexp(`"([^"]*)"|'([^']*)'|([\w-]+)`)
)

// parseTOML returns the settings of a file: lines KEY = VALUE in tables, with keys of several parts.
// It is no parser of TOML, which engines have; a file that they refuse gives what its lines say.
func parseTOML(data []byte, file string) (all settings) {
	parts := func(text string) (parts []string) {
		return host.Map(tomlPart().FindAllStringSubmatch(text, -1), func(match []string) string { return match[1] + match[2] + match[3] })
	}
	var table []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		if match := tomlTable().FindStringSubmatch(line); match != nil {
			table = parts(match[1])
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		keys := slices.Concat(table, parts(name))
		if !ok || len(keys) == 0 || !slices.Contains(tomlKeys, keys[len(keys)-1]) {
			continue
		}
		runtime := ""
		if i := slices.Index(keys, "runtimes"); i >= 0 && i+2 < len(keys) {
			runtime = keys[i+1]
		}
		all = append(all, setting{runtime, keys[len(keys)-1], strings.Trim(strings.TrimSpace(value), `"'`), file})
	}
	return all
}
