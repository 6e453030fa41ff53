package nova

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RequestKey is the extra spec by which a flavor requests devices.
const RequestKey = "pci_passthrough:alias"

// Request is the devices that a flavor requests. A guest gets all of them or does not boot.
type Request []Wanted

// Wanted is a number of devices of an alias, 1 or more.
type Wanted struct {
	Alias string `json:"alias"` // an alias of nova.conf
	Count int    `json:"count"` // the number of devices
}

// ParseRequest reads the value of RequestKey as Nova does when a guest boots (nova/pci/request.py,
// _translate_alias_to_requests): NAME:COUNT[,NAME:COUNT…], with optional blanks. Counts below 1,
// which Nova accepts, are errors. The error joins all errors of the value.
func ParseRequest(value string) (Request, error) {
	var request Request
	var errs []error
	for word := range strings.SplitSeq(value, ",") {
		alias, count, _ := strings.Cut(word, ":")
		alias = strings.TrimSpace(alias)
		n, err := strconv.Atoi(strings.TrimSpace(count))
		if err != nil || n < 1 {
			errs = append(errs, fmt.Errorf("%q must be NAME:COUNT", strings.TrimSpace(word)))
			continue
		}
		request = append(request, Wanted{alias, n})
	}
	return request, errors.Join(errs...)
}

func (r Request) String() string {
	var words []string
	for _, w := range r {
		words = append(words, fmt.Sprintf("%s:%d", w.Alias, w.Count))
	}
	return strings.Join(words, ",")
}

// Renamed returns the request with another alias for one of its aliases.
func (r Request) Renamed(alias, other string) Request {
	r = slices.Clone(r)
	for i := range r {
		if r[i].Alias == alias {
			r[i].Alias = other
		}
	}
	return r
}

// Devices returns the number of devices that a guest gets.
func (r Request) Devices() int {
	n := 0
	for _, w := range r {
		n += w.Count
	}
	return n
}

// Same reports whether two requests are equal, in any order.
func (r Request) Same(other Request) bool {
	sorted := func(r Request) []Wanted {
		return slices.SortedFunc(slices.Values(r), func(a, b Wanted) int { return cmp.Or(cmp.Compare(a.Alias, b.Alias), a.Count-b.Count) })
	}
	return slices.Equal(sorted(r), sorted(other))
}
