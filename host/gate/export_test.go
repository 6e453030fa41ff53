package gate

import (
	"maps"
	"slices"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{AtBoot, Now, Removed, Making, Returned, Role} }

// Uses returns all uses that have a rule, in order.
func Uses() []Use { return slices.Sorted(maps.Keys(rules())) }
