package host

import (
	"strings"
	"testing"
)

// TestAsRoot: root is not told to run gpustack as root.
func TestAsRoot(t *testing.T) {
	if got := asRoot(1000).String(); got != "run gpustack as root" {
		t.Errorf("another user: %q", got)
	}
	if got := asRoot(0).String(); strings.Contains(got, "as root") || !strings.Contains(got, "outside of containers") {
		t.Errorf("root: %q", got)
	}
}
