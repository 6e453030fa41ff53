package nova

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTour: docs/tour.md shows what flavor create prints against this very Nova, but
// for the ports and ids of one run.
func TestTour(t *testing.T) {
	readme, err := os.ReadFile("../../docs/tour.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(readme), "```text\n$ gpustack flavor create K4200:2 --yes\n")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("docs/tour.md does not show it")
	}
	defer succeed(t, "flavor", "delete", "gpu.k4200.2", "--yes")
	stdout, stderr, status := command(t, lab.Env(), "flavor", "create", "K4200:2", "--yes")
	if status != 0 {
		t.Fatal(stderr)
	}
	if diff := cmp.Diff(steady(stdout+stderr), steady(block)); diff != "" {
		t.Errorf("(-real +docs/tour.md):\n%s", diff)
	}
}
