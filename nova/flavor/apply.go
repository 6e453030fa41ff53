package flavor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/google/uuid"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// Request is a request to Nova's API.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"` // below the address of the API; ID stands for the id of a new flavor
	Body   any    `json:"body"`
}

// Requests returns the requests that Apply makes, in their order.
func (p Plan) Requests() []Request {
	id := "ID"
	var requests []Request
	add := func(method, path string, body any) {
		requests = append(requests, Request{method, path, body})
	}
	object := func(key string, value any) map[string]any { return map[string]any{key: value} }
	if f := p.After; p.Before == nil {
		body := map[string]any{
			"id": id, "name": f.Name, "vcpus": f.VCPUs, "ram": f.RAM, "disk": f.Disk, "OS-FLV-EXT-DATA:ephemeral": f.Ephemeral,
			"swap": f.Swap, "os-flavor-access:is_public": f.Public,
		}
		if f.Description != "" {
			body["description"] = f.Description
		}
		add("POST", "/flavors", object("flavor", body))
	} else {
		id = f.ID
	}
	if len(p.Set) > 0 {
		add("POST", "/flavors/"+id+"/os-extra_specs", object("extra_specs", p.Set))
	}
	if p.Describe {
		add("PUT", "/flavors/"+id, object("flavor", object("description", p.After.Description)))
	}
	for _, project := range p.Grant {
		add("POST", "/flavors/"+id+"/action", object("addTenantAccess", object("tenant", project.ID)))
	}
	return requests
}

// Errors of Apply.
var (
	// ErrExists says that another user has created a flavor with the name since the plan was made.
	ErrExists = host.WithHint(errors.New("was created by another user meanwhile"), "run the command again: it plans anew")
	// ErrDrift says that Nova has made a different flavor than was requested.
	ErrDrift = errors.New("is not as requested")
)

// Apply makes the requests of a plan, checks Nova's answers, and returns the flavor. A new flavor
// that cannot be completed is deleted: without its extra specs it would boot guests without
// devices. When ctx ends, an existing flavor keeps the changes that were made, and the error says
// how many.
func (p Plan) Apply(ctx context.Context, c *cloud.Compute) (cloud.Flavor, error) {
	f := p.After
	if cause := context.Cause(ctx); cause != nil {
		return cloud.Flavor{}, fmt.Errorf("%w, nothing was changed", cause)
	}
	if p.Before == nil {
		// The ID identifies the flavor if the answer is lost: it is not one that another user has
		// created.
		f.ID = uuid.NewString()
		if err := create(ctx, c, f); err != nil {
			switch {
			case errors.Is(err, ErrExists):
				return cloud.Flavor{}, err // another user's flavor
			case cloud.IsRefused(err):
				return cloud.Flavor{}, fmt.Errorf("nothing was changed: %w", err)
			}
			return cloud.Flavor{}, takeBack(ctx, c, f, err)
		}
	}
	err := p.finish(ctx, c, f)
	if err != nil && p.Before == nil {
		err = takeBack(ctx, c, f, err)
	}
	return f, err
}

// create creates the flavor without its extra specs.
func create(ctx context.Context, c *cloud.Compute, f cloud.Flavor) error {
	made, err := c.CreateFlavor(ctx, f)
	if errors.Is(err, cloud.ErrConflict) {
		// A request whose answer was lost has created it, unless it is another flavor.
		if made, err = c.GetFlavor(ctx, f.ID); errors.Is(err, cloud.ErrNotFound) {
			return fmt.Errorf("flavor %s: %w", f.Name, ErrExists)
		}
	}
	if err != nil {
		return err
	}
	made.ExtraSpecs = f.ExtraSpecs // are set later
	if is, want := Text(&made, nil), Text(&f, nil); made.ID != f.ID || is != want {
		return fmt.Errorf("flavor %s: %w:\n%s", f.Name, ErrDrift, is)
	}
	return nil
}

// finish makes the requests for a flavor that exists.
func (p Plan) finish(ctx context.Context, c *cloud.Compute, f cloud.Flavor) error {
	var requests []func(context.Context) error
	if len(p.Set) > 0 {
		requests = append(requests, func(ctx context.Context) error {
			set, err := c.SetExtraSpecs(ctx, f, p.Set)
			if err == nil && !maps.Equal(set, p.Set) {
				err = fmt.Errorf("flavor %s: %w: it has extra specs %v", f.Name, ErrDrift, set)
			}
			return err
		})
	}
	if p.Describe {
		requests = append(requests, func(ctx context.Context) error { return c.DescribeFlavor(ctx, f, f.Description) })
	}
	for _, project := range p.Grant {
		requests = append(requests, func(ctx context.Context) error { return c.Grant(ctx, f, project.ID) })
	}
	for i, request := range requests {
		cause := context.Cause(ctx)
		switch {
		case p.Before == nil: // a new flavor is deleted, whatever the request has done
			if err := request(ctx); err != nil {
				return err
			}
			continue
		case cause != nil && i == 0:
			return fmt.Errorf("%w, nothing was changed", cause)
		case cause != nil:
			return fmt.Errorf("%w, flavor %s keeps the changes of %d of %d requests", cause, f.Name, i, len(requests))
		}
		// Without its answer, the effect of a request would be unknown.
		if err := request(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// takeBack deletes a flavor that could not be completed, also after an interrupt, and adds the
// result to the error.
func takeBack(ctx context.Context, c *cloud.Compute, f cloud.Flavor, err error) error {
	if undo := c.DeleteFlavor(context.WithoutCancel(ctx), f); undo != nil {
		return errors.Join(err, fmt.Errorf("flavor %s with id %s may remain incomplete: %w", f.Name, f.ID, undo))
	}
	return fmt.Errorf("nothing was changed: %w", err)
}

// ErrInUse says that instances have the flavor.
var ErrInUse = host.WithHint(errors.New("is in use"), "delete or resize the instances first: openstack server list --all-projects --flavor FLAVOR")

// CheckUnused returns an error if instances have the flavor. servers are their ids.
func CheckUnused(f cloud.Flavor, servers []string) error {
	const shown = 5
	if len(servers) == 0 {
		return nil
	}
	by := fmt.Sprintf("%d instances", len(servers))
	if len(servers) == 1 {
		by = "1 instance"
	}
	names := strings.Join(servers[:min(len(servers), shown)], ", ")
	if len(servers) > shown {
		names += " and others"
	}
	return fmt.Errorf("flavor %s: %w by %s: %s", f.Name, ErrInUse, by, names)
}
