package nova

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
)

// TestRepairEvacuationInError: an evacuation that died leaves the guest on the host that
// failed, with a card and allocations on both hosts and no consumer of its own. Closing it
// frees the card there, and Placement's books keep the guest's own host alone.
func TestRepairEvacuationInError(t *testing.T) {
	nova := compute(t)
	server := boot(t, nova, newFlavor(t, nova, "not-evacuated", 1))
	source := hostOfServer(t, server)
	dest := theOther(source)
	hosttest.NoError(t, lab.Kill("nova-compute-"+source))
	until(t, "Nova takes the host for down", func() bool {
		return rows(t, "SELECT last_seen_up < UTC_TIMESTAMP() - INTERVAL 12 SECOND FROM nova_cell1.services WHERE deleted = 0 AND `binary` = 'nova-compute' AND host = '%s'", source)[0][0] == "1"
	})
	const call = "spawn"
	hosttest.NoError(t, lab.Hold(dest, call))
	// servers.Evacuate says onSharedStorage, which is no more from 2.14 on.
	_, err := nova.Post(t.Context(), nova.ServiceURL("servers", server, "action"), map[string]any{"evacuate": map[string]any{}}, nil, &gophercloud.RequestOpts{OkCodes: []int{200}})
	if err == nil {
		err = lab.WaitHeld(t.Context(), dest, call)
	}
	hosttest.NoError(t, err)
	service := "nova-compute-" + dest
	hosttest.NoError(t, errors.Join(lab.Kill(service), lab.Release(dest, call)))
	// As ComputeManager.rebuild_instance leaves the record when spawn fails, and the
	// operator's reset the guest.
	rows(t, "UPDATE nova_cell1.migrations SET status = 'error' WHERE instance_uuid = '%s'", server)
	hosttest.NoError(t, servers.ResetState(t.Context(), nova, server, servers.StateActive).ExtractErr())
	hosttest.NoError(t, lab.StartService(t.Context(), service))
	later(t, server)
	silent(t, source)
	both := [][]string{{source, server}, {dest, server}}
	slices.SortFunc(both, slices.Compare)
	if diff := cmp.Diff(both, allocations(t)); diff != "" || len(rows(t, cards, server)) != 2 || hostOfServer(t, server) != source {
		t.Fatalf("on %s, with %q, Placement (-want +got):\n%s", hostOfServer(t, server), rows(t, cards, server), diff)
	}
	root := controller(t)
	args := []string{"--host-is-off", source, "--guests", evidence.Write(t, evidence.Report(dest))}
	if got, _ := repaired(t, root, args...); !slices.Equal(got, []string{dest + " B stale online"}) {
		t.Errorf("%q", got)
	}
	if got, status := repaired(t, root, append(args, "--apply", "--yes", "--wait", "90s")...); len(got) > 0 || status != 0 {
		t.Errorf("after --apply: exit status %d, %q", status, got)
	}
	if got := rows(t, cards, server); len(got) != 1 || got[0][0] != source {
		t.Errorf("the guest has %q", got)
	}
	hosttest.EqualIn(t, "Placement", [][]string{{source, server}}, allocations(t))
	hosttest.NoError(t, lab.StartService(t.Context(), "nova-compute-"+source))
	remove(t, nova, server)
	until(t, "Placement's books are empty", func() bool { return len(allocations(t)) == 0 })
}
