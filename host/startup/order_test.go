package startup_test

import (
	"context"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/startup"
)

// TestOrder: units of containers that run nova-compute or libvirt are after the steps, whatever
// deployed them, and what is not ordered is named. Other containers do not wait for the steps.
func TestOrder(t *testing.T) {
	const machine = "-- usr/lib/systemd/systemd --\n-- usr/bin/gpustack --\n"
	const unit = " --\n[Service]\nExecStart=/usr/bin/podman start x\n"
	for name, test := range map[string]struct {
		tree   string
		before string // more units in Before=
	}{
		"packages": {"-- usr/lib/systemd/system/nova-compute.service" + unit, ""},
		"kolla": {"-- etc/systemd/system/kolla-nova_compute-container.service" + unit + "-- etc/systemd/system/kolla-nova_libvirt-container.service" + unit +
			"-- etc/systemd/system/kolla-rabbitmq-container.service" + unit, "kolla-nova_compute-container.service kolla-nova_libvirt-container.service"},
		"kolla, with another name":         {"-- etc/systemd/system/kolla-nova_compute_gpu-container.service" + unit, "kolla-nova_compute_gpu-container.service"},
		"TripleO":                          {"-- etc/systemd/system/tripleo_nova_compute.service" + unit + "-- etc/systemd/system/tripleo_nova_virtqemud.service" + unit + "-- etc/systemd/system/tripleo_ovn_controller.service" + unit, "tripleo_nova_compute.service tripleo_nova_virtqemud.service"},
		"RHOSO":                            {"-- etc/systemd/system/edpm_nova_compute.service" + unit, "edpm_nova_compute.service"},
		"RHOSO, its healthcheck":           {"-- etc/systemd/system/edpm_nova_compute.service" + unit + "-- etc/systemd/system/edpm_nova_compute_healthcheck.timer" + unit, "edpm_nova_compute.service"},
		"a quadlet":                        {"-- etc/containers/systemd/compute.container --\n[Container]\nImage=quay.io/openstack.kolla/nova-compute:2025.1\n", "compute.service"},
		"a quadlet in a folder":            {"-- etc/containers/systemd/nova/nova-libvirt.container --\n[Container]\nImage=x\n", "nova-libvirt.service"},
		"a quadlet with a name of its own": {"-- usr/share/containers/systemd/x.container --\n[Container]\nImage=x/nova-compute\nServiceName=mine\n", "mine.service"},
		"a quadlet whose file is gone":     {"symlink etc/containers/systemd/nova-compute.container -> /srv/gone\nsymlink etc/containers/systemd/nova -> /srv/gone\n", ""},
		"a quadlet that is masked":         {"symlink etc/containers/systemd/nova-compute.container -> /dev/null\n", ""},
		"a file beside quadlets":           {"-- etc/containers/systemd/data.volume --\n[Volume]\n", ""},
		"another quadlet":                  {"-- etc/containers/systemd/web.container --\n[Container]\nImage=nginx\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var commands, files []string
			for line := range strings.Lines(test.tree) {
				if strings.HasPrefix(line, "mkdir") || strings.HasPrefix(line, "symlink") {
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
			if want := test.before != ""; want != (unordered != nil) {
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
			// Kolla deploys its units later than gpustack is installed, as a rule.
			const kolla = "kolla-nova_compute-container.service kolla-nova_libvirt-container.service"
			if !strings.Contains(string(text), "\nBefore="+kolla+"\n") || strings.Contains(string(text), "rabbitmq") {
				t.Errorf("units of kolla in\n%s", text)
			}
			if unordered, err = startup.Unordered(root); err != nil || unordered != nil {
				t.Errorf("still not ordered: %q, %v", unordered, err)
			}
			again, err := startup.FilesFor(root, root.Path("/usr/bin/gpustack"))
			if err != nil || len(again.Pending()) > 0 {
				t.Errorf("again: %v, %v", again.Pending(), err)
			}
		})
	}
}

// TestOrderUnreadable: a unit that cannot be read, or a folder of units, may have units that are
// not ordered.
func TestOrderUnreadable(t *testing.T) {
	for name, tree := range map[string]string{
		"a unit that is a folder":    "mkdir etc/systemd/system/edpm_nova_compute.service\n",
		"a quadlet that is a loop":   "symlink etc/containers/systemd/x.container -> x.container\n",
		"a folder that is a loop":    "symlink etc/containers/systemd/nova -> nova\n",
		"a quadlet that is a folder": "mkdir etc/containers/systemd/x.container\n",
	} {
		if unordered, err := startup.Unordered(hosttest.Lay(t, tree)); err == nil {
			t.Errorf("%s: %q", name, unordered)
		}
	}
}
