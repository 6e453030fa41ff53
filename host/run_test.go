package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestRunInterrupted: a running program ends by itself when its context ends and when the
// terminal sends SIGINT to our process group; none starts afterwards.
func TestRunInterrupted(t *testing.T) {
	root := hosttest.Root(t, "/")
	r := host.Runner{Root: root}
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("interrupted")
	begun := filepath.Join(t.TempDir(), "begun")
	go func() {
		await(t, begun)
		cancel(cause)
	}()
	// Its session, its process group and its parent's session, from stat(5) of /proc.
	out, err := r.Run(ctx, []string{"sh", "-c", `: > "$1"; sleep 0.2; cut -d" " -f5,6 /proc/$$/stat; echo $$`, "sh", begun})
	fields := strings.Fields(string(out))
	if err != nil || len(fields) != 3 || fields[0] != fields[2] || fields[1] != fields[2] {
		t.Errorf("%q, %v: not the leader of a session", out, err)
	}
	if _, err := r.Run(ctx, []string{"true"}); !errors.Is(err, cause) || err.Error() != "true: interrupted" {
		t.Errorf("%v", err)
	}
}

// TestRunStopped: Stop ends a program and all processes that it started; no other program starts.
func TestRunStopped(t *testing.T) {
	// gpustack catches SIGINT, so its programs start with the default action. In a background
	// job of a shell they would inherit SIG_IGN.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, unix.SIGINT)
	defer signal.Stop(caught)
	root, err := host.NewRoot("/")
	hosttest.NoError(t, err)
	stop := make(chan struct{})
	r := host.Runner{Root: root, Stop: stop}
	begun := filepath.Join(t.TempDir(), "begun")
	go func() {
		await(t, begun)
		close(stop)
	}()
	start := time.Now()
	_, err = r.Run(context.Background(), []string{"sh", "-c", `: > "$1"; (sleep 60; sleep 60); sleep 60`, "sh", begun})
	if !errors.Is(err, host.ErrStopped) || time.Since(start) > 30*time.Second {
		t.Errorf("%v after %s", err, time.Since(start))
	}
	if _, err := r.Run(context.Background(), []string{"true"}); !errors.Is(err, host.ErrStopped) {
		t.Errorf("%v", err)
	}
}

// gone is a writer whose reader has closed its end.
type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, unix.EPIPE }

// TestRunUnheard: a program runs to its end although its output cannot be shown any more, and
// Run returns all of that output.
func TestRunUnheard(t *testing.T) {
	root := hosttest.Root(t, "/")
	const lines = 100_000 // more than a pipe holds
	out, err := host.Runner{Root: root, Talk: gone{}}.Run(t.Context(), []string{"sh", "-c", `seq "$1"; seq "$1" >&2`, "sh", fmt.Sprint(lines)})
	if got := strings.Count(string(out), "\n"); err != nil || got != lines {
		t.Errorf("%d lines, %v", got, err)
	}
}

// await waits until a file exists.
func await(t *testing.T, name string) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var stat unix.Stat_t
		if unix.Stat(name, &stat) == nil {
			return
		}
	}
	t.Errorf("%s is not made", name)
}

// TestLimit: a program that does not end within the limit is killed, with those that it started.
func TestLimit(t *testing.T) {
	root, err := host.NewRoot("/")
	hosttest.NoError(t, err)
	begun := time.Now()
	_, err = host.Runner{Root: root, Limit: 100 * time.Millisecond}.Run(t.Context(), []string{"sh", "-c", "sleep 60; sleep 60"})
	if took := time.Since(begun); !errors.Is(err, host.ErrLimit) || took > 30*time.Second {
		t.Errorf("%v after %s", err, took)
	}
	if out, err := (host.Runner{Root: root, Limit: time.Minute}).Run(t.Context(), []string{"sh", "-c", "echo x"}); string(out) != "x\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// TestMost: what a program prints without end is kept up to a size, and the program is not kept
// from printing.
func TestMost(t *testing.T) {
	root := hosttest.Root(t, "/")
	out, err := host.Runner{Root: root, Most: 5}.Run(t.Context(), []string{"sh", "-c", "head -c 100000 /dev/zero | tr '\\0' x; echo 12345678 >&2; exit 3"})
	failed := new(host.ProgramError)
	if !errors.As(err, &failed) || string(out) != "xxxxx" || failed.Stderr != "12345" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestExpendable: such a program ignores SIGINT and is killed when Stop is closed; and the kernel
// kills it when the process that started it is killed.
func TestExpendable(t *testing.T) {
	if pidFile := os.Getenv("GPUSTACK_TEST_EXPENDABLE"); pidFile != "" {
		root, err := host.NewRoot("/")
		if err == nil {
			_, err = host.Runner{Root: root, Expendable: true}.Run(context.Background(), []string{"sh", "-c", `echo $$ > "$1.new"; mv "$1.new" "$1"; exec sleep 600`, "sh", pidFile})
		}
		t.Fatal(err) // unreachable: this process is killed
	}
	dir := t.TempDir()
	root := hosttest.Root(t, "/")
	program := filepath.Join(dir, "deaf")
	hosttest.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\ntrap '' INT\n: > \"$1\"\nsleep 60\nsleep 60\n"), 0o755))
	stop, begun := make(chan struct{}), filepath.Join(dir, "begun")
	go func() {
		await(t, begun)
		close(stop)
	}()
	start := time.Now()
	if _, err := (host.Runner{Root: root, Dirs: []string{dir}, Stop: stop, Expendable: true}).Run(t.Context(), []string{"deaf", begun}); !errors.Is(err, host.ErrStopped) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("ended after %s", took)
	}
	if _, err := (host.Runner{Root: root, Dirs: []string{dir}}).Find("sh"); !errors.Is(err, host.ErrNoProgram) {
		t.Errorf("sh in %s: %v", dir, err)
	}

	self := exec.Command(os.Args[0], "-test.run=^TestExpendable$")
	pidFile := filepath.Join(dir, "pid")
	self.Env = append(os.Environ(), "GPUSTACK_TEST_EXPENDABLE="+pidFile)
	hosttest.NoError(t, self.Start())
	await(t, pidFile)
	text := hosttest.Read(t, pidFile)
	hosttest.NoError(t, self.Process.Kill())
	self.Wait()
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	hosttest.NoError(t, err)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			break
		}
		if time.Now().After(end) {
			unix.Kill(pid, unix.SIGKILL)
			t.Fatal("the program outlives the process that started it")
		}
	}
}

// TestReadyItself: this program carries "gpustack boot --revert" out itself, wherever it lies.
func TestReadyItself(t *testing.T) {
	root := hosttest.Root(t, t.TempDir())
	if err := (host.Runner{Root: root}).Ready([]host.Program{{Kind: host.RevertBoot}}); err != nil {
		t.Error(err)
	}
	if err := (host.Runner{Root: root}).Ready([]host.Program{{Kind: host.RevertBoot}, {Kind: host.UpdateGrub}}); err == nil || errors.Is(err, host.ErrNoProgram) {
		t.Errorf("%v, want what is not mounted, and nothing else", err)
	}
}
