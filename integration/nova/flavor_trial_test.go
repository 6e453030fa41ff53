package nova

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"gpustack/host/hosttest"
)

// tried is what flavor test prints of its one server.
type tried struct {
	Verdict string
	Servers []struct {
		ID, Name string
		Host     *string
		Reasons  []string
		Deleted  bool
		Freed    *bool
		FreedBy  *string  `json:"freed_by"`
		Console  []string `json:"console_lines"`
	}
}

// try tests a flavor for a few seconds: the fake driver's guests have a console, and never report.
// On a busy machine the server is not active by then, or its console was not read yet, and the test
// is made again with more time.
func try(t *testing.T, flavor string, args ...string) (d tried) {
	t.Helper()
	return tryFor(t, flavor, []string{"3s", "15s", "60s"}, args...)
}

// tryFor is try with these times, the shortest first.
func tryFor(t *testing.T, flavor string, timeouts []string, args ...string) (d tried) {
	t.Helper()
	for _, timeout := range timeouts {
		argv := append([]string{"flavor", "test", flavor, "--image", Image, "--wait", timeout, "--yes", "-o", "json"}, args...)
		stdout, stderr, status := command(t, lab.Env(), argv...)
		d = tried{}
		if err := json.Unmarshal([]byte(stdout), &d); err != nil || status != 2 || d.Verdict != "unknown" || len(d.Servers) != 1 {
			t.Fatalf("%q: exit status %d, %v\n%s%s", argv, status, err, stdout, stderr)
		}
		if reasons := strings.Join(d.Servers[0].Reasons, ""); !strings.Contains(reasons, "is not active") &&
			!strings.Contains(reasons, "its console has no output") {
			break
		}
		if !d.Servers[0].Deleted {
			succeed(t, "undo", "--yes")
		}
		until(t, "the cards are free", func() bool { return len(rows(t, cards, d.Servers[0].ID)) == 0 })
	}
	return d
}

// TestFlavorTest: flavor test against Nova itself, whose fake driver prints a fixed text on the
// consoles of its guests: the verdict is unknown, and the devices are free again by the database.
func TestFlavorTest(t *testing.T) {
	nova := compute(t)
	newFlavor(t, nova, "tried", 2)
	database := lab.Database.URL("nova_cell1")
	d := try(t, "tried", "--database", database, "--console")
	s := d.Servers[0]
	if !s.Deleted || s.Freed == nil || !*s.Freed || s.FreedBy == nil || *s.FreedBy != "the database" || s.Host == nil || !strings.HasPrefix(*s.Host, "gpu") ||
		strings.Join(s.Console, "|") != "FAKE CONSOLE OUTPUT|ANOTHER|LAST LINE" || !strings.Contains(strings.Join(s.Reasons, ""), "its console has other output") {
		t.Errorf("%+v", s)
	}
	// On a given host, with the filters; the server stays, and undo deletes it.
	kept := try(t, "tried", "--host", "gpu2", "--keep-server").Servers[0]
	if kept.Host == nil || *kept.Host != "gpu2" || kept.Deleted || kept.Freed != nil || kept.Console != nil || len(rows(t, cards, kept.ID)) != 2 {
		t.Errorf("kept: %+v", kept)
	}
	hosttest.Contains(t, "DELETE /servers/ID", succeed(t, "undo", "--yes"))
	until(t, "the cards are free", func() bool { return len(rows(t, cards, kept.ID)) == 0 })
	// Three cards: Nova's own fault, and the chain by hand.
	newFlavor(t, nova, "tried-3", 3)
	stdout, stderr, status := command(t, lab.Env(), "flavor", "test", "tried-3", "--image", Image, "--yes")
	if status != 2 || !strings.Contains(stdout, "nova: No valid host was found") || !strings.Contains(stdout, "gpustack nova explain --flavor tried-3") || !strings.Contains(stdout, "verdict: fail") {
		t.Errorf("exit status %d:\n%s%s", status, stdout, stderr)
	}
	// Killed while the guest is watched: the next run names it, --clean deletes it.
	cmd := isolated(t, gpustack, "flavor", "test", "tried", "--image", Image, "--yes")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8"}, lab.Env()...)
	hosttest.NoError(t, cmd.Start())
	const alive = "SELECT uuid FROM nova_cell1.instances WHERE deleted = 0 AND display_name LIKE 'gpustack-test-%%'"
	until(t, "the server is active", func() bool { return len(rows(t, alive+" AND vm_state = 'active'")) == 1 })
	hosttest.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
	_, stderr, status = command(t, lab.Env(), "flavor", "test", "tried", "--image", Image, "--dry-run", "-v")
	if n := len(regexp.MustCompile(`(?m)^gpustack: (GET|POST) http`).FindAllString(stderr, -1)); status != 2 || n == 0 || n > 6 || !strings.Contains(stderr, "its run was killed") {
		t.Errorf("exit status %d, %d requests:\n%s", status, n, stderr)
	}
	stranger := start(t, nova, newFlavor(t, nova, "of-another", 1))
	hosttest.Contains(t, "delete 1 test server; close 1 record", succeed(t, "flavor", "test", "--clean", "--yes"))
	if left := rows(t, alive); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	remove(t, nova, stranger)
}

// testFreedByPlacement: where nova-compute reports its devices, Placement tells that they are free
// again. Its audit, which allocates the devices of a guest, runs every few seconds.
func testFreedByPlacement(t *testing.T, flavor string) {
	t.Helper()
	// The guest never answers, so that each try takes all of its time. In ten seconds a server is
	// active, unless the machine is busy.
	s := tryFor(t, flavor, []string{"10s"}).Servers[0]
	for _, timeout := range []string{"40s", "160s"} {
		if s.Host != nil {
			break
		}
		s = tryFor(t, flavor, []string{timeout}).Servers[0]
	}
	if !s.Deleted || s.Freed == nil || !*s.Freed || s.FreedBy == nil || *s.FreedBy != "Placement" {
		t.Errorf("by Placement: %+v", s)
	}
	// A server that is deleted while it is built leaves its devices to nova-compute's next audit.
	until(t, "the devices of deleted servers are free", func() bool {
		return len(rows(t, "SELECT d.address FROM nova_cell1.pci_devices d JOIN nova_cell1.instances i ON i.uuid = d.instance_uuid WHERE d.deleted = 0 AND i.deleted <> 0")) == 0
	})
}
