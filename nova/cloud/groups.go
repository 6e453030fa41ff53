package cloud

import (
	"context"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servergroups"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
)

// ServerGroup is a server group.
type ServerGroup struct {
	ID, Name string
	Policy   string
	Most     int      // servers of the group on a host, by policy anti-affinity; 0 for the default, 1
	Members  []string // ids of servers
}

// groupsInServers is the first microversion in which a server names its group (Stein).
const groupsInServers Microversion = 71

// GroupOf returns the server group of a server, nil for none.
func (c *Compute) GroupOf(ctx context.Context, server string) (*ServerGroup, error) {
	if c.Microversion < groupsInServers {
		return c.groupWith(ctx, server)
	}
	var s struct {
		Groups []string `json:"server_groups"`
	}
	if err := c.cloud.ask(ctx, "server "+server, func(ctx context.Context) error {
		return servers.Get(ctx, c.client, server).ExtractInto(&s)
	}); err != nil || len(s.Groups) == 0 {
		return nil, err
	}
	group, err := answerOf(ctx, c.cloud, "server group "+s.Groups[0], func(ctx context.Context) (*servergroups.ServerGroup, error) {
		return servergroups.Get(ctx, c.client, s.Groups[0]).Extract()
	})
	if err != nil {
		return nil, err
	}
	return newServerGroup(group), nil
}

// groupWith looks for the server in all groups, which requires an administrator.
func (c *Compute) groupWith(ctx context.Context, server string) (*ServerGroup, error) {
	all, err := listOf(ctx, c.cloud, "server groups", servergroups.List(c.client, servergroups.ListOpts{AllProjects: true}),
		servergroups.ExtractServerGroups, newServerGroup)
	i := slices.IndexFunc(all, func(g *ServerGroup) bool { return slices.Contains(g.Members, server) })
	if err != nil || i < 0 {
		return nil, err
	}
	return all[i], nil
}

// newServerGroup reads the policy of either form: microversion 2.64 has one, before there is a
// list.
func newServerGroup(g *servergroups.ServerGroup) *ServerGroup {
	group := &ServerGroup{ID: g.ID, Name: g.Name, Members: g.Members}
	switch {
	case g.Policy != nil:
		group.Policy = *g.Policy
	case len(g.Policies) > 0:
		group.Policy = g.Policies[0]
	}
	if g.Rules != nil {
		group.Most = g.Rules.MaxServerPerHost
	}
	return group
}
