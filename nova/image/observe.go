package image

import (
	"context"
	"errors"

	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Observe reads what the plan or the check of an image depends on: the image, the flavor of its
// guests, and the compute nodes with the traits on which they depend. hosts are inventories of
// compute nodes, nil for none. The error joins those of image and flavor. That Placement does not
// answer is no error.
func Observe(ctx context.Context, c *cloud.Compute, o Options, hosts []nova.Host) (Seen, error) {
	seen := Seen{Given: o.Image, Newest: c.Newest, Hosts: hosts, Products: o.Products}
	err := seen.find(ctx, c, o)
	if err != nil {
		return seen, err
	}
	seen.Traits, err = readTraits(ctx, c.Cloud(), seen.Demands(o))
	return seen, err
}

// find finds the image and the flavor that options name.
func (s *Seen) find(ctx context.Context, c *cloud.Compute, o Options) (err error) {
	if o.Flavor == "" {
		s.Image, err = c.Cloud().Image(ctx, o.Image)
		return err
	}
	all, err := c.Flavors(ctx)
	if err != nil {
		return err
	}
	var imageErr error
	s.Image, imageErr = c.Cloud().Image(ctx, o.Image)
	f, err := cloud.FindFlavor(all, o.Flavor)
	if err = errors.Join(imageErr, err); err != nil {
		return err
	}
	f.ExtraSpecs, err = c.ExtraSpecs(ctx, f)
	s.Flavor = &f
	return err
}

// readTraits asks Placement for the compute nodes that have each trait. That Placement refuses or
// is not there is part of the answer: only administrators may ask it.
func readTraits(ctx context.Context, c *cloud.Cloud, traits []string) (Traits, error) {
	read := Traits{Nodes: map[string][]string{}}
	if len(traits) == 0 {
		return read, nil
	}
	placement, err := c.Placement()
	for _, trait := range traits {
		if err != nil {
			break
		}
		read.Nodes[trait], err = placement.WithTrait(ctx, trait)
	}
	if ctx.Err() != nil {
		return read, err
	}
	read.Err = err
	return read, nil
}
