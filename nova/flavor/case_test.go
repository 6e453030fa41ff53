package flavor_test

import (
	"errors"
	"strings"
	"testing"

	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
)

// TestAliasInOtherCase: a mistyped alias does not rewrite the flavor of the right one, whose default
// name is the same.
func TestAliasInOtherCase(t *testing.T) {
	existing := flavor.State{Flavor: cloud.Flavor{ID: "1", Name: "gpu.k4200.2", VCPUs: 8, RAM: 32 << 10, Disk: 80, Public: true,
		ExtraSpecs: map[string]string{nova.RequestKey: "K4200:2"}}}
	for alias, isRefused := range map[string]bool{"K4200": false, "k4200": true, "A100": false} {
		o := flavor.Options{Request: nova.Request{{Alias: alias, Count: 2}}, Name: "gpu.k4200.2"}
		_, err := flavor.NewPlan(o, flavor.Cloud{Microversion: 93, Newest: 93, Existing: &existing})
		if errors.Is(err, flavor.ErrCase) != isRefused || isRefused && !strings.Contains(err.Error(), "requests alias K4200, from which alias k4200 differs in case only") {
			t.Errorf("%s: %v", alias, err)
		}
	}
}
