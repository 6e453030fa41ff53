package image_test

import (
	"net/http"
	"strings"
	"testing"

	"gpustack/nova"
	"gpustack/nova/cloud/cloudtest"
	"gpustack/nova/image"
)

// TestObserve: the image and the flavor of the options, the errors of both names at once, and the
// traits that compute nodes have. That Placement refuses is no error.
func TestObserve(t *testing.T) {
	c := cloudtest.Start(t, 96)
	c.Add("1", "gpu", 8, 32768, 80, true, map[string]string{nova.RequestKey: "A100:2"})
	c.Images = []map[string]any{{"id": "9", "name": "debian", "status": "active", "size": 1, "hw_maxphysaddr_mode": "passthrough"}}
	c.Traits = map[string]int{passthrough: 2}
	compute := connect(t, c)
	o := image.Options{Image: "debian", Flavor: "gpu", Purpose: image.ForGPU}
	seen, err := image.Observe(t.Context(), compute, o, nil)
	if err != nil || seen.Image.ID != "9" || seen.Flavor.ExtraSpecs[nova.RequestKey] != "A100:2" || len(seen.Traits.Nodes[passthrough]) != 2 || seen.Newest != 96 {
		t.Errorf("%+v, %v", seen, err)
	}
	o.Flavor = ""
	if seen, err = image.Observe(t.Context(), compute, o, nil); err != nil || seen.Flavor != nil {
		t.Errorf("%+v, %v", seen, err)
	}
	_, err = image.Observe(t.Context(), compute, image.Options{Image: "none", Flavor: "nothing"}, nil)
	if err == nil || !strings.Contains(err.Error(), "none") || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("%v", err)
	}
	c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		refused := strings.HasPrefix(r.URL.Path, "/placement/resource_providers")
		if refused {
			w.WriteHeader(http.StatusForbidden)
		}
		return refused
	}
	if seen, err = image.Observe(t.Context(), compute, o, nil); err != nil || seen.Traits.Err == nil {
		t.Errorf("%+v, %v", seen, err)
	}
}
