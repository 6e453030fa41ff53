package cloud

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/allocationcandidates"
)

// oneTimeUse is the trait of PCI devices that stay reserved after their first guest
// (nova/compute/pci_placement_translator.py, since 2025.2).
const oneTimeUse = "HW_PCI_ONE_TIME_USE"

// nestedVersion is the first microversion in which candidates contain providers below those of
// compute nodes (Rocky).
const nestedVersion = "1.29"

// Free is the devices of a resource class that a new guest could get, by Placement.
type Free struct {
	Devices    int
	Hosts      int
	OneTimeUse bool // some of them can be used once only
}

// FreeDevices returns the free devices of a resource class. It is nil if no compute node has ever
// reported the class, so that Placement cannot say.
func (p *Placement) FreeDevices(ctx context.Context, class string) (*Free, error) {
	client := *p.client
	client.Microversion = nestedVersion
	free := &Free{}
	err := p.cloud.ask(ctx, "free devices of resource class "+class, func(ctx context.Context) error {
		pages, err := allocationcandidates.List(&client, allocationcandidates.ListOpts{Resources: class + ":1"}).AllPages(ctx)
		if err != nil {
			return err
		}
		candidates, err := allocationcandidates.ExtractAllocationCandidates(pages)
		if err != nil {
			return err
		}
		hosts := map[string]bool{}
		for uuid, s := range candidates.ProviderSummaries { // those of whole trees
			r, ok := s.Resources[class]
			if !ok || r.Capacity <= r.Used {
				continue
			}
			free.Devices += r.Capacity - r.Used
			if s.RootProviderUUID != nil {
				uuid = *s.RootProviderUUID
			}
			hosts[uuid] = true
			free.OneTimeUse = free.OneTimeUse || s.Traits != nil && slices.Contains(*s.Traits, oneTimeUse)
		}
		free.Hosts = len(hosts)
		return nil
	})
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusBadRequest && strings.Contains(e.Reason, class) {
		return nil, nil // "Invalid resource class": none has that name
	}
	return free, err
}
