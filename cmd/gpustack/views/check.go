package views

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/metrics"
)

// Check is what the output of each check of a machine has (docs/json.md), and what is printed of it.
type Check struct {
	Schema int `json:"schema"`
	// what the checks amount to; of container check "ready", "not ready" or "unknown" only
	Verdict  checklist.Verdict `json:"verdict"`
	Passed   bool              `json:"passed"`   // whether no check has failed
	Findings []host.Finding    `json:"findings"` // at least one of each check, in the order of the checks
	Next     *host.Next        `json:"next"`     // the next step; null for none
	// files that cannot be read or parsed; why the cache of initramfs images is not used
	Warnings []string `json:"warnings"`

	Machine string    // the line above the verdict, "" for none
	Line    host.Text // what stands beside the verdict in place of the next step; "" for that
	// Missing is the name of a check whose findings are listed if they are n/a: the verdict depends on
	// them. Without a verdict, those of every check are.
	Missing string
	// Metrics are the samples of a command with --metrics.
	Metrics []metrics.Sample `json:"-"`
}

// newCheck returns the report of the checks of a subject, with the next step that the verdict alone
// decides.
func newCheck(subject, machine string, v checklist.Verdict, findings []host.Finding, warnings []string) Check {
	c := Check{Schema: 1, Machine: machine, Verdict: v, Passed: !host.Failed(findings), Findings: findings, Warnings: warnings}
	again := host.NewCommand(subject + " check")
	switch v {
	case checklist.PendingReboot:
		c.Next = host.NewNext(again, host.NeedReboot)
	case checklist.NotPrepared, checklist.NotReady, checklist.Drifted:
		c.Next = host.NewNext(again, host.NeedRemedies)
	case checklist.Ready, checklist.Unknown:
	}
	return c
}

// Checked returns the report itself, of which commands print a part for people.
func (c Check) Checked() Check { return c }

// PrintCheck prints the verdict, failures and warnings, and the number of the other checks; with
// all every finding in the order of the checks.
func PrintCheck(u *term.UI, c Check, all bool) {
	if c.Machine != "" {
		u.Printf("%s\n\n", term.Printable(c.Machine))
	}
	listed := c.Findings
	if !all {
		listed = c.notable()
	}
	colour := map[checklist.Verdict]string{checklist.Ready: term.Green, checklist.NotReady: term.Red, checklist.Drifted: term.Red}[c.Verdict]
	u.Printf("%s: %s\n", u.Paint(cmp.Or(colour, term.Bold), string(c.Verdict)+notPassed(c.Findings)), term.Printable(c.line(u)))
	if len(listed) > 0 {
		u.Printf("\n")
		printFindings(u, listed, u.Text)
	}
	n := countChecks(c.Findings)
	rest := fmt.Sprintf("%d passed, %d not applicable", n[host.Pass], n[host.NA])
	rest += either(len(listed) < len(c.Findings), " (--all shows them)", "")
	u.Printf("\n%s\n", rest)
}

// line returns what stands beside the verdict.
func (c Check) line(u *term.UI) string {
	switch {
	case len(c.Line) > 0:
		return u.Text(c.Line)
	case c.Next == nil:
		return "the checks below name what cannot be read"
	}
	text := c.Next.Sentence(u.Command)
	if subject, again := strings.CutSuffix(c.Next.Command.Name(), " check"); again {
		text += " again"
		if c.Verdict == checklist.Drifted {
			text = "the machine no longer matches the record of " + subject + " prepare; " + text
		}
	}
	return text
}

// notable returns the failures, then the warnings, and then what could not be checked and is
// missing.
func (c Check) notable() []host.Finding {
	order := []host.Status{host.Fail, host.Warn, host.NA}
	listed := host.Filter(c.Findings, func(f host.Finding) bool {
		return f.Status != host.Pass && (f.Status != host.NA || c.Verdict == checklist.Unknown || f.Check == c.Missing)
	})
	slices.SortStableFunc(listed, func(a, b host.Finding) int { return slices.Index(order, a.Status) - slices.Index(order, b.Status) })
	return listed
}

// countChecks counts checks by their results.
func countChecks(findings []host.Finding) map[host.Status]int {
	count := map[host.Status]int{}
	for _, r := range checklist.Results(findings) {
		count[r.Status]++
	}
	return count
}

// notPassed returns the number of checks that have failed or warn, for the verdict.
func notPassed(findings []host.Finding) string {
	n := countChecks(findings)
	return inBrackets(counted{"failed", n[host.Fail]}, counted{"warnings", n[host.Warn]})
}
