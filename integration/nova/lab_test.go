package nova

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/image/v2/images"

	"gpustack/host/hosttest"
	"gpustack/integration/service"
)

// TestBoot: a flavor that asks for the alias gets its server both cards of one host,
// and gives them back.
func TestBoot(t *testing.T) {
	nova := compute(t)
	server := boot(t, nova, newFlavor(t, nova, "two-k4200", 2))
	got := rows(t, cards, server)
	if len(got) != 2 || got[0][0] != got[1][0] || got[0][1] != "0000:84:00.0" || got[1][1] != "0000:88:00.0" || got[0][2] != "allocated" || got[1][2] != "allocated" {
		t.Errorf("cards of the server: %q", got)
	}
	remove(t, nova, server)
	hosttest.EqualIn(t, "cards are not free again", "0", rows(t, "SELECT count(*) FROM nova_cell1.pci_devices WHERE status <> 'available'")[0][0])
}

// TestDemo: the other user comes in, and may not make flavors.
func TestDemo(t *testing.T) {
	env := map[string]string{}
	for _, v := range lab.DemoEnv() {
		name, value, _ := strings.Cut(v, "=")
		env[name] = value
	}
	session, err := openstack.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: env["OS_AUTH_URL"], Username: env["OS_USERNAME"], Password: env["OS_PASSWORD"], TenantName: env["OS_PROJECT_NAME"], DomainName: env["OS_USER_DOMAIN_NAME"],
	})
	hosttest.NoError(t, err)
	nova, err := openstack.NewComputeV2(session, gophercloud.EndpointOpts{Region: env["OS_REGION_NAME"]})
	hosttest.NoError(t, err)
	_, err = flavors.Create(t.Context(), nova, flavors.CreateOpts{Name: "demo", RAM: 64, VCPUs: 1, Disk: new(int)}).Extract()
	if !gophercloud.ResponseCodeIs(err, http.StatusForbidden) {
		t.Errorf("a flavor made by demo: %v", err)
	}
}

// TestRestore: what was done after Save is undone, and what was there before is there,
// and at work.
func TestRestore(t *testing.T) {
	nova := compute(t)
	kept := newFlavor(t, nova, "kept", 1)
	server := boot(t, nova, kept)
	before := rows(t, cards, server)
	hosttest.NoError(t, lab.Save(t.Context()))
	lost := newFlavor(t, nova, "lost", 1)
	remove(t, nova, server)
	hosttest.NoError(t, lab.Restore(t.Context()))
	if _, err := flavors.Get(t.Context(), nova, lost).Extract(); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Errorf("the flavor made after Save: %v", err)
	}
	if s, err := servers.Get(t.Context(), nova, server).Extract(); err != nil || s.Status != "ACTIVE" {
		t.Errorf("the server deleted after Save: %v, %+v", err, s)
	}
	hosttest.EqualIn(t, "its cards", before, rows(t, cards, server))
	remove(t, nova, boot(t, nova, kept))
	remove(t, nova, server)
}

// TestKilledInMigration: the source host's nova-compute is killed while it moves a
// server and comes back. The server is as before, but has a card on each host: Nova
// counts a device of an unfinished migration as in use.
func TestKilledInMigration(t *testing.T) {
	nova := compute(t)
	flavor := newFlavor(t, nova, "one-k4200", 1)
	server := boot(t, nova, flavor)
	killInMigration(t, nova, server)
	// Nova frees the card when it takes the migration for failed.
	rows(t, "UPDATE nova_cell1.migrations SET status = 'failed' WHERE instance_uuid = '%s'", server)
	until(t, "one card is left", func() bool { return len(rows(t, cards, server)) == 1 })
	// Placement would keep the migration's allocation for ever.
	for _, migration := range rows(t, "SELECT uuid FROM nova_cell1.migrations WHERE instance_uuid = '%s'", server) {
		rows(t, "DELETE FROM placement.allocations WHERE consumer_id = '%s'", migration[0])
	}
	remove(t, nova, server)
}

// TestCards: a card that is pulled is gone when nova-compute has started again.
func TestCards(t *testing.T) {
	pull := func(addresses ...string) {
		t.Helper()
		err := errors.Join(lab.SetCards("gpu2", addresses...), lab.StopService("nova-compute-gpu2"), lab.StartService(t.Context(), "nova-compute-gpu2"))
		hosttest.NoError(t, err)
	}
	const here = "SELECT address FROM nova_cell1.pci_devices p JOIN nova_cell1.compute_nodes c ON c.id = p.compute_node_id WHERE c.host = 'gpu2' AND p.deleted = 0 ORDER BY address"
	pull("0000:84:00.0")
	hosttest.EqualIn(t, "pulled", [][]string{{"0000:84:00.0"}}, rows(t, here))
	pull("0000:84:00.0", "0000:88:00.0")
	hosttest.EqualIn(t, "put back", [][]string{{"0000:84:00.0"}, {"0000:88:00.0"}}, rows(t, here))
}

// TestLoopback: nothing can be reached from another machine.
func TestLoopback(t *testing.T) {
	// The fields are those of proc_net_tcp: local address, state 0A for listening.
	inodes := map[string]string{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text := hosttest.Read(t, table)
		for line := range strings.Lines(text) {
			if f := strings.Fields(line); f[3] == "0A" {
				inodes["socket:["+f[9]+"]"] = f[1]
			}
		}
	}
	seen := 0
	for _, proc := range service.Processes(lab.dir) {
		fds, err := filepath.Glob(filepath.Join(proc, "fd/*"))
		hosttest.NoError(t, err)
		for _, fd := range fds {
			target, _ := os.Readlink(fd) // may just be closed
			address, listens := inodes[target]
			if !listens {
				continue
			}
			seen++
			if !strings.HasPrefix(address, "0100007F:") && !strings.HasPrefix(address, "00000000000000000000000001000000:") {
				t.Errorf("%s listens on %s", proc, address)
			}
		}
	}
	if seen < 8 {
		t.Errorf("%d sockets seen", seen)
	}
}

// TestEnded: a service that ends in its start is noticed then, and says why.
func TestEnded(t *testing.T) {
	s, err := lab.service("nova-scheduler")
	hosttest.NoError(t, err)
	hosttest.NoError(t, lab.StopService("nova-scheduler"))
	argv := s.Argv
	s.Argv = append(slices.Clone(argv), "--config-file", "/none.conf")
	if err := lab.StartService(t.Context(), "nova-scheduler"); err == nil || !strings.Contains(err.Error(), "nova-scheduler: has ended") || !strings.Contains(err.Error(), "/none.conf") {
		t.Error(err)
	}
	s.Argv = argv
	if err := lab.StartService(t.Context(), "nova-scheduler"); err != nil {
		t.Error(err)
	}
}

// killInMigration moves a server, kills its nova-compute in the midst of that, and
// starts it again: what is left is an instance at work, a migration that nobody carries
// on, and cards taken on both hosts.
func killInMigration(t *testing.T, nova *gophercloud.ServiceClient, server string) (source string) {
	t.Helper()
	source = rows(t, "SELECT host FROM nova_cell1.instances WHERE uuid = '%s'", server)[0][0]
	compute := "nova-compute-" + source
	const call = "migrate_disk_and_power_off"
	hosttest.NoError(t, lab.Hold(source, call))
	hosttest.NoError(t, servers.Migrate(t.Context(), nova, server).ExtractErr())
	hosttest.NoError(t, lab.WaitHeld(t.Context(), source, call))
	hosttest.NoError(t, errors.Join(lab.Kill(compute), lab.Release(source, call), lab.StartService(t.Context(), compute)))
	want := [][]string{{"gpu1", "allocated"}, {"gpu2", "allocated"}}
	state := func() [][]string {
		return rows(t, "SELECT vm_state, coalesce(task_state, ''), i.host, m.status FROM nova_cell1.instances i JOIN nova_cell1.migrations m ON m.instance_uuid = i.uuid WHERE i.uuid = '%s'", server)
	}
	until(t, "Nova has cleared the server's task", func() bool {
		return slices.Equal(state()[0], []string{"active", "", source, "migrating"})
	})
	var got [][]string
	for _, card := range rows(t, cards, server) {
		got = append(got, []string{card[0], card[2]})
	}
	hosttest.EqualIn(t, "cards of the server", want, got)
	return source
}

// cards are the devices of a server, by host.
const cards = "SELECT c.host, p.address, p.status FROM nova_cell1.pci_devices p JOIN nova_cell1.compute_nodes c ON c.id = p.compute_node_id WHERE p.instance_uuid = '%s' ORDER BY 1, 2"

// rows asks the database.
func rows(t *testing.T, statement string, args ...any) [][]string {
	t.Helper()
	rows, err := lab.Database.Query(t.Context(), fmt.Sprintf(statement, args...))
	hosttest.NoError(t, err)
	return rows
}

// compute is a session of admin with Nova.
func compute(t *testing.T) *gophercloud.ServiceClient {
	t.Helper()
	session, err := lab.Client(t.Context())
	hosttest.NoError(t, err)
	nova, err := openstack.NewComputeV2(session, gophercloud.EndpointOpts{Region: Region})
	hosttest.NoError(t, err)
	// Below 2.86 extra specs are not looked at; from 2.37 on a server must say what
	// networks it wants.
	nova.Microversion = "2.93"
	return nova
}

// newFlavor makes a flavor with cards, and returns its id.
func newFlavor(t *testing.T, nova *gophercloud.ServiceClient, name string, cards int) string {
	t.Helper()
	flavor, err := flavors.Create(t.Context(), nova, flavors.CreateOpts{Name: name, RAM: 64, VCPUs: 1, Disk: new(int)}).Extract()
	hosttest.NoError(t, err)
	_, err = flavors.CreateExtraSpecs(t.Context(), nova, flavor.ID, flavors.ExtraSpecsOpts{"pci_passthrough:alias": fmt.Sprintf("K4200:%d", cards)}).Extract()
	hosttest.NoError(t, err)
	t.Cleanup(func() {
		err := flavors.Delete(context.WithoutCancel(t.Context()), nova, flavor.ID).ExtractErr()
		if err != nil && !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			t.Error(err)
		}
	})
	return flavor.ID
}

// start asks for a server and returns its id.
func start(t *testing.T, nova *gophercloud.ServiceClient, flavor string) string {
	t.Helper()
	glance, err := openstack.NewImageV2(nova.ProviderClient, gophercloud.EndpointOpts{Region: Region})
	hosttest.NoError(t, err)
	pages, err := images.List(glance, images.ListOpts{Name: Image}).AllPages(t.Context())
	hosttest.NoError(t, err)
	found, err := images.ExtractImages(pages)
	if err != nil || len(found) != 1 {
		t.Fatalf("%d images, %v", len(found), err)
	}
	server, err := servers.Create(t.Context(), nova, servers.CreateOpts{Name: t.Name(), FlavorRef: flavor, ImageRef: found[0].ID, Networks: "none"}, nil).Extract()
	hosttest.NoError(t, err)
	return server.ID
}

// boot makes a server and returns its id when it is active.
func boot(t *testing.T, nova *gophercloud.ServiceClient, flavor string) string {
	t.Helper()
	server := start(t, nova, flavor)
	until(t, "the server is active", func() bool {
		s, err := servers.Get(t.Context(), nova, server).Extract()
		if err != nil || s.Status == "ERROR" {
			t.Fatalf("the server: %v, %+v", err, s)
		}
		return s.Status == "ACTIVE"
	})
	return server
}

// remove deletes a server and returns when it is gone and its cards are free.
func remove(t *testing.T, nova *gophercloud.ServiceClient, server string) {
	t.Helper()
	hosttest.NoError(t, servers.Delete(t.Context(), nova, server).ExtractErr())
	until(t, "the server is gone", func() bool {
		_, err := servers.Get(t.Context(), nova, server).Extract()
		return gophercloud.ResponseCodeIs(err, http.StatusNotFound) && len(rows(t, cards, server)) == 0
	})
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := service.Wait(t.Context(), func(context.Context) (again bool, err error) {
		if !condition() {
			return true, errors.New("not yet")
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
