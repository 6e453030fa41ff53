package main

import (
	"fmt"
	"strings"

	"gpustack/host"
)

// findings prints a line for each finding. Below it, unless the check passed, it prints the place,
// the effect, and the remedy once for all findings with the same one.
func (u *ui) findings(findings []host.Finding) {
	names := len("CHECK")
	for _, f := range findings {
		names = max(names, len(f.Check))
	}
	u.printf("%s\n", u.paint(bold, fmt.Sprintf("%-6s  %-*s  %s", "STATUS", names, "CHECK", "SEEN")))
	for i, f := range findings {
		status := fmt.Sprintf("%-6s", f.Status)
		switch f.Status {
		case host.Pass:
			status = u.paint(green, status)
		case host.Warn:
			status = u.paint(bold, status)
		case host.Fail:
			status = u.paint(red, status)
		}
		u.printf("%s  %-*s  %s\n", status, names, f.Check, oneLine(f.Seen))
		if i+1 < len(findings) {
			if next := findings[i+1]; next.Check == f.Check && next.Effect == f.Effect && next.Remedy == f.Remedy {
				f.Effect, f.Remedy = "", ""
			}
		}
		for _, line := range below(f) {
			u.printf("%*s%s\n", 6+2+names+2, "", oneLine(line))
		}
	}
}

func oneLine(s string) string {
	return printable(strings.ReplaceAll(s, "\n", "; "))
}

func below(f host.Finding) (lines []string) {
	add := func(line string) {
		if line != "" {
			lines = append(lines, line)
		}
	}
	if f.Status == host.Warn || f.Status == host.Fail {
		add(place(f))
	}
	add(f.Effect)
	add(f.Remedy)
	return lines
}

// place returns the file and line of a finding.
func place(f host.Finding) string {
	if f.Line > 0 {
		return fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	return f.File
}
