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
	var all []Aggregate
	err := c.cloud.ask(ctx, "host aggregates", func(ctx context.Context) error {
		pages, err := aggregates.List(c.client).AllPages(ctx)
		if err != nil {
			return err
		}
		list, err := aggregates.ExtractAggregates(pages)
		for _, a := range list {
			all = append(all, Aggregate{a.Name, a.Hosts, a.Metadata})
		}
		return err
	})
	return all, err
}
