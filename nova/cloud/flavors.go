package cloud

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"

	"gpustack/host"
)

// Flavor is a flavor with its extra specs.
type Flavor struct {
	ID    string `json:"id"`      // the id in the API
	Name  string `json:"name"`    // the name, which commands accept too
	VCPUs int    `json:"vcpus"`   // virtual CPUs of a guest
	RAM   int    `json:"ram_mib"` // memory of a guest
	// the root disk; 0 for the size of the image
	Disk        int     `json:"disk_gib"`
	Ephemeral   int     `json:"ephemeral_gib"` // the ephemeral disk; 0 for none
	Swap        int     `json:"swap_mib"`      // the swap disk; 0 for none
	Public      bool    `json:"public"`        // whether all projects may use it
	RxTxFactor  float64 `json:"rxtx_factor"`   // 1 by default
	Description string  `json:"description"`   // always "" before microversion 2.55
	// the properties; none if they were not read
	ExtraSpecs map[string]string `json:"extra_specs"`
	// Disabled: Nova creates no server with the flavor. Only Flavors reads it, and no API sets it.
	Disabled bool `json:"-"`
}

// fromAPI returns a flavor of an answer.
func fromAPI(f *flavors.Flavor) Flavor {
	return Flavor{
		ID: f.ID, Name: f.Name, VCPUs: f.VCPUs, RAM: f.RAM, Disk: f.Disk, Ephemeral: f.Ephemeral, Swap: f.Swap, Public: f.IsPublic,
		RxTxFactor: cmp.Or(f.RxTxFactor, 1), Description: f.Description, ExtraSpecs: f.ExtraSpecs,
	}
}

// Flavors returns all flavors that the user may see, sorted by name; for an administrator also
// private ones. Before microversion 2.61 they are without extra specs.
func (c *Compute) Flavors(ctx context.Context) ([]Flavor, error) {
	all, err := answerOf(ctx, c.cloud, "flavors", func(ctx context.Context) (all []Flavor, err error) {
		pages, err := flavors.ListDetail(c.client, flavors.ListOpts{AccessType: flavors.AllAccess}).AllPages(ctx)
		if err != nil {
			return nil, err
		}
		list, err := flavors.ExtractFlavors(pages)
		if err != nil {
			return nil, err
		}
		var more struct { // what gophercloud's type lacks
			Flavors []struct {
				Disabled bool `json:"OS-FLV-DISABLED:disabled"`
			} `json:"flavors"`
		}
		if err := pages.(flavors.FlavorPage).ExtractInto(&more); err != nil {
			return nil, err
		}
		for i := range list {
			f := fromAPI(&list[i])
			f.Disabled = more.Flavors[i].Disabled
			all = append(all, f)
		}
		return all, nil
	})
	slices.SortFunc(all, func(a, b Flavor) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID)) })
	return all, err
}

// FlavorsWithSpecs is [Compute.Flavors] with extra specs, which before microversion 2.61 need a
// request for each flavor.
func (c *Compute) FlavorsWithSpecs(ctx context.Context) ([]Flavor, error) {
	all, err := c.Flavors(ctx)
	if err != nil || c.Microversion >= SpecsInBodies {
		return all, err
	}
	return all, AskAll(ctx, len(all), "flavors", func(i int) (err error) {
		all[i].ExtraSpecs, err = c.ExtraSpecs(ctx, all[i])
		return err
	})
}

// FindFlavor finds a flavor by its name or its id; names come first.
func FindFlavor(all []Flavor, nameOrID string) (Flavor, error) {
	i := slices.IndexFunc(all, func(f Flavor) bool { return f.Name == nameOrID })
	if i < 0 {
		i = slices.IndexFunc(all, func(f Flavor) bool { return f.ID == nameOrID })
	}
	if i >= 0 {
		return all[i], nil
	}
	return Flavor{}, host.WithHint(fmt.Errorf("flavor %s: not found", host.WithoutCredentials(nameOrID)),
		host.Textf("%s shows the flavors that request devices", host.NewCommand("flavor list")))
}

// ExtraSpecs returns a flavor's extra specs.
func (c *Compute) ExtraSpecs(ctx context.Context, f Flavor) (specs map[string]string, err error) {
	if f.ExtraSpecs != nil {
		return f.ExtraSpecs, nil
	}
	specs, err = answerOf(ctx, c.cloud, "flavor "+f.Name, func(ctx context.Context) (map[string]string, error) {
		return flavors.ListExtraSpecs(ctx, c.client, f.ID).Extract()
	})
	if specs == nil && err == nil {
		specs = map[string]string{}
	}
	return specs, err
}

// CreateFlavor creates a flavor without extra specs, and returns it as Nova has it. The caller
// chooses the ID, by which the flavor is found again if the answer was lost. A description requires
// microversion 2.55.
//
// Errors: ErrConflict if another flavor has the name or the ID.
func (c *Compute) CreateFlavor(ctx context.Context, f Flavor) (Flavor, error) {
	options := flavors.CreateOpts{
		ID: f.ID, Name: f.Name, VCPUs: f.VCPUs, RAM: f.RAM, Disk: &f.Disk,
		Ephemeral: &f.Ephemeral, Swap: &f.Swap, IsPublic: &f.Public, Description: f.Description,
	}
	if f.RxTxFactor != 1 {
		options.RxTxFactor = f.RxTxFactor
	}
	return answerOf(ctx, c.cloud, "creating flavor "+f.Name, func(ctx context.Context) (Flavor, error) {
		made, err := flavors.Create(ctx, c.client, options).Extract()
		if err != nil {
			return Flavor{}, err
		}
		return fromAPI(made), nil
	})
}

// GetFlavor returns the flavor with an ID, before microversion 2.61 without extra specs.
//
// Errors: ErrNotFound.
func (c *Compute) GetFlavor(ctx context.Context, id string) (Flavor, error) {
	return answerOf(ctx, c.cloud, "flavor "+id, func(ctx context.Context) (Flavor, error) {
		found, err := flavors.Get(ctx, c.client, id).Extract()
		if err != nil {
			return Flavor{}, err
		}
		return fromAPI(found), nil
	})
}

// DescribeFlavor changes a flavor's description, from microversion 2.55 on.
func (c *Compute) DescribeFlavor(ctx context.Context, f Flavor, description string) error {
	return c.cloud.ask(ctx, "describing flavor "+f.Name, func(ctx context.Context) error {
		_, err := flavors.Update(ctx, c.client, f.ID, newDescription(description)).Extract()
		return err
	})
}

// newDescription is the body of a request that changes a description. That of gophercloud cannot
// remove one.
type newDescription string

// ToFlavorUpdateMap returns the body of the request.
func (d newDescription) ToFlavorUpdateMap() (map[string]any, error) {
	var description any
	if d != "" {
		description = string(d)
	}
	return map[string]any{"flavor": map[string]any{"description": description}}, nil
}

// SetExtraSpecs sets extra specs of a flavor and leaves others as they are. It returns those that
// Nova reports as set.
func (c *Compute) SetExtraSpecs(ctx context.Context, f Flavor, specs map[string]string) (set map[string]string, err error) {
	return answerOf(ctx, c.cloud, "extra specs of flavor "+f.Name, func(ctx context.Context) (map[string]string, error) {
		return flavors.CreateExtraSpecs(ctx, c.client, f.ID, flavors.ExtraSpecsOpts(maps.Clone(specs))).Extract()
	})
}

// UnsetExtraSpec removes an extra spec of a flavor. It is no error if it is not set.
func (c *Compute) UnsetExtraSpec(ctx context.Context, f Flavor, key string) error {
	return except(ErrNotFound, c.cloud.ask(ctx, "extra spec "+key+" of flavor "+f.Name, func(ctx context.Context) error {
		return flavors.DeleteExtraSpec(ctx, c.client, f.ID, key).ExtractErr()
	}))
}

// DeleteFlavor deletes a flavor. It is no error if the flavor does not exist.
func (c *Compute) DeleteFlavor(ctx context.Context, f Flavor) error {
	// A request whose answer was lost, or another user, has deleted it.
	return except(ErrNotFound, c.cloud.ask(ctx, "deleting flavor "+f.Name, func(ctx context.Context) error {
		return flavors.Delete(ctx, c.client, f.ID).ExtractErr()
	}))
}

// Access returns the ids of the projects that may use a private flavor.
func (c *Compute) Access(ctx context.Context, f Flavor) ([]string, error) {
	projects, err := listOf(ctx, c.cloud, "access to flavor "+f.Name, flavors.ListAccesses(c.client, f.ID), flavors.ExtractAccesses,
		func(a *flavors.FlavorAccess) string { return a.TenantID })
	slices.Sort(projects)
	return append([]string{}, projects...), err
}

// Grant lets a project use a private flavor. It is no error if the project may use it already.
func (c *Compute) Grant(ctx context.Context, f Flavor, project string) error {
	return except(ErrConflict, c.cloud.ask(ctx, "access to flavor "+f.Name+" for project "+project, func(ctx context.Context) error {
		return flavors.AddAccess(ctx, c.client, f.ID, flavors.AddAccessOpts{Tenant: project}).Err
	}))
}

// Revoke no longer lets a project use a private flavor. It is no error if the project may not use
// it.
func (c *Compute) Revoke(ctx context.Context, f Flavor, project string) error {
	return except(ErrNotFound, c.cloud.ask(ctx, "access to flavor "+f.Name+" for project "+project, func(ctx context.Context) error {
		return flavors.RemoveAccess(ctx, c.client, f.ID, flavors.RemoveAccessOpts{Tenant: project}).Err
	}))
}
