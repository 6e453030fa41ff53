package node_test

import (
	"context"
	"errors"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/operate/node"
)

// entryOf is an entry of the journal that was interrupted.
func entryOf(kind string) hosttest.Step {
	drivers := "null"
	if kind == change.KindDrivers {
		drivers = `{"boot_id":"this-boot","release":false,"services":{"stop":null,"persistence_off":null,"start":null,"persistence_on":null,"persistent":null},"functions":[]}`
	}
	return hosttest.Write("var/lib/gpustack/journal/0001.json", `{"schema":1,"id":1,"kind":"journal entry", "changes":"`+kind+`","command":"test","status":"applying",`+
		`"origin":{"user":"","host":"","version":"","argv":null},"started":"2026-11-21T20:00:00Z","ended":null,"files":[],"programs":null,"left":null,"restart":null,"rows":null,"drivers":`+drivers+`}`)
}

// locked holds the journal.
func locked(t *testing.T, root host.Root) {
	t.Helper()
	j, err := change.Machine(root).Lock()
	hosttest.NoError(t, err)
	t.Cleanup(func() { j.Close() })
}

// TestSettled: a write to sysfs of an earlier run that is stuck in the kernel stops commands that
// only read, and requires a reboot; reading functions would block with it. Other interrupted
// changes do not.
func TestSettled(t *testing.T) {
	t.Parallel()
	boot := hosttest.Write("proc/sys/kernel/random/boot_id", "this-boot\n")
	writes := hosttest.Write("proc/77/cmdline", "gpustack\x00write-attribute\x00--\x00/sys/bus/pci/drivers/nouveau/unbind\x000000:84:00.0\x00")
	for name, test := range map[string]struct {
		step   hosttest.Step
		want   error
		reboot string
	}{
		"nothing":                      {hosttest.Steps(), nil, "no"},
		"files":                        {entryOf(change.KindFiles), nil, "no"},
		"drivers":                      {hosttest.Steps(boot, entryOf(change.KindDrivers)), nil, "no"},
		"drivers, and it still writes": {hosttest.Steps(boot, entryOf(change.KindDrivers), writes), host.ErrStuck, "yes"},
		"drivers, of an earlier boot":  {hosttest.Steps(hosttest.Write("proc/sys/kernel/random/boot_id", "another\n"), entryOf(change.KindDrivers), writes), nil, "no"},
		"another run":                  {hosttest.Steps(boot, entryOf(change.KindDrivers), locked), nil, "no"},
		"another run that writes":      {hosttest.Steps(boot, entryOf(change.KindDrivers), writes, locked), change.ErrLocked, "unknown"},
		"an entry that is malformed":   {hosttest.Write("var/lib/gpustack/journal/0001.json", "{"), nil, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := hosttest.Bare(t)
			test.step(t, root)
			if err := node.Settled(t.Context(), root, change.Machine(root).Observe()); !errors.Is(err, test.want) {
				t.Errorf("%v", err)
			}
			hosttest.EqualIn(t, "reboot required", test.reboot, node.RebootRequired(t.Context(), root).String())
		})
	}
}

// TestRebootRequired: after a change of what is recorded for guests, and after its undo, a machine
// has to be rebooted until it was. The functions are observed with it.
func TestRebootRequired(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		step hosttest.Step
		want string
	}{
		"nothing is recorded": {hosttest.Steps(), "no"},
		"prepared":            {func(t *testing.T, root host.Root) { prepared(t, root, nil) }, "yes"},
		"prepared and booted": {func(t *testing.T, root host.Root) {
			prepared(t, root, nil)
			hosttest.Replace("proc/cmdline", "quiet", "quiet intel_iommu=on iommu=pt")(t, root)
			hosttest.Write("proc/stat", "btime 4102444800\n")(t, root)
		}, "no"},
		"undone before the boot": {func(t *testing.T, root host.Root) {
			id, err := prepared(t, root, nil)
			hosttest.NoError(t, err)
			undo(t, root, id)
		}, "no"},
		"undone after the boot": {func(t *testing.T, root host.Root) {
			id, err := prepared(t, root, nil)
			hosttest.NoError(t, err)
			undo(t, root, id)
			hosttest.Replace("var/lib/gpustack/journal/0001.json", `"started": "20`, `"started": "19`)(t, root)
		}, "yes"},
		"no running kernel":          {hosttest.Remove("proc/cmdline"), "unknown"},
		"a record that is malformed": {hosttest.Write(machine.ContractFile, "{"), "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Bare(t)
			test.step(t, root)
			m, reboot := node.Observe(context.Background(), root, true)
			hosttest.Equal(t, test.want, reboot.String())
			hosttest.EqualIn(t, "functions", 8, len(m.Devices.Value))
		})
	}
}
