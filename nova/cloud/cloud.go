// Package cloud reaches OpenStack's services, by the credentials that every client
// of OpenStack reads.
//
// Does not: decide what to do there (nova/flavor, cleanup), or print.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/config"
	"github.com/gophercloud/gophercloud/v2/openstack/config/clouds"
)

// ErrNoCredentials says that nobody has said which cloud, or as whom.
var ErrNoCredentials = errors.New("no credentials")

// Compute is Nova's API.
type Compute struct {
	client *gophercloud.ServiceClient
}

// Connect signs in with clouds.yaml and OS_CLOUD, or with OS_AUTH_URL and what goes
// with it.
func Connect(ctx context.Context) (*Compute, error) {
	var auth gophercloud.AuthOptions
	endpoint := gophercloud.EndpointOpts{Region: os.Getenv("OS_REGION_NAME")}
	client := http.Client{Timeout: 30 * time.Second}
	switch {
	case os.Getenv("OS_CLOUD") != "":
		parsed, parsedEndpoint, tlsConfig, err := clouds.Parse()
		if err != nil {
			return nil, fmt.Errorf("cloud %s: %w", os.Getenv("OS_CLOUD"), err)
		}
		auth, endpoint = parsed, parsedEndpoint
		if tlsConfig != nil {
			client.Transport = &http.Transport{TLSClientConfig: tlsConfig, Proxy: http.ProxyFromEnvironment}
		}
	case os.Getenv("OS_AUTH_URL") != "":
		var err error
		if auth, err = openstack.AuthOptionsFromEnv(); err != nil {
			return nil, fmt.Errorf("environment: %w", err)
		}
	default:
		return nil, ErrNoCredentials
	}
	auth.AllowReauth = true // clouds.Parse forgets it
	provider, err := config.NewProviderClient(ctx, auth, config.WithHTTPClient(client))
	if err != nil {
		return nil, fmt.Errorf("signing in at %s: %w", auth.IdentityEndpoint, err)
	}
	compute, err := openstack.NewComputeV2(provider, endpoint)
	if err != nil {
		return nil, fmt.Errorf("compute service: %w", err)
	}
	return &Compute{compute}, nil
}

// Flavor is a flavor with its extra specs.
type Flavor struct {
	Name       string
	ExtraSpecs map[string]string
}

// Flavors returns every flavor that the user may see, private ones among them for an
// administrator.
func (c *Compute) Flavors(ctx context.Context) ([]Flavor, error) {
	pages, err := flavors.ListDetail(c.client, flavors.ListOpts{AccessType: flavors.AllAccess}).AllPages(ctx)
	if err != nil {
		return nil, fmt.Errorf("flavors: %w", err)
	}
	list, err := flavors.ExtractFlavors(pages)
	if err != nil {
		return nil, fmt.Errorf("flavors: %w", err)
	}
	var all []Flavor
	for _, f := range list {
		// Bodies hold extra specs from microversion 2.61 on (Rocky); asked for one
		// by one, every release tells them.
		specs, err := flavors.ListExtraSpecs(ctx, c.client, f.ID).Extract()
		if err != nil {
			return nil, fmt.Errorf("flavor %s: %w", f.Name, err)
		}
		all = append(all, Flavor{f.Name, specs})
	}
	return all, nil
}
