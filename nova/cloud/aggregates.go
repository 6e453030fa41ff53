package cloud

import (
	"context"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/aggregates"
)

// Aggregate is a host aggregate.
type Aggregate struct {
	Name     string
	Hosts    []string
	Metadata map[string]string // its availability zone among it, as availability_zone
}

// Aggregates returns all host aggregates. It requires an administrator.
func (c *Compute) Aggregates(ctx context.Context) ([]Aggregate, error) {
	return listOf(ctx, c.cloud, "host aggregates", aggregates.List(c.client), aggregates.ExtractAggregates,
		func(a *aggregates.Aggregate) Aggregate { return Aggregate{a.Name, a.Hosts, a.Metadata} })
}
