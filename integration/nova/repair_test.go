package nova

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"gpustack/host/guest"
	"gpustack/integration/evidence"
)

// controller is a file tree with the lab's nova.conf, whose journal is the test's own.
func controller(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	text, err := os.ReadFile(lab.NovaConf)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(root, "etc/nova"), 0o755), os.WriteFile(filepath.Join(root, "etc/nova/nova.conf"), text, 0o640))
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// repaired runs repair-migration with the credentials of nova.conf alone, and returns
// its findings, a line each.
func repaired(t *testing.T, root string, args ...string) (lines []string, status int) {
	t.Helper()
	stdout, stderr, status := command(t, nil, append([]string{"repair-migration", "--root", root, "-o", "json"}, args...)...)
	for _, secret := range []string{lab.ServicePassword, lab.RabbitPassword, lab.Database.Password} {
		if strings.Contains(stdout+stderr, secret) {
			t.Errorf("%q tells a secret", args)
		}
	}
	var r struct {
		Findings []struct {
			Host, Case, Verdict, Repair, Reason string
			Device                              struct{ Address string }
		}
		Changes []struct{ State, Note string }
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("%q: exit status %d, %s: %v", args, status, stderr, err)
	}
	lines = []string{}
	for _, f := range r.Findings {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", f.Host, f.Case, f.Verdict, f.Repair)))
	}
	for _, c := range r.Changes {
		t.Logf("%s: %s %s", c.State, c.Note, stderr)
	}
	return lines, status
}

// allocations are what Placement's books hold: consumers by the name of their host.
func allocations(t *testing.T) [][]string {
	t.Helper()
	return rows(t, "SELECT DISTINCT p.name, a.consumer_id FROM placement.allocations a JOIN placement.resource_providers p ON p.id = a.resource_provider_id ORDER BY 1, 2")
}

// TestRepairOnline: a migration died in the midst. Nothing is believed of it until both
// hosts have reported; then one command frees the card while the cloud runs, and puts
// Placement's books right; the guest stays where it is, and another boots on the card.
func TestRepairOnline(t *testing.T) {
	nova := compute(t)
	server := boot(t, nova, newFlavor(t, nova, "one-to-move", 1))
	source := killInMigration(t, nova, server)
	dest := map[string]string{"gpu1": "gpu2", "gpu2": "gpu1"}[source]
	root := controller(t)
	if got := allocations(t); len(got) != 2 {
		t.Fatalf("allocations: %q", got)
	}

	got, status := repaired(t, root)
	if diff := cmp.Diff([]string{dest + " C unknown"}, got); diff != "" || status != 2 {
		t.Errorf("without reports: exit status %d, (-want +got):\n%s", status, diff)
	}
	reports := func(changes ...func(*guest.Report)) (args []string) {
		for _, host := range []string{"gpu1", "gpu2"} {
			args = append(args, "--guests", evidence.Write(t, evidence.Report(host, changes...)))
		}
		return args
	}
	// Its nova-compute may have been up all the time, for all that is known, and so the
	// copy may go on (the reports say that it was started twenty minutes ago).
	got, _ = repaired(t, root, append(reports(), "--apply", "--yes")...)
	if diff := cmp.Diff([]string{dest + " C unknown"}, got); diff != "" {
		t.Errorf("the copy may go on, (-want +got):\n%s", diff)
	}
	// An hour later.
	rows(t, "UPDATE nova_cell1.migrations SET created_at = created_at - INTERVAL 1 HOUR, updated_at = updated_at - INTERVAL 1 HOUR WHERE instance_uuid = '%s'", server)
	rows(t, "UPDATE nova_cell1.pci_devices SET updated_at = updated_at - INTERVAL 1 HOUR WHERE instance_uuid = '%s'", server)
	// The destination has the guest after all.
	card := slices.IndexFunc(rows(t, cards, server), func(r []string) bool { return r[0] == dest })
	address := rows(t, cards, server)[card][1]
	got, _ = repaired(t, root, "--apply", "--yes", "--guests", evidence.Write(t, evidence.Report(source)), "--guests", evidence.Write(t, evidence.Report(dest, evidence.Holds(t, address, server))))
	if len(got) != 1 || !strings.HasSuffix(got[0], "unknown") && !strings.HasSuffix(got[0], "suspicious") {
		t.Errorf("a guest uses it: %q", got)
	}
	if n := len(rows(t, cards, server)); n != 2 {
		t.Fatalf("%d cards are left", n)
	}

	got, status = repaired(t, root, reports()...)
	if diff := cmp.Diff([]string{dest + " C stale online"}, got); diff != "" || status != 2 {
		t.Errorf("with reports: exit status %d, (-want +got):\n%s", status, diff)
	}
	begin := time.Now()
	got, status = repaired(t, root, append(reports(), "--apply", "--yes", "--wait", "90s")...)
	t.Logf("repaired in %.1f s", time.Since(begin).Seconds())
	if len(got) > 0 || status != 0 {
		t.Errorf("after --apply: exit status %d, %q", status, got)
	}
	if got := rows(t, cards, server); len(got) != 1 || got[0][0] != source {
		t.Errorf("the guest has %q", got)
	}
	if diff := cmp.Diff([][]string{{source, server}}, allocations(t)); diff != "" {
		t.Errorf("Placement (-want +got):\n%s", diff)
	}
	s, err := servers.Get(t.Context(), nova, server).Extract()
	if err != nil || s.Status != "ACTIVE" {
		t.Errorf("the guest: %+v, %v", s, err)
	}
	// Nova has gone on from there.
	_, stderr, status := command(t, nil, "undo", "--root", root, "--yes")
	if status != 1 || !strings.Contains(stderr, "nova-compute has freed the device") {
		t.Errorf("undo: exit status %d, %s", status, stderr)
	}

	second := boot(t, nova, newFlavor(t, nova, "two-there", 2))
	if got := rows(t, cards, second); len(got) != 2 || got[0][0] != dest {
		t.Errorf("the second guest has %q", got)
	}
	remove(t, nova, second)
	remove(t, nova, server)
	until(t, "Placement's books are empty", func() bool { return len(allocations(t)) == 0 })
	if got, status := repaired(t, root); len(got) > 0 || status != 0 {
		t.Errorf("in the end: exit status %d, %q", status, got)
	}
}

// TestRepairLeavesAlone: a resize that waits to be confirmed or reverted is touched by
// nothing, whatever hosts report, and then confirms and reverts.
func TestRepairLeavesAlone(t *testing.T) {
	nova := compute(t)
	flavor := newFlavor(t, nova, "to-be-confirmed", 1)
	root := controller(t)
	for _, end := range []string{"confirm", "revert"} {
		server := boot(t, nova, flavor)
		source := rows(t, "SELECT host FROM nova_cell1.instances WHERE uuid = '%s'", server)[0][0]
		if err := servers.Migrate(t.Context(), nova, server).ExtractErr(); err != nil {
			t.Fatal(err)
		}
		status := func() string {
			s, err := servers.Get(t.Context(), nova, server).Extract()
			if err != nil {
				t.Fatal(err)
			}
			return s.Status
		}
		until(t, "the server waits to be confirmed", func() bool { return status() == "VERIFY_RESIZE" })
		rows(t, "UPDATE nova_cell1.migrations SET updated_at = updated_at - INTERVAL 1 HOUR WHERE instance_uuid = '%s'", server)
		got, code := repaired(t, root, "--apply", "--yes", "--guests", evidence.Write(t, evidence.Report("gpu1")), "--guests", evidence.Write(t, evidence.Report("gpu2")))
		if len(got) > 0 || code != 0 || len(rows(t, cards, server)) != 2 {
			t.Errorf("%s: exit status %d, %q", end, code, got)
		}
		var err error
		want := source
		if end == "confirm" {
			err = servers.ConfirmResize(t.Context(), nova, server).ExtractErr()
			want = map[string]string{"gpu1": "gpu2", "gpu2": "gpu1"}[source]
		} else {
			err = servers.RevertResize(t.Context(), nova, server).ExtractErr()
		}
		if err != nil {
			t.Fatal(err)
		}
		until(t, end, func() bool {
			got := rows(t, cards, server)
			return status() == "ACTIVE" && len(got) == 1 && got[0][0] == want
		})
		remove(t, nova, server)
	}
}
