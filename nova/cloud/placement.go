package cloud

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/allocations"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceproviders"

	"gpustack/host"
)

// placementVersion is the first microversion in which a change of allocations contains the
// generation that was read, so that it fails if the allocations have changed since (Rocky;
// placement/rest_api_version_history.rst).
const placementVersion = "1.28"

// typesVersion is the first microversion in which consumers have a type: it is read with their
// allocations, and must be written with them (Xena; placement/handlers/allocation.py). In an
// earlier microversion, Placement keeps the type of a consumer that has allocations, and a consumer
// that gets its first ones has none.
const typesVersion = "1.38"

// noType is what Placement returns as the type of a consumer that has none, and rejects as a type
// (placement/objects/consumer_type.py, placement/schemas/common.py). Nova sets no types: it writes
// allocations in microversion 1.28 (nova/scheduler/client/report.py).
const noType = "unknown"

// Placement is a client of the Placement API.
type Placement struct {
	cloud  *Cloud
	client *gophercloud.ServiceClient

	untyped atomic.Bool // Placement has rejected typesVersion
}

// Placement finds Placement. Its requests fail on a cloud older than Rocky.
func (c *Cloud) Placement() (*Placement, error) {
	client, err := c.service("placement", "")
	if err != nil {
		return nil, err
	}
	client.Microversion = placementVersion
	return &Placement{cloud: c, client: client}, nil
}

// Allocations are the allocations of a consumer: an instance or a migration.
type Allocations struct {
	// amounts by resource class, by provider
	Providers map[string]map[string]int `json:"allocations"`
	Project   string                    `json:"project_id"` // the consumer's project
	User      string                    `json:"user_id"`    // the consumer's user
	// by which Placement detects concurrent changes; nil if the consumer holds nothing
	Generation *int `json:"consumer_generation"`
	// Type is "INSTANCE", "MIGRATION" or another name, "unknown" for a consumer without a type, and
	// "" if the consumer holds nothing or Placement has no types (before Xena).
	Type string `json:"consumer_type,omitempty"`
}

// Allocations returns the allocations of a consumer, which may be empty.
func (p *Placement) Allocations(ctx context.Context, consumer string) (Allocations, error) {
	a := Allocations{Providers: map[string]map[string]int{}}
	err := p.cloud.ask(ctx, "allocations of "+consumer, func(ctx context.Context) error {
		var answer *allocations.Allocations
		err := p.withTypes(func(client *gophercloud.ServiceClient) (err error) {
			answer, err = allocations.Get(ctx, client, consumer).Extract()
			return err
		})
		if err != nil {
			return err
		}
		for provider, held := range answer.Allocations {
			a.Providers[provider] = held.Resources
		}
		a.Project, a.User = host.Value(answer.ProjectID), host.Value(answer.UserID)
		a.Type, a.Generation = host.Value(answer.ConsumerType), answer.ConsumerGeneration
		return nil
	})
	return a, err
}

// withTypes makes a request in typesVersion, and in placementVersion if Placement does not have
// that one. Placement rejects a microversion before it looks at the request (HTTP 406,
// microversion_parse/middleware.py).
func (p *Placement) withTypes(request func(*gophercloud.ServiceClient) error) error {
	if !p.untyped.Load() {
		client := *p.client
		client.Microversion = typesVersion
		if err := request(&client); !gophercloud.ResponseCodeIs(err, http.StatusNotAcceptable) {
			return err
		}
		p.untyped.Store(true)
	}
	return request(p.client)
}

// Tree returns the ids of the provider with a name and of the providers below it. The provider of a
// compute node has its hypervisor_hostname as name. Tree is empty if there is no such provider.
func (p *Placement) Tree(ctx context.Context, name string) ([]string, error) {
	roots, err := p.providers(ctx, "resource provider "+name, resourceproviders.ListOpts{Name: name})
	if err != nil || len(roots) == 0 {
		return nil, err
	}
	tree, err := p.providers(ctx, "resource provider "+name, resourceproviders.ListOpts{InTree: roots[0].UUID})
	ids := host.Map(tree, func(p Provider) string { return p.UUID })
	slices.Sort(ids)
	return ids, err
}

// SetAllocations sets the allocations of several consumers, all or none, in one request that is
// never retried. Each has the generation that was read. Unless Placement has rejected it
// (IsRefused), a request that failed may have been applied, or may still be: a proxy answers 504
// although the service goes on. ctx may end before the timeout of the cloud.
//
// If each consumer has a Type, and none is "unknown", Placement gives them these types. Otherwise,
// and if Placement has no types, it keeps the type of each consumer that has allocations, and the
// others get none: one request cannot set types and leave others as they are.
//
// Errors: ErrConflict if the allocations of a consumer have changed since.
func (p *Placement) SetAllocations(ctx context.Context, consumers map[string]Allocations) error {
	return p.cloud.ask(once(ctx), "allocations", func(ctx context.Context) error {
		write := func(client *gophercloud.ServiceClient) error {
			return allocations.Manage(ctx, client, manageOptions(consumers, client.Microversion == typesVersion)).ExtractErr()
		}
		for _, a := range consumers {
			if a.Type == "" || a.Type == noType {
				return write(p.client)
			}
		}
		return p.withTypes(write)
	})
}

// manageOptions returns the body of a request that sets allocations, with the types of the
// consumers or without.
func manageOptions(consumers map[string]Allocations, typed bool) allocations.ManageOpts {
	options := allocations.ManageOpts{}
	for consumer, a := range maps.All(consumers) {
		held := map[string]allocations.ProviderAllocationsOpts{}
		for provider, resources := range a.Providers {
			held[provider] = allocations.ProviderAllocationsOpts{Resources: resources}
		}
		if !typed {
			a.Type = ""
		}
		options[consumer] = allocations.UpdateOpts{Allocations: held, ProjectID: a.Project, UserID: a.User, ConsumerGeneration: a.Generation, ConsumerType: a.Type}
	}
	return options
}
