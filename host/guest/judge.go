package guest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/pci"
)

// Conditions for a report to prove that something is absent.
const (
	maxAge    = 10 * time.Minute // a guest may start at any time after the report
	minUptime = 10 * time.Minute // nova-compute has finished its startup tasks by then
	// rounding is the resolution of times in Nova's database. A later time must be later by more
	// than this.
	rounding = time.Second
	// writerMargin is the tolerated difference between the database's clock and that of the process
	// that has written a row's time: nova-conductor or nova-api (oslo.db, TimestampMixin).
	writerMargin = 30 * time.Second
	// clockMargin is the tolerated difference between two clocks that are synchronized, beside the
	// errors that their kernels state: they may be synchronized with different servers.
	clockMargin = 30 * time.Second
	// maxClockAge is maxAge for a report whose age is known only within the margin of its clock.
	maxClockAge = maxAge + time.Minute
)

// Claim is a statement that a report may prove: that a guest is absent from a host, and that
// functions are in use by no guest.
type Claim struct {
	Host      string        // its name in Nova's database
	Guest     string        // a UUID; "" for no guest in particular
	Functions []pci.Address // that must not be in use, nor their physical or virtual functions
	// Relatives says that by its row a function is a PF, a VF or a vDPA device. Only a report that
	// lists PFs with their VFs then proves anything. A VF that the host has no more is not in such
	// a list: whether its PF is in use is another question.
	Relatives bool
	// Since is the time at which the database rows in question last changed, by the database's
	// clock. An older report cannot show the effect of that change.
	Since time.Time
	Now   time.Time // by the database's clock
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
// nor as a domain, and that no process or domain uses the functions or one of their families.
func (r Report) Absent(c Claim) Answer {
	if c.Guest == "" && len(c.Functions) == 0 {
		return Answer{Reasons: []string{"neither a guest nor a function is given"}}
	}
	return answer(append(r.unfitFor(c), r.Shows(c.Guest, c.Functions)...))
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
	return answer(append(r.unfitFor(c), other.Shows(c.Guest, c.Functions)...))
}

// NovaComputeRestarted returns whether the report proves that every process of nova-compute was
// started after c.Since and had run for ten minutes when the report was made.
func (r Report) NovaComputeRestarted(c Claim) Answer {
	reasons := r.unfit(c)
	made, unknown := r.earliest()
	if len(r.NovaCompute) == 0 {
		reasons = append(reasons, r.label()+": nova-compute is not running")
	}
	for _, n := range r.NovaCompute {
		add := func(format string, args ...any) {
			process := fmt.Sprintf("%s: nova-compute (pid %d) ", r.label(), n.PID)
			reasons = append(reasons, process+fmt.Sprintf(format, args...))
		}
		if n.AgeSeconds == nil {
			add("has an unknown age")
			continue
		}
		age := time.Duration(*n.AgeSeconds) * time.Second
		started := made.Add(-age - time.Second) // at the earliest: age is rounded down
		switch {
		case unknown == "" && !started.After(r.after(c.Since)):
			add("may have been running since %s, which is not after %s%s", stamp(started), stamp(c.Since), r.hint())
		case age < minUptime:
			add("had been running for %s, less than %s", span(age), span(minUptime))
		}
	}
	return answer(reasons)
}

// NovaComputeDown returns whether the report proves that nova-compute is not running.
func (r Report) NovaComputeDown(c Claim) Answer {
	return answer(append(r.unfit(c), host.Map(r.NovaCompute, func(n NovaCompute) string {
		return fmt.Sprintf("%s: nova-compute is running (pid %d)", r.label(), n.PID)
	})...))
}

// Shows returns one text for each trace of a guest ("" for none in particular) or of a use of
// functions or their families in the report. What a report shows was there, even if the report is
// old or incomplete.
func (r Report) Shows(uuid string, functions []pci.Address) []string {
	var seen []string
	add := func(format string, args ...any) {
		seen = append(seen, r.label()+": "+fmt.Sprintf(format, args...))
	}
	is := func(other *string) bool { return uuid != "" && other != nil && strings.EqualFold(uuid, *other) }
	family := r.families(functions)
	for _, g := range r.Guests {
		if is(g.UUID) {
			add("guest %s is running, pid %d (%s)", uuid, g.PID, g.Command)
		}
		for _, a := range common(family, g.Asked) {
			add("%s is in the arguments of pid %d (%s%s)", a, g.PID, g.Command, ofGuest(g.UUID))
		}
	}
	for _, h := range r.Holders {
		if is(h.UUID) {
			add("guest %s has %s open", uuid, h.what())
		}
		for _, a := range common(family, h.Functions) {
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
		for _, a := range common(family, d.Functions) {
			add("%s belongs to the %s domain %s", a, state, d.UUID)
		}
	}
	return seen
}

// Family returns a function and, by the report, the VFs of a PF or the PF of a VF: a function is
// free only if none of its family is in use. Two VFs of one PF are independent of each other.
func (r Report) Family(function pci.Address) []pci.Address {
	family := []pci.Address{function}
	for _, pf := range r.VirtualFunctions {
		switch {
		case pf.Address == function:
			family = append(family, pf.Functions...)
		case slices.Contains(pf.Functions, function):
			family = append(family, pf.Address)
		}
	}
	return family
}

// relative is a function with its relation to a function in question, for messages.
type relative struct {
	pci.Address
	relation string // "" for the function itself
}

func (f relative) String() string { return f.Address.String() + f.relation }

// families returns the families of functions, each member once.
func (r Report) families(functions []pci.Address) []relative {
	isPF := func(a pci.Address) bool {
		return slices.ContainsFunc(r.VirtualFunctions, func(pf PhysicalFunction) bool { return pf.Address == a })
	}
	all := host.Map(functions, func(a pci.Address) relative { return relative{a, ""} })
	for _, a := range functions {
		for _, member := range r.Family(a)[1:] {
			if slices.ContainsFunc(all, func(f relative) bool { return f.Address == member }) {
				continue
			}
			relation := "VF"
			if isPF(member) {
				relation = "PF"
			}
			all = append(all, relative{member, fmt.Sprintf(" (%s of %s)", relation, a)})
		}
	}
	return all
}

// what describes the group or device that a holder has open.
func (h Holder) what() string {
	if h.Group != nil {
		return fmt.Sprintf("VFIO group %d", *h.Group)
	}
	if h.Device != nil {
		return "VFIO device " + *h.Device
	}
	if h.VDPA != nil {
		return "vDPA device " + *h.VDPA
	}
	return "an unknown device"
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
	if c.Since.IsZero() {
		add("cannot be compared with a change at an unknown time")
	}
	if reason := r.untimely(c); reason != "" {
		add("%s", reason)
	}
	return reasons
}

// unfitFor returns why the report cannot prove that the functions of a claim are not in use.
func (r Report) unfitFor(c Claim) []string {
	reasons := r.unfit(c)
	if c.Relatives && r.VirtualFunctions == nil {
		reasons = append(reasons, "report of "+r.label()+" does not show virtual_functions: gpustack on the host is older, or could not read them")
	}
	if r.Doubtful != nil {
		for _, a := range common(r.families(c.Functions), r.Doubtful.Functions) {
			reasons = append(reasons, fmt.Sprintf("%s: %s may be in use: %s", r.label(), a, strings.Join(r.Doubtful.Because, ", ")))
		}
	}
	return reasons
}

// untimely returns why a report is too old for a claim, or "".
func (r Report) untimely(c Claim) string {
	made, unknown := r.earliest()
	age, token := c.Now.Sub(made), r.Token != nil
	switch {
	case unknown != "":
		return unknown
	case token && age < 0:
		return fmt.Sprintf("has a token of %s, which is later than the database's time %s: make a new one with 'gpustack repair-migration'", stamp(made), stamp(c.Now))
	case age < 0:
		return fmt.Sprintf("is dated %s in the future%s", span(r.Collected.Sub(c.Now)), r.hint())
	case token && age > maxAge:
		return fmt.Sprintf("has a token that is %s old: make a new token with 'gpustack repair-migration', and a new report with the token", span(age))
	case !token && age > maxClockAge:
		return fmt.Sprintf("may be %s old", span(age))
	case c.Since.IsZero() || made.After(r.after(c.Since)):
		return ""
	case token:
		return fmt.Sprintf("has a token of %s, which must be more than %d s later than the last change at %s, as clocks differ: "+
			"make a new token with 'gpustack repair-migration', and a new report with the token", stamp(made), writerMargin/time.Second, stamp(c.Since))
	}
	return fmt.Sprintf("may be of %s, which is not after the last change at %s%s", stamp(made), stamp(c.Since), r.hint())
}

// after returns the time that a report, or the start of nova-compute, must be later than to be from
// after a change. Without a token, the margin of the report's own time covers that of the change.
func (r Report) after(since time.Time) time.Time {
	if r.Token != nil {
		since = since.Add(writerMargin)
	}
	return since.Add(rounding)
}

// earliest returns the earliest time, by the database's clock, at which the report may have been
// made: the time of its token, or else its own time, of a synchronized clock, less the margin. If
// neither is known, it returns why.
func (r Report) earliest() (made time.Time, unknown string) {
	switch {
	case r.Token != nil:
		t, err := ParseToken(*r.Token)
		if err != nil {
			return time.Time{}, fmt.Sprintf("has a malformed token: %v", err)
		}
		return t, ""
	case r.Clock == nil:
		return time.Time{}, "does not show whether the host's clock was synchronized" + r.hint()
	case !r.Clock.Synchronized || r.Clock.MaxErrorUS < 0 || r.Clock.MaxErrorUS > maxAge.Microseconds():
		return time.Time{}, "was made while the host's clock was not synchronized" + r.hint()
	}
	return r.Collected.Add(-clockMargin - time.Duration(r.Clock.MaxErrorUS)*time.Microsecond), ""
}

// Before returns whether the report is proved to be from before a time of the database's clock: by
// its own time, if the host's clock was synchronized.
func (r Report) Before(t time.Time) bool {
	if r.Clock == nil || !r.Clock.Synchronized {
		return false
	}
	return r.Collected.Add(clockMargin + time.Duration(r.Clock.MaxErrorUS)*time.Microsecond).Before(t)
}

// hint ends the reasons that a token removes, if the report has none.
func (r Report) hint() string {
	if r.Token != nil {
		return ""
	}
	return "; a report with a token from 'gpustack repair-migration' shows the order"
}

// label returns the name of the report's host, for messages.
func (r Report) label() string {
	return *cmp.Or(r.NovaHost, r.Hostname, new("an unknown host"))
}

// Newest returns the newest report of each of Nova's hosts: the one with the newest token, which is
// the database's time, then with the newest time by the host's clock. A report without a host name
// is an error; so are reports of several machines with the same host name, of which none is
// returned.
func Newest(reports []Report) (map[string]Report, error) {
	newest := map[string]Report{}
	machines := map[string][]string{}
	var errs []error
	for _, r := range reports {
		if r.NovaHost == nil {
			errs = append(errs, fmt.Errorf("report of %s: no nova_host", r.label()))
			continue
		}
		name := *r.NovaHost
		machines[name] = host.Union(machines[name], *cmp.Or(r.MachineID, new("an unknown machine")))
		if known, ok := newest[name]; !ok || r.newer(known) {
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

// newer reports whether a report is newer than another one of the same host.
func (r Report) newer(than Report) bool {
	token := func(r Report) (t time.Time) {
		if r.Token != nil {
			t, _ = ParseToken(*r.Token) // a malformed token is older than any
		}
		return t
	}
	return cmp.Or(token(r).Compare(token(than)), r.Collected.Compare(than.Collected)) > 0
}

// common returns the members of a family that are in a list.
func common(family []relative, list []pci.Address) []relative {
	return host.Filter(family, func(f relative) bool { return slices.Contains(list, f.Address) })
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
