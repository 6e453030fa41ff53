package cloud

import (
	"context"
	"errors"
	"slices"

	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceproviders"
)

// managedPCI is the trait of the resource providers that nova-compute creates for PCI devices
// with report_in_placement (nova/compute/pci_placement_translator.py, since Zed).
const managedPCI = "COMPUTE_MANAGED_PCI_DEVICE"

// Provider is a resource provider.
type Provider struct {
	UUID string
	Name string
	Root string // UUID of the compute node that it belongs to
}

// providers returns the providers that a query selects. A resource class or a trait that Placement
// does not have is [ErrUnknownName].
func (p *Placement) providers(ctx context.Context, what string, o resourceproviders.ListOpts) (all []Provider, err error) {
	all, err = listOf(ctx, p.cloud, what, resourceproviders.List(p.client, o), resourceproviders.ExtractResourceProviders,
		func(r *resourceproviders.ResourceProvider) Provider {
			return Provider{r.UUID, r.Name, r.RootProviderUUID}
		})
	return all, unknownName(err)
}

// PCIProviders returns the providers of all PCI devices that compute nodes report.
func (p *Placement) PCIProviders(ctx context.Context) ([]Provider, error) {
	return p.providers(ctx, "resource providers with the trait "+managedPCI, resourceproviders.ListOpts{Required: managedPCI})
}

// HeldOn returns what consumers hold on a provider: amounts by resource class, by consumer.
func (p *Placement) HeldOn(ctx context.Context, provider string) (map[string]map[string]int, error) {
	held := map[string]map[string]int{}
	err := p.cloud.ask(ctx, "allocations on resource provider "+provider, func(ctx context.Context) error {
		answer, err := resourceproviders.GetAllocations(ctx, p.client, provider).Extract()
		for consumer, a := range answer.Allocations {
			held[consumer] = a.Resources
		}
		return err
	})
	return held, err
}

// WithTrait returns the names of the compute nodes that have a trait. There are none if Placement
// does not know the trait, as one of an earlier release does not.
func (p *Placement) WithTrait(ctx context.Context, trait string) (names []string, err error) {
	all, err := p.providers(ctx, "resource providers with the trait "+trait, resourceproviders.ListOpts{Required: trait})
	if errors.Is(err, ErrUnknownName) {
		return nil, nil
	}
	for _, r := range all {
		if r.UUID == r.Root {
			names = append(names, r.Name)
		}
	}
	slices.Sort(names)
	return names, err
}
