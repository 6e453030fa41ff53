package conf

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"gpustack/host"
)

// FormatJSON returns a value as JSON for an option. Dollar signs are doubled: oslo.config reads a
// single one as the beginning of a reference to another option.
func FormatJSON(value any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return strings.ReplaceAll(spaced(strings.TrimSuffix(b.String(), "\n")), "$", "$$"), err
}

// spaced inserts a space after each comma and colon outside of strings, as Nova's documentation
// does.
func spaced(text string) string {
	var b strings.Builder
	quoted := false
	for i := range len(text) {
		c := text[i]
		b.WriteByte(c)
		switch {
		case c == '"' && (i == 0 || text[i-1] != '\\'):
			quoted = !quoted
		case !quoted && (c == ',' || c == ':'):
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// ParseObjects returns the objects of an option whose value is a JSON object or a list of them, and
// nil if it is neither.
func ParseObjects(value string) []map[string]any {
	value = strings.ReplaceAll(dollars(value), "$$", "$")
	var list []map[string]any
	if json.Unmarshal([]byte(value), &list) == nil {
		return list
	}
	var object map[string]any
	if json.Unmarshal([]byte(value), &object) == nil && object != nil {
		return []map[string]any{object}
	}
	return nil
}

// reference matches a dollar sign that is written twice, or what oslo.config replaces by the value
// of an option (oslo_config/cfg.py, ConfigOpts.Template).
var reference = host.LazyRegexp(`(?i)\$\$|\$([_a-z][._a-z0-9]*)|\$\{([_a-z][._a-z0-9]*)\}`)

// References returns the names of the options that a value refers to. oslo.config replaces them by
// their values, and fails where the service has no such option.
func References(value string) (names []string) {
	for _, m := range reference().FindAllStringSubmatch(dollars(value), -1) {
		if name := m[1] + m[2]; name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// dollars returns a value in which each dollar sign is written twice that oslo.config also accepts
// after a backslash (oslo_config/cfg.py, ConfigOpts._substitute).
func dollars(value string) string {
	return strings.ReplaceAll(value, `\$`, "$$")
}

// Object returns a value as the JSON object that is read back from it.
func Object(value any) (map[string]any, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var o map[string]any
	return o, json.Unmarshal(data, &o)
}

// Written is [FormatJSON] for messages: "unreadable" stands for a value that cannot be written.
func Written(value any) string {
	s, err := FormatJSON(value)
	if err != nil {
		return "unreadable"
	}
	return s
}

// ParseList splits a list as oslo.config does (oslo_config/types.py, List): commas at the end are
// dropped, and other empty items are kept.
func ParseList(list string) []string {
	list = strings.TrimRight(strings.TrimSpace(list), ",")
	if list == "" {
		return nil
	}
	words := strings.Split(list, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	return words
}

// IsTrue reports whether a value of a boolean option is true (oslo_config/types.py, Boolean).
func IsTrue(value string) bool {
	return slices.Contains([]string{"true", "1", "yes", "on"}, strings.ToLower(value))
}

// IsBool reports whether oslo.config accepts a value of a boolean option: what reads another one
// fails. A comment behind a value is part of it.
func IsBool(value string) bool {
	return IsTrue(value) || slices.Contains([]string{"false", "0", "no", "off"}, strings.ToLower(value))
}
