package gate

import (
	"slices"

	"gpustack/host"
	"gpustack/host/guard"
)

// Kind is how a function leaves the host.
type Kind string

// The kinds.
const (
	// AtBoot: another driver binds the function from the next boot on.
	AtBoot Kind = "at boot"
	// Now: another driver binds the function now. Its users lose it, or the kernel waits for them.
	Now Kind = "now"
	// Removed: an existing VF is removed, or made again.
	Removed Kind = "removed"
	// Making: VFs are made of a function that has none. It stays with its driver.
	Making Kind = "making VFs"
	// Returned: a function of guests returns to its host driver now.
	Returned Kind = "returned"
	// Role: containers are offered the function, which stays with its driver.
	Role Kind = "role"
)

// now reports whether functions that leave in this way must not be in use at this moment.
func (k Kind) now() bool { return k == Now || k == Removed || k == Returned }

// mindsNeeds reports whether what the host needs can prevent that functions leave in this way.
func (k Kind) mindsNeeds() bool { return k != Returned && k != Role }

// Use is what prevents a function from leaving the host: a [guard.Use], or the code of another
// refusal.
type Use string

// claims reports whether the kernel or a process has claimed the disk of a use, so that it cannot
// be opened exclusively. Content that nothing uses claims no disk.
func (u Use) claims() bool {
	return slices.Contains([]guard.Use{guard.UseMount, guard.UseMountNamespace, guard.UseSwap, guard.UseHolder, guard.UsePool, guard.UseTarget}, guard.Use(u))
}

// standsFor reports whether --allow that has lifted a use has lifted another one of the same
// function, too. What is recorded is asked again later, before the reboot and during it, when the
// same use may show itself as another one:
//
//   - An address, the default route through the same interface, and the file that gives it an
//
// address are the host's network. Which of them is seen depends on how far the network is set up.
//   - A disk in use that was given up is given up as well once it is not mounted: then its line of
//     fstab and its content are seen.
//
// Any other use is a different loss, to which the operator has not agreed: an interface above may
// carry guests' networks, an ssh session may be the one that could repair the host.
func (u Use) standsFor(other Use) bool {
	network := []Use{Use(guard.UseAddress), Use(guard.UseDefaultRoute), Use(guard.UseConfigured)}
	unused := []Use{Use(guard.UseTable), Use(guard.UseSignature)}
	return u == other || slices.Contains(network, u) && slices.Contains(network, other) || u.claims() && slices.Contains(unused, other)
}

// Verdict is what a use means for a kind of leaving.
type Verdict int

// The verdicts. The zero value refuses, so that a use without a rule does.
const (
	Refused    Verdict = iota // no option lifts it
	Liftable                  // --allow lifts it for one function
	Unaffected                // the use goes on, or another refusal names it
)

// rules has a row for each use. What the host needs for its root file system is never lifted,
// whatever its row says: see [guard.Need], Absolute.
func rules() map[Use]map[Kind]Verdict {
	row := func(atBoot, now, removed, making, returned, role Verdict) map[Kind]Verdict {
		return map[Kind]Verdict{AtBoot: atBoot, Now: now, Removed: removed, Making: making, Returned: returned, Role: role}
	}
	// VFs are made, and containers are offered a function, while a need of the host goes on.
	need := row(Liftable, Liftable, Liftable, Unaffected, Unaffected, Unaffected)
	// Guests that share a function lose their parts of it. A VF has neither VFs nor mediated devices.
	shared := row(Refused, Refused, Unaffected, Unaffected, Unaffected, Unaffected)
	return map[Use]map[Kind]Verdict{
		Use(guard.UseMount):               need,
		Use(guard.UseMountNamespace):      need,
		Use(guard.UseSwap):                need,
		Use(guard.UseHolder):              need,
		Use(guard.UsePool):                need,
		Use(guard.UseTarget):              need,
		Use(guard.UseResume):              need,
		Use(guard.UseTable):               need,
		Use(guard.UseSignature):           need,
		Use(guard.UseDefaultRoute):        need,
		Use(guard.UseSession):             need,
		Use(guard.UseAddress):             need,
		Use(guard.UseConfigured):          need,
		Use(guard.UseConfigurationUnread): need,
		Use(guard.UseUpperLink):           need,
		Use(guard.UseNetworkNamespace):    need,
		Use(guard.UseXDP):                 need,
		Use(guard.UseNetconsole):          need,
		Use(guard.UseKdump):               need,
		Use(guard.UsePTP):                 need,
		Use(guard.UseConsole):             need,
		Use(guard.UseManagementConsole):   need,
		Use(guard.UseRDMAFileSystem):      need,
		Use(guard.UseRDMADisk):            need,
		Use(guard.UseRDMAProtocol):        need,
		Use(guard.UseSubnetManager):       need,
		Use(guard.UseRDMAUnread):          need,
		// Of a function that goes now, HeldOf names the process.
		Use(guard.UseRDMAProcess): row(Liftable, Unaffected, Unaffected, Unaffected, Unaffected, Unaffected),
		// A process or a guest loses the function at the next boot, or keeps it from going now.
		Use(host.CodeInUse): row(Liftable, Refused, Refused, Unaffected, Refused, Unaffected),
		// At the next boot no guest runs.
		Use(host.CodeGuestsUnknown):    row(Unaffected, Refused, Refused, Unaffected, Refused, Unaffected),
		Use(host.CodeVirtualFunctions): shared,
		Use(host.CodeMediated):         shared,
		Use(host.CodeGroup):            row(Liftable, Liftable, Unaffected, Unaffected, Unaffected, Unaffected),
		// What manages the switches of a board manages them for the host and all guests.
		Use(host.CodeNVSwitch):   row(Refused, Refused, Unaffected, Unaffected, Unaffected, Refused),
		Use(host.CodeBondedRDMA): row(Unaffected, Unaffected, Unaffected, Liftable, Unaffected, Unaffected),
		Use(host.CodeRole):       row(Refused, Refused, Refused, Refused, Unaffected, Refused),
	}
}

// Rule returns what a use means for a kind of leaving, and whether there is a rule for both.
func Rule(use Use, kind Kind) (v Verdict, known bool) {
	v, known = rules()[use][kind]
	return v, known
}
