package machine_test

import (
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/machine"
)

// TestByOtherMeans: a function that the talk's line has bound is named with the line.
func TestByOtherMeans(t *testing.T) {
	const line = "-- etc/initramfs-tools/modules --\npci_stub ids=10de:11b4,10de:0e0a\n"
	bound := strings.ReplaceAll(hosttest.Server{CPU: "GenuineIntel", More: line}.Archive(), "drivers/nouveau\n", "drivers/pci-stub\n")
	for name, test := range map[string]struct {
		archive string
		want    []string
	}{
		"bound": {bound, []string{"/etc/initramfs-tools/modules:1: pci-stub ids=10de:11b4,10de:0e0a binds 0000:01:00.0, 0000:02:00.0: " +
			"prepared by other means, which gpustack does not verify or undo"}},
		"not bound yet": {hosttest.Server{CPU: "GenuineIntel", More: line}.Archive(), nil},
		"no line":       {strings.Replace(bound, line, "", 1), nil},
	} {
		root := hosttest.Lay(t, test.archive)
		m := machine.ObserveRecord(root, nil, true)
		got, err := m.ByOtherMeans(root)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
