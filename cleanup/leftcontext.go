package cleanup

import (
	"fmt"
	"slices"
	"time"

	"gpustack/host"
)

// ContextMigration is the record of the migration that the migration_context of an instance names.
type ContextMigration struct {
	Migration
	Found   bool // whether the cell's table migrations has the record
	Deleted bool
}

// contextQuiet is for how long the migration of a context must not have changed before the context
// is cleared: nova-compute saves the last status of a migration before it clears the context
// itself (nova/compute/resource_tracker.py, drop_move_claim_at_source).
const contextQuiet = 5 * time.Minute

// context judges a row of an instance that is on the row's node, in no task and not resized, has no
// open migration, and still has a migration_context.
func (c *classifier) context(i *Instance) {
	m := c.f.ContextOf
	state, why := "its record is purged", ""
	switch {
	case m == nil:
		why = "its record was not read"
	case !m.Found:
	case KeyOf(m.Instance) != KeyOf(i.UUID):
		why = fmt.Sprintf("migration %d belongs to instance %s", m.ID, m.Instance)
	case m.CrossCell:
		why = fmt.Sprintf("migration %d crosses cells", m.ID)
	case m.Type == "evacuation" && m.Status == "done":
		why = fmt.Sprintf("nova-compute on %s still has to read the record of %s", m.SourceHost, m)
	case m.Deleted:
		state = "its record is deleted"
	case !m.Over():
		why = fmt.Sprintf("%s is not over", m)
	case m.Changed.IsZero():
		why = fmt.Sprintf("%s has no time of its last change", m)
	default:
		state = fmt.Sprintf("its status is '%s'", m.Status)
	}
	if why == "" {
		arrived := i.arrived(m.Migration)
		if !m.Found {
			// Only the devices tell to which side of the migration the instance belongs.
			_, without := i.afterMove(c.f.Held, false, false)
			arrived = without != ""
		}
		if c.Applies, why = i.afterMove(c.f.Held, arrived, m.Resizes); why != "" {
			c.is(CaseContext, Suspicious, "the instance is on this node and has no open migration, but has the context of migration %d; %s", i.Context.Migration, why)
			c.Consequence, c.Steps = withoutRequests, c.keepContext()
			return
		}
	}
	c.Consequence = "Nova counts the devices of both hosts as the instance's, and marks its next migration as failed"
	if m != nil && !m.Found {
		c.Consequence += "; Neutron's events for the instance fail, because Nova looks up the migration of the context"
	}
	if why != "" {
		c.is(CaseContext, Suspicious, "the instance is on this node and has no open migration, but has the context of migration %d; %s", i.Context.Migration, why)
		c.Steps = host.Textf("see what became of the migration, with openstack server migration list --server %s", i.UUID)
		return
	}
	c.is(CaseContext, Stale, "the instance is on this node and has no open migration, but still has the context of migration %d; %s", i.Context.Migration, state)
	what := "clear"
	if c.Applies {
		what = "apply and clear"
	}
	c.repairs(ClearContext, "%s the instance's migration_context; no device changes its owner, and no service has to be restarted", what)
	if m != nil && m.Found && c.f.Now.Sub(m.Changed) < contextQuiet {
		c.Needs = fmt.Sprintf("migration %d unchanged for %s: nova-compute may clear the context itself", m.ID, contextQuiet)
	}
}

// withoutRequests is the consequence of a device whose request is none of the instance's.
const withoutRequests = "Nova raises KeyError whenever it looks up the instance's devices, as in each hard reboot"

// keepContext returns the steps for a migration_context that must neither be removed nor applied.
func (c *classifier) keepContext() host.Text {
	return host.Textf("do not clear the migration_context, and do not reboot the instance: compare pci_requests and "+
		"migration_context of its instance_extra with its rows of pci_devices "+
		"and its flavor (openstack server show %s), correct instance_extra or the flavor, then run %s again; or delete the instance", c.f.Instance.UUID, again)
}

// unrequested replaces the verdict on a row that is legitimate otherwise, if its request is neither
// among the instance's requests nor among those of its migration_context.
func (c *classifier) unrequested() {
	i := c.f.Instance
	if c.Verdict != Legitimate || i == nil || !i.Asked || !c.d.taken() || requested(c.d, i.Requests) {
		return
	}
	if i.Context != nil && requested(c.d, slices.Concat(i.Context.Old, i.Context.New)) {
		return
	}
	c.is(CaseUnrequested, Suspicious, "the row has request %s, which is among neither the instance's requests nor those of its migration_context", *c.d.Request)
	c.Consequence = withoutRequests
	c.Steps = host.Textf("if a port is being attached to the instance, run %s again when it is; otherwise correct pci_requests of its instance_extra, "+
		"which an earlier repair or migration has left behind, or move the instance to another host with a new resize", again)
}
