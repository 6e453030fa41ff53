package host_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestMain makes the test binary the program that RunSelf starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "self" {
		os.Exit(self(os.Args[2]))
	}
	os.Exit(m.Run())
}

func self(what string) int {
	switch what {
	case "fail":
		fmt.Fprintln(os.Stderr, "first\nlast")
		return 7
	case "environment":
		fmt.Print(strings.Join(os.Environ(), " "))
	case "sleep":
		time.Sleep(time.Minute)
	default: // a file to write to
		if err := os.WriteFile(what, []byte("x"), 0); err != nil {
			fmt.Print(err)
		}
	}
	return 0
}

func TestRunSelf(t *testing.T) {
	t.Setenv("SECRET", "hunter2")
	file := filepath.Join(t.TempDir(), "file")
	hosttest.NoError(t, os.WriteFile(file, nil, 0o600))
	if out, err := host.RunSelf(time.Minute, "self", file); len(out) > 0 || err != nil {
		t.Errorf("%s, %v", out, err)
	}
	if text, err := os.ReadFile(file); string(text) != "x" || err != nil {
		t.Errorf("wrote %q, %v", text, err)
	}
	if out, err := host.RunSelf(time.Minute, "self", "environment"); len(out) > 0 || err != nil {
		t.Errorf("%s, %v", out, err)
	}
	_, err := host.RunSelf(time.Minute, "self", "fail")
	var failed *host.ProgramError
	if !errors.As(err, &failed) || failed.Status != "exit status 7" || failed.Last != "last" {
		t.Errorf("%v", err)
	}
}

// TestRunSelfInTime: a process that blocks, by itself or in an interruptible system call, is
// killed after its timeout.
func TestRunSelfInTime(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil { // opening it without a reader blocks
		t.Fatal(err)
	}
	for _, what := range []string{"sleep", fifo} {
		begun := time.Now()
		_, err := host.RunSelf(100*time.Millisecond, "self", what)
		if took := time.Since(begun); !errors.Is(err, host.ErrTimeout) || took > 5*time.Second {
			t.Errorf("%s: %v after %s", what, err, took)
		}
	}
}
