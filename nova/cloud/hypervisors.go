package cloud

import (
	"cmp"
	"context"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/hypervisors"
)

// Node is a compute node of a host.
type Node struct {
	Host string
	Name string // hypervisor_hostname
	// ID is that of the node's resource provider in Placement, and "" before microversion 2.53.
	ID string
}

// providerIDs is the first microversion in which a hypervisor has the id of its resource provider
// (Pike).
const providerIDs Microversion = 53

// Nodes returns all compute nodes, sorted by host and name. It requires an administrator.
func (c *Compute) Nodes(ctx context.Context) ([]Node, error) {
	type answer struct { // gophercloud's type also requires the facts of each machine
		ID      any    `json:"id"` // a number before microversion 2.53
		Name    string `json:"hypervisor_hostname"`
		Service struct {
			Host string `json:"host"`
		} `json:"service"`
	}
	all, err := listOf(ctx, c.cloud, "hypervisors", hypervisors.List(c.client, nil), objectsOf[answer]("hypervisors"), func(h *answer) Node {
		n := Node{Host: h.Service.Host, Name: h.Name}
		if id, ok := h.ID.(string); ok && c.Microversion >= providerIDs {
			n.ID = id
		}
		return n
	})
	slices.SortFunc(all, func(a, b Node) int { return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Name, b.Name)) })
	return all, err
}
