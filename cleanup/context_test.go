package cleanup

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestParseContext: a migration_context of 4 kB as a Nova 26 wrote it is read; one of another format is
// an error.
func TestParseContext(t *testing.T) {
	whole := hosttest.Read(t, "testdata/migration_context.json")
	for name, test := range map[string]struct{ text, want string }{
		"of a cold migration": {strings.TrimSpace(whole), "migration 3, [{2 0000:84:00.0}]"},
		"without a migration": {`{"nova_object.data": {}}`, "migration_context is not in Nova's format"},
		"no JSON":             {`migration 3`, "migration_context is not in Nova's format: invalid character 'm' looking for beginning of value"},
		"a field of another kind": {`{"nova_object.data": {"migration_id": 7, "new_pci_devices": 5}}`,
			"migration_context is not in Nova's format: json: cannot unmarshal number into Go struct field .nova_object.data.new_pci_devices of type cleanup.contextDevices"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := ParseContext(test.text)
			got := fmt.Sprint(err)
			if err == nil {
				got = fmt.Sprintf("migration %d, %v", c.Migration, c.Moved)
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}
