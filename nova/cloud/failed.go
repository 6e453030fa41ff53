package cloud

import (
	"cmp"
	"context"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
)

// Placing is where a server is, or why it is nowhere.
type Placing struct {
	ID      string
	Name    string
	Status  string
	Project string
	Host    string // "" without a host, and for users whom the policy does not show it
	Zone    string // the one that the server is in, or else that was requested; "" for none
	Image   string // "" for a server that boots from a volume
	Fault   string // "" for none
	Flavor  Flavor // as it was when the server was created, from microversion 2.47 on; before, only its ID
}

// embeddedFlavors is the first microversion in which a server has a copy of its flavor (Pike).
const embeddedFlavors Microversion = 47

// ServerPlacing returns where a server is, or why it is nowhere.
//
// Errors: ErrNotFound.
func (c *Compute) ServerPlacing(ctx context.Context, id string) (Placing, error) {
	var s struct {
		ID      string `json:"id"`
		Name    string `json:"name"`
		Status  string `json:"status"`
		Project string `json:"tenant_id"`
		Host    string `json:"OS-EXT-SRV-ATTR:host"`
		Zone    string `json:"OS-EXT-AZ:availability_zone"`
		Image   any    `json:"image"` // an object, or "" for a volume
		Fault   struct {
			Message string `json:"message"`
		} `json:"fault"`
		Flavor struct {
			ID        string            `json:"id"`
			Name      string            `json:"original_name"`
			VCPUs     int               `json:"vcpus"`
			RAM       int               `json:"ram"`
			Disk      int               `json:"disk"`
			Ephemeral int               `json:"ephemeral"`
			Swap      int               `json:"swap"`
			Specs     map[string]string `json:"extra_specs"`
		} `json:"flavor"`
	}
	err := c.cloud.ask(ctx, "server "+id, func(ctx context.Context) error {
		return servers.Get(ctx, c.client, id).ExtractInto(&s)
	})
	image, _ := s.Image.(map[string]any)
	imageID, _ := image["id"].(string)
	f := s.Flavor
	return Placing{
		ID: s.ID, Name: s.Name, Status: s.Status, Project: s.Project, Host: s.Host, Zone: s.Zone, Image: imageID, Fault: s.Fault.Message,
		Flavor: Flavor{
			ID: f.ID, Name: cmp.Or(f.Name, f.ID), VCPUs: f.VCPUs, RAM: f.RAM, Disk: f.Disk, Ephemeral: f.Ephemeral, Swap: f.Swap, Public: true,
			ExtraSpecs: f.Specs,
		},
	}, err
}

// HasEmbeddedFlavors returns whether servers have copies of their flavors.
func (c *Compute) HasEmbeddedFlavors() bool {
	return c.Microversion >= embeddedFlavors
}
