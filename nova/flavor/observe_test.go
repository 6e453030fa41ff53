package flavor_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/cloud/cloudtest"
	"gpustack/nova/flavor"
)

// TestObserve: the flavor with the name, complete, and the image and the projects of the options;
// the errors of all names at once.
func TestObserve(t *testing.T) {
	c := cloudtest.Start(t, 96)
	c.Add("1", "gpu", 8, 32768, 80, false, map[string]string{nova.RequestKey: "K4200:2"}).Access = []string{"lab"}
	c.Images = []map[string]any{{"id": "9", "name": "debian", "status": "active", "size": 1}}
	compute := connect(t, c)
	is, err := flavor.Observe(t.Context(), compute, flavor.Options{Name: "gpu", Image: "debian"})
	if err != nil || is.Existing == nil || is.Existing.ExtraSpecs[nova.RequestKey] != "K4200:2" || len(is.Existing.Projects) != 1 || is.Image.ID != "9" || is.Newest != 96 {
		t.Errorf("%+v, %v", is, err)
	}
	is, err = flavor.Observe(t.Context(), compute, flavor.Options{Name: "new"})
	if err != nil || is.Existing != nil || is.Image != nil || is.Projects != nil {
		t.Errorf("%+v, %v", is, err)
	}
	_, err = flavor.Observe(t.Context(), compute, flavor.Options{Name: "gpu", Image: "none", Projects: []string{"nobody"}})
	if err == nil || !strings.Contains(err.Error(), "none") || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("%v", err)
	}
}

// TestPlanDeletion: a flavor that requests devices, by its name or id, unless instances have it.
func TestPlanDeletion(t *testing.T) {
	c := cloudtest.Start(t, 96)
	c.Add("1", "gpu", 8, 32768, 80, true, map[string]string{nova.RequestKey: "K4200:2"})
	c.Add("2", "small", 1, 2048, 20, true, map[string]string{})
	c.Add("3", "used", 1, 2048, 20, true, map[string]string{nova.RequestKey: "K4200:1"})
	c.Servers["s1"] = "3"
	compute := connect(t, c)
	for _, name := range []string{"gpu", "1"} {
		m, err := flavor.PlanDeletion(t.Context(), compute, name)
		if err != nil || m.After != nil || m.Before.ID != "1" || m.Before.ExtraSpecs[nova.RequestKey] != "K4200:2" {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for name, text := range map[string]string{
		"small": "flavor small does not request devices",
		"used":  "flavor used: is in use by 1 instance: s1",
		"none":  "flavor none: not found",
	} {
		_, err := flavor.PlanDeletion(t.Context(), compute, name)
		hosttest.EqualIn(t, name, text, fmt.Sprint(err))
	}
}
