package novadb

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// options returns the options of read_default_file and read_default_group, nil if the URL
// has neither argument. PyMySQL ignores a file that does not exist. Here it is an error:
// without the file, the connection could silently lose its TLS options.
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

// defaultOptions reads the files that the drivers read if the URL only names a group.
// They need not exist.
func (a *arguments) defaultOptions() (map[string]string, error) {
	options := map[string]string{}
	a.file = "/etc/my.cnf" // named in messages
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

// readPyMySQL reads one group of an option file, and [DEFAULT], as PyMySQL does
// (pymysql/optionfile.py: Python's RawConfigParser with allow_no_value). Errors of
// RawConfigParser are errors here too, and so are lines that continue a value.
func (a *arguments) readPyMySQL(file, text string) (map[string]string, error) {
	groups, err := parseGroups(file, text)
	if err != nil {
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
	for _, from := range []map[string]*string{groups[defaultGroup], groups[name]} {
		for key, value := range from {
			delete(options, key)
			if value != nil {
				options[key] = *value
			}
		}
	}
	return options, nil
}

// defaultGroup is the group whose options RawConfigParser adds to every group.
const defaultGroup = "DEFAULT"

// parseGroups reads the options of an option file by group, like PyMySQL. An option without a
// value is nil.
func parseGroups(file, text string) (map[string]map[string]*string, error) {
	groups := map[string]map[string]*string{defaultGroup: {}}
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
			if _, there := groups[name]; there && name != defaultGroup {
				fail(n, "duplicate group")
			} else if !there {
				groups[name] = map[string]*string{}
			}
			group, option = groups[name], false
			continue
		}
		if group == nil {
			fail(n, "option before the first group")
			continue
		}
		key, value := parseOption(content)
		if _, there := group[key]; there {
			fail(n, "duplicate option")
		} else if key == "" {
			fail(n, "option without a name")
		}
		group[key], option = value, true
	}
	return groups, errors.Join(errs...)
}

// parseOption splits a line into an option and its value, nil if it has none. An underscore in the
// name is a hyphen, as in PyMySQL 1.1.1. PyMySQL 1.0.2 ignores ssl_ca and signs in without TLS:
// which one nova uses is not known, and TLS that the file asks for is not left out.
func parseOption(line string) (key string, value *string) {
	name, text, valued := line, "", false
	if i := strings.IndexAny(line, "=:"); i >= 0 {
		name, text, valued = line[:i], unquoted(strings.TrimSpace(line[i+1:])), true
	}
	key = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "_", "-")
	if !valued {
		return key, nil
	}
	return key, &text
}

// optionLines splits a text into lines like Python.
func optionLines(text string) []string {
	return strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
}

func unquoted(value string) string {
	if n := len(value); n >= 2 && value[0] == value[n-1] && (value[0] == '\'' || value[0] == '"') {
		return value[1 : n-1]
	}
	return value
}

// clientGroups are the groups that the C libraries of MySQL and MariaDB read beside
// read_default_group (mariadb.com/kb/en, "Configuring MariaDB Connector/C with Option
// Files").
var clientGroups = []string{"client", "client-server", "client-mariadb"}

// clientOptions are the options of the C libraries that readClient applies.
var clientOptions = []string{
	"user", "password", "host", "port", "database", "socket", "bind-address", "init-command",
	"ssl", "ssl-mode", "ssl-ca", "ssl-capath", "ssl-cert", "ssl-key", "ssl-cipher", "ssl-verify-server-cert",
}

// tlsOption matches the names of all options of TLS, also of those that MySQL's library
// accepts as abbreviations.
var tlsOption = host.LazyRegexp(`^(ssl|tls)[a-z-]*$`)

// ignoredTLS are the options of TLS that neither switch it on nor decide what is verified.
var ignoredTLS = []string{"tls-version", "tls-ciphersuites"}

// maxIncludes bounds how deep files may include others.
const maxIncludes = 10

// readClient reads an option file into options as the C libraries do, which mysqlclient
// uses (dev.mysql.com/doc, "Using Option Files"): every group of clientGroups, included
// files, and the last of several values. It is an error if the libraries of MySQL and
// MariaDB differ about a value.
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
				fail(n, "group without ]")
			}
			name = strings.TrimSpace(name)
			found, wanted = true, slices.Contains(clientGroups, name) || name == a.group
		case !found:
			fail(n, "option before the first group")
		case wanted:
			key, value, _ := strings.Cut(line, "=")
			key = strings.ReplaceAll(strings.TrimSpace(key), "_", "-")
			if !slices.Contains(clientOptions, key) {
				// Others switch TLS on, verify more, or are aliases of only one library.
				if tlsOption().MatchString(key) && !slices.Contains(ignoredTLS, key) {
					fail(n, key+" is not supported")
				}
				continue
			}
			value, err := clientValue(strings.TrimSpace(value))
			if err != nil {
				fail(n, err.Error())
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
				return fmt.Errorf("%s: only the library of MySQL reads the file, that of MariaDB does not: use !include", file)
			}
			maps.Copy(options, found)
		}
		return nil
	}
	return fmt.Errorf("%s: !%s is not a directive", last, directive)
}

// clientValue decodes the value of an option. It returns an error if the libraries of
// MySQL and MariaDB differ: only MySQL's ends a value at a #, and they have only these
// escapes in common.
func clientValue(value string) (string, error) {
	plain := unquoted(value)
	if plain == value && strings.ContainsRune(value, '#') {
		return "", errors.New("a value with a # must be quoted")
	}
	var b strings.Builder
	for i := 0; i < len(plain); i++ {
		c := plain[i]
		if c == '\\' {
			at := -1
			if i++; i < len(plain) {
				at = strings.IndexByte(`ntrbs\`, plain[i])
			}
			if at < 0 {
				return "", errors.New(`a backslash must be written as \\`)
			}
			c = "\n\t\r\b \\"[at]
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}
