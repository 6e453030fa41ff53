package nova

import (
	"os"
	"strings"
	"testing"

	"gpustack/integration/terminal"
)

// TestTour: docs/tour.md and docs/talk.md show what flavor create prints against this very Nova,
// but for the ports and ids of one run.
func TestTour(t *testing.T) {
	for page, request := range map[string]string{"tour.md": "A100-PCIE-80GB:2", "talk.md": "K4200:2"} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile("../../docs/" + page)
			if err != nil {
				t.Fatal(err)
			}
			_, block, ok := strings.Cut(string(text), "```text\n$ gpustack flavor create "+request+" --yes\n")
			block, _, closed := strings.Cut(block, "```")
			if !ok || !closed {
				t.Fatalf("docs/%s does not show it", page)
			}
			defer succeed(t, "flavor", "delete", "gpu."+strings.ReplaceAll(strings.ToLower(request), ":", "."), "--yes")
			stdout, stderr, status := command(t, lab.Env(), "flavor", "create", request, "--yes")
			if status != 0 {
				t.Fatal(stderr)
			}
			if printed := steady(stdout + stderr); !terminal.Shows(steady(block), printed) {
				t.Errorf("docs/%s shows\n%s\nand the command prints\n%s", page, steady(block), printed)
			}
		})
	}
}
