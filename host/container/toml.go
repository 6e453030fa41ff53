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
var tomlKeys = []string{"mode", "default_runtime", "default_runtime_name", "cgroup_manager", "BinaryName", "runtime_path", "SystemdCgroup", "imports"}

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

// read returns the settings of the configuration and of the files that it imports, or that its
// folder has: containerd reads conf.d only by "imports", or since 2.2.0 if there is no other
// configuration (containerd-config.toml(5); containerd, pull request 12323).
func (c criConf) read(root host.Root) (all settings, failed error) {
	pending := []string{c.file}
	present, err := root.Exists(c.file)
	if c.folder != "" && (!c.hasImports || err == nil && !present) {
		more, err := matching(root, c.folder, "*")
		pending, failed = append(pending, more...), errors.Join(failed, err)
	}
	const most = 100 // files that import each other end here
	for read := []string{}; len(pending) > 0 && len(read) < most; {
		file := pending[0]
		if pending = pending[1:]; slices.Contains(read, file) {
			continue
		}
		read = append(read, file)
		of, err := readTOML(root, file)
		failed = errors.Join(failed, err)
		for _, one := range of {
			if one.key != "imports" || !c.hasImports {
				continue
			}
			if !path.IsAbs(one.value) {
				one.value = path.Join(path.Dir(file), one.value)
			}
			more, err := matching(root, path.Dir(one.value), path.Base(one.value))
			pending, failed = append(pending, more...), errors.Join(failed, err)
		}
		all = append(all, of...)
	}
	return all, failed
}

// matching returns the files in a folder whose names match a pattern, and end as configurations do.
func matching(root host.Root, dir, pattern string) (files []string, err error) {
	names, err := root.ReadDir(dir)
	if host.IsAbsent(err) {
		return nil, nil
	}
	for _, name := range names {
		if ok, _ := path.Match(pattern, name); (ok || name == pattern) && slices.Contains([]string{".toml", ".conf"}, path.Ext(name)) {
			files = append(files, path.Join(dir, name))
		}
	}
	return files, err
}

// readTOML returns the settings of a file, none if it does not exist. A snapshot has these alone:
// configurations of engines have passwords of registries.
func readTOML(root host.Root, file string) (settings, error) {
	data, err := root.ReadReduced(file, func(data []byte) []byte {
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
	})
	if host.IsAbsent(err) {
		return nil, nil
	}
	return parseTOML(data, file), err
}

var (
	tomlTable = host.LazyRegexp(`^\s*\[\[?([^\[\]]+)\]\]?\s*(#.*)?$`)
	tomlPart  = host.LazyRegexp(`"([^"]*)"|'([^']*)'|([\w-]+)`)
)

// parseTOML returns the settings of a file: lines KEY = VALUE in tables, with keys of several parts
// and arrays of strings on several lines. It is no parser of TOML, which engines have; a file that
// they refuse gives what its lines say.
func parseTOML(data []byte, file string) (all settings) {
	parts := func(text string) (parts []string) {
		for _, match := range tomlPart().FindAllStringSubmatch(text, -1) {
			parts = append(parts, match[1]+match[2]+match[3])
		}
		return parts
	}
	var table []string
	array := "" // the key of an array that has not ended
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		if match := tomlTable().FindStringSubmatch(line); match != nil && array == "" {
			table = parts(match[1])
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		keys := slices.Concat(table, parts(name))
		switch {
		case array != "":
			value = line
		case !ok || len(keys) == 0 || !slices.Contains(tomlKeys, keys[len(keys)-1]):
			continue
		default:
			array = keys[len(keys)-1]
		}
		runtime := ""
		if i := slices.Index(keys, "runtimes"); i >= 0 && i+2 < len(keys) && array != "imports" {
			runtime = keys[i+1]
		}
		values := []string{strings.Trim(strings.TrimSpace(value), `"'`)}
		if array == "imports" {
			values = nil
			for _, match := range tomlPart().FindAllStringSubmatch(value, -1) {
				if text := match[1] + match[2]; text != "" {
					values = append(values, text)
				}
			}
		}
		for _, v := range values {
			all = append(all, setting{runtime, array, v, file})
		}
		if array != "imports" || strings.Contains(value, "]") || !strings.Contains(value, "[") && ok {
			array = ""
		}
	}
	return all
}
