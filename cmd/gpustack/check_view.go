package main

import (
	"cmp"
	"fmt"
	"slices"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/checklist"
)

// printHostCheck prints the verdict, failures and warnings, and the number of the other checks;
// with --all every finding in the order of the checks.
func printHostCheck(u *term.UI, r hostCheckReport, opts hostCheckOptions) {
	u.Printf("%s\n\n", term.Printable(hostLine(r.Host, r.System)))
	colour := term.Bold
	switch r.Verdict {
	case checklist.Ready:
		colour = term.Green
	case checklist.NotReady, checklist.Drifted:
		colour = term.Red
	case checklist.NotPrepared, checklist.PendingReboot, checklist.Unknown:
	}
	listed := r.Findings
	if !opts.all {
		listed = notable(r)
	}
	printVerdict(u, colour, string(r.Verdict), nextStep(u, r), r.Findings, listed)
}

// printVerdict prints a verdict with what to do next, those findings that are listed, and the
// number of the other checks.
func printVerdict(u *term.UI, colour, verdict, next string, all, listed []host.Finding) {
	u.Printf("%s: %s\n", u.Paint(colour, verdict+notPassed(all)), term.Printable(next))
	if len(listed) > 0 {
		listed = slices.Clone(listed)
		for i := range listed {
			listed[i].Remedy = u.Completed(listed[i].Remedy)
		}
		u.Printf("\n")
		printFindings(u, listed)
	}
	n := countChecks(all)
	rest := fmt.Sprintf("%d passed, %d not applicable", n[host.Pass], n[host.NA])
	if len(listed) < len(all) {
		rest += " (--all shows them)"
	}
	u.Printf("\n%s\n", rest)
}

// countChecks counts checks by their worst findings, of which one failure is worse than a warning,
// and one thing that could not be checked is worse than what has passed.
func countChecks(findings []host.Finding) map[host.Status]int {
	worst, count := map[string]host.Status{}, map[host.Status]int{}
	order := []host.Status{host.Pass, host.NA, host.Warn, host.Fail}
	for _, f := range findings {
		if before, ok := worst[f.Check]; !ok || slices.Index(order, f.Status) > slices.Index(order, before) {
			worst[f.Check] = f.Status
		}
	}
	for _, status := range worst {
		count[status]++
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

// notable returns the failures and then the warnings. Where there is no verdict, or where it is
// unknown whether host prepare accepts the machine, the checks follow that name what is missing.
func notable(r hostCheckReport) []host.Finding {
	rank := func(f host.Finding) int {
		switch {
		case f.Status == host.Fail:
			return 1
		case f.Status == host.Warn:
			return 2
		case f.Status == host.NA && (r.Verdict == checklist.Unknown || f.Check == "preparable" && r.Verdict == checklist.NotPrepared && !preparableKnown(r)):
			return 3
		}
		return 0
	}
	listed := slices.DeleteFunc(slices.Clone(r.Findings), func(f host.Finding) bool { return rank(f) == 0 })
	slices.SortStableFunc(listed, func(a, b host.Finding) int { return cmp.Compare(rank(a), rank(b)) })
	return listed
}

// onlyPrepared reports whether nothing fails but that host prepare has not been run.
func onlyPrepared(r hostCheckReport) bool {
	return !slices.ContainsFunc(r.Findings, func(f host.Finding) bool { return f.Status == host.Fail && f.Check != "prepared" })
}

// preparableKnown reports whether something shows that host prepare accepts or refuses the machine.
func preparableKnown(r hostCheckReport) bool {
	return !onlyPrepared(r) || slices.ContainsFunc(r.Findings, func(f host.Finding) bool { return f.Check == "preparable" && f.Status == host.Pass })
}

// nextStep returns what to do next, after a verdict.
func nextStep(u *term.UI, r hostCheckReport) string {
	command := func(name string) string { return "'" + u.Completed("gpustack "+name) + "'" }
	const mend = "follow the remedies below, then run "
	switch r.Verdict {
	case checklist.NotPrepared:
		switch plan := command("host prepare --dry-run"); {
		case !onlyPrepared(r):
			return mend + plan
		case !preparableKnown(r):
			return "whether it can be prepared is not shown by these files; " + plan + " names what is missing"
		default:
			return "run " + plan + " to see the plan"
		}
	case checklist.PendingReboot:
		return "reboot, then run " + command("host check") + " again"
	case checklist.Drifted:
		return "the machine no longer matches the record of host prepare; " + mend + command("host check") + " again"
	case checklist.Unknown:
		return "the checks below name what cannot be read"
	case checklist.NotReady:
		return mend + command("host check") + " again"
	case checklist.Ready:
	}
	return command("nova configure --role compute") + " offers the devices to Nova"
}
