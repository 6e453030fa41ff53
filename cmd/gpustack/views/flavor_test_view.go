package views

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/cuda"
	"gpustack/nova/flavor"
	"gpustack/nova/probe"
	"gpustack/nova/servertest"
)

// PrintFlavorTest prints the plan of a test as text.
func PrintFlavorTest(u *term.UI, r FlavorTest, p servertest.Plan) {
	u.Printf("tests flavor %s at %s (microversion %s)\n\n", term.Printable(p.Flavor.Name), term.Printable(r.Cloud), r.Microversion)
	line := func(key, value string) { u.Printf("  %-9s %s\n", key, term.Printable(value)) }
	for i, s := range p.Servers {
		key := either(i > 0, "", "server")
		line(key, s.Name)
	}
	line("image", p.Image.Name)
	line("devices", wantedText(p.Wanted.IDs)+either(len(p.Servers) > 1, " each", ""))
	for _, from := range p.Wanted.From {
		line("", from)
	}
	free := host.Value(p.Free)
	shown := fmt.Sprintf("%s on %s, by Placement", host.Numbered(free.Devices, "device"), host.Numbered(free.Hosts, "host"))
	line("free", either(p.Free != nil, shown, "not known: Placement does not show them"))
	line("network", cmp.Or(r.Network, "auto"))
	if p.Host != "" {
		line("host", p.Host)
	}
	if p.Zone != "" {
		line("zone", p.Zone)
	}
	line("quota", strings.Join(host.Map(p.Quotas, func(q servertest.Quota) string {
		limit := either(q.Limit >= 0, fmt.Sprintf("%d of %d used", q.Used, q.Limit), "no limit")
		needed := either(q.Resource == "ram_mib", flavor.Size(q.Needed, flavor.MiB), fmt.Sprint(q.Needed))
		return fmt.Sprintf("%s %s (%s)", strings.TrimSuffix(q.Resource, "_mib"), needed, limit)
	}), ", "))
	line("timeout", p.Timeout.String())
	if !p.Command.IsNone() {
		line("runs", fmt.Sprintf("the command %s, for at most %s", p.Command.Hash(), p.Command.Wait()))
	}
	printRequests(u, r.Changes)
}

// wantedText returns devices by product: "2 × 10de:11b4".
func wantedText(ids map[probe.ID]int) string {
	var words []string
	for id, n := range ids {
		words = append(words, fmt.Sprintf("%d × %s", n, id))
	}
	slices.Sort(words)
	return orDash(host.Listed(words, "and"))
}

// FlavorTestSummary returns the summary of a test.
func FlavorTestSummary(p servertest.Plan) string {
	devices := 0
	for _, n := range p.Wanted.IDs {
		devices += n
	}
	n := len(p.Servers)
	end, requests := either(n == 1, "delete it", "delete them"), 2*n
	if p.Keep {
		end, requests = strings.Replace(end, "delete", "keep", 1), n
	}
	return term.Sentence("boot "+host.Numbered(n, "server")+" with "+host.Numbered(devices, "device")+either(n > 1, " each", "")+", then "+end,
		host.Numbered(requests, "request"))
}

// PrintOutcomes prints the results of a test as text. console says that the last lines of consoles
// are printed also for programs and files.
func PrintOutcomes(u *term.UI, r FlavorTest, outcomes []servertest.Outcome, console bool) {
	for i, o := range outcomes {
		if u.Quiet && o.Verdict == probe.Pass {
			continue
		}
		printOutcome(u, r.Servers[i].Run, o, wantedText(r.Wanted))
		// The console may contain secrets, and output of a command is often kept.
		if show := console || u.Terminal && o.Verdict != probe.Pass; show && len(o.Console) > 0 {
			u.Printf("  the last lines of its console:\n")
			printEach(u, "    %s", o.Console)
		}
	}
	u.Printf("\n%s\n", u.Paint(term.Bold, "verdict: "+string(r.Verdict)))
}

// printOutcome prints the result of the test of one server, whose command is shown as run has it.
func printOutcome(u *term.UI, run *probe.Run, o servertest.Outcome, wanted string) {
	verdict := either(o.Err != nil, "not tested", string(o.Verdict))
	u.Printf("\n%s (%s)%s: %s\n", o.Name, o.ID, term.Printable(after(" on ", o.Host)), verdict)
	if o.Seen != nil {
		u.Printf("  wanted %s, seen %s\n", wanted, wantedText(o.Seen))
	}
	printEach(u, "  %s", o.Reasons)
	printEach(u, "  hint: %s", o.Hints)
	if run != nil {
		printRun(u, *run, o.GPUs)
	}
	u.Printf("  %s\n", times(o))
	switch {
	case o.Free == host.Yes:
		u.Printf("  its devices are free again, by %s\n", o.By)
	case !o.Free.Known() && o.Deleted:
		u.Printf("  whether its devices are free again is not verified: %s\n", term.Printable(o.Why))
	}
}

// printRun prints what became of a command in a guest that should have so many GPUs.
func printRun(u *term.UI, r probe.Run, gpus int) {
	what := "the command was not run"
	switch {
	case r.State == probe.RunDeadline:
		what = "the command was killed"
	case r.ExitStatus != nil:
		what = fmt.Sprintf("the command returned %d", *r.ExitStatus)
	}
	what += either(r.Seconds != nil, fmt.Sprintf(" after %.1f s", host.Value(r.Seconds)), "")
	u.Printf("  %s\n", what)
	printEach(u, "    %s", host.Map(r.Programs, func(p cuda.Program) string { return programText(p, gpus) }))
	if len(r.Output) > 0 {
		u.Printf("  its output:\n")
		printEach(u, "    %s", r.Output)
	}
}

// programText returns what a program has printed: "nbody: 2 of 2 GPUs (Quadro K4200), single
// precision 1995.3 GFLOP/s".
func programText(p cuda.Program, gpus int) string {
	count := either(p.GPUs != nil, fmt.Sprintf("%d of %s", host.Value(p.GPUs), host.Numbered(gpus, "GPU")), "an unknown number of GPUs")
	count += either(len(p.Models) > 0, " ("+strings.Join(p.Models, ", ")+")", "")
	words := []string{count}
	for _, f := range p.Figures {
		switch {
		case f.MBps != nil:
			words = append(words, fmt.Sprintf("%s %.1f MB/s", f.Name, *f.MBps))
		case f.GFLOPs != nil:
			words = append(words, fmt.Sprintf("%s %.1f GFLOP/s", f.Name, *f.GFLOPs))
		}
	}
	return p.Name + ": " + strings.Join(words, "; ")
}

// times returns how long the parts of a test took.
func times(o servertest.Outcome) string {
	part := func(what string, took *float64) string {
		return either(took != nil, fmt.Sprintf("%s after %.1f s", what, host.Value(took)), "")
	}
	return term.Join(", ", part("active", o.Seconds.Build), part("guest reported", o.Seconds.Guest), part("deleted", o.Seconds.Delete),
		either(o.Deleted, "", "not deleted"))
}

// CleaningSummary returns the summary of flavor test --clean.
func CleaningSummary(c servertest.Cleaning) string {
	return term.Sentence(after("delete ", term.Some(len(c.Remove()), "test server", "")), after("close ", term.Some(len(c.Closed), "record", "")))
}

// PrintLeftovers prints the servers that tests have left.
func PrintLeftovers(u *term.UI, r FlavorTest, plan servertest.Cleaning) {
	of := either(!plan.All, "this project", "all projects")
	if len(r.Leftovers) == 0 {
		u.Printf("no server of a test in %s at %s\n", of, term.Printable(r.Cloud))
	} else {
		printLeftoverTable(u, r, of)
	}
	for _, e := range plan.Closed {
		u.Printf("\ncloses %s: none of its servers is left then\n", term.Printable(EntryName(e)))
	}
}

func printLeftoverTable(u *term.UI, r FlavorTest, of string) {
	u.Printf("servers of tests in %s at %s:\n\n", of, term.Printable(r.Cloud))
	u.Table([]string{"SERVER", "NAME", "PROJECT", "HOST", "CREATED", "AGE", "ACTION"}, host.Map(r.Leftovers, func(l servertest.Leftover) []string {
		age := time.Since(l.Created).Truncate(time.Minute).String()
		what := cmp.Or(after("leave: ", l.Leave), "delete")
		return []string{l.ID, l.Name, l.Project, orDash(l.Host), l.Created.Format("2006-01-02 15:04:05Z"), age, what}
	}))
	if len(r.Changes) > 0 {
		printRequests(u, r.Changes)
	}
}

// TestProgress is a line on a terminal that shows how far tests are.
type TestProgress struct {
	u     *term.UI
	mu    sync.Mutex
	lines map[string]string
	names []string
}

// NewTestProgress returns an empty line on a terminal.
func NewTestProgress(u *term.UI) *TestProgress {
	return &TestProgress{u: u, lines: map[string]string{}}
}

// Clear removes the line.
func (l *TestProgress) Clear() { l.u.CatchUp() }

// Show replaces the line: state, seconds and the last line of the console of each server. It is
// safe for concurrent use.
func (l *TestProgress) Show(p servertest.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(l.names, p.Server.Name) {
		l.names = append(l.names, p.Server.Name)
	}
	l.lines[p.Server.Name] = fmt.Sprintf("%s %s %.0f s", p.Server.Name, p.Status, p.Since.Seconds()) + after(": ", p.Line)
	l.u.Waits("%s", strings.Join(host.Map(l.names, func(name string) string { return l.lines[name] }), " | "))
}

// UnendedTests returns a warning for each entry whose run has ended without deleting its servers.
func UnendedTests(entries []change.Entry) []string {
	return host.Map(entries, func(e change.Entry) string {
		return host.Textf("%s: its run was killed or could not delete its servers, which may be left: '%s' or '%s' deletes them",
			EntryName(e), UndoCommand(e.ID), host.NewCommand("flavor test").Flag("clean")).String()
	})
}
