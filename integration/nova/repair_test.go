package nova

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"gpustack/cleanup"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
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
	hosttest.NoError(t, err)
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
	hosttest.EqualIn(t, "the copy may go on,", []string{dest + " C unknown"}, got)
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

	page := newPage(t, source, dest, server, address)
	page.shows("", root)
	got, status = repaired(t, root, reports()...)
	if diff := cmp.Diff([]string{dest + " C stale online"}, got); diff != "" || status != 2 {
		t.Errorf("with reports: exit status %d, (-want +got):\n%s", status, diff)
	}
	begin := time.Now()
	page.shows("--guests gpu1.json --guests gpu2.json --apply --yes", root, append(reports(), "--apply", "--yes", "--wait", "90s")...)
	t.Logf("repaired in %.1f s", time.Since(begin).Seconds())
	page.shows("", root)
	page.end()
	if got, status = repaired(t, root); len(got) > 0 || status != 0 {
		t.Errorf("after --apply: exit status %d, %q", status, got)
	}
	if got := rows(t, cards, server); len(got) != 1 || got[0][0] != source {
		t.Errorf("the guest has %q", got)
	}
	hosttest.EqualIn(t, "Placement", [][]string{{source, server}}, allocations(t))
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
		hosttest.NoError(t, servers.Migrate(t.Context(), nova, server).ExtractErr())
		status := func() string {
			s, err := servers.Get(t.Context(), nova, server).Extract()
			hosttest.NoError(t, err)
			return s.Status
		}
		until(t, "the server waits to be confirmed", func() bool { return status() == "VERIFY_RESIZE" })
		rows(t, "UPDATE nova_cell1.migrations SET updated_at = updated_at - INTERVAL 1 HOUR WHERE instance_uuid = '%s'", server)
		got, code := repaired(t, root, "--apply", "--yes", "--guests", evidence.Write(t, evidence.Report("gpu1")), "--guests", evidence.Write(t, evidence.Report("gpu2")))
		if len(got) > 0 || code != 0 || len(rows(t, cards, server)) != 2 {
			t.Errorf("%s: exit status %d, %q", end, code, got)
		}
		// An audit of Nova's that has read the instances before a revert and the migrations after
		// it frees the source's card; here there is one every five seconds.
		const audit = "get_available_resource"
		for _, host := range []string{"gpu1", "gpu2"} {
			hosttest.NoError(t, lab.Hold(host, audit))
		}
		for _, host := range []string{"gpu1", "gpu2"} {
			hosttest.NoError(t, lab.WaitHeld(t.Context(), host, audit))
		}
		var err error
		want := source
		if end == "confirm" {
			err = servers.ConfirmResize(t.Context(), nova, server).ExtractErr()
			want = map[string]string{"gpu1": "gpu2", "gpu2": "gpu1"}[source]
		} else {
			err = servers.RevertResize(t.Context(), nova, server).ExtractErr()
		}
		hosttest.NoError(t, err)
		until(t, end, func() bool {
			got := rows(t, cards, server)
			return status() == "ACTIVE" && len(got) == 1 && got[0][0] == want
		})
		for _, host := range []string{"gpu1", "gpu2"} {
			hosttest.NoError(t, lab.Release(host, audit))
		}
		if got, code := repaired(t, root); len(got) > 0 || code != 0 {
			t.Errorf("after %s: exit status %d, %q", end, code, got)
		}
		remove(t, nova, server)
	}
}

// later makes it an hour since a server was last changed, for reports that say that
// nova-compute was started twenty minutes ago.
func later(t *testing.T, server string) {
	t.Helper()
	rows(t, "UPDATE nova_cell1.migrations SET created_at = created_at - INTERVAL 1 HOUR, updated_at = updated_at - INTERVAL 1 HOUR WHERE instance_uuid = '%s'", server)
	rows(t, "UPDATE nova_cell1.pci_devices SET updated_at = updated_at - INTERVAL 1 HOUR WHERE instance_uuid = '%s'", server)
}

// silent makes it an hour since nova-compute of a host, which was killed, reported last: a
// declaration that a host is off does not overrule what it reported within five minutes.
func silent(t *testing.T, host string) {
	t.Helper()
	rows(t, "UPDATE nova_cell1.services SET last_seen_up = last_seen_up - INTERVAL 1 HOUR, updated_at = updated_at - INTERVAL 1 HOUR WHERE deleted = 0 AND `binary` = 'nova-compute' AND host = '%s'", host)
}

// reportsOfBoth are reports of both hosts, without guests.
func reportsOfBoth(t *testing.T) []string {
	t.Helper()
	return []string{"--guests", evidence.Write(t, evidence.Report("gpu1")), "--guests", evidence.Write(t, evidence.Report("gpu2"))}
}

func hostOfServer(t *testing.T, server string) string {
	t.Helper()
	return rows(t, "SELECT host FROM nova_cell1.instances WHERE uuid = '%s'", server)[0][0]
}

func theOther(host string) string {
	return map[string]string{"gpu1": "gpu2", "gpu2": "gpu1"}[host]
}

// hold moves a server and stops that in a call of a host's driver.
func hold(t *testing.T, server, host, call string) {
	t.Helper()
	hosttest.NoError(t, lab.Hold(host, call))
	hosttest.NoError(t, servers.Migrate(t.Context(), compute(t), server).ExtractErr())
	hosttest.NoError(t, lab.WaitHeld(t.Context(), host, call))
}

// TestRepairThreeTries: three resizes fail, and each leaves a record in error and a card on the
// destination, which Nova keeps for as long as one of the records is open. One repair closes all
// three, and nova-compute frees all three cards.
func TestRepairThreeTries(t *testing.T) {
	const call, tries = "migrate_disk_and_power_off", 3
	nova := compute(t)
	server := boot(t, nova, newFlavor(t, nova, "to-be-larger", 1))
	larger := newFlavor(t, nova, "larger", 1)
	source := hostOfServer(t, server)
	dest := theOther(source)
	insert := func(ctx context.Context, addresses ...string) {
		t.Helper()
		service := "nova-compute-" + dest
		hosttest.NoError(t, errors.Join(lab.SetCards(dest, addresses...), lab.StopService(service), lab.StartService(ctx, service)))
	}
	insert(t.Context(), "0000:84:00.0", "0000:88:00.0", "0000:8c:00.0")
	t.Cleanup(func() { insert(context.WithoutCancel(t.Context()), "0000:84:00.0", "0000:88:00.0") })
	hosttest.NoError(t, lab.Fail(source, call))
	t.Cleanup(func() {
		if err := lab.Heal(source, call); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	// Last of all, after the end of its event, a task that has failed resets the instance's task_state
	// (nova/compute/manager.py, reverts_task_state), also where another task has set it since. Then
	// its error is logged.
	ended := func() int {
		log, err := lab.Log("nova-compute-" + source)
		hosttest.NoError(t, err)
		return strings.Count(log, "Exception during message handling: ")
	}
	before := ended()
	for n := range tries {
		if err := servers.Resize(t.Context(), nova, server, servers.ResizeOpts{FlavorRef: larger}).ExtractErr(); err != nil {
			t.Fatalf("try %d: %v, %q", n, err, rows(t, "SELECT i.vm_state, i.task_state, i.host, m.id, m.status, m.dest_compute FROM nova_cell1.instances i LEFT JOIN nova_cell1.migrations m ON m.instance_uuid = i.uuid WHERE i.uuid = '%s'", server))
		}
		var state [][]string
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("state %q", state)
			}
		})
		until(t, "the resize has failed", func() bool {
			state = rows(t, "SELECT i.vm_state, coalesce(i.task_state, ''), i.host, count(m.id) FROM nova_cell1.instances i LEFT JOIN nova_cell1.migrations m ON m.instance_uuid = i.uuid AND m.status = 'error' WHERE i.uuid = '%s' GROUP BY i.id", server)
			return slices.Equal(state[0], []string{"active", "", source, fmt.Sprint(n + 1)}) && ended() == before+n+1
		})
	}
	hosttest.NoError(t, lab.Heal(source, call))
	later(t, server)
	if got := rows(t, cards, server); len(got) != 1+tries {
		t.Fatalf("the guest has %q", got)
	}
	root := controller(t)
	args := []string{"--guests", evidence.Write(t, evidence.Report(dest))}
	stale := slices.Repeat([]string{dest + " B stale online"}, tries)
	if got, _ := repaired(t, root, args...); !slices.Equal(got, stale) {
		t.Errorf("%q", got)
	}
	if got, status := repaired(t, root, append(args, "--apply", "--yes", "--wait", "90s")...); len(got) > 0 || status != 0 {
		t.Errorf("after --apply: exit status %d, %q", status, got)
	}
	if got := rows(t, "SELECT DISTINCT status FROM nova_cell1.migrations WHERE instance_uuid = '%s'", server); len(got) != 1 || got[0][0] != "failed" {
		t.Errorf("the records: %q", got)
	}
	if got := rows(t, cards, server); len(got) != 1 || got[0][0] != source {
		t.Errorf("the guest has %q", got)
	}
	hosttest.EqualIn(t, "Placement", [][]string{{source, server}}, allocations(t))
	// Nova gives all of them to another guest.
	second := boot(t, nova, newFlavor(t, nova, "all-three", tries))
	if got := rows(t, cards, second); len(got) != tries || got[0][0] != dest {
		t.Errorf("the second guest has %q", got)
	}
	remove(t, nova, second)
	remove(t, nova, server)
}

// TestRepairOnDestination: the destination died when the guest was its already, and an
// operator has reset the guest's state: it is the source that is freed, and what the
// migration holds of it in Placement.
func TestRepairOnDestination(t *testing.T) {
	nova := compute(t)
	server := boot(t, nova, newFlavor(t, nova, "to-the-other", 1))
	source := hostOfServer(t, server)
	dest := theOther(source)
	const call = "finish_migration"
	hold(t, server, dest, call)
	service := "nova-compute-" + dest
	hosttest.NoError(t, errors.Join(lab.Kill(service), lab.Release(dest, call), lab.StartService(t.Context(), service)))
	hosttest.NoError(t, servers.ResetState(t.Context(), nova, server, servers.StateActive).ExtractErr())
	if got := hostOfServer(t, server); got != dest {
		t.Fatalf("the guest is on %s", got)
	}
	later(t, server)
	root := controller(t)
	if got, _ := repaired(t, root, reportsOfBoth(t)...); !slices.Equal(got, []string{source + " C stale online"}) {
		t.Errorf("%q", got)
	}
	if got, status := repaired(t, root, append(reportsOfBoth(t), "--apply", "--yes", "--wait", "90s")...); len(got) > 0 || status != 0 {
		t.Errorf("after --apply: exit status %d, %q", status, got)
	}
	if got := rows(t, cards, server); len(got) != 1 || got[0][0] != dest {
		t.Errorf("the guest has %q", got)
	}
	hosttest.EqualIn(t, "Placement", [][]string{{dest, server}}, allocations(t))
	remove(t, nova, server)
	until(t, "Placement's books are empty", func() bool { return len(allocations(t)) == 0 })
}

// TestRepairRefusesLiveCopy: an operator has reset the state while the disk is still
// being copied, which gives the rows of a migration that is dead. Closing it would let
// another guest have the card that this one is on its way to.
func TestRepairRefusesLiveCopy(t *testing.T) {
	nova := compute(t)
	server := boot(t, nova, newFlavor(t, nova, "on-its-way", 1))
	source := hostOfServer(t, server)
	const call = "migrate_disk_and_power_off"
	hold(t, server, source, call)
	hosttest.NoError(t, servers.ResetState(t.Context(), nova, server, servers.StateActive).ExtractErr())
	got, status := repaired(t, controller(t), append(reportsOfBoth(t), "--apply", "--yes")...)
	if !slices.Equal(got, []string{theOther(source) + " C unknown"}) || status != 2 || len(rows(t, cards, server)) != 2 {
		t.Errorf("exit status %d, %q", status, got)
	}
	hosttest.NoError(t, lab.Release(source, call))
	// The copy was alive: its end changes the migration's record.
	var record []string
	until(t, "the copy has ended", func() bool {
		record = rows(t, "SELECT m.status, i.host, i.vm_state, coalesce(i.task_state, '') FROM nova_cell1.migrations m JOIN nova_cell1.instances i ON i.uuid = m.instance_uuid WHERE i.uuid = '%s'", server)[0]
		return record[0] != "migrating"
	})
	t.Logf("what came of it: %q", record)
	remove(t, nova, server)
}

// TestRepairRefusesEvacuation: the record of an evacuation is read by the host that
// failed when it comes back. Until then it stays as it is, forced down or not.
func TestRepairRefusesEvacuation(t *testing.T) {
	nova := compute(t)
	server := boot(t, nova, newFlavor(t, nova, "evacuated", 1))
	source := hostOfServer(t, server)
	service := "nova-compute-" + source
	hosttest.NoError(t, lab.Kill(service))
	until(t, "Nova takes the host for down", func() bool {
		return rows(t, "SELECT last_seen_up < UTC_TIMESTAMP() - INTERVAL 12 SECOND FROM nova_cell1.services WHERE deleted = 0 AND `binary` = 'nova-compute' AND host = '%s'", source)[0][0] == "1"
	})
	// servers.Evacuate says onSharedStorage, which is no more from 2.14 on.
	_, err := nova.Post(t.Context(), nova.ServiceURL("servers", server, "action"), map[string]any{"evacuate": map[string]any{}}, nil, &gophercloud.RequestOpts{OkCodes: []int{200}})
	hosttest.NoError(t, err)
	record := func() string {
		return rows(t, "SELECT status FROM nova_cell1.migrations WHERE instance_uuid = '%s'", server)[0][0]
	}
	until(t, "the guest is on the other host", func() bool {
		s, err := servers.Get(t.Context(), nova, server).Extract()
		hosttest.NoError(t, err)
		return s.Status == "ACTIVE" && hostOfServer(t, server) == theOther(source) && record() == "done"
	})
	silent(t, source)
	got, status := repaired(t, controller(t), "--guests", evidence.Write(t, evidence.Report(theOther(source))), "--host-is-off", source, "--apply", "--yes")
	if !slices.Equal(got, []string{source + " E stale nova"}) || status != 2 || record() != "done" || len(rows(t, cards, server)) != 2 {
		t.Errorf("exit status %d, %q, %s", status, got, record())
	}
	hosttest.NoError(t, lab.StartService(t.Context(), service))
	until(t, "the host that came back has let go", func() bool { return record() == "completed" && len(rows(t, cards, server)) == 1 })
	remove(t, nova, server)
}

// TestRepairTakenBack: as long as nova-compute has not freed the card, all of an online
// repair goes back: the migration's record, the instance's, and Placement's books.
func TestRepairTakenBack(t *testing.T) {
	nova := compute(t)
	server := boot(t, nova, newFlavor(t, nova, "there-and-back", 1))
	source := killInMigration(t, nova, server)
	later(t, server)
	service := "nova-compute-" + theOther(source)
	hosttest.NoError(t, lab.Kill(service))
	state := func() [][][]string {
		return [][][]string{
			rows(t, "SELECT * FROM nova_cell1.migrations WHERE instance_uuid = '%s'", server),
			rows(t, "SELECT * FROM nova_cell1.instances WHERE uuid = '%s'", server),
			rows(t, "SELECT * FROM nova_cell1.instance_extra WHERE instance_uuid = '%s'", server),
			rows(t, cards, server), allocations(t),
		}
	}
	before := state()
	root := controller(t)
	if _, status := repaired(t, root, append(reportsOfBoth(t), "--apply", "--yes", "--wait", "1s")...); status != 2 {
		t.Errorf("exit status %d", status)
	}
	if cmp.Equal(before, state()) {
		t.Fatal("nothing was written")
	}
	if _, stderr, status := command(t, nil, "undo", "--root", root, "--yes"); status != 0 {
		t.Fatalf("undo: exit status %d, %s", status, stderr)
	}
	hosttest.EqualIn(t, "before and after", before, state())
	hosttest.NoError(t, lab.StartService(t.Context(), service))
	if got, status := repaired(t, root, append(reportsOfBoth(t), "--apply", "--yes", "--wait", "90s")...); len(got) > 0 || status != 0 {
		t.Errorf("once more: exit status %d, %q", status, got)
	}
	remove(t, nova, server)
	until(t, "Placement's books are empty", func() bool { return len(allocations(t)) == 0 })
}

// TestRepairWithDevicesInPlacement: where nova-compute reports its devices to
// Placement, each is a provider of its own, and the dead migration's is let go too.
func TestRepairWithDevicesInPlacement(t *testing.T) {
	hosttest.NoError(t, lab.Save(t.Context()))
	// report_in_placement cannot be turned off again.
	t.Cleanup(func() {
		if err := lab.Restore(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	conf, err := os.OpenFile(lab.NovaConf, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = conf.WriteString("\n[pci]\nreport_in_placement = true\n")
		err = errors.Join(err, conf.Close())
	}
	for _, host := range []string{"gpu1", "gpu2"} {
		err = errors.Join(err, lab.StopService("nova-compute-"+host), lab.StartService(t.Context(), "nova-compute-"+host))
	}
	hosttest.NoError(t, err)
	until(t, "the cards are providers", func() bool {
		return rows(t, "SELECT count(*) FROM placement.resource_providers WHERE name LIKE '%%_0000:8%%'")[0][0] == "4"
	})
	nova := compute(t)
	flavor := newFlavor(t, nova, "in-placement", 1)
	testFreedByPlacement(t, "in-placement")
	server := boot(t, nova, flavor)
	inPlacement := func() [][]string {
		return rows(t, "SELECT SUBSTRING_INDEX(p.name, '_', 1), p.name LIKE '%%\\_0000:%%', a.consumer_id FROM placement.allocations a JOIN placement.resource_providers p ON p.id = a.resource_provider_id GROUP BY p.id, a.consumer_id ORDER BY 1, 2, 3")
	}
	until(t, "the card is the guest's in Placement", func() bool { return len(inPlacement()) == 2 })
	source := killInMigration(t, nova, server)
	until(t, "the migration holds what the guest had", func() bool { return len(inPlacement()) == 4 })
	later(t, server)
	root := controller(t)
	if got := allocationsFound(t, root); len(got) > 0 {
		t.Errorf("allocations of an open migration: %q", got)
	}
	if got, status := repaired(t, root, append(reportsOfBoth(t), "--apply", "--yes", "--wait", "90s")...); len(got) > 0 || status != 0 {
		t.Errorf("exit status %d, %q", status, got)
	}
	hosttest.EqualIn(t, "Placement", [][]string{{source, "0", server}, {source, "1", server}}, inPlacement())
	// And after further audits.
	time.Sleep(12 * time.Second)
	hosttest.EqualIn(t, "Placement, two audits later", [][]string{{source, "0", server}, {source, "1", server}}, inPlacement())
	testAllocations(t, root, server, source)
	remove(t, nova, server)
	until(t, "Placement's books are empty", func() bool { return len(inPlacement()) == 0 })
}

// testAllocations: what is left in Placement on the other host's card is found, as is a consumer
// that no database has, and Nova removes neither.
func testAllocations(t *testing.T, root, server, source string) {
	t.Helper()
	const stranger = "00000000-0000-4000-8000-0000000000bb"
	later(t, server)
	rows(t, "UPDATE nova_cell1.instances SET created_at = created_at - INTERVAL 1 HOUR, updated_at = updated_at - INTERVAL 1 HOUR WHERE uuid = '%s'", server)
	if got := allocationsFound(t, root); len(got) > 0 {
		t.Errorf("allocations of a repaired instance: %q", got)
	}
	hold := func(consumer, card string) {
		t.Helper()
		rows(t, "INSERT INTO placement.allocations (created_at, resource_provider_id, consumer_id, resource_class_id, used) SELECT UTC_TIMESTAMP(), p.id, '%s', i.resource_class_id, 1 FROM placement.resource_providers p JOIN placement.inventories i ON i.resource_provider_id = p.id WHERE p.name = '%s'",
			consumer, card)
	}
	dest := theOther(source)
	rows(t, "INSERT INTO placement.consumers (created_at, uuid, project_id, user_id, generation) SELECT created_at, '%s', project_id, user_id, 1 FROM placement.consumers WHERE uuid = '%s'", stranger, server)
	hold(server, dest+"_0000:84:00.0")
	hold(stranger, dest+"_0000:88:00.0")
	want := []string{
		dest + "_0000:84:00.0 " + server + " P suspicious: the instance is on " + source + ", and no open migration of it is to or from " + dest +
			"; that no guest uses the device is not proved: no guest report of " + dest + " was given",
		dest + "_0000:88:00.0 " + stranger + "  unknown: no cell has an instance or a migration with this uuid: its row is purged, or the consumer is not of Nova",
	}
	hosttest.EqualIn(t, "want and found", want, allocationsFound(t, root))
	rows(t, "DELETE FROM placement.allocations WHERE consumer_id = '%s' OR consumer_id = '%s' AND resource_provider_id IN (SELECT id FROM placement.resource_providers WHERE name = '%s_0000:84:00.0')", stranger, server, dest)
	rows(t, "DELETE FROM placement.consumers WHERE uuid = '%s'", stranger)
}

// allocationsFound runs repair-migration, which must have judged all allocations on the four cards,
// and returns what it finds, a line each.
func allocationsFound(t *testing.T, root string) (lines []string) {
	t.Helper()
	stdout, stderr, status := command(t, nil, "repair-migration", "--root", root, "-o", "json")
	var r struct {
		Allocations cleanup.AllocationReport
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("exit status %d, %s: %v", status, stderr, err)
	}
	if a := r.Allocations; !a.Judged || a.Providers != 4 || a.Recent != 0 {
		t.Errorf("exit status %d, %s%+v", status, stderr, a)
	}
	for _, f := range r.Allocations.Findings {
		lines = append(lines, fmt.Sprintf("%s %s %s %s: %s", f.Name, f.Consumer, f.Case, f.Verdict, f.Reason))
		t.Logf("%s: %s", f.Evidence, f.Steps)
	}
	return lines
}
