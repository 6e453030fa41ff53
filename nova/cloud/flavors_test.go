package cloud_test

import (
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
)

// TestFindFlavor: names come first, then ids. A URL in place of a name loses its credentials.
func TestFindFlavor(t *testing.T) {
	all := []cloud.Flavor{{ID: "1", Name: "gpu"}, {ID: "gpu", Name: "other"}}
	for name, want := range map[string]string{
		"gpu": "1", "1": "1", "other": "gpu",
		"no": "flavor no: not found", "mysql://nova:p@ss@db/nova": "flavor mysql://***@db/nova: not found",
	} {
		f, err := cloud.FindFlavor(all, name)
		got := f.ID
		if err != nil {
			got = err.Error()
		}
		hosttest.EqualIn(t, name, want, got)
	}
}
