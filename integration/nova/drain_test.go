package nova

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/services"

	"gpustack/host/hosttest"
	"gpustack/nova/drain"
)

// drained runs nova drain, whose exit status must be this one, and returns what it prints.
func drained(t *testing.T, env []string, status int, args ...string) string {
	t.Helper()
	stdout, stderr, got := command(t, env, append([]string{"nova", "drain", "--yes"}, args...)...)
	if got != status {
		t.Errorf("nova drain %q: exit status %d, want %d:\n%s%s", args, got, status, stdout, stderr)
	}
	return stdout + stderr
}

// enabled enables a service that a test has disabled, also where the test has failed. Nova does it,
// and does it again for one that is enabled: nova-compute gives its provider the trait
// COMPUTE_STATUS_DISABLED each minute while the row says so, and takes it away when it is asked to
// enable the host, or a minute later. Until then the scheduler leaves the host out.
func enabled(t *testing.T, nova *gophercloud.ServiceClient, host string) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		pages, err := services.List(nova, services.ListOpts{Binary: "nova-compute", Host: host}).AllPages(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		of, err := services.ExtractServices(pages)
		if err != nil || len(of) != 1 {
			t.Errorf("services of %s: %v, %v", host, of, err)
			return
		}
		for _, status := range []services.ServiceStatus{services.ServiceDisabled, services.ServiceEnabled} {
			if _, err := services.Update(ctx, nova, of[0].ID, services.UpdateOpts{Status: status}).Extract(); err != nil {
				t.Error(err)
			}
		}
	})
}

// stateOfGPU1 returns whether Nova has disabled the service of gpu1, and the reason.
func stateOfGPU1(t *testing.T) (disabled bool, reason string) {
	t.Helper()
	is := rows(t, "SELECT disabled, coalesce(disabled_reason, '') FROM nova_cell1.services WHERE deleted = 0 AND `binary` = 'nova-compute' AND host = 'gpu1'")[0]
	return is[0] == "1", is[1]
}

// TestDrain: Nova's scheduler leaves a drained host out, a build and a resize that are in progress
// are waited for, guests that run with GPUs are listed, and what was drained is enabled again. The
// longest reason is one that Nova accepts.
func TestDrain(t *testing.T) {
	nova := compute(t)
	flavor := newFlavor(t, nova, "drained", 1)
	enabled(t, nova, "gpu1")
	enabled(t, nova, "gpu2")

	longest := strings.Repeat("ü", drain.MaxText)
	drained(t, lab.Env(), 0, "gpu1", "--reason", longest)
	if disabled, reason := stateOfGPU1(t); !disabled || !strings.HasSuffix(reason, longest) {
		t.Errorf("gpu1: %v, %s", disabled, reason)
	}
	drained(t, lab.Env(), 0, "gpu1", "--step", "reboot")
	if disabled, reason := stateOfGPU1(t); !disabled || !strings.HasSuffix(reason, ": reboot") {
		t.Errorf("gpu1: %v, %s", disabled, reason)
	}

	// A build that has begun is waited for: one that is held until the deadline, then until it ends.
	const call = "spawn"
	hosttest.NoError(t, lab.Hold("gpu2", call))
	server := start(t, nova, flavor)
	hosttest.NoError(t, lab.WaitHeld(t.Context(), "gpu2", call))
	out := drained(t, lab.Env(), 1, "gpu2", "--reason", "new kernel", "--wait", "1s")
	want := "error: server " + server + ": build (spawning) is still in progress\ngpustack: error: the compute service of gpu2 stays disabled\n"
	hosttest.Contains(t, want, out)
	hosttest.NoError(t, lab.Release("gpu2", call))
	out = drained(t, lab.Env(), 2, "gpu2", "--reason", "new kernel")
	if !strings.Contains(out, server) || !strings.Contains(out, "1 server on gpu2; 1 running with GPUs") {
		t.Errorf("%s", out)
	}

	// No host is left.
	other := start(t, nova, flavor)
	until(t, "no host is found", func() bool {
		s, err := servers.Get(t.Context(), nova, other).Extract()
		return err == nil && s.Status == "ERROR" && strings.Contains(s.Fault.Message, "No valid host")
	})
	remove(t, nova, other)
	hosttest.Contains(t, "2 compute services disabled by gpustack", succeed(t, "nova", "drain", "--list"))

	// A cold migration is in progress until it is confirmed.
	succeed(t, "nova", "enable", "gpu1", "--yes")
	hosttest.NoError(t, servers.Migrate(t.Context(), nova, server).ExtractErr())
	until(t, "it is moved", func() bool {
		s, err := servers.Get(t.Context(), nova, server).Extract()
		return err == nil && s.Status == "VERIFY_RESIZE"
	})
	out = drained(t, lab.Env(), 1, "gpu2", "--reason", "new kernel", "--wait", "1s")
	if !strings.Contains(out, "(finished) is still in progress") || !strings.Contains(out, "hint: confirm or revert it: openstack server resize confirm "+server) {
		t.Errorf("%s", out)
	}
	hosttest.NoError(t, servers.ConfirmResize(t.Context(), nova, server).ExtractErr())
	out = drained(t, lab.Env(), 0, "gpu2", "--reason", "new kernel")
	hosttest.Contains(t, "0 servers on gpu2", out)

	// One that is powered off meanwhile is not waited for.
	hosttest.NoError(t, servers.Stop(t.Context(), nova, server).ExtractErr())
	out = drained(t, lab.Env(), 0, "gpu1", "--reason", "new kernel", "--wait-empty", "2m")
	hosttest.Contains(t, "1 server on gpu1; 0 running with GPUs", out)
	hosttest.NoError(t, servers.Start(t.Context(), nova, server).ExtractErr())
	remove(t, nova, server)

	// Undo enables what the last entry has disabled; what others have disabled stays.
	succeed(t, "undo", "--yes")
	if disabled, _ := stateOfGPU1(t); disabled {
		t.Error("gpu1 is still disabled")
	}
	succeed(t, "nova", "enable", "gpu2", "--yes")
	rows(t, "UPDATE nova_cell1.services SET disabled = 1, disabled_reason = 'disk' WHERE `binary` = 'nova-compute' AND host = 'gpu2'")
	for _, args := range [][]string{{"nova", "enable", "gpu2", "--yes"}, {"nova", "drain", "gpu2", "--reason", "x", "--yes"}} {
		if _, stderr, status := command(t, lab.Env(), args...); status != 1 || !strings.Contains(stderr, "is disabled, and not by gpustack: the reason is disk") {
			t.Errorf("%q: %d, %s", args, status, stderr)
		}
	}
}

// TestDrainOldAPI: the requests of releases before Pike are those that Nova expects with their
// microversion.
func TestDrainOldAPI(t *testing.T) {
	enabled(t, compute(t), "gpu1")
	p := newProxy(t, "")
	p.breaks(100, http.MethodGet, "/v2.1/", func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		_, err := io.WriteString(w, `{"version": {"id": "v2.1", "status": "CURRENT", "version": "2.52", "min_version": "2.1"}}`)
		return err == nil
	})
	drained(t, p.env(), 0, "gpu1", "--reason", "new kernel")
	if disabled, reason := stateOfGPU1(t); !disabled || !strings.HasSuffix(reason, ": new kernel") {
		t.Errorf("gpu1: %v, %s", disabled, reason)
	}
	if _, stderr, status := command(t, p.env(), "nova", "enable", "gpu1", "--yes"); status != 0 {
		t.Errorf("%d, %s", status, stderr)
	}
	if disabled, _ := stateOfGPU1(t); disabled {
		t.Error("gpu1 is still disabled")
	}
	if asked := strings.Join(p.asked, "\n"); !strings.Contains(asked, "PUT /v2.1/os-services/disable-log-reason\n") ||
		!strings.Contains(asked, "PUT /v2.1/os-services/enable\n") {
		t.Errorf("%s", asked)
	}
}
