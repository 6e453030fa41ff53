package views

import (
	"fmt"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova/cloud"
	"gpustack/nova/drain"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
	"gpustack/nova/servertest"
)

// imageObject returns a change of an image as history and undo show it.
func imageObject(m image.Move) Object {
	name := "image " + m.Name
	return Object{Requests: m.Requests(), Summary: ImageSummary(m), Diff: udiff.Unified(name, name, m.Text(false), m.Text(true))}
}

// ImageSummary returns the summary of image set and its undo.
func ImageSummary(m image.Move) string {
	return term.Sentence("image "+m.Name+" changed: "+host.Numbered(len(m.Values), "value"), host.Numbered(len(m.Requests()), "request"))
}

// recordedTest returns what an entry of a test records.
func recordedTest(e change.Entry) (Object, error) {
	r, err := servertest.ParseRecord(e)
	if err != nil {
		return Object{}, err
	}
	o := Object{name: "server " + r.Names(), scope: r.Scope, Diff: udiff.Unified("/dev/null", "server "+r.Names(), "", testText(r))}
	for range r.Servers {
		o.Requests = append(o.Requests, cloud.Request{Method: "POST", Path: "/servers"})
	}
	o.Summary = term.Sentence(host.Numbered(len(r.Servers), "test server")+" created", host.Numbered(len(o.Requests), "request"))
	return o, nil
}

// testText returns the record of a test with a line for each of its values, for diffs.
func testText(r servertest.Record) string {
	var b strings.Builder
	line := func(key, value string) { fmt.Fprintf(&b, "%-8s %s\n", key, value) }
	line("flavor", r.Flavor)
	line("image", r.Image)
	for _, s := range r.Servers {
		line("server", strings.TrimSpace(s.Name+" "+s.ID))
	}
	if r.Keep {
		line("keep", "yes")
	}
	if r.Run != "" {
		line("run", r.Run)
	}
	return b.String()
}

// undoneTest returns what the undo of a test does: it deletes the servers that exist.
func undoneTest(c *servertest.Change) Object {
	r, there := c.Recorded(), c.There()
	o := Object{name: "server " + r.Names(), scope: r.Scope, Diff: udiff.Unified("server "+r.Names(), "/dev/null", testText(r), "")}
	for _, s := range there {
		o.Requests = append(o.Requests, cloud.Request{Method: "DELETE", Path: "/servers/" + s.ID})
	}
	o.Summary = term.Sentence(host.Numbered(len(there), "test server")+" deleted", host.Numbered(len(o.Requests), "request"))
	if len(there) == 0 {
		o.Diff, o.Summary = "", "the servers of the test no longer exist: only the entry changes"
	}
	return o
}

// Object is a change of an object of OpenStack's APIs, as its plan, history and undo show it.
type Object struct {
	name     string // such as "flavor gpu.k4200.2"
	scope    cloud.Scope
	Requests []cloud.Request
	Summary  string
	Diff     string
	Warnings []string // of its undo

	detail func(*HistoryEntry) // adds what history shows of the object
}

// recordedFlavor returns what an entry of a flavor records.
func recordedFlavor(e change.Entry) (Object, error) {
	r, err := flavor.ParseRecord(e)
	if err != nil {
		return Object{}, err
	}
	o := flavorObject(flavor.Move{Before: r.Before, After: r.After})
	o.name, o.scope = "flavor "+r.Name(), r.Scope
	o.detail = func(h *HistoryEntry) { h.Flavor = &flavorChange{r.Scope, r.Before, r.After} }
	return o, nil
}

// recordedImage returns what an entry of an image records.
func recordedImage(e change.Entry) (Object, error) {
	r, err := image.ParseRecord(e)
	if err != nil {
		return Object{}, err
	}
	o := imageObject(r.Move)
	o.name, o.scope = "image "+r.Name, r.Scope
	o.detail = func(h *HistoryEntry) { h.Image = &imageChange{r.Scope, r.Move} }
	return o, nil
}

// unknownObject is the error of an entry of another type of object.
func unknownObject(e change.Entry) (Object, error) {
	err := fmt.Errorf("entry %d: a change of an object of type %q is not supported", e.ID, e.ObjectType())
	return Object{}, host.WithHint(err, "use the release of gpustack that made the change")
}

// UndoneObject returns what the undo of a change does.
func UndoneObject(c change.Change) Object {
	if t, ok := c.(*servertest.Change); ok {
		return undoneTest(t)
	}
	if c, ok := c.(*image.Change); ok {
		back, stays := c.Back()
		o := imageObject(back)
		for _, value := range stays {
			o.Warnings = append(o.Warnings, "image "+back.Name+" has changed since, and stays so: "+value)
		}
		return o
	}
	if s, ok := c.(*drain.Change); ok {
		return undoneService(s)
	}
	return flavorObject(c.(*flavor.Change).Inverse())
}

// PrintUndoneObject prints the undo of an entry in the cloud at a URL as text.
func PrintUndoneObject(u *term.UI, e change.Entry, url string, o Object) {
	u.Printf("undoes %s at %s\n", term.Printable(EntryName(e.ID, e.Command)), term.Printable(url))
	u.Diff(o.Diff)
	printRequests(u, o.Requests)
}

func flavorObject(m flavor.Move) Object {
	return Object{Requests: m.Requests(), Summary: FlavorSummary(m), Diff: flavorDiff(m)}
}

// flavorDiff returns the difference between the states of a flavor.
func flavorDiff(m flavor.Move) string {
	name := func(s *flavor.State) string {
		if s == nil {
			return "/dev/null"
		}
		return "flavor " + s.Name
	}
	return udiff.Unified(name(m.Before), name(m.After), flavor.Text(m.Before), flavor.Text(m.After))
}

// printRequests prints requests.
func printRequests(u *term.UI, requests []cloud.Request) {
	u.Printf("\nrequests:\n")
	for _, r := range requests {
		u.Printf("  %s %s\n", r.Method, term.Printable(r.Path))
	}
}

// FlavorSummary returns the summary of flavor create, flavor delete and their undo.
func FlavorSummary(m flavor.Move) string {
	name, done := "", "changed"
	switch {
	case m.After == nil:
		name, done = m.Before.Name, "deleted"
	case m.Before == nil:
		name, done = m.After.Name, "created"
	default:
		name = m.After.Name
	}
	return term.Sentence("flavor "+name+" "+done, host.Numbered(len(m.Requests()), "request"))
}
