package views

import (
	"fmt"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
)

// printFindings prints a line for each finding. Below it, unless the check passed, it prints the
// place, the effect, and the remedy once for all findings with the same one. The commands of
// remedies are printed as they are.
func printFindings(u *term.UI, findings []host.Finding) {
	rows := [][]string{{"STATUS", "CHECK", "SEEN"}}
	colours := []string{term.Bold}
	for i, f := range findings {
		rows = append(rows, []string{fmt.Sprintf("%-6s", f.Status), f.Check, f.Seen})
		colours = append(colours, map[host.Status]string{host.Pass: term.Green, host.Warn: term.Bold, host.Fail: term.Red}[f.Status])
		if i+1 < len(findings) {
			if next := findings[i+1]; next.Check == f.Check && next.Effect == f.Effect && next.Remedy.String() == f.Remedy.String() {
				f.Effect, f.Remedy = "", nil
			}
		}
		for _, line := range below(f) {
			rows, colours = append(rows, []string{"", "", line}), append(colours, "")
		}
	}
	for i, lines := range u.Page.Layout(rows) {
		for k, line := range lines {
			switch {
			case i == 0:
				line = u.Paint(term.Bold, line)
			case k == 0 && colours[i] != "":
				status := len(rows[i][0])
				line = u.Paint(colours[i], line[:status]) + line[status:]
			}
			u.Printf("%s\n", line)
		}
	}
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
	add(term.Elsewhere(f.Remedy))
	return lines
}

// place returns the file and line of a finding.
func place(f host.Finding) string {
	if f.Line > 0 {
		return fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	return f.File
}
