package nova

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// lab is the one control plane of all tests; gpustack is the binary under test, made
// as make build makes it.
var (
	lab      *Lab
	gpustack string
)

func TestMain(m *testing.M) {
	flag.Parse()
	status, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func runTests(m *testing.M) (status int, err error) {
	scratch, err := os.MkdirTemp("", "gpustack-nova-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	gpustack = filepath.Join(scratch, "gpustack")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", gpustack, "gpustack/cmd/gpustack")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build gpustack: %w\n%s", err, out)
	}
	begin := time.Now()
	lab, err = Start(context.Background(), filepath.Join(scratch, "lab"))
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, lab.Stop(), nothingLeft(scratch)) }()
	if testing.Verbose() {
		fmt.Printf("the lab is up after %.1f s\n", time.Since(begin).Seconds())
		defer func() {
			for _, t := range lab.Timings() {
				fmt.Printf("%-22s %6.1f s\n", t.Step, t.Took.Seconds())
			}
		}()
	}
	return m.Run(), nil
}
