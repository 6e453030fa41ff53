package nova_test

import (
	"fmt"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
)

// TestOfferedAliases: the error of a file that cannot be read names the file once, and the other
// files count.
func TestOfferedAliases(t *testing.T) {
	const alias = "[pci]\nalias = {\"name\": \"K4200\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n"
	for name, test := range map[string]struct{ files, want string }{
		"a folder in place of the file": {"mkdir etc/nova/nova.conf\n", "/etc/nova/nova.conf: not a regular file"},
		"malformed":                     {"-- etc/nova/nova.conf --\n[pci\n", "/etc/nova/nova.conf: line 1: section header does not end with ]"},
	} {
		t.Run(name, func(t *testing.T) {
			names, err := nova.OfferedAliases(hosttest.Lay(t, test.files+"-- etc/nova/nova-compute.conf --\n"+alias))
			hosttest.EqualIn(t, "error", test.want, fmt.Sprint(err))
			if len(names) != 1 || names[0].Name != "K4200" {
				t.Errorf("aliases %+v", names)
			}
		})
	}
}
