package flavor

import (
	"fmt"
	"math/big"
	"strings"

	"gpustack/host"
)

// Unit is the unit in which Nova counts a size.
type Unit int64

// Nova counts memory and swap in MiB, and disks in GiB, though it calls them MB and
// GB (nova/objects/flavor.py).
const (
	MiB Unit = 1 << 20
	GiB Unit = 1 << 30
)

var size = host.LazyRegexp(`^([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(i?b)?$`)

// maxSize is the largest that Nova's columns hold (nova/db/constants.py, MAX_INT).
const maxSize = 0x7FFFFFFF

// ParseSize reads a size such as 16G, 1.5TiB or 4096 and returns it in the unit, which is also the
// unit of a plain number. As in Nova, MB are MiB. A size that is not a whole number of units, or
// that is too large for Nova, is an error.
func ParseSize(s string, unit Unit) (int, error) {
	parts := size().FindStringSubmatch(strings.ToLower(s))
	name := map[Unit]string{MiB: "MiB", GiB: "GiB"}[unit]
	if parts == nil {
		return 0, fmt.Errorf("not a size: %q", s)
	}
	value, ok := new(big.Rat).SetString(parts[1])
	if !ok {
		return 0, fmt.Errorf("not a size: %q", s)
	}
	if parts[2] == "" && parts[3] != "" {
		value.Quo(value, new(big.Rat).SetInt64(int64(unit))) // 1073741824B
	} else if parts[2] != "" {
		given := map[string]int64{"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}[parts[2]]
		value.Mul(value, big.NewRat(given, int64(unit)))
	}
	switch {
	case !value.IsInt():
		return 0, fmt.Errorf("%s is not a whole number of %s", s, name)
	case value.Cmp(big.NewRat(maxSize, 1)) > 0:
		return 0, fmt.Errorf("%s is larger than Nova supports", s)
	}
	return int(value.Num().Int64()), nil
}

// Size returns a size as text, in GiB if it is a whole number of them.
func Size(n int, unit Unit) string {
	switch {
	case unit == GiB:
		return fmt.Sprintf("%d GiB", n)
	case n > 0 && n%1024 == 0:
		return fmt.Sprintf("%d GiB", n/1024)
	}
	return fmt.Sprintf("%d MiB", n)
}
