package cloud

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/allocationcandidates"
)

// oneTimeUse is the trait of PCI devices that stay reserved after their first guest
// (nova/compute/pci_placement_translator.py, since 2025.2).
const oneTimeUse = "HW_PCI_ONE_TIME_USE"

// nestedVersion is the first microversion in which allocation candidates contain providers below
// those of compute nodes, and name their roots (Rocky; placement/rest_api_version_history.rst).
const nestedVersion = "1.29"

// candidates returns the allocation candidates of a query. A resource class or a trait that
// Placement does not have is [ErrUnknownName].
func (p *Placement) candidates(ctx context.Context, what string, o allocationcandidates.ListOpts) (list allocationcandidates.AllocationCandidates, err error) {
	client := *p.client
	client.Microversion = nestedVersion
	err = p.cloud.ask(ctx, what, func(ctx context.Context) error {
		pages, err := allocationcandidates.List(&client, o).AllPages(ctx)
		if err != nil {
			return err
		}
		read, err := allocationcandidates.ExtractAllocationCandidates(pages)
		if err == nil {
			list = *read
		}
		return err
	})
	return list, unknownName(err)
}

// rootOf returns the root of a provider of candidates.
func rootOf(list allocationcandidates.AllocationCandidates, provider string) string {
	if root := list.ProviderSummaries[provider].RootProviderUUID; root != nil {
		return *root
	}
	return provider
}

// Candidates returns the ids of the root providers that can serve amounts of resource classes
// together, and that have the required traits, or with a leading "!" do not have them. Providers
// of shared resources may be among them. A resource class or a trait that Placement does not have
// is [ErrUnknownName].
func (p *Placement) Candidates(ctx context.Context, resources map[string]int, traits []string) (map[string]bool, error) {
	options := allocationcandidates.ListOpts{Resources: amounts(resources)}
	if len(traits) > 0 {
		options.Required = []string{strings.Join(traits, ",")} // repeated, it is a list from 1.39 on only
	}
	list, err := p.candidates(ctx, "allocation candidates for "+options.Resources, options)
	roots := map[string]bool{}
	for _, r := range list.AllocationRequests {
		for provider := range r.Allocations {
			roots[rootOf(list, provider)] = true
		}
	}
	return roots, err
}

// Free is the devices of a resource class that a new guest could get, by Placement.
type Free struct {
	Devices    int  `json:"device_count"`  // the free devices
	Hosts      int  `json:"host_count"`    // the hosts that have them
	OneTimeUse bool `json:"stay_reserved"` // some of them stay reserved after their first guest
}

// FreeDevices returns the free devices of a resource class. It is nil if no compute node has ever
// reported the class, so that Placement cannot say.
func (p *Placement) FreeDevices(ctx context.Context, class string) (*Free, error) {
	list, err := p.candidates(ctx, "free devices of resource class "+class, allocationcandidates.ListOpts{Resources: class + ":1"})
	if errors.Is(err, ErrUnknownName) {
		return nil, nil
	}
	free := &Free{}
	hosts := map[string]bool{}
	for provider, s := range list.ProviderSummaries { // those of whole trees
		r, ok := s.Resources[class]
		if !ok || r.Capacity <= r.Used {
			continue
		}
		free.Devices += r.Capacity - r.Used
		hosts[rootOf(list, provider)] = true
		free.OneTimeUse = free.OneTimeUse || s.Traits != nil && slices.Contains(*s.Traits, oneTimeUse)
	}
	free.Hosts = len(hosts)
	return free, err
}
