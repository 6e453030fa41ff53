package flavor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova"
)

var count = host.LazyRegexp(`^[0-9]+$`)

// ParseRequest reads ALIAS:COUNT[,ALIAS:COUNT…] of the command line. It is stricter than Nova when
// a guest boots: it rejects what the API rejects from microversion 2.86 on
// (nova/api/validation/extra_specs/pci_passthrough.py: a blank after the colon, a comma at the
// end), counts of 0, and an alias that is given twice. The error joins all errors of the text.
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
			fail("%q: no alias given", s)
		case word == "":
			fail("%q: empty element between or after commas", s)
		case strings.TrimSpace(alias) == "":
			fail("%q: the alias is missing", word)
		case alias != strings.TrimSpace(alias):
			fail("%q: blanks around the alias", word)
		case !hasCount:
			fail("%q: the count is missing, as in %s:1", word, alias)
		case strings.ContainsAny(number, " \t"):
			fail("%q: blanks around the count", word)
		case !count().MatchString(number) || err != nil || n > maxSize:
			fail("%q: %q is not a count", word, number)
		case n == 0:
			fail("%q: the count must be at least 1", word)
		case seen[alias]:
			fail("%q: alias %s is given twice", s, alias)
		default:
			request = append(request, nova.Wanted{Alias: alias, Count: n})
		}
		seen[alias] = true
	}
	return request, errors.Join(errs...)
}

// Sets reports whether an option other than Properties sets the extra spec with this key.
func (o Options) Sets(key string) bool {
	return key == "hw:cpu_policy" && o.CPUPolicy != "" || key == "hw:pci_numa_affinity_policy" && o.NUMAPolicy != "" ||
		strings.HasSuffix(key, "hide_hypervisor_id") && o.HideHypervisor
}

// ParseProperty reads KEY=VALUE with the characters that Nova's API accepts
// (nova/api/openstack/compute/schemas/flavors_extraspecs.py).
func ParseProperty(s string) (key, value string, err error) {
	const longest = 255
	key, value, ok := strings.Cut(s, "=")
	switch {
	case !ok:
		return "", "", fmt.Errorf("%q must be KEY=VALUE", s)
	case !propertyKey().MatchString(key):
		return "", "", fmt.Errorf("%q: only letters, digits, blanks and - _ . : are allowed in a key", key)
	case len(key) > longest:
		return "", "", fmt.Errorf("%s is longer than %d characters", key, longest)
	case len([]rune(value)) > longest:
		return "", "", fmt.Errorf("%s: the value is longer than %d characters", key, longest)
	case key == nova.RequestKey:
		return "", "", fmt.Errorf("%s is set by ALIAS:COUNT", key)
	}
	return key, value, nil
}

var propertyKey = host.LazyRegexp(`^[a-zA-Z0-9-_:. ]+$`)

// defaultName returns the default name of a flavor for a request, such as gpu.k4200.2.
func defaultName(r nova.Request) string {
	name := "gpu"
	for _, w := range r {
		name += fmt.Sprintf(".%s.%d", strings.ToLower(strings.ReplaceAll(w.Alias, " ", "-")), w.Count)
	}
	return name
}
