package cloud

import (
	"context"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/limits"
)

// Quota is the limit of a project on a resource, and its use.
type Quota struct {
	Resource string `json:"resource"` // "instances", "cores" or "ram_mib"
	Limit    int    `json:"limit"`    // -1 for none
	Used     int    `json:"used"`     // what the project uses already
}

// Quotas returns the limits of the project of the credentials that count new servers (GET /limits;
// with Keystone's unified limits Nova answers with those).
func (c *Compute) Quotas(ctx context.Context) (all []Quota, err error) {
	err = c.cloud.ask(ctx, "limits of the project", func(ctx context.Context) error {
		l, err := limits.Get(ctx, c.client, nil).Extract()
		if err != nil {
			return err
		}
		a := l.Absolute
		all = []Quota{
			{"instances", a.MaxTotalInstances, a.TotalInstancesUsed}, {"cores", a.MaxTotalCores, a.TotalCoresUsed}, {"ram_mib", a.MaxTotalRAMSize, a.TotalRAMUsed},
		}
		return nil
	})
	return all, err
}
