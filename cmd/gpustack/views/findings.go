package views

import (
	"fmt"
	"slices"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
)

// printFindings prints a line for each finding. Below it, unless the check passed, it prints the
// place, the effect, and the remedy, as text returns it, once for all findings with the same one.
func printFindings(u *term.UI, findings []host.Finding, text func(host.Text) string) {
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
		for _, line := range below(f, text) {
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

// below returns the lines below that of a finding.
func below(f host.Finding, text func(host.Text) string) []string {
	lines := []string{"", f.Effect, text(f.Remedy)}
	if f.Status == host.Warn || f.Status == host.Fail {
		lines[0] = place(f)
	}
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// place returns the file and line of a finding.
func place(f host.Finding) string {
	if f.Line > 0 {
		return fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	return f.File
}
