package integration

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"golang.org/x/sys/unix"
)

// TestClaimDisk: the kernel refuses to open a disk exclusively while anything has claimed it, and
// refuses swap and mounts while gpustack has it.
func TestClaimDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk")
	hosttest.NoError(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	stdout, stderr, status := try(t, exec.Command("losetup", "--find", "--show", file))
	if status != 0 {
		t.Fatal(stderr)
	}
	disk := strings.TrimSpace(stdout)
	t.Cleanup(func() { try(t, exec.Command("losetup", "--detach", disk)) })

	cmd := exec.Command(gpustack, "claim-disk", "--", disk)
	stdin, err := cmd.StdinPipe()
	hosttest.NoError(t, err)
	out, err := cmd.StdoutPipe()
	hosttest.NoError(t, err)
	hosttest.NoError(t, cmd.Start())
	if answer, err := bufio.NewReader(out).ReadString('\n'); answer != "0\n" || err != nil {
		t.Errorf("an idle disk: %q, %v", answer, err)
	}
	if fd, err := unix.Open(disk, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0); err != unix.EBUSY {
		t.Errorf("a second claim: %d, %v", fd, err)
	}
	if err := stdin.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}

	fd, err := unix.Open(disk, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("after the claim: %v", err)
	}
	defer unix.Close(fd)
	if answer, stderr, status := try(t, exec.Command(gpustack, "claim-disk", "--", disk)); answer != strconv.Itoa(int(unix.EBUSY))+"\n" || status != 0 {
		t.Errorf("a disk in use: %q, %q, %d", answer, stderr, status)
	}
}
