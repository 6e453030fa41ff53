package cleanup

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// options returns the options that read_default_file and read_default_group name, nil
// where the URL has neither. The drivers ignore a file that does not exist; a file that
// the URL names is an error then, because what it says about TLS would be lost silently.
func (a *arguments) options() (map[string]string, error) {
	switch {
	case a.file == "" && a.group == "":
		return nil, nil
	case a.file == "":
		return a.defaultOptions()
	case !path.IsAbs(a.file):
		return nil, fmt.Errorf("argument read_default_file: %q is not an absolute path", a.file)
	case a.mysqldb:
		options := map[string]string{}
		return options, a.readClient(options, a.file, nil)
	}
	text, err := a.root.ReadFile(a.file)
	if err != nil {
		return nil, fmt.Errorf("read_default_file: %w", err)
	}
	return a.readPyMySQL(a.file, string(text))
}

// defaultOptions reads the files that the drivers read where only a group is named. They
// need not exist.
func (a *arguments) defaultOptions() (map[string]string, error) {
	options := map[string]string{}
	a.file = "/etc/my.cnf" // for messages
	files := []string{a.file}
	if a.mysqldb {
		files = append(files, "/etc/mysql/my.cnf")
	}
	for _, file := range files {
		text, err := a.root.ReadFile(file)
		switch {
		case host.IsAbsent(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("read_default_group: %w", err)
		case !a.mysqldb:
			return a.readPyMySQL(file, string(text))
		}
		if err := a.readClient(options, file, nil); err != nil {
			return nil, err
		}
	}
	return options, nil
}

// readPyMySQL reads an option file as PyMySQL does (pymysql/optionfile.py: Python's
// RawConfigParser with allow_no_value): one group only, and what [DEFAULT] says. What
// RawConfigParser refuses is an error, and so are lines that continue a value.
func (a *arguments) readPyMySQL(file, text string) (map[string]string, error) {
	const defaults = "DEFAULT"
	groups := map[string]map[string]*string{defaults: {}} // nil: an option without a value
	var errs []error
	fail := func(line int, what string) {
		errs = append(errs, fmt.Errorf("%s:%d: %s", file, line+1, what))
	}
	var group map[string]*string
	indent, option := 0, false
	for n, line := range optionLines(text) {
		content := strings.TrimSpace(line)
		if content == "" || content[0] == '#' || content[0] == ';' {
			continue
		}
		at := strings.Index(line, content)
		if option && at > indent {
			fail(n, "lines that continue a value are not supported")
			continue
		}
		indent = at
		if end := strings.LastIndex(content, "]"); content[0] == '[' && end > 1 {
			name := content[1:end]
			if _, there := groups[name]; there && name != defaults {
				fail(n, "the group is there twice")
			} else if !there {
				groups[name] = map[string]*string{}
			}
			group, option = groups[name], false
			continue
		}
		if group == nil {
			fail(n, "the line is in no group")
			continue
		}
		key, value, has := content, "", false
		if i := strings.IndexAny(content, "=:"); i >= 0 {
			key, value, has = strings.TrimSpace(content[:i]), strings.TrimSpace(content[i+1:]), true
		}
		key = strings.ToLower(key)
		if _, there := group[key]; there {
			fail(n, "the option is there twice")
		} else if key == "" {
			fail(n, "the option has no name")
		}
		group[key], option = nil, true
		if has {
			value = unquoted(value)
			group[key] = &value
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	name := a.group
	if name == "" {
		name = "client"
	}
	options := map[string]string{}
	if groups[name] == nil {
		return options, nil
	}
	for _, from := range []map[string]*string{groups[defaults], groups[name]} {
		for key, value := range from {
			delete(options, key)
			if value != nil {
				options[key] = *value
			}
		}
	}
	return options, nil
}

// optionLines splits a text where Python does.
func optionLines(text string) []string {
	return strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
}

func unquoted(value string) string {
	if n := len(value); n >= 2 && value[0] == value[n-1] && (value[0] == '\'' || value[0] == '"') {
		return value[1 : n-1]
	}
	return value
}

// clientGroups are the groups that the C libraries of MySQL and MariaDB read beside the
// one that is asked for (mariadb.com/kb/en, "Configuring MariaDB Connector/C with Option
// Files").
var clientGroups = []string{"client", "client-server", "client-mariadb"}

// clientOptions are the options of the C libraries that matter here.
var clientOptions = []string{
	"user", "password", "host", "port", "database", "socket", "bind-address", "init-command",
	"ssl", "ssl-mode", "ssl-ca", "ssl-capath", "ssl-cert", "ssl-key", "ssl-verify-server-cert",
}

// maxIncludes is how deep files may include others.
const maxIncludes = 10

// readClient reads an option file into options as the C libraries do, which mysqlclient
// uses (dev.mysql.com/doc, "Using Option Files"): every group of clientGroups, files that
// it includes, the last of several values. Where the libraries of MySQL and MariaDB read
// a value differently, it is an error.
func (a *arguments) readClient(options map[string]string, file string, in []string) error {
	if len(in) == maxIncludes {
		return fmt.Errorf("%s: more than %d files include each other", file, maxIncludes)
	}
	if slices.Contains(in, file) {
		return fmt.Errorf("%s: the file includes itself", file)
	}
	text, err := a.root.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read_default_file: %w", err)
	}
	in = append(slices.Clip(in), file)
	var errs []error
	fail := func(line int, what string) {
		errs = append(errs, fmt.Errorf("%s:%d: %s", file, line+1, what))
	}
	found, wanted := false, false
	for n, line := range optionLines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#' || line[0] == ';':
		case line[0] == '!':
			directive, name, _ := strings.Cut(line[1:], " ")
			if err := a.include(options, directive, strings.TrimSpace(name), in); err != nil {
				return errors.Join(append(errs, err)...)
			}
		case line[0] == '[':
			name, _, closed := strings.Cut(line[1:], "]")
			if !closed {
				fail(n, "the group has no end")
			}
			name = strings.TrimSpace(name)
			found, wanted = true, slices.Contains(clientGroups, name) || name == a.group
		case !found:
			fail(n, "the line is in no group")
		case wanted:
			key, value, _ := strings.Cut(line, "=")
			key = strings.ReplaceAll(strings.TrimSpace(key), "_", "-")
			if !slices.Contains(clientOptions, key) {
				continue
			}
			value, ok := clientValue(strings.TrimSpace(value))
			if !ok {
				fail(n, "the libraries of MySQL and MariaDB read the value differently")
			}
			options[key] = value
		}
	}
	return errors.Join(errs...)
}

// include reads the files of an !include or !includedir.
func (a *arguments) include(options map[string]string, directive, name string, in []string) error {
	last := in[len(in)-1]
	if !path.IsAbs(name) {
		return fmt.Errorf("%s: !%s: %q is not an absolute path", last, directive, name)
	}
	switch directive {
	case "include":
		return a.readClient(options, name, in)
	case "includedir":
		names, err := a.root.ReadDir(name)
		if err != nil {
			return fmt.Errorf("%s: !includedir: %w", last, err)
		}
		for _, n := range names {
			if !strings.HasSuffix(n, ".cnf") {
				continue
			}
			// MySQL's library reads every .cnf there, MariaDB's (3.3) only my.cnf.
			file, found := path.Join(name, n), map[string]string{}
			if err := a.readClient(found, file, in); err != nil {
				return err
			}
			if len(found) > 0 && n != "my.cnf" {
				return fmt.Errorf("%s: the libraries of MySQL and MariaDB differ in whether to read the file; include it with !include", file)
			}
			maps.Copy(options, found)
		}
		return nil
	}
	return fmt.Errorf("%s: !%s is not a directive", last, directive)
}

// clientValue reads the value of an option. Only MySQL's library ends one at a #, and
// other escapes than these are not the same either.
func clientValue(value string) (string, bool) {
	plain := unquoted(value)
	if plain == value && strings.ContainsRune(value, '#') {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(plain); i++ {
		c := plain[i]
		if c == '\\' {
			if i++; i == len(plain) {
				return "", false
			}
			at := strings.IndexByte(`ntrbs\`, plain[i])
			if at < 0 {
				return "", false
			}
			c = "\n\t\r\b \\"[at]
		}
		b.WriteByte(c)
	}
	return b.String(), true
}
