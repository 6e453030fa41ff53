package views

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/nova/drain"
)

// NovaDrain is the output of nova drain and nova enable (docs/json.md).
type NovaDrain struct {
	Report
	Cloud   string          `json:"cloud"`   // the address of Nova's API
	Service drainedService  `json:"service"` // the compute service of the host
	Changes []cloud.Request `json:"changes"` // the request; empty if there is nothing to do
	drain.Left
}

// drainedService is a compute service and the change of its state.
type drainedService struct {
	drain.Move
	Up bool `json:"up"` // whether nova-compute reports to Nova
}

// NewNovaDrain returns the report of a plan of a service. head is its common part.
func NewNovaDrain(head Report, c *cloud.Compute, s cloud.ComputeService, m drain.Move) NovaDrain {
	r := NovaDrain{Report: head, Cloud: c.URL, Service: drainedService{m, s.Up}, Changes: m.Requests(c)}
	if !s.Up {
		r.Warnings = append(r.Warnings, "nova-compute of "+s.Host+" is down: what it is doing, and whether its servers run, may have changed since")
	}
	return r
}

// PrintPlan prints the plan as text, and what is left on the host now, unless that is nil.
func (r NovaDrain) PrintPlan(u *term.UI, left *drain.Left) {
	up := either(r.Service.Up, "up", "down")
	u.Printf("compute service of %s at %s (%s)\n", term.Printable(r.Service.Host), term.Printable(r.Cloud), up)
	if r.Service.Changed() {
		u.Diff(objectDiff(r.Service))
		printRequests(u, r.Changes)
	} else {
		_, text := r.Service.Side(true)
		u.Printf("%s\nnothing to do: the service is as planned\n", term.Printable(indented(text)))
	}
	if left != nil {
		u.Printf("\n")
		PrintLeft(u, r.Service.Host, *left)
	}
}

// PrintLeft prints what is left on a host as text.
func PrintLeft(u *term.UI, name string, left drain.Left) {
	rows := host.Map(left.Servers, func(s drain.Server) []string {
		gpus := either(s.GPUs.Known(), cmp.Or(s.Request, "none"), "unknown")
		return []string{s.ID, s.Name, strings.TrimSpace(s.Status + " " + s.Task), either(s.Running, "running", "off"), gpus, s.Project, s.User}
	})
	if len(rows) > 0 {
		u.Table([]string{"SERVER", "NAME", "STATUS", "POWER", "GPUS", "PROJECT", "OWNER"}, rows)
	}
	for _, t := range left.Tasks {
		u.Printf("in progress: server %s: %s\n", term.Printable(t.Server), term.Printable(t.What))
		if len(t.Remedy) > 0 {
			u.Printf("  %s\n", u.Text(t.Remedy))
		}
	}
	u.Printf("%s\n", term.Sentence(host.Numbered(len(rows), "server")+" on "+term.Printable(name),
		fmt.Sprintf("%d running with GPUs", len(left.RunningGPUs()))))
}

// NoteLeft prints what a wait is for.
func NoteLeft(u *term.UI, name string, left drain.Left) {
	if n := len(left.Tasks); n > 0 {
		u.Note("waiting for %s on %s or on the way to it, such as server %s: %s", host.Numbered(n, "task"), name, left.Tasks[0].Server, left.Tasks[0].What)
	} else if running := left.RunningGPUs(); len(running) > 0 {
		u.Note("%s with GPUs on %s, such as %s", host.Numbered(len(running), "running server"), name, running[0].ID)
	}
}

// ServiceSummary returns the summary of a change of a service, and of its undo.
func ServiceSummary(m drain.Move) string {
	does := "disable"
	switch {
	case !m.Changed():
		return "the compute service of " + m.Host + " is as planned"
	case m.Renames():
		does = "change the reason of"
	case !m.Before.Enabled && !m.After.Enabled: // one operator's by another's
		does = "replace the drain of"
	case m.After.Enabled:
		does = "enable"
	}
	return term.Sentence(does+" the compute service of "+m.Host, host.Numbered(1, "request"))
}

// Drained is the output of nova drain --list (docs/json.md).
type Drained struct {
	Schema int    `json:"schema"`
	Cloud  string `json:"cloud"` // the address of Nova's API
	drain.Status
}

// Print prints the report as text.
func (r Drained) Print(u *term.UI) {
	rows := host.Map(r.Drained, func(d drain.Drained) []string {
		return []string{d.Host, either(d.Up, "up", "down"), d.Since.Format(time.RFC3339), d.Text}
	})
	if len(rows) > 0 {
		u.Table([]string{"HOST", "STATE", "DISABLED SINCE", "STEP"}, rows)
	}
	printEach(u, "unknown: %s: its cell does not answer", r.Unknown)
	u.Printf("%s\n", term.Sentence(host.Numbered(len(rows), "compute service")+" disabled by gpustack",
		host.Numbered(r.Others, "other")+" disabled", host.Numbered(r.Enabled, "other")+" enabled"))
}
