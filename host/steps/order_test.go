package steps_test

import (
	"context"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/steps"
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
			unordered, err := steps.Unordered(root)
			hosttest.NoError(t, err)
			if want := test.before != ""; want != (unordered != nil) {
				t.Errorf("not ordered: %q", unordered)
			}
			plan, err := steps.ObserveUnitOf(root, root.Path("/usr/bin/gpustack")).Put()
			hosttest.NoError(t, err)
			hosttest.NoError(t, plan.Apply(context.Background(), root))
			text, err := root.ReadFile(steps.UnitFile)
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
			if unordered, err = steps.Unordered(root); err != nil || unordered != nil {
				t.Errorf("still not ordered: %q, %v", unordered, err)
			}
			again, err := steps.ObserveUnitOf(root, root.Path("/usr/bin/gpustack")).Put()
			if err != nil || len(again.Pending()) > 0 {
				t.Errorf("again: %v, %v", again.Pending(), err)
			}
		})
	}
}

// TestUnordered: the order that systemd reads from a container's unit counts: its file, its
// drop-ins and those of its prefix and type, as far as no other file replaces them. Dependencies
// cannot be reset, so an empty After= changes nothing (systemd.unit(5)).
func TestUnordered(t *testing.T) {
	const unit, name = "/systemd/system/edpm_nova_compute.service", "edpm_nova_compute.service"
	const plain = "-- usr/lib" + unit + " --\n[Service]\nExecStart=/usr/bin/podman start x\n"
	const after, other = "[Unit]\nAfter=gpustack-boot.service\n", "[Unit]\nAfter=network-online.target\n"
	const kolla = "-- etc/systemd/system/kolla-nova_compute-container.service --\n[Service]\n"
	const quadlet = "-- etc/containers/systemd/compute.container --\n[Container]\nImage=x/nova-compute\n"
	for test, tree := range map[string]struct{ tree, want string }{
		"nothing":                                    {plain, name},
		"its file":                                   {"-- etc" + unit + " --\n" + after, ""},
		"its file, of several units":                 {"-- etc" + unit + " --\n[Unit]\nAfter=a.service gpustack-boot.service\n", ""},
		"its file, continued":                        {"-- etc" + unit + " --\n[Unit]\nAfter=a.service \\\n  b.service\\\n# why\n  gpustack-boot.service\nWants=c\n", ""},
		"its file, in a comment":                     {"-- etc" + unit + " --\n[Unit]\n# After=gpustack-boot.service\nAfter=a.service\n#\\\n;After=gpustack-boot.service\n", name},
		"its file, a comment is not continued":       {"-- etc" + unit + " --\n[Unit]\n# old \\\nAfter=gpustack-boot.service\n", ""},
		"its file, a backslash that is escaped":      {"-- etc" + unit + " --\n[Unit]\nDescription=x\\\\\nAfter=gpustack-boot.service\n", ""},
		"its file, a line of another key":            {"-- etc" + unit + " --\n[Unit]\nDescription=x \\\nAfter=gpustack-boot.service\n", name},
		"its file, replaced":                         {"-- etc" + unit + " --\n" + other + "-- usr/lib" + unit + " --\n" + after, name},
		"a drop-in":                                  {plain + "-- etc" + unit + ".d/gpustack.conf --\n" + after, ""},
		"a drop-in of a package":                     {plain + "-- usr/lib" + unit + ".d/10.conf --\n" + after, ""},
		"a drop-in, continued":                       {plain + "-- etc" + unit + ".d/10.conf --\n[Unit]\nAfter=\\\ngpustack-boot.service\n", ""},
		"a drop-in, an empty one later":              {plain + "-- etc" + unit + ".d/10.conf --\n" + after + "-- etc" + unit + ".d/20.conf --\n[Unit]\nAfter=\n", ""},
		"a drop-in, replaced":                        {plain + "-- usr/lib" + unit + ".d/10.conf --\n" + after + "-- etc" + unit + ".d/10.conf --\n" + other, name},
		"a drop-in, masked":                          {"symlink etc" + unit + ".d/10.conf -> /dev/null\n" + plain + "-- usr/lib" + unit + ".d/10.conf --\n" + after, name},
		"a drop-in, not named .conf":                 {plain + "-- etc" + unit + ".d/10.conf.bak --\n" + after, name},
		"a drop-in of another unit":                  {plain + "-- etc/systemd/system/edpm_iscsid.service.d/10.conf --\n" + after, name},
		"a drop-in of its prefix":                    {kolla + "-- etc/systemd/system/kolla-nova_compute-.service.d/10.conf --\n" + after, ""},
		"a drop-in of a shorter prefix":              {kolla + "-- etc/systemd/system/kolla-.service.d/10.conf --\n" + after, ""},
		"a drop-in of a prefix, replaced":            {kolla + "-- etc/systemd/system/kolla-.service.d/10.conf --\n" + after + "-- etc/systemd/system/kolla-nova_compute-container.service.d/10.conf --\n" + other, "kolla-nova_compute-container.service"},
		"a drop-in of a prefix in an earlier folder": {kolla + "-- etc/systemd/system/kolla-.service.d/10.conf --\n" + after + "-- usr/lib/systemd/system/kolla-nova_compute-container.service.d/10.conf --\n" + other, ""},
		"a drop-in of all services, replaced":        {kolla + "-- etc/systemd/system/service.d/10.conf --\n" + after + "-- usr/lib/systemd/system/kolla-.service.d/10.conf --\n" + other, "kolla-nova_compute-container.service"},
		"its file, spaces after a backslash":         {"-- etc" + unit + " --\n[Unit]\nDescription=x \\ \nAfter=gpustack-boot.service\n", ""},
		"its file, an empty line after a backslash":  {"-- etc" + unit + " --\n[Unit]\nDescription=x \\\n\nAfter=gpustack-boot.service\n", ""},
		"the boot unit, a drop-in":                   {plain + "-- etc/systemd/system/gpustack-boot.service --\n[Unit]\n-- etc/systemd/system/gpustack-boot.service.d/x.conf --\n[Unit]\nBefore=" + name + "\n", ""},
		"a drop-in of all services":                  {plain + "-- etc/systemd/system/service.d/10.conf --\n" + after, ""},
		"a quadlet":                                  {quadlet, "compute.service"},
		"a quadlet, as podman has generated it":      {quadlet + "-- run/systemd/generator/compute.service --\n" + after, ""},
		"a quadlet, a drop-in":                       {quadlet + "-- etc/systemd/system/compute.service.d/10.conf --\n" + after, ""},
		"a quadlet, its image on the next line":      {"-- etc/containers/systemd/a.container --\n[Container]\nImage=\\\n  x/nova-compute\n", "a.service"},
		"the boot unit, continued":                   {plain + "-- etc/systemd/system/gpustack-boot.service --\n[Unit]\nBefore=a.service \\\n " + name + "\n", ""},
	} {
		t.Run(test, func(t *testing.T) {
			unordered, err := steps.Unordered(hosttest.Lay(t, tree.tree))
			if got := strings.Join(unordered, " "); got != tree.want || err != nil {
				t.Errorf("%q, want %q (%v)", got, tree.want, err)
			}
		})
	}
}

// TestOrderUnreadable: a unit that cannot be read, or a folder of units, may have units that are
// not ordered.
func TestOrderUnreadable(t *testing.T) {
	for name, tree := range map[string]string{
		"a drop-in that is a folder": "mkdir etc/systemd/system/edpm_nova_compute.service.d/10.conf\n-- etc/systemd/system/edpm_nova_compute.service --\n[Service]\n",
		"drop-ins that are a loop":   "symlink etc/systemd/system/edpm_nova_compute.service.d -> edpm_nova_compute.service.d\n-- etc/systemd/system/edpm_nova_compute.service --\n[Service]\n",
		"a unit that is a folder":    "mkdir etc/systemd/system/edpm_nova_compute.service\n",
		"a quadlet that is a loop":   "symlink etc/containers/systemd/x.container -> x.container\n",
		"a folder that is a loop":    "symlink etc/containers/systemd/nova -> nova\n",
		"a quadlet that is a folder": "mkdir etc/containers/systemd/x.container\n",
	} {
		if unordered, err := steps.Unordered(hosttest.Lay(t, tree)); err == nil {
			t.Errorf("%s: %q", name, unordered)
		}
	}
}
