package explain_test

import (
	"fmt"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/explain"
)

// TestReleaseOf: a cloud's newest microversion names the oldest release that has it
// (nova/api/openstack/compute/rest_api_version_history.rst of 34.0.0), or the last one before it.
func TestReleaseOf(t *testing.T) {
	for newest, want := range map[cloud.Microversion]nova.Release{
		25: nova.Mitaka, 38: nova.Newton, 93: nova.Zed, 95: nova.Antelope, 96: nova.Bobcat + 1, 100: nova.Epoxy, 102: nova.Epoxy,
		103: nova.Gazpacho, 104: nova.Hibiscus, 120: nova.Hibiscus,
	} {
		hosttest.EqualIn(t, fmt.Sprintf("2.%d", newest), want, explain.ReleaseOf(newest))
	}
}
