package views

import (
	"cmp"
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
	"gpustack/nova/object"
	"gpustack/nova/servertest"
)

// ImageSummary returns the summary of image set and its undo.
func ImageSummary(m image.Move) string {
	return term.Sentence("change image "+m.Name+": "+host.Numbered(len(m.Values), "value"), host.Numbered(len(m.Requests()), "request"))
}

// readTest returns what an entry of a test records.
func readTest(e change.Entry) (recorded, error) {
	r, err := servertest.ParseRecord(e)
	if err != nil {
		return recorded{}, err
	}
	o := Object{name: "server " + r.Names(), scope: r.Scope, Diff: udiff.Unified("/dev/null", "server "+r.Names(), "", testText(r))}
	for range r.Servers {
		o.Requests = append(o.Requests, cloud.Request{Method: "POST", Path: "/servers"})
	}
	return o.recorded(nil), nil
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
	o.Summary = term.Sentence("delete "+host.Numbered(len(there), "test server"), host.Numbered(len(o.Requests), "request"))
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
}

// recorded returns a change as history shows it. add adds it to a document.
func (o Object) recorded(add func(*HistoryEntry)) recorded {
	return recorded{changed: o.name, add: add, show: func(u *term.UI, _ HistoryEntry) {
		u.Printf("\nat %s\n", term.Printable(o.scope.String()))
		u.Diff(o.Diff)
		printRequests(u, o.Requests)
	}}
}

// objectOf returns a change of an object in a cloud, nil for one that is only recorded.
func objectOf[M object.Move[M]](m M, c *cloud.Compute) Object {
	o := Object{}
	switch m := any(m).(type) {
	case flavor.Move:
		o = Object{name: "flavor " + m.Name(), scope: m.Scope, Requests: m.Requests(), Summary: FlavorSummary(m)}
	case image.Move:
		o = Object{name: "image " + m.Name, scope: m.Scope, Requests: m.Requests(), Summary: ImageSummary(m)}
	case drain.Move:
		o = Object{name: "service " + m.Host, scope: m.Scope, Requests: []cloud.Request{{Method: "PUT", Path: "/os-services"}}, Summary: ServiceSummary(m)}
		if c != nil {
			o.Requests = m.Requests(c)
		}
	}
	o.Diff = objectDiff(m)
	return o
}

// objectDiff returns the difference that a move makes.
func objectDiff(m interface {
	Side(after bool) (name, text string)
}) string {
	before, was := m.Side(false)
	after, is := m.Side(true)
	return udiff.Unified(cmp.Or(before, "/dev/null"), cmp.Or(after, "/dev/null"), was, is)
}

// readObject returns what reads the records of one type of object. add adds one to a document.
func readObject[M object.Move[M]](objects string, add func(*HistoryEntry, M)) func(change.Entry) (recorded, error) {
	return func(e change.Entry) (recorded, error) {
		m, err := change.ParseObject[M](e, objects)
		if err != nil {
			return recorded{}, err
		}
		return objectOf(m, nil).recorded(func(h *HistoryEntry) { add(h, m) }), nil
	}
}

// unknownObject is the error of an entry of another type of object.
func unknownObject(e change.Entry) (recorded, error) {
	err := fmt.Errorf("entry %d: a change of an object of type %q is not supported", e.ID, e.ObjectType())
	return recorded{}, host.WithHint(err, "use the release of gpustack that made the change")
}

// UndoneObject returns what the undo of a change in a cloud does.
func UndoneObject(c *cloud.Compute, of change.Change) Object {
	switch of := of.(type) {
	case *servertest.Change:
		return undoneTest(of)
	case *image.Change:
		return undone(c, of)
	case *drain.Change:
		return undone(c, of)
	}
	return undone(c, of.(*flavor.Change))
}

func undone[M object.Move[M]](c *cloud.Compute, of *object.Change[M]) Object {
	back, stays := of.Back()
	o := objectOf(back, c)
	for _, value := range stays {
		o.Warnings = append(o.Warnings, o.name+" has changed since, and stays so: "+value)
	}
	return o
}

// PrintUndoneObject prints the undo of an entry in the cloud at a URL as text.
func PrintUndoneObject(u *term.UI, e change.Entry, url string, o Object) {
	u.Printf("undoes %s at %s\n", term.Printable(EntryName(e)), term.Printable(url))
	u.Diff(o.Diff)
	printRequests(u, o.Requests)
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
	verb := "change"
	switch {
	case m.After == nil:
		verb = "delete"
	case m.Before == nil:
		verb = "create"
	}
	return term.Sentence(verb+" flavor "+m.Name(), host.Numbered(len(m.Requests()), "request"))
}
