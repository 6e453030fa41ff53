package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestInside makes a tree with packages that would install a boot loader and start a service:
// they are in the tree, this machine keeps its packages, nothing is started, and a command in
// the tree changes only what the tests may change.
func TestInside(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	const packages = "systemd-boot erlang-base"
	const machine = "/var/lib/dpkg/status"
	before := hosttest.Read(t, machine)
	inside := func(script string) (stdout, talk string, status int) {
		cmd := exec.Command("../.ci/inside", "sh", "-c", script)
		cmd.Env = append(os.Environ(), "GPUSTACK_TEST_CACHE="+cache, "TEST_PACKAGES="+packages)
		return try(t, cmd)
	}

	out, talk, status := inside("dpkg-query --show --showformat='${Package} ${db:Status-Status}\n' " + packages)
	if status != 0 || out != "erlang-base installed\nsystemd-boot installed\n" {
		t.Errorf("exit status %d: %s%s", status, out, talk)
	}
	for _, line := range []string{
		"inside: Installed in the tree, not on this machine, are these packages and what they depend on: erlang-base,systemd-boot\n",
		"inside: No service is started and no boot loader is changed.\n",
	} {
		hosttest.Contains(t, line, talk)
	}
	if hosttest.Read(t, machine) != before {
		t.Errorf("%s has changed", machine)
	}
	if left := rootedIn(t, cache); len(left) > 0 {
		t.Errorf("processes run in the tree: %q", left)
	}

	// The tree is there now. Of the machine it shows the checkout and temporary files.
	own := filepath.Join(t.TempDir(), "own")
	if out, talk, status = inside("pwd; go env GOVERSION; echo text >" + own); status != 0 || talk != "" ||
		out != run(t, "sh", "-c", "pwd; go env GOVERSION") || hosttest.Read(t, own) != "text\n" {
		t.Errorf("exit status %d: %s%s", status, out, talk)
	}
	for _, file := range []string{"/x", "/etc/x", "/usr/x", "/boot/x", "/usr/local/bin/x"} {
		if out, talk, status := inside("touch " + file); status != 1 || !strings.Contains(talk, "Read-only file system") {
			t.Errorf("%s: exit status %d: %s%s", file, status, out, talk)
		}
	}
	if out, talk, status := inside("ls /usr/sbin/policy-rc.d"); status == 0 {
		t.Errorf("%s%s", out, talk)
	}
	if out, talk, status := inside("ls /run"); status != 0 || out+talk != "" {
		t.Errorf("/run: exit status %d: %s%s", status, out, talk)
	}
	if out, talk, status := inside("exit 3"); status != 3 || out+talk != "" {
		t.Errorf("exit status %d: %s%s", status, out, talk)
	}
}

// rootedIn returns the processes whose root is below a folder.
func rootedIn(t *testing.T, dir string) []string {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	hosttest.NoError(t, err)
	return slices.DeleteFunc(processes, func(proc string) bool {
		root, err := os.Readlink(filepath.Join(proc, "root"))
		return err != nil || !strings.HasPrefix(root, dir) // it has ended
	})
}

// TestInsideSuite: a release that cannot be fetched is named with the tests that did not run for
// it, in the time of an answer, and what needs another release runs. What is installed of a
// release that is named is said first.
func TestInsideSuite(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	inside := func(suite string, wrapped ...string) (stdout, talk string, status int) {
		command := append(wrapped, "../.ci/inside", "sh", "-c", "echo ran", "TestOfThat")
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "GPUSTACK_TEST_CACHE="+cache, "TEST_PACKAGES=mount", "SUITE="+suite)
		return try(t, cmd)
	}
	const lost = "inside: FAIL: there is no tree of Debian GNU/Linux nosuch, and so this did not run with it: sh -c echo ran TestOfThat\n"
	if out, talk, status := inside("nosuch"); status == 0 || out != "" || !strings.HasSuffix(talk, lost) {
		t.Errorf("a release that does not exist: exit status %d: %s%s", status, out, talk)
	}
	if out, talk, status := inside("nosuch", "unshare", "--net"); status == 0 || out != "" || !strings.HasSuffix(talk, lost) {
		t.Errorf("no network: exit status %d: %s%s", status, out, talk)
	}
	if out, talk, status := inside("trixie"); status != 0 || out != "ran\n" || !strings.Contains(talk, "\ninside: Debian GNU/Linux trixie has mount 2.") {
		t.Errorf("exit status %d: %s%s", status, out, talk)
	}
	if left, err := filepath.Glob(filepath.Join(cache, ".making-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
