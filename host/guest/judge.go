package guest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/host/pci"
)

// What a report must be to prove that something is not there.
const (
	maxAge    = 10 * time.Minute // a guest can come any time after
	maxFuture = time.Minute      // by which clocks of hosts may differ
	minUptime = 10 * time.Minute // in which nova-compute has gone through what it had begun
	// Nova's database keeps whole seconds, and so does the kernel the time of its boot:
	// what is to be later must be so by more than that.
	rounding = time.Second
)

// Claim is what a report is asked to prove.
type Claim struct {
	Host      string        // as Nova's database has it
	Guest     string        // a uuid, or "" for whoever
	Functions []pci.Address // that nobody may hold
	// Since is when the rows in question were last changed: a report from before says
	// nothing of what came of it.
	Since time.Time
	Now   time.Time
}

// Answer is whether a report proves a claim, and if not why. The zero Answer does not.
type Answer struct {
	Proven  bool
	Reasons []string // for people
}

func answer(reasons []string) Answer {
	return Answer{len(reasons) == 0, reasons}
}

// Absent tells whether the report proves that the guest is not on the host, neither as a
// process nor as a domain, and that nobody holds the functions.
func (r Report) Absent(c Claim) Answer {
	if c.Guest == "" && len(c.Functions) == 0 {
		return Answer{Reasons: []string{"no guest and no function is named that could be absent"}}
	}
	return answer(append(r.unfit(c), r.Shows(c.Guest, c.Functions)...))
}

// NovaComputeRestarted tells whether the report proves that nova-compute was started
// after the claim's moment, every process of it, and had been up for ten minutes.
func (r Report) NovaComputeRestarted(c Claim) Answer {
	reasons := r.unfit(c)
	if len(r.NovaCompute) == 0 {
		reasons = append(reasons, fmt.Sprintf("%s: nova-compute does not run", r.label()))
	}
	for _, n := range r.NovaCompute {
		switch {
		case n.Started == nil:
			reasons = append(reasons, fmt.Sprintf("%s: when nova-compute (pid %d) was started is not known", r.label(), n.PID))
		case !n.Started.After(c.Since.Add(rounding)):
			reasons = append(reasons, fmt.Sprintf("%s: nova-compute (pid %d) runs since %s, which is not after %s", r.label(), n.PID, stamp(*n.Started), stamp(c.Since)))
		case r.Collected.Sub(*n.Started) < minUptime:
			reasons = append(reasons, fmt.Sprintf("%s: nova-compute (pid %d) had run for %s only, and needs %s", r.label(), n.PID, span(r.Collected.Sub(*n.Started)), span(minUptime)))
		}
	}
	return answer(reasons)
}

// NovaComputeDown tells whether the report proves that nova-compute does not run.
func (r Report) NovaComputeDown(c Claim) Answer {
	reasons := r.unfit(c)
	for _, n := range r.NovaCompute {
		reasons = append(reasons, fmt.Sprintf("%s: nova-compute runs, pid %d", r.label(), n.PID))
	}
	return answer(reasons)
}

// Shows returns what the report shows of a guest, "" for none in particular, or of who
// holds functions: each is there, however old or incomplete the report.
func (r Report) Shows(uuid string, functions []pci.Address) []string {
	var seen []string
	add := func(format string, args ...any) {
		seen = append(seen, r.label()+": "+fmt.Sprintf(format, args...))
	}
	is := func(other *string) bool { return uuid != "" && other != nil && strings.EqualFold(uuid, *other) }
	for _, g := range r.Guests {
		if is(g.UUID) {
			add("guest %s runs, pid %d (%s)", uuid, g.PID, g.Command)
		}
		for _, a := range common(functions, g.Asked) {
			add("%s was given to pid %d (%s%s)", a, g.PID, g.Command, ofGuest(g.UUID))
		}
	}
	for _, h := range r.Holders {
		if is(h.UUID) {
			add("guest %s holds %s", uuid, h.what())
		}
		for _, a := range common(functions, h.Functions) {
			add("%s is held by pid %d (%s%s)", a, h.PID, h.Command, ofGuest(h.UUID))
		}
	}
	for _, d := range r.Domains {
		state := "defined"
		if d.Running {
			state = "running"
		}
		if is(&d.UUID) {
			add("guest %s is a %s domain, %s", uuid, state, strings.Join(d.Files, ", "))
		}
		for _, a := range common(functions, d.Functions) {
			add("%s belongs to the %s domain %s", a, state, d.UUID)
		}
	}
	return seen
}

// what names what a holder has open.
func (h Holder) what() string {
	if h.Group != nil {
		return fmt.Sprintf("VFIO group %d", *h.Group)
	}
	if h.Device != nil {
		return "VFIO device " + *h.Device
	}
	return "something of VFIO"
}

// unfit returns why the report cannot prove that something is not there.
func (r Report) unfit(c Claim) []string {
	var reasons []string
	add := func(format string, args ...any) {
		reasons = append(reasons, "report of "+r.label()+" "+fmt.Sprintf(format, args...))
	}
	if r.Schema != Schema {
		add("has schema %d instead of %d", r.Schema, Schema)
	}
	if r.NovaHost == nil || *r.NovaHost != c.Host || c.Host == "" {
		add("is not one of %s", c.Host)
	}
	if !r.Complete {
		add("is not complete")
	}
	for _, s := range r.Unread() {
		add("lacks %s: %s", s.Name, s.Detail)
	}
	switch age := c.Now.Sub(r.Collected); {
	case age > maxAge:
		add("is %s old", span(age))
	case age < -maxFuture:
		add("is from the future, by %s", span(-age))
	}
	switch {
	case c.Since.IsZero():
		add("cannot be compared with a change of unknown time")
	case !r.Collected.After(c.Since.Add(rounding)):
		add("is of %s, which is not after the last change, of %s", stamp(r.Collected), stamp(c.Since))
	}
	return reasons
}

// label names the host of a report.
func (r Report) label() string {
	for _, name := range []*string{r.NovaHost, r.Hostname} {
		if name != nil {
			return *name
		}
	}
	return "an unknown host"
}

// Newest returns the newest report of each of Nova's hosts. A name that two machines
// bear has none, and is an error, as is a report that names no host.
func Newest(reports []Report) (map[string]Report, error) {
	newest := map[string]Report{}
	machines := map[string][]string{}
	var errs []error
	for _, r := range reports {
		if r.NovaHost == nil {
			errs = append(errs, fmt.Errorf("report of %s does not say which of Nova's hosts it is", r.label()))
			continue
		}
		name, machine := *r.NovaHost, "an unknown machine"
		if r.MachineID != nil {
			machine = *r.MachineID
		}
		if !slices.Contains(machines[name], machine) {
			machines[name] = append(machines[name], machine)
		}
		if known, ok := newest[name]; !ok || r.Collected.After(known.Collected) {
			newest[name] = r
		}
	}
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		if ids := machines[name]; len(ids) > 1 {
			delete(newest, name)
			errs = append(errs, fmt.Errorf("reports of %s are of several machines: %s", name, strings.Join(ids, ", ")))
		}
	}
	return newest, errors.Join(errs...)
}

// common returns the functions that are in both lists.
func common(functions, others []pci.Address) []pci.Address {
	var both []pci.Address
	for _, a := range functions {
		if slices.Contains(others, a) {
			both = append(both, a)
		}
	}
	return both
}

func ofGuest(uuid *string) string {
	if uuid == nil {
		return ""
	}
	return " of guest " + *uuid
}

// span writes a duration in minutes and seconds.
func span(d time.Duration) string {
	d = d.Truncate(time.Second)
	minutes, seconds := d/time.Minute, d%time.Minute/time.Second
	if seconds == 0 {
		return fmt.Sprintf("%d min", minutes)
	}
	return fmt.Sprintf("%d min %d s", minutes, seconds)
}

func stamp(t time.Time) string {
	return t.UTC().Format(time.RFC3339)
}
