package flavor

import (
	"errors"
	"fmt"
	"strings"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// ErrInUse says that instances have the flavor.
var ErrInUse = host.WithHint(host.WithCode(errors.New("is in use"), host.CodeInUse, ""),
	"delete or resize the instances first: openstack server list --all-projects --flavor FLAVOR")

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
