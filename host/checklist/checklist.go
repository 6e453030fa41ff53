// Package checklist carries out the checks of a subject, such as a machine, in their order, and
// derives the verdict from what they find: [List.Judge].
//
// It has no check of its own, reads nothing and prints nothing.
package checklist

import (
	"errors"
	"slices"

	"gpustack/host"
)

// Verdict is the result of all checks of a subject.
type Verdict string

// The verdicts. A subject that was prepared is PendingReboot until what was recorded takes effect,
// then Ready, Drifted if it no longer matches the record, or NotReady for another reason. Unknown
// means that not enough of it can be read.
const (
	NotPrepared   Verdict = "not prepared"   // nothing is recorded
	PendingReboot Verdict = "pending reboot" // the record takes effect after a reboot
	Ready         Verdict = "ready"          // no check failed
	NotReady      Verdict = "not ready"      // another check failed
	Drifted       Verdict = "drifted"        // what was prepared no longer matches the record
	Unknown       Verdict = "unknown"        // not enough of it can be read
)

// Verdicts returns all verdicts, the worst first: what a reboot may repair comes before what must
// be repaired, a failure before what could not be checked, and anything before Ready.
func Verdicts() []Verdict {
	return []Verdict{NotPrepared, PendingReboot, Drifted, NotReady, Unknown, Ready}
}

// ErrUnknown means that not enough of a machine can be read for a verdict.
var ErrUnknown = host.WithHint(errors.New("not enough information to reach a verdict"),
	"the checks with status n/a name what is missing; containers and snapshots do not show all of it: run gpustack on the machine itself")

// Check is one check of a subject.
type Check[S any] struct {
	Name string // as in the output
	// Judge returns at least one finding, or none if the output does not list the check. It leaves
	// the name of the check out.
	Judge func(S) []host.Finding
	// Fail is the verdict on a subject that fails the check; "" is NotReady.
	Fail Verdict
	// NA is the verdict on a subject that is ready but for a finding of the check that is n/a: Unknown
	// for a check that Ready requires, "" for any other.
	NA Verdict
}

// means returns the verdict on a subject with a finding of the check.
func (c Check[S]) means(s host.Status) Verdict {
	switch {
	case s == host.Fail && c.Fail == "":
		return NotReady
	case s == host.Fail:
		return c.Fail
	case s == host.NA && c.NA != "":
		return c.NA
	}
	return Ready
}

// List is the checks of a subject in the order of the output: that in which an operator would look
// for a problem.
type List[S any] []Check[S]

// Judge carries out all checks. It returns their findings, and the worst verdict that follows from
// one of them: Ready if none fails and all that are required could be made.
func (l List[S]) Judge(subject S) (findings []host.Finding, verdict Verdict) {
	verdict = Ready
	for _, check := range l {
		for _, f := range check.Judge(subject) {
			f.Check = check.Name
			findings = append(findings, f)
			verdict = Worse(verdict, check.means(f.Status))
		}
	}
	return findings, verdict
}

// Worse returns the one of two verdicts that decides, by the order of [Verdicts].
func Worse(a, b Verdict) Verdict {
	order := Verdicts()
	return order[min(slices.Index(order, a), slices.Index(order, b))]
}

// Result is the result of a check.
type Result struct {
	Check  string
	Status host.Status
}

// statuses are all statuses, the worst last: one failure is worse than a warning, and one thing
// that could not be checked is worse than what has passed.
var statuses = []host.Status{host.Pass, host.NA, host.Warn, host.Fail}

// Results returns the result of each check, which is the worst of its findings, in the order of the
// first ones.
func Results(findings []host.Finding) (results []Result) {
	at := map[string]int{}
	for _, f := range findings {
		i, ok := at[f.Check]
		switch {
		case !ok:
			at[f.Check] = len(results)
			results = append(results, Result{f.Check, f.Status})
		case slices.Index(statuses, f.Status) > slices.Index(statuses, results[i].Status):
			results[i].Status = f.Status
		}
	}
	return results
}
