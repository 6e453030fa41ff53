package nova

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
)

// TestTour: docs/talk.md shows what flavor create prints against this very Nova, but for the ports
// and ids of one run.
func TestTour(t *testing.T) {
	text := hosttest.Read(t, "../../docs/talk.md")
	_, block, ok := strings.Cut(text, "```text\n$ gpustack flavor create K4200:2 --yes\n")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("docs/talk.md does not show it")
	}
	defer succeed(t, "flavor", "delete", "gpu.k4200.2", "--yes")
	stdout, stderr, status := command(t, lab.Env(), "flavor", "create", "K4200:2", "--yes")
	if status != 0 {
		t.Fatal(stderr)
	}
	if printed := steady(stdout + stderr); !terminal.Shows(steady(block), printed) {
		t.Errorf("docs/talk.md shows\n%s\nand the command prints\n%s", steady(block), printed)
	}
}
