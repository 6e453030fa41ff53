package cleanup

import (
	"fmt"
	"strings"

	"gpustack/host"
)

// renamed judges a row of a deleted node that the instance is on by its name, while a live node of
// the same host has a row of the same device: the hypervisor was renamed (hypervisor_hostname), so
// nova-compute has made a new node with free devices and deleted the old one, with its resource
// provider and allocations (nova/compute/manager.py, update_available_resource). The instance's
// guest still uses the device. It returns false if the row says nothing about that device.
func (c *classifier) renamed() bool {
	there, i := c.f.Renamed, c.f.Instance
	if there == nil || c.d.Status != StatusClaimed && c.d.Status != StatusAllocated {
		return false
	}
	own := i.On(there.Host, there.NodeName)
	mine := there.Instance != nil && KeyOf(*there.Instance) == KeyOf(i.UUID)
	if mine && own {
		return false
	}
	why := fmt.Sprintf("the hypervisor was renamed: the instance is still on the deleted node %s", c.f.Node.Name)
	if own {
		why = "the compute node was deleted and created again"
	}
	disable := fmt.Sprintf("disable the host for new guests now (openstack compute service set --disable %s nova-compute); ", c.f.Node.Host)
	if settled(*i, "resized") {
		// A revert would look for the node by its old name (nova/compute/resource_tracker.py,
		// drop_move_claim_at_dest).
		disable += fmt.Sprintf("confirm the resize (openstack server resize confirm %s), which cannot be reverted any more; ", i.UUID)
	}
	switch {
	case mine:
		c.is(CaseNode, Suspicious, "%s, and the device is assigned to the instance on node %s of the same host", why, there.NodeName)
		c.Consequence = "nova-compute frees the device although the guest uses it"
	case there.Status == StatusAvailable && there.Instance == nil:
		c.is(CaseInUse, Suspicious, "%s, and the device is free on node %s of the same host", why, there.NodeName)
		c.Consequence = "Nova may assign the device to a second guest, and Placement has no allocation of the instance on that host"
	default:
		c.is(CaseInUse, Suspicious, "%s, and the device is %s on node %s of the same host", why, there.Status, there.NodeName)
		c.Consequence = "two guests may use the device"
		c.Steps = host.Textf("%ssee which guest uses the device, and stop the other one: %s", disable, c.ask(c.f.Node.Host))
		return true
	}
	c.Steps = host.Textf("%sthen stop nova-compute there, run this SQL in one transaction with that of the instance's other devices, start nova-compute, "+
		"restore the allocations with nova-manage placement heal_allocations --instance %s, and enable the host: %s",
		disable, i.UUID, strings.Join(c.moveRow(), "; "))
	return true
}

// moveRow returns the SQL that assigns the device of the new node to the instance, as
// PciDevice.allocate does (nova/objects/pci_device.py), and deletes the row of the old node.
func (c *classifier) moveRow() []string {
	there, i := c.f.Renamed, c.f.Instance
	request := "NULL"
	if c.d.Request != nil {
		request = sqlText(*c.d.Request)
	}
	var statements []string
	if !i.On(there.Host, there.NodeName) {
		node := "node = " + sqlText(there.NodeName)
		if i.Compute != nil { // since 2023.2
			node += fmt.Sprintf(", compute_id = %d", there.Node)
		}
		statements = append(statements, fmt.Sprintf("UPDATE instances SET %s WHERE uuid = %s AND node = %s AND deleted = 0",
			node, sqlText(i.UUID), sqlText(*i.Node)))
	}
	statements = append(statements, fmt.Sprintf("UPDATE pci_devices SET status = 'allocated', instance_uuid = %s, request_id = %s "+
		"WHERE id = %d AND status = 'available' AND deleted = 0", sqlText(i.UUID), request, there.ID))
	// The functions of the same card cannot be assigned beside it.
	switch {
	case there.Type == TypePF:
		statements = append(statements, fmt.Sprintf("UPDATE pci_devices SET status = 'unavailable' WHERE compute_node_id = %d "+
			"AND parent_addr = %s AND status = 'available' AND deleted = 0", there.Node, sqlText(there.Address)))
	case there.virtual():
		statements = append(statements, fmt.Sprintf("UPDATE pci_devices SET status = 'unavailable' WHERE compute_node_id = %d "+
			"AND address = %s AND status = 'available' AND deleted = 0", there.Node, sqlText(*there.Parent)))
	}
	return append(statements, fmt.Sprintf("UPDATE pci_devices SET status = 'available', instance_uuid = NULL, request_id = NULL, "+
		"deleted = id, deleted_at = UTC_TIMESTAMP() WHERE id = %d AND deleted = 0", c.d.ID))
}

// sqlText returns a text as a literal of SQL, for statements that an operator runs.
func sqlText(s string) string {
	return "'" + strings.NewReplacer("'", "''", "\\", "\\\\").Replace(s) + "'"
}
