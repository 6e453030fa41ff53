// Package binary makes the binary that tests are about.
package binary

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host/edit"
)

// Build makes gpustack as make build makes it, in a folder, and returns its path. Tests of several
// packages do so at once: they wait for each other, and go build links it for the first.
func Build(dir string) (string, error) {
	checkout, err := command("list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return "", err
	}
	shared := filepath.Join(checkout, "build", "test")
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(shared, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // which unlocks
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("%s: %w", lock.Name(), err)
	}
	if err := embedProbe(checkout, shared); err != nil {
		return "", err
	}
	made := filepath.Join(shared, "gpustack")
	if _, err := command("build", "-trimpath", "-buildvcs=false", "-tags", "urfave_cli_no_docs,cudaprobe", "-ldflags", "-s -w", "-o", made,
		"gpustack/cmd/gpustack"); err != nil {
		return "", err
	}
	program, err := os.ReadFile(made)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "gpustack")
	return file, os.WriteFile(file, program, 0o755)
}

// embedProbe builds cudaprobe where gpustack embeds it, unless make build has.
func embedProbe(checkout, shared string) error {
	made := filepath.Join(shared, "cudaprobe")
	if _, err := command("build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", made, "gpustack/cmd/cudaprobe"); err != nil {
		return err
	}
	program, err := os.ReadFile(made)
	if err != nil {
		return err
	}
	file := filepath.Join(checkout, "cmd", "cudaprobe", "embedded", "cudaprobe-"+runtime.GOARCH+".gz")
	if compressed, err := os.ReadFile(file); err == nil {
		if r, err := gzip.NewReader(bytes.NewReader(compressed)); err == nil {
			if embedded, err := io.ReadAll(r); err == nil && bytes.Equal(embedded, program) {
				return nil
			}
		}
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(program); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return edit.Replace(file, b.Bytes(), 0o644)
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
