package cloud

import (
	"context"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceproviders"

	"gpustack/host"
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
	return p.with(ctx, managedPCI)
}

// OneTimeUse returns the providers of the PCI devices that stay reserved after their first guest.
func (p *Placement) OneTimeUse(ctx context.Context) ([]Provider, error) {
	return p.with(ctx, oneTimeUse)
}

// ToClean returns, as text, which one-time-use devices of a resource class, "" for any, are reserved after
// their guest; "" for none.
func (p *Placement) ToClean(ctx context.Context, class string) (string, error) {
	all, err := p.OneTimeUse(ctx)
	if err != nil {
		return "", err
	}
	names := make([]string, len(all))
	err = AskAll(ctx, len(all), "resource providers", func(k int) error {
		has, err := p.Inventories(ctx, all[k].UUID)
		for of, i := range has {
			if (class == "" || class == of) && i.Used == 0 && i.Reserved > 0 {
				names[k] = all[k].Name
			}
		}
		return err
	})
	slices.Sort(names)
	if names = slices.DeleteFunc(names, func(name string) bool { return name == "" }); len(names) == 0 {
		return "", err
	}
	return host.Numbered(len(names), "one-time-use device") + " to clean: " + strings.Join(names[:min(3, len(names))], ", "), err
}

// with returns the providers that have a trait. There are none if Placement does not know the trait,
// as one of an earlier release does not.
func (p *Placement) with(ctx context.Context, trait string) ([]Provider, error) {
	all, err := p.providers(ctx, "resource providers with the trait "+trait, resourceproviders.ListOpts{Required: trait})
	return all, except(ErrUnknownName, err)
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

// WithTrait returns the names of the compute nodes that have a trait.
func (p *Placement) WithTrait(ctx context.Context, trait string) (names []string, err error) {
	all, err := p.with(ctx, trait)
	names = host.Map(host.Filter(all, func(r Provider) bool { return r.UUID == r.Root }), func(r Provider) string { return r.Name })
	slices.Sort(names)
	return names, err
}
