package cleanup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
)

// An instance is judged once, by all its open migrations: nova-compute keeps the instance's devices on
// a node for as long as one open migration goes to or from the node
// (nova/compute/resource_tracker.py, _update_available_resource; nova/pci/manager.py, clean_usage),
// so those that keep devices on other nodes than its own are closed together or not at all.
//
// Two rows of one instance on two hosts prove nothing: every resize looks like this until it is
// confirmed. After an operator has reset the instance's state, a migration whose disk copy still runs
// looks the same as one that died hours ago. A migration that only touches other nodes does not
// matter, unless it crosses cells: the instance may then be in another cell.

// prospect is what closing an instance's migrations leads to.
type prospect struct {
	closings []Closing
	frees    []Held
	applies  bool // the migration_context is applied
	places   Places
	leaves   string
	hosts    []string   // of which reports are needed
	unfit    string     // why the migration_context must not be removed; "" if it may
	unproved string     // why the migrations must not be closed; "" if they may
	stuck    *Migration // one that must not be closed, whatever is reported
}

// Places are the nodes and the consumers in Placement that matter to the allocations of an instance
// whose migrations are closed.
type Places struct {
	Node    string // of the instance; "" for none
	Nowhere bool   // the instance has neither a host nor a node
	// Empty are nodes that the instance is proved not to be on, and those of the closed migrations.
	Empty []string
	// Kept are the nodes of other migrations that are not over, and the source of an evacuation that
	// is done, whose allocations nova-compute releases when it starts there
	// (nova/compute/manager.py, _destroy_evacuated_instances).
	Kept []string
	// Closed and Open are the UUIDs of the closed and of other open migrations. Before Newton
	// migrations had none.
	Closed, Open []string
}

// others returns nodes without that of the instance, each once.
func (p Places) others(nodes []string) []string {
	slices.Sort(nodes)
	return slices.DeleteFunc(slices.Compact(nodes), func(name string) bool { return name == "" || name == p.Node })
}

// keptBy returns whether a migration goes to or from the device's node.
func (h Held) keptBy(m Migration) bool { return m.touches(h.Host, h.NodeName) }

// close returns what closing the migrations leads to that keep the row or other devices of its
// instance on nodes that the instance is not on.
func (f Facts) close() prospect {
	p := prospect{frees: []Held{}, places: Places{Nowhere: f.Instance.Host == nil && f.Instance.Node == nil}}
	p.places.Node = host.Value(f.Instance.Node)
	var closed []Migration
	for k, m := range f.Migrations {
		keeps := f.touches(m) || slices.ContainsFunc(f.Held, func(h Held) bool { return !f.own(h) && h.keptBy(m) })
		_, status := m.closing(*f.Instance)
		if !m.Over() && (m.CrossCell || keeps && status == "") {
			p.stuck = &f.Migrations[k]
		}
		switch {
		case m.Type == "evacuation" && m.Status == "done":
			p.places.Kept = append(p.places.Kept, m.SourceNode)
			continue
		case m.Over():
			continue
		case !keeps:
			p.places.Kept, p.places.Open = append(p.places.Kept, m.SourceNode, m.DestNode), append(p.places.Open, m.UUID)
			continue
		}
		closed = append(closed, m)
		p.places.Empty, p.places.Closed = append(p.places.Empty, m.SourceNode, m.DestNode), append(p.places.Closed, m.UUID)
		p.closings = append(p.closings, Closing{m.ID, status})
	}
	slices.SortFunc(p.closings, func(a, b Closing) int { return int(a.Migration - b.Migration) })
	for _, h := range f.Held {
		switch {
		case f.own(h):
		case slices.ContainsFunc(closed, h.keptBy):
			p.frees, p.places.Empty = append(p.frees, h), append(p.places.Empty, h.NodeName)
		case f.vacant(h, closed):
			p.places.Empty = append(p.places.Empty, h.NodeName)
		}
	}
	p.places.Empty, p.places.Kept = p.places.others(p.places.Empty), p.places.others(p.places.Kept)
	p.hosts = f.reporters(closed, p.frees)
	domains := map[int64]bool{}
	p.unproved = f.unproved(closed, p.frees, domains)
	for _, m := range closed {
		// The context of another migration stays.
		if c := f.Instance.Context; c != nil && c.Migration == m.ID && p.stuck == nil {
			p.applies, p.unfit = f.Instance.afterMove(f.Held, f.Instance.arrived(m), m.Resizes)
		}
	}
	if p.unproved = cmp.Or(p.unfit, p.unproved); p.stuck != nil {
		p.unproved = fmt.Sprintf("%s is open", p.stuck)
	}
	p.leaves = f.leaves(closed, domains)
	return p
}

// own returns whether a device is on the instance's own node.
func (f Facts) own(h Held) bool { return f.Instance.On(h.Host, h.NodeName) }

// vacant returns whether reports prove that the instance is not on the node of a device that no
// open migration keeps. Such a report is not required.
func (f Facts) vacant(h Held, closed []Migration) bool {
	return !slices.ContainsFunc(closed, func(m Migration) bool { return f.absent(h, nil, m.Changed) != "" })
}

// reporters returns the hosts whose reports are needed to close migrations and free devices.
func (f Facts) reporters(closed []Migration, freed []Held) (hosts []string) {
	hosts = host.Map(freed, func(h Held) string { return h.Host })
	hosts = append(hosts, host.FlatMap(closed, Migration.workers)...)
	slices.Sort(hosts)
	return slices.DeleteFunc(slices.Compact(hosts), f.Proof.Off)
}

// unproved returns why the migrations must not be closed, "" if they may: none of them can be
// carried on by a thread, and no guest uses any of the devices. It notes in domains the migrations
// whose source has the guest's domain still defined.
func (f Facts) unproved(closed []Migration, freed []Held, domains map[int64]bool) string {
	for _, m := range closed {
		if m.Odd != "" {
			return m.Odd
		}
	}
	for _, h := range freed {
		with := h.mayFree(freed, f.Proof)
		if why := lost(with); why != "" {
			return why
		}
		for _, m := range closed {
			if !h.keptBy(m) {
				continue
			}
			why, leftover := f.unused(h, with, m)
			if why != "" {
				return why
			}
			domains[m.ID] = domains[m.ID] || leftover
		}
	}
	for _, m := range closed {
		for _, host := range m.workers() {
			if ok, why := f.idle(host, m); !ok {
				return why
			}
		}
	}
	return ""
}

// unused returns why a guest may use a device that a migration keeps, or one that is freed with it,
// "" if none does. leftover
// says that the guest's domain is still defined on the device's host: libvirt keeps it there until
// the resize is confirmed (nova/virt/libvirt/driver.py, migrate_disk_and_power_off and
// _cleanup_resize), whether the guest has started on the destination or not: if it has failed to,
// only the destination's domain is undefined. The instance is on the destination, so nothing starts
// that domain again.
func (f Facts) unused(h Held, with []Device, m Migration) (why string, leftover bool) {
	if why = f.absent(h, with, m.Changed); why == "" {
		return "", false
	}
	if m.Status == "reverting" && m.from(h.Host, h.NodeName) {
		why += fmt.Sprintf(" (if the guest runs on %s: virsh undefine %s on %s)", m.DestHost, f.Instance.UUID, h.Host)
	}
	if !f.leavesDomain(m, h) {
		return why, false
	}
	devices := append(slices.Clone(with), h.Device)
	if ok, why := f.Proof.NotRunning(h.Host, f.Instance.UUID, devices, latestChange(m.Changed, devices)); !ok {
		return why, false
	}
	return "", true
}

// leaves returns what remains after the migrations are closed. domains are the migrations whose
// source has the guest's domain still defined.
func (f Facts) leaves(closed []Migration, domains map[int64]bool) string {
	var list []string
	moves := false
	folder := "the folder " + f.Instance.UUID + "_resize"
	confirmed := " what confirming the resize would have removed: "
	for _, m := range closed {
		moves = moves || m.isMove()
		on := "on " + m.SourceHost
		switch {
		case domains[m.ID]:
			list = append(list, on+confirmed+"the guest's domain (virsh undefine "+f.Instance.UUID+" --managed-save --nvram) and "+
				folder+" with the guest's old disk; keep both until the guest runs on "+m.DestHost)
		case m.isMove() && f.Instance.arrived(m) && m.Status != "error":
			list = append(list, on+confirmed+folder+" with the guest's old disk")
		case m.Status == "finished":
			// Reverting the resize would have moved the disk back (nova/virt/libvirt/driver.py,
			// finish_revert_migration).
			list = append(list, fmt.Sprintf("%s perhaps %s: the instance is not on %s, so a disk in that folder may be the guest's only one", on, folder, m.DestHost))
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if moves {
		at := host.Or(f.Instance.Host, "its host")
		list = append(list, "disks of the guest on the other host; if the migration reached 'migrating', volume attachments and ports may point at that host too; "+
			"a guest with volumes is stopped, and each volume refreshed on "+at+
			" (nova-manage volume_attachment get_connector > connector.json, nova-manage volume_attachment refresh "+
			f.Instance.UUID+" VOLUME connector.json); a hard reboot then corrects the ports")
	}
	return strings.Join(list, "; ")
}

// absent returns why a guest may use a device, or those that are freed with it; "" if none does, by a
// report from after since and after the last changes of their rows.
func (f Facts) absent(h Held, with []Device, since time.Time) string {
	return f.Unused(h.Host, host.Value(h.Instance), append(slices.Clone(with), h.Device), since)
}

// mayFree returns the rows of the device's card that Nova may write when it frees the device
// together with others.
func (h Held) mayFree(freed []Held, p Proof) []Device {
	var devices, known []Device
	for _, f := range freed {
		if f.Node == h.Node {
			devices, known = append(devices, f.Device), append(known, f.Card...)
		}
	}
	used := func(d Device) bool { return p.Has(h.Host, *d.Instance, d.Address) }
	return slices.DeleteFunc(mayFree(devices, known, used), func(d Device) bool { return !d.partOf(h.Device) && !h.partOf(d) })
}

// idle returns whether no process of a host works on a migration any more: nova-compute was started
// since, the host is off, or, for one that nova-compute does not carry on, the host has reported.
func (f Facts) idle(host string, m Migration) (bool, string) {
	switch {
	case f.Proof.Off(host):
		return true, ""
	case m.mayLive():
		return f.Proof.Restarted(host, m.Changed)
	}
	return f.Proof.Reported(host, m.Changed)
}

// closing returns the case of an open migration of an instance that is in no task, and the status
// that closes the migration, "" if its record must not be changed.
func (m Migration) closing(i Instance) (letter Case, status string) {
	switch {
	case m.Status == "error" && (m.isMove() || m.Type == "live-migration" || m.Type == "evacuation"):
		return CaseError, "failed"
	case !m.isMove():
		return CaseStuck, ""
	case m.Status == "confirming" && i.arrived(m) && i.Task == nil && settled(i, "resized"):
		return CaseStuck, "confirmed"
	case m.Status == "finished" && settled(i, "active", "stopped", "error"):
		if !i.arrived(m) {
			return CaseReset, "failed" // the instance is not on the destination of the resize
		}
		return CaseReset, "confirmed"
	case settled(i, "active", "stopped", "error"):
		return CaseStuck, "failed"
	}
	return CaseStuck, ""
}

// mayLive returns whether a thread of nova-compute may carry the migration on. A finished one
// waits for the operator, and one in error has ended.
func (m Migration) mayLive() bool {
	return m.Status != "error" && m.Status != "finished"
}

// workers returns the hosts of which a report is needed about the migration itself, by the names
// that its record has: nova-compute of both may carry it on, that of the source alone confirms it.
func (m Migration) workers() []string {
	switch {
	case m.mayLive() && m.Status == "confirming":
		return []string{m.SourceHost}
	case m.mayLive(), m.Type == "live-migration":
		return []string{m.SourceHost, m.DestHost}
	}
	return nil
}

// leavesDomain returns whether the migration has moved the guest away from the device's node, so
// that libvirt has the guest's domain still defined there, and nothing uses it. From post-migrating
// on, the guest is the destination's (nova/compute/manager.py, _resize_instance), until it is
// confirmed. A revert may have removed it there, and the source may have its only disk.
func (f Facts) leavesDomain(m Migration, h Held) bool {
	since := []string{"post-migrating", "finished", "confirming", "error"}
	return m.isMove() && f.Instance.arrived(m) && m.from(h.Host, h.NodeName) && slices.Contains(since, m.Status)
}

// keepers returns the open migrations to or from the row's node, and the one that decides the
// case: one that cannot be closed, or else one that is not in error.
func (c *classifier) keepers() (all []Migration, worst *Migration) {
	rank := func(m Migration) int {
		_, status := m.closing(*c.f.Instance)
		switch {
		case m.CrossCell:
			return 3
		case status == "":
			return 2
		case m.Status != "error":
			return 1
		}
		return 0
	}
	for k, m := range c.f.Migrations {
		if m.Over() || !c.f.touches(m) {
			continue
		}
		all = append(all, m)
		if worst == nil || rank(m) > rank(*worst) || m.Status == "error" && rank(m) == 0 && rank(*worst) == 0 {
			worst = &c.f.Migrations[k]
		}
	}
	return all, worst
}

// kept judges a row of an instance that is elsewhere, but has open migrations to or from the row's
// node: all of them must be closed.
func (c *classifier) kept(all []Migration, worst *Migration) {
	c.Migration = &worst.ID
	c.Consequence = keptByNova
	letter, status := worst.closing(*c.f.Instance)
	switch {
	case worst.CrossCell && worst.Status == "error":
		c.is(CaseError, Unknown, "%s keeps the device, but crosses cells: this cell does not have all records of the instance", worst)
		c.Steps = host.Textf("compare the instance in both cells, and see what became of the move: openstack server migration list --server %s", c.f.Instance.UUID)
		return
	case worst.CrossCell:
		c.Migration, c.Consequence = nil, ""
		c.busy(fmt.Sprintf("its %s crosses cells", worst))
		return
	case status == "" && !worst.isMove():
		c.is(CaseStuck, Unknown, "%s is open, and records of its type must not be changed", worst)
		c.Steps = host.Plain("see what became of it, with openstack server migration list --server " + c.f.Instance.UUID)
		return
	case status == "":
		c.is(CaseStuck, Unknown, "%s is open, but the instance is in no task, and in state %s", worst, *c.f.Instance.VMState)
		c.Steps = host.Textf("bring the instance into state active, stopped or error (unpause, resume, unrescue or unshelve it), then run %s again", again)
		return
	case letter == CaseError:
		c.is(letter, Stale, "%s keeps the device, but the instance is not on this node", worst)
	case letter == CaseReset:
		c.is(letter, Stale, "%s waits to be confirmed or reverted, but the instance is no longer in state resized: its state was reset", worst)
	default:
		c.is(letter, Stale, "%s is open, but the instance is in no task", worst)
	}
	for _, m := range all {
		if m.ID != worst.ID {
			c.Reason += fmt.Sprintf("; %s keeps the device too", m)
		}
	}
	c.closes()
}

// closes plans to close migrations, or makes the verdict unknown until that is proved to be safe.
func (c *classifier) closes() {
	p := c.f.close()
	freed := host.Map(p.frees, func(d Held) string { return d.Address + " of " + d.Host })
	c.Closings, c.Frees, c.Leaves, c.Applies, c.places = p.closings, p.frees, p.leaves, p.applies, p.places
	context := ""
	if p.applies {
		context = ", with what the migration_context has for the instance's new host"
	}
	c.repairs(Online, "correct Placement's allocations, then set %s%s; the audit of nova-compute then frees the instance's devices on other nodes: %s",
		closingsText(p.closings), context, strings.Join(freed, ", "))
	if p.unproved != "" {
		c.Verdict, c.Repair = Unknown, NoRepair
		c.Reason += "; not proved: " + p.unproved
		c.Steps = host.Textf("%s; then: %s", c.ask(p.hosts...), c.Steps)
	}
	if p.unfit != "" {
		c.Steps = c.keepContext()
	}
	if p.stuck != nil {
		c.Steps = host.Textf("see what became of migration %d, which must not be closed: openstack server migration list --server %s; then run %s again",
			p.stuck.ID, c.f.Instance.UUID, again)
	}
}

// closingsText returns migrations and the statuses that close them as part of a sentence.
func closingsText(closings []Closing) string {
	var parts []string
	for _, c := range closings {
		same := slices.DeleteFunc(slices.Clone(closings), func(other Closing) bool { return other.Status != c.Status })
		if same[0] == c {
			parts = append(parts, migrationsText(same)+" to "+c.Status)
		}
	}
	return strings.Join(parts, ", ")
}
