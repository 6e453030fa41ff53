package cloud

import (
	"context"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/services"
)

// ComputeService is the nova-compute of a host.
type ComputeService struct {
	Host       string
	Zone       string // availability zone
	Up         bool
	Enabled    bool
	ForcedDown bool   // always false before microversion 2.11
	Reason     string // why it is disabled
}

// ComputeServices returns the nova-compute services of all cells that answer, sorted by host. It
// requires an administrator. A service of a cell that does not answer is down, and has no zone
// (microversion 2.69).
func (c *Compute) ComputeServices(ctx context.Context) ([]ComputeService, error) {
	var all []ComputeService
	err := c.cloud.ask(ctx, "compute services", func(ctx context.Context) error {
		pages, err := services.List(c.client, services.ListOpts{Binary: "nova-compute"}).AllPages(ctx)
		if err != nil {
			return err
		}
		// The answers for a cell that is down lack fields that gophercloud's type requires.
		var list []struct {
			Host           string `json:"host"`
			Zone           string `json:"zone"`
			State          string `json:"state"`
			Status         string `json:"status"`
			ForcedDown     bool   `json:"forced_down"`
			DisabledReason string `json:"disabled_reason"`
		}
		if err := pages.(services.ServicePage).ExtractIntoSlicePtr(&list, "services"); err != nil {
			return err
		}
		for _, s := range list {
			all = append(all, ComputeService{
				Host: s.Host, Zone: s.Zone, Up: s.State == "up", Enabled: s.Status == "enabled", ForcedDown: s.ForcedDown, Reason: s.DisabledReason,
			})
		}
		return nil
	})
	slices.SortFunc(all, func(a, b ComputeService) int { return strings.Compare(a.Host, b.Host) })
	return all, err
}
