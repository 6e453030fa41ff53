package node

import (
	"errors"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/hosttest"
	"gpustack/host/rdma"
	"gpustack/host/steps"
)

// Files of a boot.
const (
	bootID = "proc/sys/kernel/random/boot_id"
	result = `{"schema": 1, "boot_id": "this", "version": "1", "started": "2026-11-24T03:00:00Z", "ended": null, "steps": []}`
	record = `{"schema":1,"kind":"rdma record","adapters": [], "allowed": [], "files": []}`
	spec   = "run/cdi/gpustack-gpu.json"
	// ofContainers is a record of container prepare.
	ofContainers = `{"schema":1,"kind":"contract","containers": {"options": {"umad_nodes": false, "static": false, ` +
		`"library_path": false}, "functions": [], "files": []}, "guests": null}`
)

// TestSteps: on a tree that is not a running machine, no step is carried out or reverted. What no
// record wants any more goes from /run/cdi all the same, and what cannot be read is an error.
func TestSteps(t *testing.T) {
	t.Parallel()
	boot := hosttest.Write(bootID, "this\n")
	for name, test := range map[string]struct {
		step    hosttest.Step
		run     error // of the steps of a boot
		revert  error
		reverts string // what the error of revert contains
		spec    bool   // stays
	}{
		"nothing":                     {hosttest.Steps(), driver.ErrNotLive, nil, "", true},
		"a boot":                      {boot, driver.ErrNotLive, nil, "", false},
		"a result of this boot":       {hosttest.Steps(boot, hosttest.Write(steps.ResultFile, result)), driver.ErrNotLive, driver.ErrNotLive, "", true},
		"a result that is malformed":  {hosttest.Steps(boot, hosttest.Write(steps.ResultFile, "{")), driver.ErrNotLive, nil, steps.ResultFile, true},
		"something for containers":    {hosttest.Steps(boot, hosttest.Write("var/lib/gpustack/contract.json", ofContainers)), driver.ErrNotLive, driver.ErrNotLive, "", true},
		"a record that is malformed":  {hosttest.Steps(boot, hosttest.Write("var/lib/gpustack/contract.json", "{")), driver.ErrNotLive, nil, "contract.json", true},
		"adapters that are malformed": {hosttest.Steps(boot, hosttest.Write(rdma.RecordFile, "{")), driver.ErrNotLive, nil, rdma.RecordFile, true},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Bare(t)
			hosttest.Steps(hosttest.Write(spec, "{}"), test.step)(t, root)
			n := Node{Root: root, Runner: host.Runner{Root: root}, Warn: func(w ...string) { t.Errorf("warned: %q", w) }}
			if _, err := n.Steps().Run(t.Context()); !errors.Is(err, test.run) {
				t.Errorf("run: %v", err)
			}
			// The engine reverts the steps as a program of a change.
			err := n.Engine(0).Run(t.Context(), host.Program{Kind: host.RevertBoot})
			if fine := test.revert == nil && test.reverts == ""; (err == nil) != fine || test.revert != nil && !errors.Is(err, test.revert) ||
				test.reverts != "" && !strings.Contains(err.Error(), test.reverts) {
				t.Errorf("revert: %v", err)
			}
			if there, err := root.Exists(spec); there != test.spec || err != nil {
				t.Errorf("the spec is there: %v, %v", there, err)
			}
		})
	}
}

// TestPermit: a plan that leaves what is recorded of adapters as it is needs no permit to revert,
// and one that changes it needs the result of this boot's steps.
func TestPermit(t *testing.T) {
	t.Parallel()
	malformed := hosttest.Steps(hosttest.Write(bootID, "this\n"), hosttest.Write(steps.ResultFile, "{"))
	for name, test := range map[string]struct {
		step  hosttest.Step
		files map[string]string
		want  string
	}{
		"another file":                    {malformed, map[string]string{"/etc/modprobe.d/a.conf": "options a b=1\n"}, ""},
		"the record":                      {malformed, map[string]string{rdma.RecordFile: record}, steps.ResultFile},
		"the record, no result":           {hosttest.Write(bootID, "this\n"), map[string]string{rdma.RecordFile: record}, ""},
		"the record, and it is malformed": {hosttest.Steps(), map[string]string{rdma.RecordFile: "{"}, rdma.RecordFile},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Bare(t)
			test.step(t, root)
			var plan edit.Changes
			for name, text := range test.files {
				c, err := edit.Put(root, name, []byte(text), 0o600, false)
				hosttest.NoError(t, err)
				plan = append(plan, c)
			}
			_, err := Node{Root: root, Runner: host.Runner{Root: root}}.Steps().permit(plan, gate.Allowed{})
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
