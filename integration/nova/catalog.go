package nova

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/endpoints"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/roles"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/services"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/users"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/imagedata"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"gpustack/integration/service"
)

// Image is the name of the one image: a few bytes, public.
const Image = "tiny"

// Client is a session of the user admin.
func (l *Lab) Client(ctx context.Context) (*gophercloud.ProviderClient, error) {
	return openstack.AuthenticatedClient(ctx, gophercloud.AuthOptions{
		IdentityEndpoint: l.KeystoneURL,
		Username:         "admin",
		Password:         l.AdminPassword,
		TenantName:       "admin",
		DomainName:       "Default",
	})
}

// makeCatalog gives Keystone the users and the endpoints.
func (l *Lab) makeCatalog(ctx context.Context) error {
	session, err := l.Client(ctx)
	if err != nil {
		return err
	}
	keystone, err := openstack.NewIdentityV3(session, gophercloud.EndpointOpts{Region: Region})
	if err != nil {
		return err
	}
	role := map[string]string{}
	pages, err := roles.List(keystone, nil).AllPages(ctx)
	if err != nil {
		return err
	}
	all, err := roles.ExtractRoles(pages)
	if err != nil {
		return err
	}
	for _, r := range all {
		role[r.Name] = r.ID
	}
	project := map[string]string{}
	for _, name := range []string{"service", "demo"} {
		made, err := projects.Create(ctx, keystone, projects.CreateOpts{Name: name, DomainID: "default"}).Extract()
		if err != nil {
			return fmt.Errorf("project %s: %w", name, err)
		}
		project[name] = made.ID
	}
	for _, u := range []struct{ name, password, project, role string }{
		{"nova", l.ServicePassword, "service", "admin"},
		{"placement", l.ServicePassword, "service", "admin"},
		{"glance", l.ServicePassword, "service", "admin"},
		{"neutron", l.ServicePassword, "service", "admin"},
		{"demo", l.DemoPassword, "demo", "member"},
	} {
		made, err := users.Create(ctx, keystone, users.CreateOpts{Name: u.name, Password: u.password, DomainID: "default"}).Extract()
		if err != nil {
			return fmt.Errorf("user %s: %w", u.name, err)
		}
		has := []string{role[u.role]}
		// Since 2023.1, Keystone makes the role that services have beside, and Placement's policy for
		// reshaping, which nova-compute does as it begins to report the devices of guests, wants it.
		if id, there := role["service"]; there && u.project == "service" {
			has = append(has, id)
		}
		for _, id := range has {
			if err := roles.Assign(ctx, keystone, id, roles.AssignOpts{UserID: made.ID, ProjectID: project[u.project]}).ExtractErr(); err != nil {
				return fmt.Errorf("role of user %s: %w", u.name, err)
			}
		}
	}
	for _, s := range []struct{ kind, name, url string }{
		{"compute", "nova", l.NovaURL},
		{"placement", "placement", l.PlacementURL},
		{"image", "glance", l.GlanceURL},
		{"network", "neutron", l.NeutronURL},
	} {
		made, err := services.Create(ctx, keystone, services.CreateOpts{Type: s.kind, Extra: map[string]any{"name": s.name}}).Extract()
		if err != nil {
			return fmt.Errorf("service %s: %w", s.name, err)
		}
		_, err = endpoints.Create(ctx, keystone, endpoints.CreateOpts{
			Availability: gophercloud.AvailabilityPublic, Name: s.name, Region: Region, ServiceID: made.ID, URL: s.url,
		}).Extract()
		if err != nil {
			return fmt.Errorf("endpoint of %s: %w", s.name, err)
		}
	}
	return nil
}

// makeImage gives Glance an image to boot servers from, as far as the fake driver
// boots.
func (l *Lab) makeImage(ctx context.Context) error {
	session, err := l.Client(ctx)
	if err != nil {
		return err
	}
	glance, err := openstack.NewImageV2(session, gophercloud.EndpointOpts{Region: Region})
	if err != nil {
		return err
	}
	public := images.ImageVisibilityPublic
	made, err := images.Create(ctx, glance, images.CreateOpts{Name: Image, ContainerFormat: "bare", DiskFormat: "raw", Visibility: &public}).Extract()
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := imagedata.Upload(ctx, glance, made.ID, strings.NewReader("not much of a disk\n")).ExtractErr(); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// HostsFound waits until nova-scheduler has mapped the compute hosts to the cell and their cards,
// as many as are given, are in the database: two for each host.
func (l *Lab) HostsFound(ctx context.Context, cards int) error {
	return service.Wait(ctx, func(ctx context.Context) (again bool, err error) {
		rows, err := l.Database.Query(ctx, "SELECT (SELECT count(*) FROM nova_api.host_mappings), (SELECT count(*) FROM nova_cell1.pci_devices)")
		if err != nil {
			return false, err
		}
		if rows[0][0] != strconv.Itoa(cards/2) || rows[0][1] != strconv.Itoa(cards) {
			return true, errors.New("nova: host mappings and cards are " + strings.Join(rows[0], " and "))
		}
		return false, nil
	})
}
