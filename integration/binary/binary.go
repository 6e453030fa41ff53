// Package binary makes the binary that tests are about.
package binary

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build makes gpustack as make build makes it, in a folder, and returns its path.
func Build(dir string) (string, error) {
	file := filepath.Join(dir, "gpustack")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", file, "gpustack/cmd/gpustack")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build gpustack: %w\n%s", err, out)
	}
	return file, nil
}
