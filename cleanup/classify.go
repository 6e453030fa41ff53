package cleanup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
)

// Proof answers questions about hosts from their guest reports and from the operator's
// declaration that a host is off. Each answer comes with a reason for people to read.
type Proof interface {
	// Absent returns whether a complete and fresh report from after since proves that the
	// host has no guest of the instance, running or defined, and that no guest uses the
	// devices, the VFs of a PF among them, or the PF of a VF.
	Absent(host, instance string, devices []Device, since time.Time) (bool, string)
	// Restarted returns whether nova-compute on the host was started after since and had
	// been up for ten minutes when the host reported.
	Restarted(host string, since time.Time) (bool, string)
	// Reported returns whether there is a complete and fresh report of the host from after
	// since.
	Reported(host string, since time.Time) (bool, string)
	// NotRunning is Absent, but a domain of the instance that is defined and does not run is
	// no objection.
	NotRunning(host, instance string, devices []Device, since time.Time) (bool, string)
	// Stopped returns whether nova-compute does not run on the host, by its report or by the
	// operator's declaration.
	Stopped(host string, since time.Time) (bool, string)
	// Off returns whether the operator has declared the host off.
	Off(host string) bool
	// Holder returns how a guest uses a device of a host, by a report that is not proved to be
	// from before since.
	Holder(host, address string, since time.Time) Use
	// Has returns whether a report shows that the guest of an instance uses a device of a host,
	// or that its domain names it.
	Has(host, instance, address string) bool
	// Held returns the devices that guests use, by all reports.
	Held() []HeldBy
	// Hosts returns the hosts with a report or declared off, by the names that were given.
	Hosts() []string
	// Spelled returns the Proof with the names that a database has for hosts, by the names that were
	// given.
	//
	// Errors: those of NewProof, for names of one host there.
	Spelled(names map[string]string) (Proof, error)
	// At returns the Proof at a time by the clock of the database that since times are from.
	At(now time.Time) Proof
}

// Facts are everything besides the row itself that the verdict on a device's row depends on.
type Facts struct {
	Cell    string
	Now     time.Time     // of the database's clock
	Busy    time.Duration // how long an instance may be busy; 0 for BusyAfter
	Token   string        // for guest reports that are made now; "" for none
	Node    *Node         // nil: no such row
	Service *Service      // of the node's host; nil: there is none, or it is deleted
	Down    time.Duration

	Instance   *Instance         // of this cell; nil: it has none
	OtherCell  string            // the other cell that has the instance; "" for none
	Mapped     bool              // nova_api.instance_mappings has it, and does not say that it was deleted
	Purged     bool              // nova_api.instance_mappings says that it was deleted
	Renamed    *Held             // of a deleted node that the instance is on by its name: the same device on a live node of the host
	Incomplete string            // why other cells or the API database could not be read; "" if they were
	Here       bool              // the instance, or else the holder, is on the node
	Migrations []Migration       // of the instance, without deleted ones
	ContextOf  *ContextMigration // that the instance's migration_context names; nil: the instance has none
	Held       []Held            // the instance's claimed and allocated devices, on all nodes of the cell
	Card       []Device          // as of Held, of the row's device
	Holder     *Instance         // of a device without an owner: the instance whose guest uses it
	Rivals     []Device          // the free devices of the node that the holder's guest uses, including this one
	Claim      bool              // whether the device may be assigned to the holder
	Vanished   bool              // the host's inventory does not have the device
	Odd        []string          // why the row is unknown: records that Nova does not write, hosts with equal names
	Proof      Proof
}

// Held is a device with the node that it is on.
type Held struct {
	Device
	Host     string `json:"host"` // the host of its compute node; "" if there is no such node
	NodeName string `json:"node"` // its compute node; "" if there is no such node

	Card []Device `json:"-"` // the PF, and all its VFs and vdpa devices, without this one
}

// touches returns whether a migration is to or from the row's node.
func (f Facts) touches(m Migration) bool {
	return f.Node != nil && m.touches(f.Node.Host, f.Node.Name)
}

// migration returns the first of the instance's migrations that is as wanted, nil if there is none.
func (f Facts) migration(wanted func(Migration) bool) *Migration {
	if k := slices.IndexFunc(f.Migrations, wanted); k >= 0 {
		return &f.Migrations[k]
	}
	return nil
}

// up returns whether Nova considers nova-compute of the node up
// (nova/servicegroup/drivers/db.py, is_up), apart from forced_down, which does not stop
// nova-compute.
func (f Facts) up() bool {
	return f.Service != nil && f.Service.LastSeen != nil && f.Now.Sub(*f.Service.LastSeen) <= f.Down
}

const (
	takenForNothing = "Nova does not assign the device to any instance"
	keptByNova      = "nova-compute does not free the device until the instance is deleted"
)

// Classify judges a row.
func Classify(d Device, f Facts) Finding {
	f.Busy = cmp.Or(f.Busy, BusyAfter)
	f.Proof = cmp.Or(f.Proof, NoProof())
	c := &classifier{Finding{Cell: f.Cell, Device: d, Closings: []Closing{}, Frees: []Held{}, Reports: []string{}, card: f.Card}, d, f}
	if f.Node != nil {
		c.Host, c.Node = f.Node.Host, f.Node.Name
	}
	c.judge()
	c.unrequested()
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
	c.Case, c.Verdict, c.Reason, c.Busy = letter, verdict, fmt.Sprintf(reason, args...), nil
}

// again is the command that judges the rows again.
var again = host.NewCommand("repair-migration")

// repairs sets how the row is repaired. Only stale rows are repaired; for others the steps are
// for the operator.
func (c *classifier) repairs(by Repair, steps string, args ...any) {
	if c.Verdict == Stale {
		c.Repair = by
	}
	c.Steps = host.Textf(steps, args...)
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
		c.is(CaseNoOwner, Stale, "the device is taken but has no owner")
		c.Consequence = takenForNothing
		c.free()
	default:
		c.owned()
	}
}

// holder replaces a verdict that would free a device which any guest uses, or whose IOMMU group
// a guest has open. Rows of a deleted node are left out: the host's other node has rows of the
// same devices.
func (c *classifier) holder() {
	if c.f.Node == nil || c.f.Node.Deleted {
		return
	}
	use := c.f.Proof.Holder(c.f.Node.Host, c.d.Address, c.d.LastChange())
	own := c.d.Instance != nil && KeyOf(*c.d.Instance) == KeyOf(use.Guest)
	user := "guest " + short(use.Guest)
	if use.Process {
		user = "the process " + use.Guest
	}
	switch {
	case use.Guest == "" || own && (c.Verdict == Legitimate || c.Case == CaseContext || c.Case == CaseBusy):
		return
	case use.Process && !use.Named && c.d.virtual() && c.d.taken() && c.Verdict == Legitimate:
		return // of a port of type virtio-forwarder
	case own:
		c.Verdict, c.Repair, c.Migration = Suspicious, NoRepair, nil
		c.Reason = fmt.Sprintf("guest %s uses the device although %s", short(use.Guest), c.Reason)
		c.Steps = host.Textf("find out why the guest runs on %s", c.f.Node.Host)
		return
	case !use.Named:
		c.is(CaseInUse, Suspicious, "%s has the device's IOMMU group open, but neither its arguments nor its domain name the device", user)
		c.Repair, c.Migration = NoRepair, nil
		c.Consequence = "a second guest that is assigned the device fails to start"
		c.Steps = host.Plain("remove the device from device_spec, or disable the host for new guests until that guest has ended")
		return
	}
	c.is(CaseInUse, Suspicious, "%s uses the device, but Nova has not assigned the device to it", user)
	c.Repair, c.Migration = NoRepair, nil
	c.Consequence = "Nova may assign the device to a second guest"
	c.Steps = host.Plain("disable the host for new guests now, and migrate or stop that guest")
	c.claim(use.Guest)
}

// odd makes a row unknown that depends on a record which Nova does not write, or on hosts with
// equal names.
func (c *classifier) odd() {
	if len(c.f.Odd) == 0 {
		return
	}
	reason := strings.Join(c.f.Odd, ", ")
	if c.Verdict == Suspicious {
		reason += "; apart from that: " + c.Reason
	}
	c.Finding = Finding{Cell: c.Cell, Host: c.Host, Node: c.Node, Device: c.Device, Consequence: c.Consequence,
		Closings: []Closing{}, Frees: []Held{}, Reports: []string{},
		card: c.card}
	c.is(CaseOdd, Unknown, "%s", reason)
	c.Steps = host.Textf("correct these records or rename the host, then run %s again", again)
}

// claim plans to assign a free device to the instance whose guest uses it. The instance must be
// on this node, in no task, with an open request for exactly such a device; nova-compute must be
// stopped; and the operator must have given --claim. Other functions of an IOMMU group that a guest
// has open are not claimed: the guest must name the device, in its arguments or its domain.
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
	c.repairs(Offline, "disable the host for new guests now; then, while nova-compute is stopped, mark the device as allocated to the instance, which requests it; or migrate or stop that guest")
	c.Needs = ""
	c.stopped()
	if !c.f.Claim {
		c.Needs = "--claim, which assigns free devices to the guests that use them" + also(c.Needs)
	}
}

// request returns the holder's request that the device fulfils, or why it cannot be determined. The
// database records no key of a request (traits, tags) per device but its ids and its type; a
// resource_class must be the one that Nova derives from the ids.
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
		return request, "the pci_requests of the instance are unknown"
	}
	for _, r := range c.d.related(c.f.Card) {
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
			return request, fmt.Sprintf("the instance requests %s, which the database does not record per device", unknown)
		case ok:
			fits = append(fits, r)
		}
	}
	switch {
	case len(left) == 0:
		return request, "the instance has all devices that it requests"
	case len(fits) == 0:
		return request, fmt.Sprintf("the instance has no open request for a device %s:%s of type %s", c.d.Vendor, c.d.Product, c.d.Type)
	case len(fits) > 1:
		return request, "the device matches several of the instance's requests"
	}
	rivals := []string{c.d.Address}
	for _, d := range c.f.Rivals {
		if ok, _ := fits[0].match(d); ok && d.ID != c.d.ID {
			rivals = append(rivals, d.Address)
		}
		if len(rivals) > fits[0].Count {
			return request, fmt.Sprintf("the instance has open requests for %d such device(s), but its guest uses more that are free: %s",
				fits[0].Count, strings.Join(rivals, ", "))
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

// stopped sets what is missing to know that nova-compute is stopped. It returns the time after
// which reports count.
func (c *classifier) stopped() (since time.Time) {
	since = c.changed()
	if s := c.f.Service; s != nil && s.LastSeen != nil && c.f.Now.Sub(*s.LastSeen) < Silence(c.f.Down) {
		c.Needs = "nova-compute on " + c.f.Node.Host + " stopped for at least " + Silence(c.f.Down).String()
		return since
	}
	if ok, why := c.f.Proof.Stopped(c.f.Node.Host, since); !ok {
		c.Needs = why
		if !c.runs() {
			c.Needs, c.Reports = why+c.orOff(), []string{c.f.Node.Host}
		}
	}
	return since
}

// runs returns whether a report shows that nova-compute of the row's host runs, though it may not
// report to Nova: one that has lost its message queue.
func (c *classifier) runs() bool {
	reported, _ := c.f.Proof.Reported(c.f.Node.Host, c.changed())
	stopped, _ := c.f.Proof.Stopped(c.f.Node.Host, c.changed())
	return reported && !stopped
}

// changed returns the time after which reports about the row count.
func (c *classifier) changed() time.Time {
	if c.d.Updated != nil {
		return *c.d.Updated
	}
	return c.f.Now.Add(-time.Hour) // for rows without a time of change
}

// orOff names what replaces a report of the row's host.
func (c *classifier) orOff() string {
	return "; or confirmation that the host is off (--host-is-off " + c.f.Node.Host + ")"
}

// known returns whether Nova writes a status.
func known(status string) bool {
	return slices.Contains([]string{StatusAvailable, StatusClaimed, StatusAllocated, StatusUnavailable, StatusUnclaimable}, status)
}

// status judges a row with a status that Nova does not write.
func (c *classifier) status() {
	verdict := Suspicious
	if c.d.Instance == nil {
		verdict = Stale
	}
	c.is(CaseStatus, verdict, "Nova never writes status %q to a live row", c.d.Status)
	c.Consequence = "nova-compute on the node cannot load its devices"
	if c.d.Status == "removed" || c.d.Status == "deleted" {
		c.Consequence = "nova-compute deletes the row when it starts next"
	}
	c.repairs(Offline, "set the status to available while nova-compute is stopped")
	if c.f.Node != nil {
		c.offline()
	}
}

// deletedNode judges a row of a deleted compute node, which no nova-compute loads.
func (c *classifier) deletedNode() {
	i := c.f.Instance
	switch {
	case c.d.Instance == nil:
		c.is(CaseLegitimate, Legitimate, "the compute node is deleted, and the row has no owner")
		return
	case i == nil && c.f.OtherCell == "" && c.f.Incomplete != "":
		c.is(CaseNode, Unknown, "the instance was not found, but %s", c.f.Incomplete)
		return
	case i == nil && c.f.OtherCell == "" && c.f.Mapped:
		c.is(CaseNode, Unknown, "the instance is mapped to a cell, but no cell has it")
		return
	case i != nil && !i.Deleted && working(*i) == "" && c.renamed():
		return
	case i != nil && !i.Deleted && c.inFlight():
		return
	case i != nil && !i.Deleted && c.f.Here:
		c.is(CaseNode, Suspicious, "the compute node is deleted, but the instance is still on it")
		c.Consequence = "the instance has no compute node"
		c.Steps = host.Plain("start nova-compute on that host, or evacuate the instance")
		return
	}
	c.is(CaseNode, Stale, "the compute node is deleted, so no nova-compute loads the row")
	c.Consequence = "an existing owner lists the device although the owner is not on that host"
	c.repairs(Offline, "soft-delete the row if the host does not return: from 2023.1 on, a returning nova-compute restores its old node and uses its rows again")
	if c.f.Node == nil {
		c.Repair = NoRepair
	} else if !c.f.Proof.Off(c.f.Node.Host) {
		c.Needs = "confirmation that the host is off for good (--host-is-off " + c.f.Node.Host + ")"
	}
}

// blocked judges a row that is blocked by another function of the card.
func (c *classifier) blocked() {
	taken := ""
	for _, r := range c.d.related(c.f.Card) {
		if r.taken() {
			taken = r.Address
		}
	}
	switch {
	case c.d.Instance != nil:
		c.is(CaseBlocked, Suspicious, "the function is blocked but has an owner")
		c.Consequence = takenForNothing
	case c.d.Type != TypePCI && !c.d.SRIOV():
		c.is(CaseBlocked, Unknown, "it is unknown what blocks a device of type %s", c.d.Type)
	case c.d.Type != TypePCI && taken != "":
		c.is(CaseLegitimate, Legitimate, "%s of the same card is taken", taken)
	default:
		c.is(CaseBlocked, Stale, "no function of the card is taken that could block this one")
		c.Consequence = "a restart of nova-compute does not repair the row, and Nova does not assign the device to any instance"
		c.repairs(Offline, "set the status to available while nova-compute is stopped")
		c.offline()
	}
}

// available judges a free row, which may have an owner or a request left.
func (c *classifier) available() {
	i := c.f.Instance
	switch {
	case i != nil && !i.Deleted && c.inFlight():
	case c.d.Instance == nil && c.d.Request == nil:
		c.is(CaseLegitimate, Legitimate, "free")
	case c.openHere() != nil:
		c.is(CaseLeftOwner, Unknown, "%s is open", c.openHere())
	case c.d.Instance != nil && i == nil && (c.f.OtherCell != "" || c.f.Incomplete != "" || c.f.Mapped):
		c.is(CaseLeftOwner, Unknown, "its owner is not in this cell and may exist elsewhere")
	case c.d.Instance != nil && i != nil && !i.Deleted && c.f.Here:
		c.is(CaseLeftOwner, Unknown, "the instance is on this node and may use the device")
		c.Consequence = "Nova may assign a device that is in use"
		c.Steps = c.ask(c.f.Node.Host)
	default:
		c.is(CaseLeftOwner, Stale, "the device is free but has an owner or a request")
		c.Consequence = "nova-compute does not delete the row when the device is removed"
		c.repairs(Offline, "clear the owner and the request while nova-compute is stopped")
		c.offline()
	}
}

// openHere returns a migration of the instance to or from the node that is not over, nil if there
// is none.
func (c *classifier) openHere() *Migration {
	return c.f.migration(func(m Migration) bool { return !m.Over() && c.f.touches(m) })
}

// owned judges a taken row with an owner.
func (c *classifier) owned() {
	i := c.f.Instance
	switch {
	case i == nil && c.f.OtherCell != "":
		c.is(CaseElsewhere, Unknown, "the instance is in cell %s", c.f.OtherCell)
		c.Consequence = takenForNothing
	case i == nil && c.f.Incomplete != "":
		c.is(CaseGone, Unknown, "the instance was not found, but %s", c.f.Incomplete)
		c.Consequence = takenForNothing
	case i == nil && c.f.Mapped:
		c.is(CaseGone, Unknown, "the instance is mapped to a cell, but no cell has it")
		c.Consequence = takenForNothing
	case i == nil, i.Deleted:
		c.gone()
	case c.inFlight():
	case !c.f.Here:
		c.away()
	default:
		c.here()
	}
}

// gone judges a row of an instance that does not exist any more.
func (c *classifier) gone() {
	if m := c.openHere(); m != nil {
		c.is(CaseGone, Suspicious, "the instance is gone, but its %s is open", m)
		c.Consequence = "nova-compute does not free the device while the migration is open"
		c.Steps = host.Textf("check that no nova-compute works on migration %d; then: UPDATE migrations SET status = 'failed' WHERE id = %d AND status = %s",
			m.ID, m.ID, sqlText(m.Status))
		if m.Type == "evacuation" && m.Status != "error" {
			c.Steps = host.Textf("start nova-compute on %s, which reads the record of migration %d to remove the guest; do not change the record", m.SourceHost, m.ID)
		}
		return
	}
	c.is(CaseGone, Stale, "the instance is gone")
	c.Consequence = takenForNothing
	c.free()
}

// auditTime is how long nova-compute may take to free a device: its audit runs every minute by
// default (update_resources_interval) and may take longer than a minute itself.
const auditTime = 10 * time.Minute

// free plans to free a device: nova-compute does that itself while it runs or when it starts
// (nova/pci/manager.py, clean_usage); while it is down, gpustack can. waits says that nova-compute
// is up and may not have come to it yet.
func (c *classifier) free() (waits bool) {
	on, up := c.f.Node.Host, c.f.up()
	if !up && !c.runs() {
		c.repairs(Offline, "start nova-compute on %s, which frees the device; or free the row while nova-compute is down", on)
		c.offline()
		return false
	}
	since, known := c.freeSince()
	if up && known && c.f.Now.Sub(since) <= auditTime {
		c.repairs(ByNova, "wait: nova-compute on %s frees the device at its next audit (update_resources_interval, a minute by default)", on)
		return true
	}
	// A restart frees the device whatever uses it.
	c.Needs = c.inUse(c.changed())
	state := " is up, but has not freed the device"
	if !up {
		state = " runs, but does not report to Nova"
	} else if known {
		state += " for " + age(c.f.Now.Sub(since))
	}
	c.Reason += "; nova-compute on " + on + state
	c.repairs(ByNova, "if nova-compute on %s was started less than %s ago, wait for its audit; otherwise restart it: it reads the rows when it starts, and frees the device. "+
		"If the row stays, look in its log for \"Error updating resources for node %s\", and check that openstack hypervisor list has that node", on,
		age(auditTime), c.f.Node.Name)
	if c.Needs != "" {
		c.Steps = host.Textf("%s; then, if no guest uses the device: %s", c.ask(on), c.Steps)
	}
	return false
}

// freeSince returns the last change of the row and of its instance, after which nova-compute
// could free the device. known is false if neither time is recorded.
func (c *classifier) freeSince() (since time.Time, known bool) {
	times := []*time.Time{c.d.Updated}
	if i := c.f.Instance; i != nil {
		times = append(times, i.Changed, i.DeletedAt)
	}
	return latest(times...)
}

// latest returns the latest of the times that are known.
func latest(times ...*time.Time) (last time.Time, known bool) {
	for _, t := range times {
		if t != nil && (!known || t.After(last)) {
			last, known = *t, true
		}
	}
	return last, known
}

// here judges a row of an instance that is on the row's node.
func (c *classifier) here() {
	i := c.f.Instance
	mine := 0
	for _, d := range c.f.Held {
		if d.Node == c.d.Node {
			mine++
		}
	}
	if n := asked(i.Requests); i.Asked && mine > n {
		c.is(CaseTooMany, Suspicious, "the instance is on this node and has %d devices of the node, but requests %d", mine, n)
		c.Consequence = "some devices of the instance are unused"
		c.Steps = host.Textf("the guest's definition shows which devices it uses: %s", c.ask(c.f.Node.Host))
		return
	}
	open := c.f.migration(func(m Migration) bool { return !m.Over() })
	switch {
	case open != nil:
		c.is(CaseLegitimate, Legitimate, "the instance is on this node; its %s is open", open)
		return
	case c.f.Vanished:
		c.is(CaseVanished, Suspicious, "the instance is on this node, but the host no longer has the device")
		c.Consequence = "the guest cannot start again; nova-compute keeps the row until the instance releases the device"
		c.Steps = host.Plain("reinstall the device, or move or delete the instance; then restart nova-compute, which deletes the row once the device is free")
		return
	case i.Context != nil:
		c.context(i)
		return
	}
	c.is(CaseLegitimate, Legitimate, "the instance is on this node")
}

// away judges a row of an instance that is on another node, or on none.
func (c *classifier) away() {
	var evacuated *Migration
	for k := range c.f.Migrations {
		if m := &c.f.Migrations[k]; m.Type == "evacuation" && m.Status == "done" && m.SourceHost == c.f.Node.Host {
			evacuated = m
		}
	}
	if all, worst := c.keepers(); worst != nil {
		c.kept(all, worst)
		if evacuated != nil {
			// An older migration in error keeps the device even when nova-compute starts; closing it leaves
			// the evacuation's record as it is.
			c.Reason += fmt.Sprintf("; the instance was evacuated from this host by migration %d", evacuated.ID)
			c.Steps = host.Textf("%s; do not change migration %d (evacuation): nova-compute on %s reads its record when it starts, to remove the guest", c.Steps,
				evacuated.ID, c.f.Node.Host)
		}
		return
	}
	if evacuated != nil {
		// nova-compute reads the record when it starts, to destroy the guest's remains here.
		c.is(CaseElsewhere, Stale, "the instance was evacuated from this host: nova-compute frees the device when it starts, after it has removed the guest")
		c.Migration, c.Consequence = &evacuated.ID, takenForNothing
		c.repairs(ByNova, "start nova-compute on %s; do not change the migration's record before", c.f.Node.Host)
		if on := c.f.Node.Host; c.f.Proof.Off(on) {
			c.Steps = host.Textf("%s; or, if the host is never started again, delete its service: openstack compute service list --host %s "+
				"shows the ID for openstack compute service delete ID; then: %s", c.Steps, on, again.Flag("host-is-off", on).Flag("apply"))
		}
		return
	}
	c.is(CaseElsewhere, Stale, "the instance is elsewhere, and no open migration goes to or from this node")
	c.Consequence = "operations on the instance that look up its devices fail, and Nova does not assign the device to any instance"
	waits := c.free()
	// Nova logs a post_live_migration_at_destination that has failed, and calls the migration
	// completed all the same: the guest runs here, while its record says that it is on the source
	// (nova/compute/manager.py, _post_live_migration).
	if why := c.inUse(c.changed()); why != "" {
		c.Verdict, c.Repair, c.Needs = Unknown, NoRepair, ""
		c.Reason += "; that its guest does not run on this host is not proved: " + why
		steps := host.Textf("%s; or, if the host is off, %s", c.ask(c.f.Node.Host), again.Flag("host-is-off", c.f.Node.Host))
		if c.Steps = host.Textf("%s; if the row stays: %s", c.Steps, steps); !waits {
			c.Steps = steps
		}
	}
}

// settled returns whether the instance is in one of these states.
func settled(i Instance, states ...string) bool {
	return i.VMState != nil && slices.Contains(states, *i.VMState)
}

// offline sets what is missing to write the row: nova-compute must be stopped, and no guest may
// use the device.
func (c *classifier) offline() {
	since := c.stopped()
	if c.Needs != "" {
		return
	}
	if why := c.inUse(since); why != "" {
		c.Needs, c.Reports = why+c.orOff(), []string{c.f.Node.Host}
	}
}

// inUse returns why a guest may use the device, or one that is freed with it; "" if none does, by a
// report from after since. All devices of the instance on the node count as freed: each alone may
// leave to the other what both free.
func (c *classifier) inUse(since time.Time) string {
	row := Held{Device: c.d, Host: c.f.Node.Host, NodeName: c.f.Node.Name, Card: c.f.Card}
	var with []Device
	if c.d.Status != StatusAvailable {
		with = row.mayFree(append([]Held{row}, c.f.Held...), c.f.Proof)
	}
	if why := lost(with); why != "" {
		return why
	}
	return c.f.absent(row, with, since)
}

// Unused returns why devices of a host may not be released, "" if they may: a report from after
// since, and after the last changes of their rows, proves that no guest uses them or a relative, and
// that the guest of the instance is not there. Each release asks it: repairs, texts that only advise
// one, and the undo of a claim.
func (f Facts) Unused(host, instance string, devices []Device, since time.Time) string {
	if ok, why := f.Proof.Absent(host, instance, devices, latestChange(since, devices)); !ok {
		return why
	}
	return ""
}

// ask returns the steps to gather the reports of hosts, which it notes, and to use them.
func (c *classifier) ask(hosts ...string) host.Text {
	c.Reports = hosts
	return ReportSteps(c.f.Token, hosts...)
}

// ReportSteps returns the commands that gather the reports of hosts and use them. With a token, a
// report proves its order even if the clocks of its host and of the database differ.
func ReportSteps(token string, hosts ...string) (steps host.Text) {
	judge := again
	for _, h := range hosts {
		steps = host.Textf("%s%s; ", steps, ReportStep(token, h))
		judge = judge.Flag("guests", h+".json")
	}
	return host.Textf("%s%s", steps, judge)
}

// ReportStep returns the command that gathers the report of a host, with a token unless it is "".
func ReportStep(token, on string) host.Text {
	report := host.NewCommand("host guests").Elsewhere()
	if token != "" {
		report = report.Flag("token", token)
	}
	return host.Textf("ssh %s %s > %s.json", on, report.Flag("o", "json"), on)
}

// evidence returns the records that the verdict is based on, in one line.
func (c *classifier) evidence() string {
	var words []string
	if c.d.Instance != nil {
		words = append(words, c.owner())
	}
	for _, m := range c.f.Migrations {
		unchanged := "time of its last change unknown"
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
	case i == nil && c.f.Purged:
		return name + " in no cell; its mapping says that it was deleted (queued_for_delete)"
	case i == nil:
		return name + " in no cell"
	case i.Deleted:
		return name + " deleted"
	}
	state := host.Or(i.VMState, "without a state")
	if i.Task != nil {
		state += " (" + *i.Task + ")"
	}
	return name + " " + state + " " + i.where()
}

func (c *classifier) compute() string {
	s := c.f.Service
	switch {
	case s == nil:
		return "no nova-compute service on " + c.f.Node.Host
	case s.LastSeen == nil:
		return "nova-compute on " + c.f.Node.Host + " has never reported"
	case c.f.up() && s.Forced:
		return "nova-compute on " + c.f.Node.Host + " forced down, but reporting"
	case c.f.up():
		return "nova-compute on " + c.f.Node.Host + " up"
	}
	return fmt.Sprintf("nova-compute on %s last seen %s ago", c.f.Node.Host, age(c.f.Now.Sub(*s.LastSeen)))
}

// age formats a duration in its largest unit.
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

// Silence returns for how long nova-compute must not have reported to count as down; down is
// service_down_time.
func Silence(down time.Duration) time.Duration {
	return max(5*time.Minute, 5*down)
}
