package flavor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// errInUse says that instances have the flavor.
var errInUse = host.WithHint(host.WithCode(errors.New("is in use"), host.CodeInUse, ""),
	"delete or resize the instances first: openstack server list --all-projects --flavor FLAVOR")

// hasRequest reports whether a flavor requests devices.
func hasRequest(f cloud.Flavor) bool {
	_, asks := f.ExtraSpecs[nova.RequestKey]
	return asks
}

// WithRequest returns the flavors that request devices.
func WithRequest(all []cloud.Flavor) []cloud.Flavor {
	return slices.DeleteFunc(all, func(f cloud.Flavor) bool { return !hasRequest(f) })
}

// PlanDeletion returns the deletion of the flavor with a name or id, unless instances have it.
//
// Errors: those of [cloud.FindFlavor], errInUse, and that of a flavor that does not request
// devices.
func PlanDeletion(ctx context.Context, c *cloud.Compute, nameOrID string) (Move, error) {
	all, err := c.Flavors(ctx)
	if err != nil {
		return Move{}, err
	}
	f, err := cloud.FindFlavor(all, nameOrID)
	if err != nil {
		return Move{}, err
	}
	before, err := Complete(ctx, c, f)
	if err != nil {
		return Move{}, err
	}
	if !hasRequest(before.Flavor) {
		return Move{}, host.WithHint(fmt.Errorf("flavor %s does not request devices", f.Name), "delete it with: openstack flavor delete "+f.ID)
	}
	servers, err := c.Servers(ctx, f.ID)
	if err != nil {
		return Move{}, err
	}
	return Move{Before: before}, checkUnused(f, servers)
}

// checkUnused returns an error if instances have the flavor. servers are their ids.
func checkUnused(f cloud.Flavor, servers []string) error {
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
	return fmt.Errorf("flavor %s: %w by %s: %s", f.Name, errInUse, by, names)
}
