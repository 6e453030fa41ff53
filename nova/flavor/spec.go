package flavor

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gpustack/nova"
)

var count = regexp.MustCompile(`^[0-9]+$`)

// ParseRequest reads ALIAS:COUNT[,ALIAS:COUNT…] as an operator writes it, and takes
// less than Nova does at run time: what its API refuses from microversion 2.86 on
// (nova/api/validation/extra_specs/pci_passthrough.py: no blank behind the colon, no
// comma at the end), counts of 0, which ask for nothing, and an alias twice. All its
// faults are in the error.
func ParseRequest(s string) (nova.Request, error) {
	var request nova.Request
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(format, args...))
	}
	seen := map[string]bool{}
	for i, word := range strings.Split(s, ",") {
		alias, number, hasCount := strings.Cut(word, ":")
		n, err := strconv.Atoi(number)
		switch {
		case word == "" && i == 0:
			fail("%q: no alias is named", s)
		case word == "":
			fail("%q: nothing between or behind commas", s)
		case strings.TrimSpace(alias) == "":
			fail("%q: has no alias", word)
		case alias != strings.TrimSpace(alias):
			fail("%q: a blank around the alias", word)
		case !hasCount:
			fail("%q: has no count, such as %s:1", word, alias)
		case strings.ContainsAny(number, " \t"):
			fail("%q: a blank beside the count", word)
		case !count.MatchString(number) || err != nil || n > maxSize:
			fail("%q: %q is not a count", word, number)
		case n == 0:
			fail("%q: asks for no device", word)
		case seen[alias]:
			fail("%q: alias %s is there twice", s, alias)
		default:
			request = append(request, nova.Wanted{Alias: alias, Count: n})
		}
		seen[alias] = true
	}
	return request, errors.Join(errs...)
}

// ParseProperty reads KEY=VALUE, with the characters that Nova's API takes
// (nova/api/openstack/compute/schemas/flavors_extraspecs.py).
func ParseProperty(s string) (key, value string, err error) {
	const longest = 255
	key, value, ok := strings.Cut(s, "=")
	switch {
	case !ok:
		return "", "", fmt.Errorf("not KEY=VALUE: %q", s)
	case !propertyKey.MatchString(key):
		return "", "", fmt.Errorf("%q: a key has letters, digits, blanks and - _ . : only", key)
	case len(key) > longest:
		return "", "", fmt.Errorf("%s: has more than %d characters", key, longest)
	case len([]rune(value)) > longest:
		return "", "", fmt.Errorf("%s: its value has more than %d characters", key, longest)
	case key == nova.RequestKey:
		return "", "", fmt.Errorf("%s: is what ALIAS:COUNT says", key)
	}
	return key, value, nil
}

var propertyKey = regexp.MustCompile(`^[a-zA-Z0-9-_:. ]+$`)

// DefaultName is the name of a flavor that asks for devices: gpu.k4200.2.
func DefaultName(r nova.Request) string {
	name := "gpu"
	for _, w := range r {
		name += fmt.Sprintf(".%s.%d", strings.ToLower(strings.ReplaceAll(w.Alias, " ", "-")), w.Count)
	}
	return name
}
