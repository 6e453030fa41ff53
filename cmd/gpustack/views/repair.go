package views

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/cleanup"
	"gpustack/cleanup/repair"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/operate/rows"
)

// Repair is the output of repair-migration (docs/json.md).
type Repair struct {
	Report
	// Token is a token of the database's time, for gpustack host guests --token: reports with it
	// are made after that time.
	Token string `json:"token"`
	rows.Observed
	Changes []cleanup.Unit `json:"changes"` // the repairs; empty without --apply
	// the repairs of interrupted entries of the journal, with their current states
	Recovered []cleanup.Unit `json:"recovered"`
}

// SetObserved fills in what was observed. Allocations that were not judged again stay.
func (r *Repair) SetObserved(o rows.Observed) {
	if o.Allocations.Findings == nil {
		o.Allocations = r.Allocations
	}
	r.Observed = o
}

// PrintNext prints what a dry run leaves to type: the commands for the guest reports that are still
// needed, and the one that then repairs, which is again with these reports. A token is for reports
// that are made now.
func PrintNext(u *term.UI, token string, r rows.Observed, again host.Command) {
	next, hosts := NextRepair(r, again)
	if next == nil {
		return
	}
	u.Printf("\nnext:\n")
	for _, h := range hosts {
		u.Printf("  %s\n", u.Text(cleanup.ReportStep(token, h)))
	}
	u.Printf("  %s\n", u.Command(next.Command))
}

// NextRepair returns the command that repairs what was found, nil if nothing needs one, and the
// hosts whose guest reports it needs. again is the command of this run, with its options.
func NextRepair(r rows.Observed, again host.Command) (next *host.Next, hosts []string) {
	hosts = slices.Concat(append(host.Map(r.Findings, func(f cleanup.Finding) []string { return f.Reports }),
		host.Map(r.Allocations.Findings, func(f cleanup.AllocationFinding) []string { return f.Reports })...)...)
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	repairs := slices.ContainsFunc(r.Findings, func(f cleanup.Finding) bool {
		return f.Verdict == cleanup.Stale && f.Needs == "" && f.Repair != cleanup.NoRepair && f.Repair != cleanup.ByNova
	})
	if len(hosts) == 0 && !repairs {
		return nil, nil
	}
	var needs []host.Need
	for _, h := range hosts {
		needs, again = []host.Need{host.NeedReports}, again.Flag("guests", h+".json")
	}
	return host.NewNext(again.Flag("apply"), needs...), hosts
}

// PrintRepairs prints the findings as text.
func PrintRepairs(u *term.UI, r rows.Observed) {
	for i, group := range sameGrounds(r.Findings) {
		if i > 0 {
			u.Printf("\n")
		}
		for _, f := range group {
			printVerdict(u, fmt.Sprintf("%s %s  %s:%s %s", f.HostTitle(), f.Device.Address, f.Device.Vendor, f.Device.Product, f.Device.Status), f.Verdict, f.Case)
		}
		said := grounds(group[0])
		printGrounds(u, said[:])
	}
	s := r.Summary
	if len(r.Findings) > 0 {
		u.Printf("\n")
	}
	long := either(s.BusyLong > 0, fmt.Sprintf(" (%d for too long)", s.BusyLong), "")
	u.Printf("%d stale, %d suspicious, %d unknown, %d busy%s, %d legitimate\n", s.Stale, s.Suspicious, s.Unknown, s.Busy, long, s.Legitimate)
	printPools(u, r.Pools)
	printAllocations(u, r.Allocations)
}

// sameGrounds groups findings about which the report says the same, such as those of the devices
// that one dead migration keeps.
func sameGrounds(findings []cleanup.Finding) [][]cleanup.Finding {
	type said struct {
		cell, host string
		verdict    cleanup.Verdict
		letter     cleanup.Case
		grounds    [6][2]string
	}
	return grouped(findings, func(f cleanup.Finding) said { return said{f.Cell, f.Host, f.Verdict, f.Case, grounds(f)} })
}

// grounds returns what the report says about the row of a finding.
func grounds(f cleanup.Finding) [6][2]string {
	return [6][2]string{
		{"why", f.Reason}, {"seen", f.Evidence}, {"so", f.Consequence}, {"repair", f.Steps.String()}, {"needs", f.Needs}, {"leaves", f.Leaves},
	}
}

// printFound prints a finding: its title and verdict, and a line for each text that is not empty.
func printFound(u *term.UI, title string, v cleanup.Verdict, letter cleanup.Case, lines [][2]string) {
	printVerdict(u, title, v, letter)
	printGrounds(u, lines)
}

// printVerdict prints what was judged, and the verdict.
func printVerdict(u *term.UI, title string, v cleanup.Verdict, letter cleanup.Case) {
	verdict := strings.ToUpper(string(v)) + either(letter != "", " (case "+string(letter)+")", "")
	colour := map[cleanup.Verdict]string{cleanup.Stale: term.Red, cleanup.Legitimate: term.Green}[v]
	u.Printf("%s  %s\n", u.Paint(term.Bold, term.Printable(title)), u.Paint(colour, verdict))
}

// printGrounds prints a line for each text that is not empty.
func printGrounds(u *term.UI, lines [][2]string) {
	for _, line := range lines {
		if line[1] == "" {
			continue
		}
		texts := strings.Split(term.Printable(line[1]), "; ") // commands, which are not broken
		if commands := line[0] == "repair" || line[0] == "needs"; !commands {
			texts = u.Page.Wrap(term.Printable(line[1]), 10)
		}
		for i, text := range texts {
			label := either(i == 0, line[0], "")
			u.Printf("  %-7s %s\n", label, text)
		}
	}
}

// PrintRepairPlan prints what the planned repairs free or assign, and below it the statements and
// the request to Placement of each.
func PrintRepairPlan(u *term.UI, units []cleanup.Unit) {
	if len(units) == 0 {
		u.Printf("\nnothing to repair: no row is proved stale that nova-compute does not repair itself\n")
		return
	}
	u.Printf("\n")
	written := 0
	for _, unit := range units {
		u.Printf("%s\n", repairTitle(unit))
		if unit.State == cleanup.Skipped {
			u.Printf("  skipped: %s\n", term.Printable(unit.Note))
			continue
		}
		written++
		if !unit.Keeps() {
			printFreed(u, unit)
		}
	}
	if written == 0 {
		return
	}
	u.Printf("\nstatements, one transaction for each repair:\n")
	for _, unit := range units {
		if unit.State == cleanup.Skipped {
			continue
		}
		if written > 1 {
			u.Printf("\n%s\n", repairTitle(unit))
		}
		printStatements(u, unit.Placement, unit.Instance, unit.Rows)
	}
}

// repairTitle returns a line that names a repair.
func repairTitle(unit cleanup.Unit) string {
	title := fmt.Sprintf("%s repair of %s", unit.Repair, term.Printable(unit.Name()))
	if unit.Instance != "" && unit.Repair != cleanup.ClearContext { // whose name has the instance
		title += ", instance " + term.Printable(unit.Instance)
	}
	return title
}

// printFreed prints the devices of a repair and what becomes of them.
func printFreed(u *term.UI, unit cleanup.Unit) {
	for _, d := range unit.Devices {
		verb := either(d.Instance == nil && unit.Instance != "", "assigns to the instance", "frees")
		u.Printf("  %s %s of %s\n", verb, d.Address, term.Printable(d.Host))
	}
	for _, d := range unit.FreedWith {
		if d.Status != cleanup.StatusAvailable {
			u.Printf("  frees with it %s, which is %s\n", d.Address, d.Status)
		}
	}
}

// printStatements prints the request to Placement, nil for none, and statements with their values.
func printStatements(u *term.UI, p *cleanup.AllocationChange, instance string, rows []cleanup.Row) {
	if p != nil {
		u.Printf("  POST /allocations\n")
		printEach(u, "    %s", p.Lines(instance))
	}
	for _, row := range rows {
		statement, args := repair.Statement(row)
		u.Printf("  %s\n    with %s\n", term.Printable(statement), term.Printable(sqlValues(args)))
	}
}

// sqlValues returns the values of a statement as text. A migration_context, of several kB, is named
// instead: the journal and -o json have it in full.
func sqlValues(args []any) string {
	var words []string
	for _, a := range args {
		word := fmt.Sprint(a)
		if v, ok := a.(*string); ok && v == nil {
			word = "NULL"
		} else if ok {
			word = strconv.Quote(*v)
			if c, err := cleanup.ParseContext(*v); err == nil {
				word = fmt.Sprintf("the migration_context of migration %d (%d bytes)", c.Migration, len(*v))
			}
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

// PrintUnitStates prints the states of units.
func PrintUnitStates(u *term.UI, prefix string, units []cleanup.Unit) {
	for _, unit := range units {
		if unit.State != cleanup.Planned {
			u.Note("%s%s: %s%s", prefix, unit.Name(), unit.State, after(": ", unit.Note))
		}
	}
}

// printUndoPlan prints how undo reverts one repair.
func printUndoPlan(u *term.UI, unit cleanup.Unit, s repair.Standing) {
	if !unit.Written() && !unit.Open() {
		return
	}
	u.Printf("\n%s repair of %s\n", unit.Repair, term.Printable(unit.Name()))
	if unit.Open() {
		u.Printf("  the outcome is unknown: %s\n", standingText(unit, s))
		u.Printf("  the outcome is determined first; then, what was written is undone:\n")
	}
	back := unit.Placement
	if back != nil {
		back = &cleanup.AllocationChange{Before: back.After, After: back.Before}
	}
	printStatements(u, back, unit.Instance, unit.Back())
}

// standingText returns where an open repair was found.
func standingText(unit cleanup.Unit, s repair.Standing) string {
	return "its rows are now " + s.Rows.Text() + either(unit.Placement != nil, ", and Placement's allocations "+s.Allocations.Text(), "")
}
