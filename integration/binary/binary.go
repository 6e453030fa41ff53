// Package binary makes the binary that tests are about.
package binary

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"gpustack/host/edit"
)

// Build makes gpustack as make build makes it, in a folder, and returns its path.
func Build(dir string) (string, error) {
	if err := embedProbe(dir); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "gpustack")
	_, err := command("build", "-trimpath", "-buildvcs=false", "-tags", "urfave_cli_no_docs,cudaprobe", "-ldflags", "-s -w", "-o", file,
		"gpustack/cmd/gpustack")
	return file, err
}

// embedProbe builds cudaprobe where gpustack embeds it. Tests of several packages do so at once.
func embedProbe(dir string) error {
	folder, err := command("list", "-f", "{{.Dir}}", "gpustack/cmd/cudaprobe/embedded")
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "cudaprobe")
	if _, err := command("build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", file, "gpustack/cmd/cudaprobe"); err != nil {
		return err
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return edit.Replace(filepath.Join(folder, "cudaprobe-"+runtime.GOARCH), program, 0o755)
}

func command(args ...string) (string, error) {
	run := exec.Command("go", args...)
	run.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := run.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}
