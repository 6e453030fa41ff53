package cloud

import (
	"strings"

	"github.com/gophercloud/gophercloud/v2"
)

// service finds a service in the catalog, without a request: gophercloud's own constructors read
// the versions of a service each time. Its requests are made below path, such as "v2/", which the
// catalogs of some clouds contain, and those of others do not; "" for none.
func (c *Cloud) service(kind, path string) (*gophercloud.ServiceClient, error) {
	options := c.endpoints.options(kind)
	options.ApplyDefaults(kind)
	address, err := c.provider.EndpointLocator(options)
	if err != nil {
		return nil, doing(kind+" service", err)
	}
	client := &gophercloud.ServiceClient{ProviderClient: c.provider, Endpoint: address, Type: kind}
	if path != "" && !strings.HasSuffix(address, "/"+path) {
		client.ResourceBase = address + path
	}
	return client, nil
}
