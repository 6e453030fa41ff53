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
	"github.com/gophercloud/gophercloud/v2/pagination"
)

// Microversion is Nova's API 2.N (doc/source/reference/api-microversion-history.rst).
type Microversion int

func (m Microversion) String() string {
	return fmt.Sprintf("2.%d", int(m))
}

// Microversions that gpustack uses.
const (
	Descriptions   Microversion = 55 // flavors have a description (Queens)
	SpecsInBodies  Microversion = 61 // flavors come with their extra specs (Rocky)
	SpecsValidated Microversion = 86 // Nova rejects unknown extra specs (Ussuri)
)

// Compute is a client of Nova's API.
type Compute struct {
	cloud  *Cloud
	client *gophercloud.ServiceClient

	URL          string       // of the API
	Microversion Microversion // that requests use: at most SpecsValidated
	Newest       Microversion // the newest that the cloud supports, which depends on its release
}

// Compute finds Nova in the catalog and negotiates a microversion, with one request.
func (c *Cloud) Compute(ctx context.Context) (*Compute, error) {
	const what = "compute service"
	var client *gophercloud.ServiceClient
	// No request is made if the address in the catalog contains the version.
	err := c.ask(ctx, what, func(context.Context) (err error) {
		client, err = openstack.NewComputeV2(c.provider, c.endpoints.options("compute"))
		return err
	})
	if err != nil {
		return nil, err
	}
	compute := &Compute{cloud: c, client: client, URL: redacted(strings.TrimSuffix(client.Endpoint, "/"))}
	// In catalogs of old clouds the project follows the version.
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
		advise(err, adviceCompute)
		return nil, err
	}
	newest, oldest := minor(document.Version.Newest), minor(document.Version.Oldest)
	if newest == 0 { // API v2.0, or Nova before Kilo
		return nil, &Error{Doing: what, Reason: compute.URL + " has no microversions; gpustack needs Nova's API 2.1", advice: adviceCompute}
	}
	compute.Newest = newest
	compute.Microversion = max(min(newest, SpecsValidated), oldest)
	client.Microversion = compute.Microversion.String()
	return compute, nil
}

// Cloud returns the connection to the cloud, for its other services.
func (c *Compute) Cloud() *Cloud {
	return c.cloud
}

// Scope returns the cloud, the region and the project in which requests are made.
func (c *Compute) Scope() Scope {
	return Scope{c.URL, c.cloud.endpoints.of("compute").region, c.cloud.project()}
}

// minor returns N of 2.N, or 0.
func minor(version string) Microversion {
	n, err := strconv.Atoi(strings.TrimPrefix(version, "2."))
	if err != nil {
		return 0
	}
	return Microversion(n)
}

// Servers returns the ids of the instances of a flavor in all projects. It requires an
// administrator.
func (c *Compute) Servers(ctx context.Context, flavorID string) ([]string, error) {
	type server struct {
		ID string `json:"id"`
	}
	pager := servers.ListSimple(c.client, servers.ListOpts{Flavor: flavorID, AllTenants: true})
	extract := func(pages pagination.Page) (all []server, err error) {
		return all, servers.ExtractServersInto(pages, &all)
	}
	return listOf(ctx, c.cloud, "instances of the flavor", pager, extract, func(s *server) string { return s.ID })
}
