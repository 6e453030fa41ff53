package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/service"
)

// qemuOf is the process of the machine with its files in a folder, if one runs.
func qemuOf(dir string) (pid int, found bool) {
	for _, proc := range service.Processes(dir) {
		cmdline, _ := os.ReadFile(filepath.Join(proc, "cmdline")) // empty: it has ended
		if strings.Contains(string(cmdline), qemuName+"\x00") {
			pid, err := strconv.Atoi(filepath.Base(proc))
			return pid, err == nil
		}
	}
	return 0, false
}

// beside does something again and again while a machine starts. It returns the machine, whose
// files are in a folder of the test.
func beside(t *testing.T, topology Topology, do func(dir string)) machine {
	t.Helper()
	dir, err := os.MkdirTemp(scratch, "m")
	hosttest.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			do(dir)
		}
	}()
	m, err := Start(t.Context(), dir, topology, fromMemory(linux, initramfs, topology))
	cancel()
	<-done
	hosttest.NoError(t, err)
	t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	return machine{m, t}
}

// TestStarved starts a machine whose emulator gets a processor for a tenth of the time, until
// Linux has its timer.
func TestStarved(t *testing.T) {
	t.Parallel()
	const runs, stands, hasTimer = 10 * time.Millisecond, 90 * time.Millisecond, "smpboot: CPU0"
	m := beside(t, named(t, "amd"), func(dir string) {
		console, _ := os.ReadFile(filepath.Join(dir, "console.log")) // none yet
		qemu, found := qemuOf(dir)
		if !found || strings.Contains(string(console), hasTimer) {
			time.Sleep(runs)
			return
		}
		if err := syscall.Kill(qemu, syscall.SIGSTOP); err == nil {
			time.Sleep(stands)
			_ = syscall.Kill(qemu, syscall.SIGCONT) // it may have ended
		}
		time.Sleep(runs)
	})
	if len(m.Deaths) > 0 {
		t.Errorf("died: %q", m.Deaths)
	}
	hosttest.ContainsIn(t, "the console", hasTimer, m.Console())
}

// TestDies kills a machine before its agent greets: it is started again, and serves.
func TestDies(t *testing.T) {
	t.Parallel()
	killed := false
	m := beside(t, named(t, "no IOMMU"), func(dir string) {
		time.Sleep(beat)
		if qemu, found := qemuOf(dir); found && !killed {
			killed = syscall.Kill(qemu, syscall.SIGKILL) == nil
		}
	})
	if len(m.Deaths) != 1 || m.Deaths[0] != errGone.Error() {
		t.Errorf("deaths: %q", m.Deaths)
	}
	hosttest.Equal(t, "Linux\n", m.run("cat", "/proc/sys/kernel/ostype"))
}

// TestPanics: a machine that panics each time is given up.
func TestPanics(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp(scratch, "m")
	hosttest.NoError(t, err)
	topology := named(t, "no IOMMU")
	topology.Arguments = "rdinit=/nonexistent"
	_, err = Start(t.Context(), dir, topology, fromMemory(linux, initramfs, topology))
	if !errors.Is(err, errPanic) && !errors.Is(err, errGone) || !strings.Contains(err.Error(), "died 4 times before its agent greeted: ") ||
		!strings.Contains(err.Error(), "Kernel panic") {
		t.Errorf("%v", err)
	}
}
