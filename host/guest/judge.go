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

// Conditions for a report to prove that something is absent.
const (
	maxAge    = 10 * time.Minute // a guest may start at any time after the report
	maxFuture = time.Minute      // the tolerated difference between the clocks of hosts
	minUptime = 10 * time.Minute // nova-compute has finished its startup tasks by then
	// rounding is the resolution of times in Nova's database and of the kernel's boot time. A
	// later time must be later by more than this.
	rounding = time.Second
)

// Claim is a statement that a report may prove: that a guest is absent from a host, and that
// functions are in use by no guest.
type Claim struct {
	Host      string        // its name in Nova's database
	Guest     string        // a UUID; "" for no guest in particular
	Functions []pci.Address // that must not be in use
	// Since is the time at which the database rows in question last changed. An older report
	// cannot show the effect of that change.
	Since time.Time
	Now   time.Time
}

// Answer is whether a report proves a claim, and if not, why. The zero Answer is no proof.
type Answer struct {
	Proven  bool
	Reasons []string // why it proves nothing, for people
}

func answer(reasons []string) Answer {
	return Answer{len(reasons) == 0, reasons}
}

// Absent returns whether the report proves that the guest is not on the host, neither as a process
// nor as a domain, and that no process or domain uses the functions.
func (r Report) Absent(c Claim) Answer {
	if c.Guest == "" && len(c.Functions) == 0 {
		return Answer{Reasons: []string{"neither a guest nor a function is given"}}
	}
	return answer(append(r.unfit(c), r.Shows(c.Guest, c.Functions)...))
}

// NotRunning returns what Absent does, except that a domain of the guest which is defined and does
// not run is no objection: after a resize, libvirt has such a domain on the source until the
// resize is confirmed.
func (r Report) NotRunning(c Claim) Answer {
	if c.Guest == "" {
		return Answer{Reasons: []string{"no guest is given"}}
	}
	leftover := func(d Domain) bool { return !d.Running && strings.EqualFold(d.UUID, c.Guest) }
	domains := slices.DeleteFunc(slices.Clone(r.Domains), leftover)
	other := r
	other.Domains = domains
	return answer(append(r.unfit(c), other.Shows(c.Guest, c.Functions)...))
}

// Present returns whether the report proves that the guest is on the host: running, or, if it is
// not to run, as a domain that is defined and does not run.
func (r Report) Present(c Claim, running bool) Answer {
	is := func(uuid *string) bool { return c.Guest != "" && uuid != nil && strings.EqualFold(c.Guest, *uuid) }
	runs := slices.ContainsFunc(r.Guests, func(g Guest) bool { return is(g.UUID) }) ||
		slices.ContainsFunc(r.Holders, func(h Holder) bool { return is(h.UUID) })
	defined := false
	for _, d := range r.Domains {
		runs, defined = runs || is(&d.UUID) && d.Running, defined || is(&d.UUID)
	}
	reasons := r.unfit(c)
	switch {
	case running && !runs:
		reasons = append(reasons, fmt.Sprintf("%s: guest %s is not running", r.label(), c.Guest))
	case !running && runs:
		reasons = append(reasons, fmt.Sprintf("%s: guest %s is running, although it is to be stopped", r.label(), c.Guest))
	case !running && !defined:
		reasons = append(reasons, fmt.Sprintf("%s: guest %s is not defined", r.label(), c.Guest))
	}
	return answer(reasons)
}

// NovaComputeRestarted returns whether the report proves that every process of nova-compute was
// started after c.Since and had run for ten minutes when the report was made.
func (r Report) NovaComputeRestarted(c Claim) Answer {
	reasons := r.unfit(c)
	if len(r.NovaCompute) == 0 {
		reasons = append(reasons, r.label()+": nova-compute is not running")
	}
	for _, n := range r.NovaCompute {
		add := func(format string, args ...any) {
			process := fmt.Sprintf("%s: nova-compute (pid %d) ", r.label(), n.PID)
			reasons = append(reasons, process+fmt.Sprintf(format, args...))
		}
		switch {
		case n.Started == nil:
			add("has an unknown start time")
		case !n.Started.After(c.Since.Add(rounding)):
			add("has been running since %s, which is not after %s", stamp(*n.Started), stamp(c.Since))
		case r.Collected.Sub(*n.Started) < minUptime:
			add("had been running for %s, less than %s", span(r.Collected.Sub(*n.Started)), span(minUptime))
		}
	}
	return answer(reasons)
}

// NovaComputeDown returns whether the report proves that nova-compute is not running.
func (r Report) NovaComputeDown(c Claim) Answer {
	reasons := r.unfit(c)
	for _, n := range r.NovaCompute {
		reasons = append(reasons, fmt.Sprintf("%s: nova-compute is running (pid %d)", r.label(), n.PID))
	}
	return answer(reasons)
}

// Shows returns one text for each trace of a guest ("" for none in particular) or of a use of
// functions in the report. What a report shows was there, even if the report is old or incomplete.
func (r Report) Shows(uuid string, functions []pci.Address) []string {
	var seen []string
	add := func(format string, args ...any) {
		seen = append(seen, r.label()+": "+fmt.Sprintf(format, args...))
	}
	is := func(other *string) bool { return uuid != "" && other != nil && strings.EqualFold(uuid, *other) }
	for _, g := range r.Guests {
		if is(g.UUID) {
			add("guest %s is running, pid %d (%s)", uuid, g.PID, g.Command)
		}
		for _, a := range common(functions, g.Asked) {
			add("%s is in the arguments of pid %d (%s%s)", a, g.PID, g.Command, ofGuest(g.UUID))
		}
	}
	for _, h := range r.Holders {
		if is(h.UUID) {
			add("guest %s has %s open", uuid, h.what())
		}
		for _, a := range common(functions, h.Functions) {
			add("%s is in use by pid %d (%s%s)", a, h.PID, h.Command, ofGuest(h.UUID))
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

// what describes the VFIO group or device that a holder has open.
func (h Holder) what() string {
	if h.Group != nil {
		return fmt.Sprintf("VFIO group %d", *h.Group)
	}
	if h.Device != nil {
		return "VFIO device " + *h.Device
	}
	return "an unknown VFIO file"
}

// unfit returns why the report cannot prove that something is absent.
func (r Report) unfit(c Claim) []string {
	var reasons []string
	add := func(format string, args ...any) {
		reasons = append(reasons, "report of "+r.label()+" "+fmt.Sprintf(format, args...))
	}
	if r.Schema != Schema {
		add("has schema %d instead of %d", r.Schema, Schema)
	}
	if r.NovaHost == nil || *r.NovaHost != c.Host || c.Host == "" {
		add("is not a report of host %s", c.Host)
	}
	if !r.Complete {
		add("is incomplete")
	}
	for _, s := range r.Unread() {
		add("lacks %s: %s", s.Name, s.Detail)
	}
	switch age := c.Now.Sub(r.Collected); {
	case age > maxAge:
		add("is %s old", span(age))
	case age < -maxFuture:
		add("is dated %s in the future", span(-age))
	}
	switch {
	case c.Since.IsZero():
		add("cannot be compared with a change at an unknown time")
	case !r.Collected.After(c.Since.Add(rounding)):
		add("is of %s, which is not after the last change at %s", stamp(r.Collected), stamp(c.Since))
	}
	return reasons
}

// label returns the name of the report's host, for messages.
func (r Report) label() string {
	for _, name := range []*string{r.NovaHost, r.Hostname} {
		if name != nil {
			return *name
		}
	}
	return "an unknown host"
}

// Newest returns the newest report of each of Nova's hosts. A report without a host name is an
// error; so are reports of several machines with the same host name, of which none is returned.
func Newest(reports []Report) (map[string]Report, error) {
	newest := map[string]Report{}
	machines := map[string][]string{}
	var errs []error
	for _, r := range reports {
		if r.NovaHost == nil {
			errs = append(errs, fmt.Errorf("report of %s: no nova_host", r.label()))
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
			errs = append(errs, fmt.Errorf("reports of %s come from several machines: %s",
				name, strings.Join(ids, ", ")))
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

// span formats a duration in minutes and seconds.
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
