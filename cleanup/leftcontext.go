package cleanup

import (
	"fmt"
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
	c.repairs(ClearContext, "clear the instance's migration_context; no device changes its owner, and no service has to be restarted")
	if m != nil && m.Found && c.f.Now.Sub(m.Changed) < contextQuiet {
		c.Needs = fmt.Sprintf("migration %d unchanged for %s: nova-compute may clear the context itself", m.ID, contextQuiet)
	}
}
