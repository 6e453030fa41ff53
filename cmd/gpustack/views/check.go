package views

import (
	"fmt"
	"slices"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/metrics"
)

// Checked is what a check prints for people: the verdict with what to do next, and findings.
type Checked struct {
	Machine  string // the line above the verdict, "" for none
	Verdict  checklist.Verdict
	Findings []host.Finding // in the order of the checks
	Warnings []string       // for standard error
	Check    string         // the command that checks again, completed
	Prepare  string         // the name of the command whose record the machine may no longer match
	Next     string         // what to do next where the verdict alone does not say; "" otherwise
	// Missing is the name of a check whose findings are listed if they are n/a: the verdict depends on
	// them. Without a verdict, those of every check are.
	Missing string
	// Metrics are the samples of a command with --metrics.
	Metrics []metrics.Sample
}

// PrintCheck prints the verdict, failures and warnings, and the number of the other checks; with
// all every finding in the order of the checks.
func PrintCheck(u *term.UI, c Checked, all bool) {
	if c.Machine != "" {
		u.Printf("%s\n\n", term.Printable(c.Machine))
	}
	listed := c.Findings
	if !all {
		listed = c.notable()
	}
	u.Printf("%s: %s\n", u.Paint(c.colour(), string(c.Verdict)+notPassed(c.Findings)), term.Printable(c.next()))
	if len(listed) > 0 {
		listed = slices.Clone(listed)
		for i := range listed {
			listed[i].Remedy = host.Text(u.Text(listed[i].Remedy))
		}
		u.Printf("\n")
		printFindings(u, listed)
	}
	n := countChecks(c.Findings)
	rest := fmt.Sprintf("%d passed, %d not applicable", n[host.Pass], n[host.NA])
	if len(listed) < len(c.Findings) {
		rest += " (--all shows them)"
	}
	u.Printf("\n%s\n", rest)
}

func (c Checked) colour() string {
	switch c.Verdict {
	case checklist.Ready:
		return term.Green
	case checklist.NotReady, checklist.Drifted:
		return term.Red
	}
	return term.Bold
}

// next returns what to do next.
func (c Checked) next() string {
	mend := "follow the remedies below, then run '" + c.Check + "' again"
	switch {
	case c.Next != "":
		return c.Next
	case c.Verdict == checklist.PendingReboot:
		return "reboot, then run '" + c.Check + "' again"
	case c.Verdict == checklist.Drifted:
		return "the machine no longer matches the record of " + c.Prepare + "; " + mend
	case c.Verdict == checklist.Unknown:
		return "the checks below name what cannot be read"
	}
	return mend
}

// notable returns the failures, then the warnings, and then what could not be checked and is
// missing.
func (c Checked) notable() []host.Finding {
	order := []host.Status{host.Fail, host.Warn, host.NA}
	listed := slices.DeleteFunc(slices.Clone(c.Findings), func(f host.Finding) bool {
		return f.Status == host.Pass || f.Status == host.NA && c.Verdict != checklist.Unknown && f.Check != c.Missing
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
	failed, warned := n[host.Fail], n[host.Warn]
	switch {
	case failed+warned == 0:
		return ""
	case warned == 0:
		return fmt.Sprintf(" (failed: %d)", failed)
	case failed == 0:
		return fmt.Sprintf(" (warnings: %d)", warned)
	}
	return fmt.Sprintf(" (failed: %d, warnings: %d)", failed, warned)
}
