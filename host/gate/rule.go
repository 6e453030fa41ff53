package gate

import (
	"maps"
	"slices"

	"gpustack/host"
)

// Kind is how a function leaves the host.
type Kind string

// The kinds.
const (
	// AtBoot: another driver binds the function from the next boot on.
	AtBoot Kind = "at boot"
	// Now: another driver binds the function now. Its users lose it, or keep the driver from letting
	// it go.
	Now Kind = "now"
	// Removed: an existing VF is removed, or made again.
	Removed Kind = "removed"
	// Making: VFs are made of a function that has none. It stays with its driver.
	Making Kind = "making VFs"
	// Role: containers are offered the function, which stays with its driver.
	Role Kind = "role"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{AtBoot, Now, Removed, Making, Role} }

// Use is what prevents a function from leaving the host: the code of its refusal.
type Use = host.Code

// Verdict is what a use means for a kind of leaving.
type Verdict int

// The verdicts. The zero value refuses: a use without a rule must not let a function go.
const (
	Refused    Verdict = iota // no option lifts it
	Liftable                  // --allow lifts it for one function
	Unaffected                // the use goes on, or another refusal names it
)

// rules has a row for each use. What the host needs for its root file system is never lifted,
// whatever its row says: see [guard.Need.Absolute].
func rules() map[Use]map[Kind]Verdict {
	// A need of the host. VFs are made, and containers are offered a function, while it goes on.
	need := map[Kind]Verdict{AtBoot: Liftable, Now: Liftable, Removed: Liftable, Making: Unaffected, Role: Unaffected}
	// A process or a guest loses the function at the next boot, or keeps it from going now.
	held := map[Kind]Verdict{AtBoot: Liftable, Now: Refused, Removed: Refused, Making: Unaffected, Role: Unaffected}
	// Guests that share a function lose their parts of it. A VF has neither VFs nor mediated devices.
	shared := map[Kind]Verdict{AtBoot: Refused, Now: Refused, Removed: Refused, Making: Unaffected, Role: Unaffected}
	return map[Use]map[Kind]Verdict{
		host.CodeDisk:          need,
		host.CodeNetwork:       need,
		host.CodeSSHSession:    need,
		host.CodeConsole:       need,
		host.CodeSubnetManager: need,
		host.CodeRootDisk:      {AtBoot: Refused, Now: Refused, Removed: Refused, Making: Unaffected, Role: Unaffected},
		host.CodeInUse:         held,
		// At the next boot no guest runs: those that use the function now are found by the next check.
		host.CodeGuestsUnknown:    {AtBoot: Unaffected, Now: Refused, Removed: Refused, Making: Unaffected, Role: Unaffected},
		host.CodeVirtualFunctions: shared,
		host.CodeMediated:         shared,
		host.CodeGroup:            {AtBoot: Liftable, Now: Liftable, Removed: Unaffected, Making: Unaffected, Role: Unaffected},
		host.CodeRole:             {AtBoot: Refused, Now: Refused, Removed: Refused, Making: Refused, Role: Refused},
		host.CodeRecorded:         {AtBoot: Refused, Now: Refused, Removed: Unaffected, Making: Refused, Role: Unaffected},
	}
}

// Uses returns all uses that have a rule, in order.
func Uses() []Use { return slices.Sorted(maps.Keys(rules())) }

// Rule returns what a use means for a kind of leaving, and whether there is a rule for both.
func Rule(use Use, kind Kind) (v Verdict, known bool) {
	v, known = rules()[use][kind]
	return v, known
}
