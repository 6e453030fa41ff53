package cleanup

import (
	"os"
	"strings"
	"testing"
)

// TestDescribeContext: a few lines say what a migration_context of 4 kB holds, as a Nova 26 wrote
// it; one of another format is an error, and what a context lacks is said.
func TestDescribeContext(t *testing.T) {
	whole, err := os.ReadFile("testdata/migration_context.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want string }{
		"of a cold migration": {strings.TrimSpace(string(whole)), `of migration 3, 3525 bytes
old: PCI devices 0000:84:00.0 of compute node 1, PCI requests K4200:1, no NUMA topology, no other resources
new: PCI devices 0000:84:00.0 of compute node 2, PCI requests K4200:1, no NUMA topology, no other resources`},
		"of a port, with a NUMA topology": {`{"nova_object.data": {"migration_id": 7, "old_pci_requests": {"nova_object.data": {"requests": [
			{"nova_object.data": {"count": 1, "alias_name": null}}, {"nova_object.data": {"count": 2, "alias_name": "A100%d"}}]}},
			"new_numa_topology": {"nova_object.data": {"cells": [{}, {}]}}, "new_resources": {"nova_object.data": {"objects": [{}]}}}}`, `of migration 7, 344 bytes
old: no PCI devices, PCI requests a port:1 and A100%d:2, no NUMA topology, no other resources
new: no PCI devices, no PCI requests, a NUMA topology of 2 cells, other resources: 1`},
		"without a migration": {`{"nova_object.data": {}}`, "migration_context is not in Nova's format"},
		"no JSON":             {`migration 3`, "migration_context is not in Nova's format: invalid character 'm' looking for beginning of value"},
		"a field of another kind": {`{"nova_object.data": {"migration_id": 7, "old_pci_devices": 5}}`,
			"migration_context is not in Nova's format: json: cannot unmarshal number into Go struct field .nova_object.data.old_pci_devices of type cleanup.contextDevices"},
	} {
		t.Run(name, func(t *testing.T) {
			lines, err := DescribeContext(test.text)
			got := strings.Join(lines, "\n")
			if err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%s\nwant %s", got, test.want)
			}
		})
	}
}
