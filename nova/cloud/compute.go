package cloud

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/utils"
)

// Microversion is Nova's API 2.N (doc/source/reference/api-microversion-history.rst).
type Microversion int

func (m Microversion) String() string {
	return fmt.Sprintf("2.%d", int(m))
}

// What came with which microversion.
const (
	Descriptions   Microversion = 55 // flavors have a description (Queens)
	SpecsInBodies  Microversion = 61 // flavors come with their extra specs (Rocky)
	SpecsValidated Microversion = 86 // Nova refuses extra specs that it does not know (Ussuri)
)

// Compute is Nova's API.
type Compute struct {
	cloud  *Cloud
	client *gophercloud.ServiceClient

	URL          string       // of the API
	Microversion Microversion // that is spoken: no newer one than SpecsValidated
	Newest       Microversion // that the cloud speaks; a release has one (see nova.Release)
}

// Compute finds Nova and agrees on a microversion with it, in one request.
func (c *Cloud) Compute(ctx context.Context) (*Compute, error) {
	const what = "compute service"
	var client *gophercloud.ServiceClient
	// Asks nothing where the catalog's address has the version in it.
	err := c.ask(ctx, what, func(context.Context) (err error) {
		client, err = openstack.NewComputeV2(c.provider, c.endpoint)
		return err
	})
	if err != nil {
		return nil, err
	}
	compute := &Compute{cloud: c, client: client, URL: redacted(strings.TrimSuffix(client.Endpoint, "/"))}
	// Catalogs of old clouds have the project behind the version.
	base, err := utils.BaseVersionedEndpoint(client.Endpoint)
	if err != nil {
		return nil, doing(what, err)
	}
	var document struct {
		Version struct {
			Newest string `json:"version"`
			Oldest string `json:"min_version"`
		} `json:"version"`
	}
	err = c.ask(ctx, what, func(ctx context.Context) error {
		_, err := client.Get(ctx, base, &document, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	newest, oldest := minor(document.Version.Newest), minor(document.Version.Oldest)
	if newest == 0 { // API v2.0, or a Nova before Kilo
		return nil, &Error{Doing: what, Reason: compute.URL + " has no microversions; gpustack needs Nova's API 2.1"}
	}
	compute.Newest = newest
	compute.Microversion = max(min(newest, SpecsValidated), oldest)
	client.Microversion = compute.Microversion.String()
	return compute, nil
}

// minor reads N of 2.N; 0 is none.
func minor(version string) Microversion {
	n, err := strconv.Atoi(strings.TrimPrefix(version, "2."))
	if err != nil {
		return 0
	}
	return Microversion(n)
}

// Servers returns the ids of the instances of a flavor in all projects, which takes
// an administrator.
func (c *Compute) Servers(ctx context.Context, flavorID string) ([]string, error) {
	type server struct {
		ID string `json:"id"`
	}
	var all []server
	err := c.cloud.ask(ctx, "servers of the flavor", func(ctx context.Context) error {
		pages, err := servers.ListSimple(c.client, servers.ListOpts{Flavor: flavorID, AllTenants: true}).AllPages(ctx)
		if err != nil {
			return err
		}
		return servers.ExtractServersInto(pages, &all)
	})
	var ids []string
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids, err
}
