package db

import (
	"bytes"
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

// database is the one of all tests; gpustack is the binary under test, made as make
// build makes it.
var (
	database *DB
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
	scratch, err := os.MkdirTemp("", "gpustack-db-")
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
	database, err = Start(context.Background(), filepath.Join(scratch, "db"))
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, database.Stop(), nothingLeft(scratch)) }()
	if testing.Verbose() {
		fmt.Printf("the databases are up after %.1f s\n", time.Since(begin).Seconds())
	}
	return m.Run(), nil
}

// reset gives a test empty databases.
func reset(t *testing.T) {
	t.Helper()
	if err := database.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// nothingLeft is an error if processes with the folder in their command line or
// environment run.
func nothingLeft(dir string) error {
	var left []error
	for _, proc := range processes(dir) {
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		left = append(left, fmt.Errorf("%s is left: %q", proc, cmdline))
	}
	return errors.Join(left...)
}

// processes are the folders in /proc of the programs that have the folder in their
// command line or environment, as all that the harness starts have.
func processes(dir string) (list []string) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range all {
		// Both are empty for one that has just ended.
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		if bytes.Contains(cmdline, []byte(dir)) || bytes.Contains(environ, []byte(dir)) {
			list = append(list, proc)
		}
	}
	return list
}
