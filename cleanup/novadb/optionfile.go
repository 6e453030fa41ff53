package novadb

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// ignoredOptions are options that make no difference here, as the arguments of that name.
var ignoredOptions = []string{"default-character-set", "max-allowed-packet", "connect-timeout", "tls-version"}

// readDefaults reads values that the URL lacks from one group of read_default_file, [client] if none
// is named: with the grammar that PyMySQL (pymysql/optionfile.py) and the C libraries of MySQL and
// MariaDB share, which mysqlclient uses. What they read differently is an error, and so are options
// that are not known, which may mean another server or TLS. PyMySQL ignores a file that does not
// exist. Here it is an error: without the file, the connection could silently lose its TLS options.
func (a *arguments) readDefaults() error {
	switch {
	case a.file == "" && a.group == "":
		return nil
	case !path.IsAbs(a.file):
		return fmt.Errorf("argument read_default_file: %q is not an absolute path", a.file)
	}
	text, err := a.root.ReadFile(a.file)
	if err != nil {
		return fmt.Errorf("read_default_file: %w", err)
	}
	options, err := a.options(string(text))
	if err != nil {
		return err
	}
	var errs []error
	fail := func(what string) { errs = append(errs, fmt.Errorf("%s: %s", a.file, what)) }
	known := map[string]*string{
		"user": &a.user, "password": &a.password, "host": &a.host, "port": &a.port, "database": &a.database, "socket": &a.socket, "bind-address": &a.bind,
		"ssl-ca": &a.ca, "ssl-cert": &a.cert, "ssl-key": &a.key,
	}
	for key, value := range options {
		on, isTruth := truths[strings.ToLower(cmp.Or(value, "1"))]
		switch {
		case known[key] != nil:
			*known[key] = cmp.Or(*known[key], value)
		case key == "ssl" && isTruth: // as TripleO writes it, with ssl-ca where it is 1
			if on && a.mode == "" {
				a.flags["ssl"] = true
			}
		case !slices.Contains(ignoredOptions, key):
			fail(key + " is not supported")
		}
	}
	if a.port != "" && !isPort(a.port) {
		fail("the port is not a number from 1 to 65535")
	}
	return errors.Join(errs...)
}

// options reads the options of a group. Errors do not quote a value, which may be a password.
func (a *arguments) options(text string) (map[string]string, error) {
	wanted, group := cmp.Or(a.group, "client"), ""
	options := map[string]string{}
	seen := map[string]bool{}
	var errs []error
	for n, line := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		fail := func(what string) { errs = append(errs, fmt.Errorf("%s:%d: %s", a.file, n+1, what)) }
		content := strings.TrimSpace(line)
		if content == "" || content[0] == '#' || content[0] == ';' {
			continue
		}
		if content[0] == '[' {
			name, rest, closed := strings.Cut(content[1:], "]")
			switch {
			case !closed || rest != "":
				fail("not a group")
			case seen[name]:
				fail("a group is there twice")
			case name == "DEFAULT", name == "client" && wanted != "client" && !a.pymysql:
				fail("the drivers differ in whether they read the group " + name)
			}
			group, seen[name] = name, true
			continue
		}
		key, value, valued := strings.Cut(content, "=")
		// PyMySQL 1.0.2 ignores ssl_ca and signs in without TLS: which one nova uses is not known, and
		// TLS that the file asks for is not left out.
		key, value = strings.ReplaceAll(strings.TrimSpace(key), "_", "-"), strings.TrimSpace(value)
		plain := unquoted(value)
		_, twice := options[key]
		switch {
		case group == "", content[0] == '!':
			fail("an option before the first group, or a directive")
		case group != wanted:
			continue
		case content != strings.TrimRight(line, " \t\r"):
			fail("an indented line, which PyMySQL takes for a part of the value before")
		case !isOption(key), !valued && key != "ssl": // perhaps a part of a password
			fail("not an option")
		case twice:
			fail(key + " is there twice")
		case strings.Contains(plain, "\\"), plain == value && strings.Contains(value, "#"):
			fail("the drivers differ in a value with a backslash, or with a # that is not quoted")
		}
		options[key] = plain
	}
	return options, errors.Join(errs...)
}

// isOption returns whether a text can be the name of an option: an error may quote it then.
func isOption(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(c rune) bool { return c != '-' && (c < 'a' || c > 'z') })
}

func unquoted(value string) string {
	if n := len(value); n >= 2 && value[0] == value[n-1] && (value[0] == '\'' || value[0] == '"') {
		return value[1 : n-1]
	}
	return value
}
