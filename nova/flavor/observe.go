package flavor

import (
	"context"
	"errors"

	"gpustack/nova/cloud"
)

// Observe reads what the plan of a flavor depends on: the flavor with the name, and the projects
// and the image that the options name. The error joins those of all names.
func Observe(ctx context.Context, c *cloud.Compute, o Options) (Cloud, error) {
	seen := Cloud{Microversion: c.Microversion, Newest: c.Newest}
	all, err := c.Flavors(ctx)
	if err != nil {
		return seen, err
	}
	var errs []error
	for _, name := range o.Projects {
		project, err := c.Cloud().Project(ctx, name)
		seen.Projects, errs = append(seen.Projects, project), append(errs, err)
	}
	if o.Image != "" {
		image, err := c.Cloud().Image(ctx, o.Image)
		seen.Image, errs = &image, append(errs, err)
	}
	if f := o.Find(all); f != nil {
		seen.Existing, err = Complete(ctx, c, *f)
		errs = append(errs, err)
	}
	return seen, errors.Join(errs...)
}
