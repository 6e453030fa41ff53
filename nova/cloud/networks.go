package cloud

import (
	"context"
	"fmt"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
)

// Network is a network of Neutron.
type Network struct {
	ID, Name string
}

// Network finds a network by its name or its ID.
//
// Errors: ErrNotFound; several networks with the name.
func (c *Cloud) Network(ctx context.Context, nameOrID string) (Network, error) {
	what := "network " + nameOrID
	client, err := c.service("network", "v2.0/")
	if err != nil {
		return Network{}, err
	}
	options := networks.ListOpts{Name: nameOrID}
	if isUUID(nameOrID) {
		options = networks.ListOpts{ID: nameOrID}
	}
	found, err := listOf(ctx, c, what, networks.List(client, options), networks.ExtractNetworks,
		func(n *networks.Network) Network { return Network{n.ID, n.Name} })
	switch {
	case err != nil:
		return Network{}, err
	case len(found) == 0:
		return Network{}, &Error{Doing: what, Kind: ErrNotFound}
	case len(found) > 1:
		return Network{}, &Error{Doing: what, Reason: fmt.Sprintf("%d networks have that name; use the id", len(found))}
	}
	return found[0], nil
}
