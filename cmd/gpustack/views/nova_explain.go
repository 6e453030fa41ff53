package views

import (
	"fmt"
	"slices"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova/explain"
	"gpustack/operate/cloud"
)

// NovaExplain is the output of nova explain (docs/json.md).
type NovaExplain struct {
	Schema int `json:"schema"`
	cloud.Explanation
}

// Elsewhere reports that the remedies are for the machines that they name.
func (r NovaExplain) Elsewhere() bool { return true }

// Print prints the report as text: hosts with the same failure share a line. Of a server that has a
// host it prints only that.
func (r NovaExplain) Print(u *term.UI) {
	if r.Server != nil && r.Server.HasHost() {
		u.Printf("%s\n", term.Printable(r.Conclusion))
		return
	}
	u.Warn(r.Warnings...)
	if r.Server != nil {
		text := fmt.Sprintf("server %s (%s) is %s", r.Server.Name, r.Server.ID, r.Server.Status)
		u.Printf("%s\n", term.OneLine(text+after(": ", host.Value(r.Server.Fault))))
	}
	u.Printf("%s\n", term.OneLine(r.Conclusion))
	tableBelow(u, []string{"VERDICT", "SEEN"}, r.verdicts())
	if len(r.NotChecked) > 0 {
		u.Printf("\nnot checked:\n")
		u.Table([]string{"LINK", "HOSTS", "SEEN"}, host.Map(r.NotChecked, func(o explain.Omission) []string {
			return []string{string(o.Link), host.Numbered(o.Count, "host"), o.Reason + ": " + term.Elsewhere(o.Remedy)}
		}))
	}
	check := host.NewCommand("nova check")
	switch n := len(r.Findings); n {
	case 0:
	case 1:
		u.Printf("\n1 check fails in the files: %s with the same --conf explains it\n", u.Command(check))
	default:
		u.Printf("\n%d checks fail in the files: %s with the same --conf explains them\n", n, u.Command(check))
	}
}

// verdicts returns the rows of the groups of hosts and of their warnings.
func (r NovaExplain) verdicts() (rows [][]string) {
	return slices.Concat(append(
		host.Map(r.Groups, func(g explain.Group) [][]string { return groupRows(g, string(g.Verdict)) }),
		host.Map(r.Concerns, func(g explain.Group) [][]string { return groupRows(g, "warning") })...)...)
}

// shownNames is how many names or ranges of names the table contains for each verdict.
const shownNames = 3

// groupRows returns the rows of one group of hosts, the first of them with its verdict.
func groupRows(g explain.Group, verdict string) (rows [][]string) {
	line := func(text string) {
		rows = append(rows, []string{verdict, text})
		verdict = ""
	}
	if n := len(g.Members); n > 0 {
		line(host.Numbered(n, "host") + ": " + explain.Names(g.Members, shownNames))
	}
	if g.Example == nil {
		return rows
	}
	seen := string(g.Example.Link) + ": " + g.Example.Seen + either(g.Example.From != "", " ("+g.Example.From+")", "")
	if len(g.Members) > 1 {
		seen = "on " + g.Members[0] + ", " + seen
	}
	line(seen)
	line(term.Elsewhere(g.Example.Remedy))
	return rows
}
