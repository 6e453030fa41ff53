package startup_test

import (
	"context"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/startup"
)

// TestOrder: units of containers that run nova-compute or libvirt are after the steps, whatever
// deployed them, and what is not ordered is named.
func TestOrder(t *testing.T) {
	const machine = "-- usr/lib/systemd/systemd --\n-- usr/bin/gpustack --\n"
	const unit = " --\n[Service]\nExecStart=/usr/bin/podman start x\n"
	for name, test := range map[string]struct {
		tree   string
		before string // more units in Before=
		kolla  bool
	}{
		"packages":                         {"-- usr/lib/systemd/system/nova-compute.service" + unit, "", false},
		"kolla":                            {"-- etc/systemd/system/kolla-nova_compute-container.service" + unit + "-- etc/systemd/system/kolla-nova_libvirt-container.service" + unit, "", true},
		"kolla, not deployed":              {"mkdir etc/kolla\n", "", true},
		"TripleO":                          {"-- etc/systemd/system/tripleo_nova_compute.service" + unit + "-- etc/systemd/system/tripleo_nova_virtqemud.service" + unit + "-- etc/systemd/system/tripleo_ovn_controller.service" + unit, "tripleo_nova_compute.service tripleo_nova_virtqemud.service", false},
		"RHOSO":                            {"-- etc/systemd/system/edpm_nova_compute.service" + unit, "edpm_nova_compute.service", false},
		"RHOSO, its healthcheck":           {"-- etc/systemd/system/edpm_nova_compute.service" + unit + "-- etc/systemd/system/edpm_nova_compute_healthcheck.timer" + unit, "edpm_nova_compute.service", false},
		"a quadlet":                        {"-- etc/containers/systemd/compute.container --\n[Container]\nImage=quay.io/openstack.kolla/nova-compute:2025.1\n", "compute.service", false},
		"a quadlet in a folder":            {"-- etc/containers/systemd/nova/nova-libvirt.container --\n[Container]\nImage=x\n", "nova-libvirt.service", false},
		"a quadlet with a name of its own": {"-- usr/share/containers/systemd/x.container --\n[Container]\nImage=x/nova-compute\nServiceName=mine\n", "mine.service", false},
		"another quadlet":                  {"-- etc/containers/systemd/web.container --\n[Container]\nImage=nginx\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var commands, files []string
			for line := range strings.Lines(test.tree) {
				if strings.HasPrefix(line, "mkdir") {
					commands = append(commands, line)
				} else {
					files = append(files, line)
				}
			}
			root := hosttest.Lay(t, strings.Join(commands, "")+machine+strings.Join(files, ""))
			unordered, err := startup.Unordered(root)
			if err != nil {
				t.Fatal(err)
			}
			if want := test.before != "" || name == "kolla"; want != (unordered != nil) {
				t.Errorf("not ordered: %q", unordered)
			}
			plan, err := startup.FilesFor(root, root.Path("/usr/bin/gpustack"))
			if err != nil {
				t.Fatal(err)
			}
			if err := plan.Apply(context.Background(), root); err != nil {
				t.Fatal(err)
			}
			text, err := root.ReadFile(startup.UnitFile)
			if err != nil || strings.Contains(string(text), "{{") || !strings.Contains(string(text), "ConditionFileIsExecutable=/usr/bin/gpustack\n") {
				t.Errorf("%s %v", text, err)
			}
			if want := "Before=" + test.before + "\n"; test.before != "" && !strings.Contains(string(text), want) {
				t.Errorf("no %q in\n%s", want, text)
			}
			if kolla, err := root.Exists(startup.KollaFile); err != nil || kolla != test.kolla {
				t.Errorf("drop-in of kolla: %t, %v", kolla, err)
			}
			if unordered, err = startup.Unordered(root); err != nil || unordered != nil {
				t.Errorf("still not ordered: %q, %v", unordered, err)
			}
			again, err := startup.FilesFor(root, root.Path("/usr/bin/gpustack"))
			if err != nil || len(again.Pending()) > 0 {
				t.Errorf("again: %v, %v", again.Pending(), err)
			}
			if plan, err = startup.NoFiles(root); err == nil {
				err = plan.Apply(context.Background(), root)
			}
			if err != nil {
				t.Fatal(err)
			}
			if there, err := root.Exists("/etc/systemd/system/kolla-.service.d"); err != nil || there {
				t.Errorf("the drop-in's folder remains: %v", err)
			}
		})
	}
}

// TestOrderUnreadable: a folder of units that cannot be read may have units that are not ordered.
func TestOrderUnreadable(t *testing.T) {
	if unordered, err := startup.Unordered(hosttest.Lay(t, "mkdir etc/systemd/system/edpm_nova_compute.service\n")); err == nil {
		t.Errorf("%q", unordered)
	}
}
