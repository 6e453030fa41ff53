package cleanup

import (
	"fmt"
	"strings"
	"time"
)

// Proof is what hosts have reported of a guest and of devices. Each answer has its
// reason, to be shown.
type Proof interface {
	// Absent tells whether a host's report proves that it has no guest of the
	// instance, running or defined, and that nobody holds the device: taken after
	// since, complete and fresh.
	Absent(host, instance, address string, since time.Time) (bool, string)
	// Restarted tells whether nova-compute of the host has started after since, and
	// been up for ten minutes when the host reported.
	Restarted(host string, since time.Time) (bool, string)
	// Reported tells whether a fresh and complete report of the host is at hand, taken
	// after since.
	Reported(host string, since time.Time) (bool, string)
	// Stopped tells whether a host's report, or the operator, says that nova-compute does
	// not run there.
	Stopped(host string, since time.Time) (bool, string)
	// Off tells whether the operator says that a host is off.
	Off(host string) bool
	// Holder returns how a guest uses a device of a host, by a report from after since.
	Holder(host, address string, since time.Time) Use
	// Hosts are the hosts that have reported or are said to be off, by the names that
	// were given.
	Hosts() []string
}

// Facts are what is known of a device's row, beside itself.
type Facts struct {
	Cell    string
	Now     time.Time // of the database's clock
	Node    *Node     // nil: no such row
	Service *Service  // of the node's host; nil: there is none, or it is deleted
	Down    time.Duration

	Instance   *Instance   // of this cell; nil: it has none
	OtherCell  string      // that has the instance; "" for none
	Mapped     bool        // nova_api.instance_mappings has it
	Incomplete string      // what of the other cells or the API database could not be read; "" for nothing
	Here       bool        // the instance, or else the holder, is on the node, as the database compares names
	Migrations []Migration // of the instance, that are not deleted
	Held       []Held      // the instance's claimed and allocated devices, on all nodes of the cell
	Related    []Device    // the functions of the same card: parent or children
	Holder     *Instance   // of a device that nobody has: the instance whose guest holds it
	Rivals     []Device    // the free devices of the node that the holder's guest uses, this one too
	Claim      bool        // whether it may be given to that
	Vanished   bool        // the host's inventory does not have the device
	Odd        []string    // what makes the row unknown: records that Nova does not write, hosts of one name
	Proof      Proof
}

// Held is a device with the node that it is on.
type Held struct {
	Device
	Host     string `json:"host"`
	NodeName string `json:"node"`

	Own bool `json:"-"` // the instance is on that node, as the database compares names
}

// up tells whether nova-compute of the node is up as Nova has it
// (nova/servicegroup/drivers/db.py, is_up), but for forced_down, which does not stop
// it.
func (f Facts) up() bool {
	return f.Service != nil && f.Service.LastSeen != nil && f.Now.Sub(*f.Service.LastSeen) <= f.Down
}

const (
	takenForNothing = "the device is offered to nobody"
	keptByNova      = "nova-compute keeps the device for as long as the instance lives"
)

// Classify judges a row.
func Classify(d Device, f Facts) Finding {
	c := &classifier{Finding{Cell: f.Cell, Device: d, Frees: []Held{}}, d, f}
	if f.Node != nil {
		c.Host, c.Node = f.Node.Host, f.Node.Name
	}
	c.judge()
	c.holder()
	c.odd()
	c.Evidence = c.evidence()
	return c.Finding
}

type classifier struct {
	Finding
	d Device
	f Facts
}

func (c *classifier) is(letter Case, verdict Verdict, reason string, args ...any) {
	c.Case, c.Verdict, c.Reason = letter, verdict, fmt.Sprintf(reason, args...)
}

// repairs says how it is put right. What is not proved stale is not repaired: then the
// steps are the operator's.
func (c *classifier) repairs(by Repair, steps string, args ...any) {
	if c.Verdict == Stale {
		c.Repair = by
	}
	c.Steps = fmt.Sprintf(steps, args...)
}

func (c *classifier) judge() {
	switch d := c.d; {
	case !known(d.Status):
		c.status()
	case c.f.Node == nil || c.f.Node.Deleted:
		c.deletedNode()
	case d.Status == StatusUnavailable || d.Status == StatusUnclaimable:
		c.blocked()
	case d.Status == StatusAvailable:
		c.available()
	case d.Instance == nil:
		c.is(CaseNoOwner, Stale, "a taken device has an owner")
		c.Consequence = takenForNothing
		c.free()
	default:
		c.owned()
	}
}

// holder overrules what would free a device that a guest uses, or keeps open with its
// IOMMU group, whichever guest that is. Rows of a deleted node are left out: the host's
// other node has these devices.
func (c *classifier) holder() {
	if c.f.Proof == nil || c.f.Node == nil || c.f.Node.Deleted {
		return
	}
	use := c.f.Proof.Holder(c.f.Node.Host, c.d.Address, c.d.LastChange())
	own := c.d.Instance != nil && KeyOf(*c.d.Instance) == KeyOf(use.Guest)
	switch {
	case use.Guest == "" || own && c.Verdict == Legitimate:
		return
	case own:
		c.Verdict, c.Repair, c.Migration = Suspicious, NoRepair, nil
		c.Reason = fmt.Sprintf("guest %s holds the device, though: %s", short(use.Guest), c.Reason)
		c.Steps = "see why the guest runs on " + c.f.Node.Host
		return
	case !use.Named:
		c.is(CaseInUse, Suspicious, "guest %s has the device's IOMMU group open, and neither its arguments nor its domain name the device", short(use.Guest))
		c.Repair, c.Migration = NoRepair, nil
		c.Consequence = "a second guest that is assigned the device fails to start"
		c.Steps = "take the device out of device_spec, or disable the host for new guests until that guest has gone"
		return
	}
	c.is(CaseInUse, Suspicious, "guest %s holds the device, which is not its by Nova's books", short(use.Guest))
	c.Repair, c.Migration = NoRepair, nil
	c.Consequence = "Nova may give the device to a second guest"
	c.Steps = "disable the host for new guests now, and migrate or stop that guest"
	c.claim(use.Guest)
}

// odd makes a row unknown where what it depends on is not what Nova writes, or is of two
// hosts.
func (c *classifier) odd() {
	if len(c.f.Odd) == 0 {
		return
	}
	reason := strings.Join(c.f.Odd, ", ")
	if c.Verdict == Suspicious {
		reason += "; apart from that: " + c.Reason
	}
	c.Finding = Finding{Cell: c.Cell, Host: c.Host, Node: c.Node, Device: c.Device, Consequence: c.Consequence, Frees: []Held{}}
	c.is(CaseOdd, Unknown, "%s", reason)
	c.Steps = "correct these records or rename the host, then run this again"
}

// claim gives a free device to the instance whose guest holds it, where nothing speaks
// against that: the instance is at rest on this node and lacks just such a device,
// nova-compute is stopped, and the operator has said so.
func (c *classifier) claim(guest string) {
	i := c.f.Holder
	if c.d.Status != StatusAvailable || c.d.Instance != nil || c.d.Request != nil || i == nil || KeyOf(i.UUID) != KeyOf(guest) {
		return
	}
	request, why := c.request()
	if why != "" {
		c.Reason += "; it is not claimed: " + why
		return
	}
	c.Verdict, c.Claims, c.Request = Stale, i.UUID, request.ID
	c.repairs(Offline, "disable the host for new guests now; then, with nova-compute stopped, write the device allocated to the instance, which asks for it; or migrate or stop that guest")
	c.Needs = ""
	c.stopped()
	if !c.f.Claim {
		c.Needs = "--claim, which gives free devices to the guests that hold them" + also(c.Needs)
	}
}

// request returns the request of the holder that the device is for, or why there is none
// or which it is cannot be determined.
func (c *classifier) request() (request Request, why string) {
	i := c.f.Holder
	switch {
	case i.Deleted:
		return request, "the instance is deleted"
	case inFlight(*i) != "":
		return request, inFlight(*i)
	case !settled(*i, "active", "stopped", "paused", "suspended"):
		return request, "the instance is in state " + *i.VMState
	case !c.f.Here:
		return request, "the instance is not on this node"
	case len(c.f.Migrations) > 0:
		return request, fmt.Sprintf("%s is open", c.f.Migrations[0])
	case !i.Asked:
		return request, "what the instance asks for is unknown"
	}
	for _, r := range c.f.Related {
		if r.Status != StatusAvailable && r.Status != StatusUnavailable {
			return request, fmt.Sprintf("%s of the same card is %s", r.Address, r.Status)
		}
	}
	left, why := lacking(i.Requests, c.f.Held)
	if why != "" {
		return request, why
	}
	var fits []Request
	for _, r := range left {
		ok, unknown := r.match(c.d)
		switch {
		case unknown != "":
			return request, fmt.Sprintf("the instance asks for %s, which the database does not show of a device", unknown)
		case ok:
			fits = append(fits, r)
		}
	}
	switch {
	case len(left) == 0:
		return request, "the instance has all devices that it asks for"
	case len(fits) == 0:
		return request, fmt.Sprintf("the instance lacks no device such as %s:%s of type %s", c.d.Vendor, c.d.Product, c.d.Type)
	case len(fits) > 1:
		return request, "the device fits several of the instance's requests"
	}
	rivals := []string{c.d.Address}
	for _, d := range c.f.Rivals {
		if ok, _ := fits[0].match(d); ok && d.ID != c.d.ID {
			rivals = append(rivals, d.Address)
		}
		if len(rivals) > fits[0].Count {
			return request, fmt.Sprintf("the instance lacks %d such device(s), and its guest holds more that are free: %s", fits[0].Count, strings.Join(rivals, ", "))
		}
	}
	return fits[0], ""
}

func also(needs string) string {
	if needs == "" {
		return ""
	}
	return "; and " + needs
}

// stopped says what it takes for nova-compute to be stopped.
func (c *classifier) stopped() (since time.Time) {
	since = c.f.Now.Add(-time.Hour) // of rows that nothing says when they were changed
	if c.d.Updated != nil {
		since = *c.d.Updated
	}
	if s := c.f.Service; s != nil && s.LastSeen != nil && c.f.Now.Sub(*s.LastSeen) < Silence(c.f.Down) {
		c.Needs = "nova-compute on " + c.f.Node.Host + " stopped, for " + Silence(c.f.Down).String() + " at least"
		return since
	}
	ok, why := false, noReport(c.f.Node.Host)
	if c.f.Proof != nil {
		ok, why = c.f.Proof.Stopped(c.f.Node.Host, since)
	}
	if !ok {
		c.Needs = why + "; or the operator's word that the host is off (--host-is-off " + c.f.Node.Host + ")"
	}
	return since
}

func known(status string) bool {
	switch status {
	case StatusAvailable, StatusClaimed, StatusAllocated, StatusUnavailable, StatusUnclaimable:
		return true
	}
	return false
}

// status is a row that Nova has not written.
func (c *classifier) status() {
	verdict := Suspicious
	if c.d.Instance == nil {
		verdict = Stale
	}
	c.is(CaseStatus, verdict, "Nova writes no status %q into a live row", c.d.Status)
	c.Consequence = "nova-compute of the node cannot load its devices"
	if c.d.Status == "removed" || c.d.Status == "deleted" {
		c.Consequence = "the device goes at nova-compute's next start"
	}
	c.repairs(Offline, "write available, with nova-compute stopped")
	if c.f.Node != nil {
		c.offline()
	}
}

// deletedNode is a row that no nova-compute loads.
func (c *classifier) deletedNode() {
	i := c.f.Instance
	switch {
	case c.d.Instance == nil:
		// Free or not, it is of no account to anybody.
		c.is(CaseLegitimate, Legitimate, "the compute node is deleted, and the row has no owner")
		return
	case i == nil && c.f.OtherCell == "" && c.f.Incomplete != "":
		c.is(CaseNode, Unknown, "no instance is found, but %s", c.f.Incomplete)
		return
	case i == nil && c.f.OtherCell == "" && c.f.Mapped:
		c.is(CaseNode, Unknown, "the instance is mapped to a cell, and no cell has it")
		return
	case i != nil && !i.Deleted && inFlight(*i) != "":
		c.is(CaseLegitimate, Legitimate, "%s", inFlight(*i))
		return
	case i != nil && !i.Deleted && c.f.Here:
		c.is(CaseNode, Suspicious, "the compute node is deleted, and the instance is on it")
		c.Consequence = "the instance has no compute node"
		c.Steps = "start nova-compute there, or evacuate the instance"
		return
	}
	c.is(CaseNode, Stale, "the compute node is deleted: nothing loads the row any more")
	c.Consequence = "an owner that lives has the device in its list, on a host that it is not on"
	c.repairs(Offline, "soft-delete the row, if the host does not come back: from 2023.1 on nova-compute takes its old node and rows up again")
	if c.f.Node == nil {
		c.Repair = NoRepair
	} else if c.f.Proof == nil || !c.f.Proof.Off(c.f.Node.Host) {
		c.Needs = "the operator's word that the host is off, for good (--host-is-off " + c.f.Node.Host + ")"
	}
}

// blocked is a row that another function of the card keeps from being used.
func (c *classifier) blocked() {
	taken := ""
	for _, r := range c.f.Related {
		if r.Status == StatusClaimed || r.Status == StatusAllocated {
			taken = r.Address
		}
	}
	switch {
	case c.d.Instance != nil:
		c.is(CaseBlocked, Suspicious, "a blocked function has no owner")
		c.Consequence = takenForNothing
	case c.d.Type != TypePF && c.d.Type != TypeVF && c.d.Type != TypePCI:
		c.is(CaseBlocked, Unknown, "what blocks a device of kind %s is not known", c.d.Type)
	case c.d.Type != TypePCI && taken != "":
		c.is(CaseLegitimate, Legitimate, "%s of the same card is taken", taken)
	default:
		c.is(CaseBlocked, Stale, "no function of the card is taken that could block it")
		c.Consequence = "no restart of nova-compute heals it: the device is offered to nobody"
		c.repairs(Offline, "write available, with nova-compute stopped")
		c.offline()
	}
}

// available is a free row that has something of an owner.
func (c *classifier) available() {
	i := c.f.Instance
	switch {
	case i != nil && !i.Deleted && inFlight(*i) != "":
		c.is(CaseLegitimate, Legitimate, "%s", inFlight(*i))
	case c.d.Instance == nil && c.d.Request == nil:
		c.is(CaseLegitimate, Legitimate, "free")
	case c.openHere() != nil:
		c.is(CaseLeftOwner, Unknown, "%s is open", c.openHere())
	case c.d.Instance != nil && i == nil && (c.f.OtherCell != "" || c.f.Incomplete != "" || c.f.Mapped):
		c.is(CaseLeftOwner, Unknown, "its owner is in no row of this cell, and not known to be gone")
	case c.d.Instance != nil && i != nil && !i.Deleted && c.f.Here:
		c.is(CaseLeftOwner, Unknown, "the instance is on this node, and may use the device")
		c.Consequence = "Nova offers a device that may be in use"
		c.Steps = reportSteps(c.f.Node.Host)
	default:
		c.is(CaseLeftOwner, Stale, "a free device has no owner")
		c.Consequence = "nova-compute does not remove the row when the device goes"
		c.repairs(Offline, "take owner and request out, with nova-compute stopped")
		c.offline()
	}
}

// openHere is a migration of the instance to or from the node that is not over.
func (c *classifier) openHere() *Migration {
	for i := range c.f.Migrations {
		if m := &c.f.Migrations[i]; !m.Over() && m.touches() {
			return m
		}
	}
	return nil
}

// owned is a row that an instance has.
func (c *classifier) owned() {
	i := c.f.Instance
	switch {
	case i == nil && c.f.OtherCell != "":
		c.is(CaseElsewhere, Unknown, "the instance is in cell %s", c.f.OtherCell)
		c.Consequence = takenForNothing
	case i == nil && c.f.Incomplete != "":
		c.is(CaseGone, Unknown, "no instance is found, but %s", c.f.Incomplete)
		c.Consequence = takenForNothing
	case i == nil && c.f.Mapped:
		c.is(CaseGone, Unknown, "the instance is mapped to a cell, and no cell has it")
		c.Consequence = takenForNothing
	case i == nil, i.Deleted:
		c.gone()
	case inFlight(*i) != "":
		c.is(CaseLegitimate, Legitimate, "%s", inFlight(*i))
	case !c.f.Here:
		c.away()
	default:
		c.here()
	}
}

// inFlight is a state of an instance in which its rows are nobody else's business; ""
// for none.
func inFlight(i Instance) string {
	switch {
	case i.Task != nil:
		return "the instance is in task " + *i.Task
	case i.VMState == nil:
		return "the instance has no state"
	}
	switch *i.VMState {
	case "building", "resized", "soft-delete":
		return "the instance is in state " + *i.VMState
	}
	return ""
}

// gone is a row of an instance that is no more.
func (c *classifier) gone() {
	if m := c.openHere(); m != nil {
		c.is(CaseGone, Suspicious, "the instance is gone, and its %s is open", m)
		c.Consequence = keptByNova
		return
	}
	c.is(CaseGone, Stale, "the instance is gone")
	c.Consequence = takenForNothing
	c.free()
}

// free says how a row that keeps nothing is freed: by nova-compute itself, where it
// runs or will (nova/pci/manager.py, clean_usage), or in its place.
func (c *classifier) free() {
	host := c.f.Node.Host
	if c.f.up() {
		c.Needs = ""
		c.repairs(ByNova, "wait: nova-compute on %s frees it at its next audit (update_resources_interval, a minute by default)", host)
		return
	}
	c.repairs(Offline, "start nova-compute on %s, which frees it; or free the row while it is down", host)
	c.offline()
}

// here is a row of an instance that is on the row's node.
func (c *classifier) here() {
	i := c.f.Instance
	mine := 0
	for _, d := range c.f.Held {
		if d.Node == c.d.Node {
			mine++
		}
	}
	if n := asked(i.Requests); i.Asked && mine > n {
		c.is(CaseTooMany, Suspicious, "the instance is on this node and has %d devices of it, but asks for %d", mine, n)
		c.Consequence = "of the instance's devices some are of no use to it"
		c.Steps = "the guest's definition tells which: " + reportSteps(c.f.Node.Host)
		return
	}
	for _, m := range c.f.Migrations {
		if !m.Over() {
			c.is(CaseLegitimate, Legitimate, "the instance is on this node; its %s is open", m)
			return
		}
	}
	switch {
	case c.f.Vanished:
		c.is(CaseVanished, Suspicious, "the instance is on this node, and the host has no such device any more")
		c.Consequence = "the guest does not start again; nova-compute keeps the row for as long as the instance has it"
		c.Steps = "put the device back, or move or delete the instance; restart nova-compute then: it removes the row when the device is free"
		return
	case i.Context != nil:
		c.is(CaseContext, Suspicious, "the instance is on this node; it has the context of migration %d, which is over", i.Context.Migration)
		c.Consequence = "Nova takes the devices of either side for the instance's, and marks its next migration as failed"
		c.Steps = fmt.Sprintf("look whether migration %d is over indeed; then: UPDATE instance_extra SET migration_context = NULL WHERE instance_uuid = '%s' AND deleted = 0", i.Context.Migration, i.UUID)
		return
	}
	c.is(CaseLegitimate, Legitimate, "the instance is on this node")
}

// away is a row of an instance that is on another node, or on none.
func (c *classifier) away() {
	var open *Migration
	for k := range c.f.Migrations {
		m := &c.f.Migrations[k]
		switch {
		case m.Type == "evacuation" && m.Status == "done" && m.FromHost:
			// Read by nova-compute when it starts, to destroy what the guest was here.
			c.is(CaseElsewhere, Stale, "the instance was evacuated from here: nova-compute frees the device when it starts, and only after it has removed the guest")
			c.Migration, c.Consequence = &m.ID, takenForNothing
			c.repairs(ByNova, "start nova-compute on %s; the migration's record must stay as it is until then", c.f.Node.Host)
			return
		case !m.Over() && m.touches() && (open == nil || open.Status == "error"):
			open = m
		}
	}
	if open == nil {
		c.is(CaseElsewhere, Stale, "the instance is elsewhere, and no open migration goes to or from this node")
		c.Consequence = "operations on the instance that look up its devices fail, and the device is offered to nobody"
		c.free()
		return
	}
	c.Migration = &open.ID
	c.Consequence = keptByNova
	switch i := c.f.Instance; {
	case open.CrossCell:
		c.is(CaseLegitimate, Legitimate, "its %s goes across cells", open)
	case open.Status == "error" && (open.isMove() || open.Type == "live-migration" || open.Type == "evacuation"):
		c.is(CaseError, Stale, "%s pins the device, and the instance is not here", open)
		c.closes(open, "failed")
		c.needsAbsence(open)
	case !open.isMove():
		c.is(CaseStuck, Unknown, "%s is open, and of a kind whose record must not be written", open)
		c.Steps = "see what became of it, with openstack server migration list --server"
	case open.Status == "finished" && settled(*i, "active", "stopped", "error"):
		c.is(CaseReset, Stale, "%s waits for confirm or revert, and the instance is no longer resized: its state was reset", open)
		status := "confirmed"
		if !open.Arrived {
			status = "failed" // it is not where the resize has taken it
		}
		c.closes(open, status)
		c.Leaves = "the folder " + *c.d.Instance + "_resize with the guest's old disk on " + open.SourceHost + "; " + c.Leaves
		c.needsDeath(open)
	case settled(*i, "active", "stopped"):
		c.is(CaseStuck, Stale, "%s is open, and the instance is in no task", open)
		c.closes(open, "failed")
		c.needsDeath(open)
	default:
		c.is(CaseStuck, Unknown, "%s is open", open)
	}
	c.othersAreDead(open)
}

// othersAreDead makes the verdict unknown unless no other migration of the instance is
// carried on: closing this one would take from it what it holds in Placement. Of one in
// error, the reports of the hosts whose devices are freed must be from after it failed.
func (c *classifier) othersAreDead(closed *Migration) {
	for k := range c.f.Migrations {
		m := &c.f.Migrations[k]
		if c.Repair != Online || m == closed || m.Over() {
			continue
		}
		if m.Status == "error" {
			c.needsAbsence(m)
			continue
		}
		if m.CrossCell || !m.isMove() {
			c.Verdict, c.Repair = Unknown, NoRepair
			c.Reason += fmt.Sprintf(", but %s is open", m)
			c.Steps = "see what became of it, with openstack server migration list --server"
			return
		}
		c.needsDeath(m)
	}
}

// settled tells whether the instance is in one of these states.
func settled(i Instance, states ...string) bool {
	for _, s := range states {
		if i.VMState != nil && *i.VMState == s {
			return true
		}
	}
	return false
}

// closes says how a migration is closed, and what that frees.
func (c *classifier) closes(m *Migration, status string) {
	var freed []string
	for _, d := range c.freed() {
		freed = append(freed, d.Address+" of "+d.Host)
	}
	c.Closes, c.Frees = status, c.freed()
	c.repairs(Online, "correct Placement's allocations, then set migration %d to %s: nova-compute's audit frees every device of the instance on other nodes than its own: %s", m.ID, status, strings.Join(freed, ", "))
	if m.Type == "migration" || m.Type == "resize" {
		c.Leaves = "disks of the guest on the other host; from 'migrating' on, volume attachments and ports may point at it too: a hard reboot of the guest corrects these"
	}
}

// freed are the devices that nova-compute will free when the migration is closed:
// those of the instance on all nodes but its own.
func (c *classifier) freed() []Held {
	var list []Held
	for _, d := range c.f.Held {
		if !d.Own {
			list = append(list, d)
		}
	}
	return list
}

// unproved makes the verdict unknown, for a reason, until hosts have reported.
func (c *classifier) unproved(why string, hosts ...string) {
	c.Verdict, c.Repair = Unknown, NoRepair
	c.Reason += ", but " + why
	c.Steps = reportSteps(hosts...) + "; then: " + c.Steps
}

// needsAbsence makes the verdict unknown unless reports prove that nobody uses any
// device that closing the migration frees.
func (c *classifier) needsAbsence(m *Migration) {
	for _, d := range c.freed() {
		if c.Verdict != Stale {
			return
		}
		if ok, why := c.absent(d, m.Changed); !ok {
			c.unproved(why, d.Host)
		}
	}
	if m.Type == "live-migration" && c.Verdict == Stale {
		for _, host := range []string{m.SourceHost, m.DestHost} {
			if ok, why := c.reported(host, m.Changed); !ok {
				c.unproved(why, host)
				return
			}
		}
	}
}

// needsDeath makes the verdict unknown unless both hosts' reports prove that nothing
// carries the migration on, either.
func (c *classifier) needsDeath(m *Migration) {
	c.needsAbsence(m)
	for _, host := range []string{m.SourceHost, m.DestHost} {
		if c.Verdict != Stale {
			return
		}
		ok, why := false, noReport(host)
		if c.f.Proof != nil {
			ok, why = c.f.Proof.Restarted(host, m.Changed)
		}
		if !ok {
			c.unproved(why, m.SourceHost, m.DestHost)
		}
	}
}

// offline says what it takes to write the row: nova-compute stopped, and nobody who
// uses the device.
func (c *classifier) offline() {
	since := c.stopped()
	if c.Needs != "" {
		return
	}
	if ok, why := c.absent(Held{Device: c.d, Host: c.f.Node.Host, NodeName: c.f.Node.Name}, since); !ok {
		c.Needs = why + "; or the operator's word that the host is off (--host-is-off " + c.f.Node.Host + ")"
	}
}

func (c *classifier) absent(d Held, since time.Time) (bool, string) {
	if c.f.Proof == nil {
		return false, noReport(d.Host)
	}
	if d.Updated != nil && d.Updated.After(since) {
		since = *d.Updated
	}
	owner := ""
	if d.Instance != nil {
		owner = *d.Instance
	}
	return c.f.Proof.Absent(d.Host, owner, d.Address, since)
}

func (c *classifier) reported(host string, since time.Time) (bool, string) {
	if c.f.Proof == nil {
		return false, noReport(host)
	}
	return c.f.Proof.Reported(host, since)
}

func noReport(host string) string {
	return "no report of " + host + " is at hand"
}

// reportSteps say how the hosts are asked.
func reportSteps(hosts ...string) string {
	var gather, give []string
	for _, h := range hosts {
		gather = append(gather, fmt.Sprintf("ssh %s gpustack host guests -o json > %s.json", h, h))
		give = append(give, "--guests "+h+".json")
	}
	return strings.Join(gather, "; ") + "; gpustack repair-migration " + strings.Join(give, " ")
}

// evidence is what the verdict was reached by, in one line.
func (c *classifier) evidence() string {
	var words []string
	if c.d.Instance != nil {
		words = append(words, c.owner())
	}
	for _, m := range c.f.Migrations {
		unchanged := "since when is unknown"
		if !m.Changed.IsZero() {
			unchanged = "unchanged for " + age(c.f.Now.Sub(m.Changed))
		}
		words = append(words, fmt.Sprintf("%s, %s", m, unchanged))
	}
	if c.f.Node == nil {
		words = append(words, fmt.Sprintf("no compute node %d", c.d.Node))
	} else if c.f.Node.Deleted {
		words = append(words, fmt.Sprintf("compute node %d deleted", c.d.Node))
	} else {
		words = append(words, c.compute())
	}
	return strings.Join(words, "; ")
}

func (c *classifier) owner() string {
	name := "instance " + short(*c.d.Instance)
	i := c.f.Instance
	switch {
	case i == nil && c.f.OtherCell != "":
		return name + " in cell " + c.f.OtherCell
	case i == nil:
		return name + " in no cell"
	case i.Deleted:
		return name + " deleted"
	}
	state := "without a state"
	if i.VMState != nil {
		state = *i.VMState
	}
	if i.Task != nil {
		state += " (" + *i.Task + ")"
	}
	where := "on no host"
	if i.Host != nil {
		where = "on " + *i.Host
	}
	return name + " " + state + " " + where
}

func (c *classifier) compute() string {
	s := c.f.Service
	switch {
	case s == nil:
		return "no nova-compute service on " + c.f.Node.Host
	case s.LastSeen == nil:
		return "nova-compute on " + c.f.Node.Host + " never seen"
	case c.f.up() && s.Forced:
		return "nova-compute on " + c.f.Node.Host + " forced down, but reporting"
	case c.f.up():
		return "nova-compute on " + c.f.Node.Host + " up"
	}
	return fmt.Sprintf("nova-compute on %s last seen %s ago", c.f.Node.Host, age(c.f.Now.Sub(*s.LastSeen)))
}

// age writes how long ago something was, as people say it.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

func short(uuid string) string {
	if len(uuid) > 8 {
		return uuid[:8] + "…"
	}
	return uuid
}

// Silence is how long nova-compute must not have reported to be taken for down.
func Silence(down time.Duration) time.Duration {
	return max(5*time.Minute, 5*down)
}
