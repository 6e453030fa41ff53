package steps_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/steps"
	"gpustack/templates"
)

// TestFiles: the unit starts the running program if it lies where one stays, else an installed one;
// a root without systemd or without gpustack is refused, both at once.
func TestFiles(t *testing.T) {
	t.Parallel()
	const systemd = "-- usr/lib/systemd/systemd --\n\n"
	for name, test := range map[string]struct{ tree, self, start, err string }{
		"running":       {systemd + "-- opt/gpustack-1.2/gpustack --\n\n", "/opt/gpustack-1.2/gpustack", "/opt/gpustack-1.2/gpustack", ""},
		"installed":     {systemd + "-- usr/local/bin/gpustack --\n\n", "/root/gpustack", "/usr/local/bin/gpustack", ""},
		"strange name":  {systemd + "-- opt/my $x/gpustack --\n\n-- usr/bin/gpustack --\n\n", "/opt/my $x/gpustack", "/usr/bin/gpustack", ""},
		"not installed": {systemd, "/tmp/gpustack", "", steps.ErrNoProgram.Error()},
		"neither":       {"mkdir etc\n-- x --\n\n", "/tmp/gpustack", "", steps.ErrNoSystemd.Error() + "\n" + steps.ErrNoProgram.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := hosttest.Lay(t, test.tree)
			plan, err := steps.ObserveUnitOf(root, strings.TrimSuffix(root.Path("/"), "/")+test.self).Put()
			if err != nil || test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("%v, want %s", err, test.err)
				}
				return
			}
			if len(plan) != 2 || plan[0].Name != steps.UnitFile || plan[1].Name != steps.WantsFile {
				t.Fatalf("%+v", plan)
			}
			hosttest.Contains(t, "\nExecStart="+test.start+" boot\n", string(plan[0].After.Content))
		})
	}
}

// TestMasked: a masked unit is neither replaced nor removed, and /dev/null stays what it is.
func TestMasked(t *testing.T) {
	t.Parallel()
	root := hosttest.Lay(t, "symlink etc/systemd/system/gpustack-boot.service -> /dev/null\n-- usr/lib/systemd/systemd --\n\n-- usr/bin/gpustack --\n\n")
	if plan, err := steps.ObserveUnitOf(root, "/usr/bin/gpustack").Put(); !errors.Is(err, steps.ErrMasked) {
		t.Errorf("%+v, %v", plan, err)
	}
	plan, err := steps.ObserveUnit(root).Remove()
	if err != nil || len(plan.Pending()) > 0 {
		t.Errorf("%+v, %v", plan, err)
	}
}

// TestUnitOrder: what starts containers waits for the unit, and neither the network nor logins do.
func TestUnitOrder(t *testing.T) {
	t.Parallel()
	var before []string
	for line := range strings.Lines(templates.BootUnit) {
		if units, ok := strings.CutPrefix(strings.TrimSpace(line), "Before="); ok {
			before = append(before, strings.Fields(units)...)
		}
	}
	for _, engine := range []string{"docker", "containerd", "podman", "podman-restart", "crio", "kubelet", "slurmd"} {
		if !slices.Contains(before, engine+".service") {
			t.Errorf("%s does not wait", engine)
		}
	}
	for _, unit := range before {
		for _, other := range []string{"network", "ssh", "getty", "sysinit", "basic", "sockets", "systemd-user", "cloud-"} {
			if strings.HasPrefix(unit, other) {
				t.Errorf("%s waits", unit)
			}
		}
	}
	if !strings.Contains(templates.BootUnit, "\nDefaultDependencies=no\n") {
		t.Error("the unit has default dependencies, which cloud-init delays until the network is up")
	}
}
