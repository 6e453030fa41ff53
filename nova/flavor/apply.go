package flavor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/google/uuid"

	"gpustack/nova/cloud"
)

// Request is a request that a plan makes of Nova.
type Request struct {
	Method string `json:"method"`
	Path   string `json:"path"` // below the API's address; ID for that of a new flavor
	Body   any    `json:"body"`
}

// Requests are what Apply asks of Nova, in that order.
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
	ErrExists = errors.New("somebody has made it meanwhile")
	ErrDrift  = errors.New("is not what was asked for")
)

// Apply carries a plan out, holds Nova's answers against it, and returns the flavor.
// A new flavor that cannot be finished is deleted again, since without its extra specs
// it would boot guests without devices. When ctx ends, a flavor that was there before keeps what
// the running request makes of it, and the error says how many were made.
func (p Plan) Apply(ctx context.Context, c *cloud.Compute) (cloud.Flavor, error) {
	f := p.After
	if cause := context.Cause(ctx); cause != nil {
		return cloud.Flavor{}, fmt.Errorf("%w, nothing was changed", cause)
	}
	if p.Before == nil {
		// With an ID of our own, a flavor whose making was heard and the answer lost
		// is told from one that somebody else has made.
		f.ID = uuid.NewString()
		if err := create(ctx, c, f); err != nil {
			switch {
			case errors.Is(err, ErrExists):
				return cloud.Flavor{}, err // not ours
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

// create makes the flavor, but for its extra specs.
func create(ctx context.Context, c *cloud.Compute, f cloud.Flavor) error {
	made, err := c.CreateFlavor(ctx, f)
	if errors.Is(err, cloud.ErrConflict) {
		// Heard before, and the answer was lost; unless it is another one.
		if made, err = c.GetFlavor(ctx, f.ID); errors.Is(err, cloud.ErrNotFound) {
			return fmt.Errorf("flavor %s: %w", f.Name, ErrExists)
		}
	}
	if err != nil {
		return err
	}
	made.ExtraSpecs = f.ExtraSpecs // come later
	if is, want := Text(&made, nil), Text(&f, nil); made.ID != f.ID || is != want {
		return fmt.Errorf("flavor %s: %w, but:\n%s", f.Name, ErrDrift, is)
	}
	return nil
}

// finish does what is to be done to a flavor that is there.
func (p Plan) finish(ctx context.Context, c *cloud.Compute, f cloud.Flavor) error {
	var requests []func(context.Context) error
	if len(p.Set) > 0 {
		requests = append(requests, func(ctx context.Context) error {
			set, err := c.SetExtraSpecs(ctx, f, p.Set)
			if err == nil && !maps.Equal(set, p.Set) {
				err = fmt.Errorf("flavor %s: %w, but has extra specs %v", f.Name, ErrDrift, set)
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
			return fmt.Errorf("%w, flavor %s keeps what %d of %d requests have changed", cause, f.Name, i, len(requests))
		}
		// What a request has done whose answer is not waited for would be unknown.
		if err := request(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// takeBack deletes a flavor that could not be finished, also when the operator has
// interrupted that, and adds to the error what came of it.
func takeBack(ctx context.Context, c *cloud.Compute, f cloud.Flavor, err error) error {
	if undo := c.DeleteFlavor(context.WithoutCancel(ctx), f); undo != nil {
		return errors.Join(err, fmt.Errorf("flavor %s with id %s may be left unfinished: %w", f.Name, f.ID, undo))
	}
	return fmt.Errorf("nothing was changed: %w", err)
}

// ErrInUse says that a flavor cannot go, since instances have it.
var ErrInUse = errors.New("is in use")

// CheckUnused is an error where instances have the flavor.
func CheckUnused(f cloud.Flavor, servers []string) error {
	const shown = 5
	if len(servers) == 0 {
		return nil
	}
	by := fmt.Sprintf("%d instances", len(servers))
	if len(servers) == 1 {
		by = "an instance"
	}
	names := strings.Join(servers[:min(len(servers), shown)], ", ")
	if len(servers) > shown {
		names += " and others"
	}
	return fmt.Errorf("flavor %s: %w by %s: %s", f.Name, ErrInUse, by, names)
}
