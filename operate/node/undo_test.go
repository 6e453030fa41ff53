package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/selection"
	"gpustack/operate/node"
)

// prepared prepares a machine with the distribution's boot loader, and returns the entry's number.
// run carries out the programs of the change.
func prepared(t *testing.T, root host.Root, run func(context.Context, host.Program) error) (id int, err error) {
	t.Helper()
	m := machine.ObservePrepare(root, true)
	_, work, err := on(root).PlanPrepare(m, selection.Options{}, node.Needed, "host prepare")
	hosttest.NoError(t, err)
	engine := on(root).Engine(0)
	if run != nil {
		engine.Run, work.Programs, work.Left = run, work.Left, nil
	}
	entry, err := engine.Apply(t.Context(), work)
	return entry.ID, err
}

// TestUndoPrograms: the programs of a change are run after its undo too, or left to the operator,
// as recorded. Without what they need, nothing is undone.
func TestUndoPrograms(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		run       func(context.Context, host.Program) error
		applying  error
		programs  int
		left      int
		planning  string
		undoing   error
		undone    change.Status
		remaining bool // the record is still there
	}{
		"left to the operator":   {nil, nil, 0, 2, "", nil, change.Undone, false},
		"run, and not ready now": {func(context.Context, host.Program) error { return nil }, nil, 2, 0, "is not mounted below the root", nil, change.Undone, false},
		"fail":                   {func(context.Context, host.Program) error { return failed }, failed, 2, 0, "is not mounted below the root", failed, change.Unbuilding, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := server(t)
			id, err := prepared(t, root, test.run)
			if !errors.Is(err, test.applying) || id != 1 {
				t.Fatalf("entry %d: %v", id, err)
			}
			engine := on(root).Engine(0)
			plan, err := engine.PlanUndo(t.Context(), id)
			if err != nil || len(plan.Programs) != test.programs || len(plan.Left) != test.left {
				t.Fatalf("runs %v, leaves %v: %v", plan.Programs, plan.Left, err)
			}
			back, err := on(root).PlanFilesBack(t.Context(), plan)
			if (err == nil) != (test.planning == "") || !strings.Contains(fmt.Sprint(err), test.planning) ||
				test.planning == "" && len(back.Files) != len(plan.Entry.Files) {
				t.Errorf("%d files: %v", len(back.Files), err)
			}
			if test.run != nil {
				engine.Run = test.run
			}
			entry, err := engine.Undo(t.Context(), id)
			if !errors.Is(err, test.undoing) || entry.Status != test.undone {
				t.Errorf("%s: %v", entry.Status, err)
			}
			if there, err := root.Exists(machine.ContractFile); there || err != nil {
				t.Errorf("the record is still there: %v", err)
			}
		})
	}
}

// TestLeftovers: an undo reports boot entries that keep arguments of the change, and no others.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	const since = "boot/loader/entries/f00d-6.1.0-30-amd64.conf"
	entry := func(arguments string) hosttest.Step {
		return hosttest.Write(since, "version 6.1.0-30-amd64\nlinux /vmlinuz-6.1.0-30-amd64\ninitrd /initramfs-6.1.0-30-amd64.img\noptions root=/dev/mapper/rhel-root ro "+arguments+"\n")
	}
	for name, test := range map[string]struct {
		distribution string
		step         hosttest.Step // after the undo
		want         string
	}{
		"nothing":                  {"rhel9", hosttest.Steps(), ""},
		"an entry without them":    {"rhel9", entry("quiet"), ""},
		"an entry that has them":   {"rhel9", entry("intel_iommu=on quiet"), "/" + since + " still has intel_iommu=on: its kernel was installed since"},
		"a newer record":           {"rhel9", hosttest.Steps(entry("intel_iommu=on"), hosttest.Write(machine.ContractFile, contract(t))), ""},
		"a record that is unread":  {"rhel9", hosttest.Write(machine.ContractFile, "{"), "cannot determine whether entries of kernels installed since still have the undone arguments"},
		"a menu that is made anew": {"debian", entry("intel_iommu=on"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, hosttest.Server{CPU: "GenuineIntel", CardGroup: 13, Distro: test.distribution, More: "-- proc/mounts --\n"}.Archive())
			id, err := prepared(t, root, nil)
			hosttest.NoError(t, err)
			back := undo(t, root, id)
			test.step(t, root)
			got := back.Leftovers(root)
			if test.want == "" && got != nil || test.want != "" && !slices.ContainsFunc(got, func(w string) bool { return strings.HasPrefix(w, test.want) }) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestUndoUnreadDevices: an undo that returns functions to the host says that it cannot determine
// whether Nova still offers them if they cannot be read; that of container prepare has no such
// question.
func TestUndoUnreadDevices(t *testing.T) {
	t.Parallel()
	for name, plan := range useCases(t) {
		if name == "rdma prepare" {
			continue // its undo needs the adapters
		}
		t.Run(name, func(t *testing.T) {
			root := server(t)
			_, work, err := plan(root, false)
			hosttest.NoError(t, err)
			engine := on(root).Engine(driver.DefaultTimeout)
			entry, err := engine.Apply(t.Context(), work)
			hosttest.NoError(t, err)
			hosttest.NoError(t, os.RemoveAll(root.Path(machine.DevicesDir)))
			hosttest.Write(machine.DevicesDir[1:], "not a folder")(t, root)
			undo, err := engine.PlanUndo(t.Context(), entry.ID)
			hosttest.NoError(t, err)
			back, err := on(root).PlanFilesBack(t.Context(), undo)
			hosttest.NoError(t, err)
			warned := slices.ContainsFunc(back.Warnings, func(w string) bool { return strings.HasPrefix(w, "cannot determine whether Nova still offers") })
			if warned != (name == "host prepare") {
				t.Errorf("%q", back.Warnings)
			}
		})
	}
}
