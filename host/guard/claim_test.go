package guard_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// endFirstThread is set in the environment of the process whose first thread ends.
const endFirstThread = "GPUSTACK_TEST_END_FIRST_THREAD"

// TestMain makes the test binary the program that Claim starts.
func TestMain(m *testing.M) {
	if os.Getenv(endFirstThread) != "" {
		for {
			go func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				if unix.Gettid() == os.Getpid() {
					unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
				}
			}()
			time.Sleep(time.Millisecond)
		}
	}
	if len(os.Args) == 4 && os.Args[1] == guard.ClaimCommand {
		if guard.ServeClaim(os.Args[3], os.Stdin, os.Stdout) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestClaim: a claim is held by a process of its own until it is released, and what cannot be
// opened in time is an error. A regular file stands for a disk here; integration has loop devices.
func TestClaim(t *testing.T) {
	dir := t.TempDir()
	disk, fifo := filepath.Join(dir, "disk"), filepath.Join(dir, "fifo")
	hosttest.NoError(t, os.WriteFile(disk, nil, 0o600))
	c, err := guard.Claim(time.Minute, disk)
	hosttest.NoError(t, err)
	open := func() bool {
		links, err := filepath.Glob("/proc/[0-9]*/fd/*")
		hosttest.NoError(t, err)
		for _, l := range links {
			if target, err := os.Readlink(l); err == nil && target == disk {
				return true
			}
		}
		return false
	}
	if !open() {
		t.Error("the disk is not open while it is claimed")
	}
	if err := c.Release(); err != nil {
		t.Error(err)
	}
	if open() {
		t.Error("the disk is open after it was released")
	}
	if err := c.Release(); err != nil {
		t.Errorf("released twice: %v", err)
	}
	if _, err := guard.Claim(time.Minute, filepath.Join(dir, "none")); !errors.Is(err, unix.ENOENT) || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v, want ENOENT", err)
	}
	hosttest.NoError(t, unix.Mkfifo(fifo, 0o600))
	begun := time.Now()
	if c, err = guard.Claim(time.Minute, fifo); err != nil || c.Release() != nil {
		t.Errorf("a pipe: %v", err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("blocked for %s: not opened with O_NONBLOCK", took)
	}
	if _, err := guard.Claim(0, disk); !errors.Is(err, guard.ErrClaimTimeout) {
		t.Errorf("%v, want %v", err, guard.ErrClaimTimeout)
	}
}
