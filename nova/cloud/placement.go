package cloud

import (
	"context"
	"maps"
	"slices"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/allocations"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceproviders"
)

// placementVersion is the first microversion in which a change of allocations contains the
// generation that was read, so that it fails if the allocations have changed since (Rocky;
// placement/rest_api_version_history.rst).
const placementVersion = "1.28"

// Placement is a client of the Placement API.
type Placement struct {
	cloud  *Cloud
	client *gophercloud.ServiceClient
}

// Placement finds Placement. Its requests fail on a cloud older than Rocky.
func (c *Cloud) Placement() (*Placement, error) {
	client, err := c.service("placement", "")
	if err != nil {
		return nil, err
	}
	client.Microversion = placementVersion
	return &Placement{c, client}, nil
}

// Allocations are the allocations of a consumer: an instance or a migration.
type Allocations struct {
	Providers  map[string]map[string]int `json:"allocations"` // amounts by resource class, by provider
	Project    string                    `json:"project_id"`
	User       string                    `json:"user_id"`
	Generation *int                      `json:"consumer_generation"` // nil: the consumer holds nothing
}

// Allocations returns the allocations of a consumer, which may be empty.
func (p *Placement) Allocations(ctx context.Context, consumer string) (Allocations, error) {
	a := Allocations{Providers: map[string]map[string]int{}}
	err := p.cloud.ask(ctx, "allocations of "+consumer, func(ctx context.Context) error {
		answer, err := allocations.Get(ctx, p.client, consumer).Extract()
		if err != nil {
			return err
		}
		for provider, held := range answer.Allocations {
			a.Providers[provider] = held.Resources
		}
		if answer.ProjectID != nil {
			a.Project = *answer.ProjectID
		}
		if answer.UserID != nil {
			a.User = *answer.UserID
		}
		a.Generation = answer.ConsumerGeneration
		return nil
	})
	return a, err
}

// Tree returns the ids of the provider with a name and of the providers below it. The provider of a
// compute node has its hypervisor_hostname as name. Tree is empty if there is no such provider.
func (p *Placement) Tree(ctx context.Context, name string) ([]string, error) {
	roots, err := p.providers(ctx, "resource provider "+name, resourceproviders.ListOpts{Name: name})
	if err != nil || len(roots) == 0 {
		return nil, err
	}
	tree, err := p.providers(ctx, "resource provider "+name, resourceproviders.ListOpts{InTree: roots[0].UUID})
	var ids []string
	for _, r := range tree {
		ids = append(ids, r.UUID)
	}
	slices.Sort(ids)
	return ids, err
}

// SetAllocations sets the allocations of several consumers, all or none, in one request that is
// never retried. Each has the generation that was read. Unless Placement has rejected it
// (IsRefused), a request that failed may have been applied, or may still be: a proxy answers 504
// although the service goes on. ctx may end before the timeout of the cloud.
//
// Errors: ErrConflict if the allocations of a consumer have changed since.
func (p *Placement) SetAllocations(ctx context.Context, consumers map[string]Allocations) error {
	options := allocations.ManageOpts{}
	for consumer, a := range maps.All(consumers) {
		held := map[string]allocations.ProviderAllocationsOpts{}
		for provider, resources := range a.Providers {
			held[provider] = allocations.ProviderAllocationsOpts{Resources: resources}
		}
		options[consumer] = allocations.UpdateOpts{Allocations: held, ProjectID: a.Project, UserID: a.User, ConsumerGeneration: a.Generation}
	}
	return p.cloud.ask(once(ctx), "allocations", func(ctx context.Context) error {
		return allocations.Manage(ctx, p.client, options).ExtractErr()
	})
}
