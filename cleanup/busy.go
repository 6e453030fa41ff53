package cleanup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
)

// BusyAfter is for how long an instance may be busy before its rows are listed, by default: copying
// the disk of a resize takes hours on slow networks, but not a night.
const BusyAfter = 6 * time.Hour

// Work describes an instance whose rows Nova is still changing, or has stopped to change.
type Work struct {
	State string `json:"state"` // the task or state
	// Age is the time since Nova last changed the instance or an open migration of it, by the
	// database's clock; nil if that is not recorded.
	Age  *int64 `json:"age_seconds"`
	Long bool   `json:"long"` // whether that is longer than --busy-after, or not recorded
	// Request is that of the instance's latest action with an event that has not finished, or else
	// of its latest action; "" if it is not recorded, or was not looked up, as the row is not
	// listed.
	Request string `json:"request_id"`
	// the action of that request: "create", "migrate", "resize" and others
	Action string   `json:"action"`
	Hosts  []string `json:"hosts"` // the hosts whose logs tell what became of the request
}

// working describes why Nova is still changing the rows of an instance; "" if it is not.
func working(i Instance) string {
	switch {
	case waiting(i) != "":
		return ""
	case i.Task != nil:
		return "the instance is in task " + *i.Task
	case i.VMState == nil:
		return "the instance has no state"
	case *i.VMState == "building":
		return "the instance is in state building"
	}
	return ""
}

// waiting describes a state in which an instance keeps its devices for as long as an operator, a
// user or Nova's settings want, so that its age means nothing: resized waits to be confirmed or
// reverted (resize_confirm_window), soft-delete to be restored or reclaimed
// (reclaim_instance_interval). While a resize across cells waits, the hidden copy in the source
// cell stays in task resize_migrated (nova/conductor/tasks/cross_cell_migrate.py). "" for other
// states.
func waiting(i Instance) string {
	switch {
	case i.Hidden && i.Task != nil && *i.Task == "resize_migrated":
		return "the instance was resized into another cell and waits to be confirmed or reverted"
	case i.Task == nil && settled(i, "resized", "soft-delete"):
		return "the instance is in state " + *i.VMState
	}
	return ""
}

// inFlight describes a state of an instance in which its rows prove nothing; "" for other states.
func inFlight(i Instance) string {
	return cmp.Or(waiting(i), working(i))
}

// inFlight judges the row of an instance that is busy, or waits to be moved or deleted. It returns
// false for other instances. Nova confirms or reverts a move only while its migration is finished
// (nova/compute/api.py, confirm_resize), so that without such a migration an instance stays resized
// and keeps its rows on other nodes, though it waits for nothing.
func (c *classifier) inFlight() bool {
	i := c.f.Instance
	waits := c.f.migration(func(m Migration) bool { return !m.Over() && (m.Status != "error" || m.CrossCell) }) != nil
	switch m := c.unconfirmed(); {
	case m != nil:
		c.confirming(m)
	case i.Task == nil && settled(*i, "resized") && !i.Hidden && !c.f.Here && !waits:
		c.busy("the instance is in state resized, but no migration waits to be confirmed or reverted")
	case waiting(*i) != "":
		c.is(CaseLegitimate, Legitimate, "%s", waiting(*i))
	case working(*i) != "":
		c.busy(working(*i))
	default:
		return false
	}
	return true
}

// unconfirmed returns the move of a resized instance away from the row's node that is being
// confirmed, nil if there is none.
func (c *classifier) unconfirmed() *Migration {
	if !settled(*c.f.Instance, "resized") || c.f.Instance.Task != nil {
		return nil
	}
	return c.f.migration(func(m Migration) bool {
		return m.isMove() && m.Status == "confirming" && c.f.Node != nil && m.from(c.f.Node.Host, c.f.Node.Name) && c.f.Instance.arrived(m) && !m.CrossCell
	})
}

// confirming judges the row of an instance whose move is being confirmed by nova-compute of the
// row's node. If that has died, Nova can neither confirm the move nor revert it any more: its API
// looks for a migration that is finished (nova/compute/api.py, confirm_resize). It may have removed
// the guest's old disk before, so that nothing may revert the move.
func (c *classifier) confirming(m *Migration) {
	state := fmt.Sprintf("%s is being confirmed by nova-compute on %s", m, m.SourceHost)
	c.busy(state)
	confirm := host.Textf("openstack server resize confirm %s, and never revert it: the source may have removed the guest's old disk", c.f.Instance.UUID)
	restarted, why := c.f.Proof.Restarted(m.SourceHost, m.Changed)
	switch {
	case c.f.Proof.Off(m.SourceHost):
		c.is(CaseStuck, Stale, "%s, which is declared off; Nova can neither confirm nor revert it any more", state)
		c.Migration, c.Consequence = &m.ID, keptByNova
		c.closes()
		c.Confirms = c.Repair == Online
		return
	case restarted:
		c.is(CaseStuck, Stale, "%s, which was started since; Nova can neither confirm nor revert it any more", state)
		c.Migration, c.Consequence = &m.ID, keptByNova
		c.Closings = []Closing{{m.ID, "finished"}}
		c.repairs(Reopen, "set migration %d to finished; then %s", m.ID, confirm)
		return
	}
	c.Reason += "; " + why
	if c.Consequence != "" { // it is listed
		c.Consequence = keptByNova
		c.Steps = host.Textf("%s; or, if the host is off, %s; do not revert the move", c.ask(m.SourceHost), again.Flag("host-is-off", m.SourceHost))
	}
}

// busy judges the row of an instance that Nova is still changing. Such a row is never repaired:
// rows say nothing about a process that is still at work. It is suspicious when nova-compute
// on each host that could be at work was started after the last change: the database does not record
// when. A time as far in the future as Busy is listed like one as far in the past.
func (c *classifier) busy(state string) {
	last, known := c.lastWork()
	idle := c.f.Now.Sub(last)
	long := !known || idle.Abs() > c.f.Busy // clocks differ, but not by hours
	text := state + ", and the time of its last change is unknown"
	switch {
	case known && idle < 0:
		text = state + ", with a time of last change that is " + age(-idle) + " in the future"
	case known:
		text = state + ", unchanged for " + age(idle)
	}
	hosts := c.workers()
	c.is(CaseBusy, Busy, "%s", text)
	b := &Work{State: state, Long: long, Hosts: slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return h == "" })}
	if known {
		seconds := int64(idle.Seconds())
		b.Age = &seconds
		if why := c.restarted(hosts, last); why != "" {
			c.is(CaseBusy, Suspicious, "%s, but %s: no process works on it any more", text, why)
		}
	}
	c.Busy = b
	if c.Verdict == Suspicious || long {
		c.Consequence = "if no process works on the instance any more, its devices remain taken until its state is reset"
		c.advise()
	}
}

// lastWork returns when Nova last changed the instance or an open migration of it. While a disk is
// copied, Nova changes neither. known is false if the time is not recorded for the instance.
func (c *classifier) lastWork() (last time.Time, known bool) {
	if c.f.Instance.Changed == nil {
		return last, false
	}
	times := []*time.Time{c.f.Instance.Changed}
	for k := range c.f.Migrations {
		if m := &c.f.Migrations[k]; !m.Over() && !m.Changed.IsZero() {
			times = append(times, &m.Changed)
		}
	}
	return latest(times...)
}

// workers returns the hosts whose nova-compute may be at work on the instance: those of its open
// migrations, or else its own and that of the row.
func (c *classifier) workers() []string {
	var hosts []string
	for _, m := range c.f.Migrations {
		if !m.Over() && m.Status != "error" {
			hosts = append(hosts, m.SourceHost, m.DestHost)
		}
	}
	if len(hosts) == 0 {
		hosts = []string{c.Host, host.Or(c.f.Instance.Host, c.Host)}
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// restarted describes why no nova-compute carries on what it did before since: on each of the hosts
// it was started after that, or the host is declared off; "" if that is not proved. A migration
// without a destination is still being scheduled, and one across cells is carried on by
// nova-conductor.
func (c *classifier) restarted(hosts []string, since time.Time) string {
	if slices.ContainsFunc(c.f.Migrations, func(m Migration) bool { return m.CrossCell && !m.Over() }) {
		return ""
	}
	var started, off []string
	for _, host := range hosts {
		ok, _ := c.f.Proof.Restarted(host, since)
		switch {
		case host == "":
			return ""
		case ok:
			started = append(started, host)
		case c.f.Proof.Off(host):
			off = append(off, host)
		default:
			return ""
		}
	}
	var all []string
	if len(started) > 0 {
		all = append(all, "nova-compute on "+strings.Join(started, " and on ")+" was started after that")
	}
	all = append(all, host.Map(off, func(host string) string { return "host " + host + " is declared off" })...)
	return strings.Join(all, ", and ")
}

// Action is an action on an instance (instance_actions), with what is known of its events
// (instance_actions_events).
type Action struct {
	Name    string
	Request string
	Open    []string // events that have begun and not finished
	Hosts   []string // of its open events, or else of all
}

// Asks adds the action that a busy instance's rows are explained by.
func (f *Finding) Asks(a Action) {
	b := *f.Busy
	b.Request, b.Action = a.Request, a.Name
	b.Hosts = slices.Concat(b.Hosts, a.Hosts)
	slices.Sort(b.Hosts)
	b.Hosts = slices.Compact(b.Hosts)
	f.Busy = &b
	f.Evidence += fmt.Sprintf("; request %s (%s)", a.Request, a.Name)
	if len(a.Open) > 0 {
		f.Evidence += ", not finished: " + strings.Join(a.Open, ", ")
	}
	f.advise()
}

// advise sets the steps for a row of an instance that is busy for too long.
func (f *Finding) advise() {
	uuid := host.Value(f.Device.Instance)
	f.Steps = host.Textf("look in the logs of %s for %s; if no process works on the instance any more, reset its state: "+
		"openstack server set --state active %s (--state error if its guest does not run), then run %s again",
		strings.Join(f.Busy.Hosts, ", "), cmp.Or(f.Busy.Request, uuid), uuid, again)
	if f.Verdict == Busy {
		f.Steps = host.Textf("%s. Guest reports of these hosts tell whether nova-compute was started since", f.Steps)
	}
}
