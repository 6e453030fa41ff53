package servertest

import (
	"context"
	"errors"
	"slices"

	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Observed is what a plan depends on.
type Observed struct {
	Flavor  cloud.Flavor // with its extra specs
	Image   cloud.Image
	Network cloud.Network // that the options name; zero if they name none
	Wanted  Wanted
	Newest  cloud.Microversion
	Quotas  []cloud.Quota
	// Free are the free devices by resource class, nil for a class that Placement does not know.
	// ToClean are one-time-use devices of classes of which too few are free. Unread is why
	// Placement was not read.
	Free    map[string]*cloud.Free
	ToClean []string
	Unread  error
	// Placement shows after the test whether its devices are free; nil if it was not read.
	Placement *cloud.Placement
}

// Observe finds the flavor, the image and the network that options name, what guests of the flavor
// should have by the sources of aliases, and what a plan depends on besides. The error joins all
// errors. That Placement cannot be read is no error.
func Observe(ctx context.Context, c *cloud.Cloud, compute *cloud.Compute, o Options, sources []nova.Defined) (Observed, error) {
	is := Observed{Newest: compute.Newest, Free: map[string]*cloud.Free{}}
	all, err := compute.Flavors(ctx)
	if err != nil {
		return is, err
	}
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	if is.Flavor, err = cloud.FindFlavor(all, o.FlavorName); err != nil {
		keep(err)
	} else if is.Flavor.ExtraSpecs, err = compute.ExtraSpecs(ctx, is.Flavor); err != nil {
		keep(err)
	} else if is.Wanted, err = NewWanted(is.Flavor, sources); err != nil {
		keep(err)
	}
	is.Image, err = c.Image(ctx, o.ImageName)
	keep(err)
	if o.namesNetwork() {
		is.Network, err = c.Network(ctx, o.Network)
		keep(err)
	}
	is.Quotas, err = compute.Quotas(ctx)
	keep(err)
	if err := errors.Join(errs...); err != nil {
		return is, err
	}
	is.readFree(ctx, c, o.Count)
	return is, nil
}

// namesNetwork reports whether the network of a test is one of Neutron.
func (o Options) namesNetwork() bool {
	return !slices.Contains([]string{"", cloud.NetworkNone, cloud.NetworkAuto}, o.Network)
}

// readFree reads the free devices of all wanted classes, and why there are too few for a number of
// servers.
func (is *Observed) readFree(ctx context.Context, c *cloud.Cloud, servers int) {
	placement, err := c.Placement()
	for class, each := range is.Wanted.Classes {
		if err != nil {
			break
		}
		is.Free[class], err = placement.FreeDevices(ctx, class)
		if free := is.Free[class]; free != nil && free.Devices < each*servers {
			var waiting string
			if waiting, err = placement.ToClean(ctx, class); waiting != "" {
				is.ToClean = append(is.ToClean, waiting)
			}
		}
	}
	if is.Unread = err; err == nil {
		is.Placement = placement
	}
}
