package nova_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/novacheck"
)

// plan plans an alias K4200 for nova.conf of a tree, and returns the files that change.
func plan(t *testing.T, role nova.Role, release nova.Release, place nova.Place, placement bool, tree string) (nova.Plan, map[string]string, error) {
	t.Helper()
	return planAlias(t, "K4200=10de:11b4", role, release, place, placement, tree)
}

// planAlias plans an alias for nova.conf of a tree, and returns the files that change.
func planAlias(t *testing.T, alias string, role nova.Role, release nova.Release, place nova.Place, placement bool, tree string) (nova.Plan, map[string]string, error) {
	t.Helper()
	a, err := nova.ParseAlias(alias)
	hosttest.NoError(t, err)
	o := nova.Options{Role: role, Release: release, Aliases: []nova.Alias{a}, Placement: placement}
	root := hosttest.Lay(t, tree)
	if role.Computes() {
		if o.ComputeNode, err = nova.Observe(root, nova.Recorded{}); err != nil {
			t.Fatal(err)
		}
	}
	w, err := nova.NewWant(o)
	hosttest.NoError(t, err)
	if place.File == "" {
		place.File = nova.DefaultConf
	}
	p, err := nova.NewPlan(root, o, w, place)
	if err == nil {
		_, err = novacheck.Planned(release, p)
	}
	if err != nil {
		return nova.Plan{}, nil, err
	}
	changed := map[string]string{}
	for _, c := range p.Files.Pending() {
		changed[strings.TrimPrefix(c.Name, "/etc/nova/")] = string(c.After.Content)
	}
	return p, changed, nil
}

// TestLineOnDisk: an error about a line names it as it is in the file now, not in the planned one.
func TestLineOnDisk(t *testing.T) {
	for text, line := range map[string]string{
		"[pci]\ndevice_spec = []\nalias = []\n":                                                 "3",
		"[pci]\nalias = []\ndevice_spec = []\n":                                                 "2",
		"[pci]\ndevice_spec =\nalias =\n":                                                       "3",
		"[DEFAULT]\npci_passthrough_whitelist = []\n[pci]\n\n[DEFAULT]\npci_alias = []\n":       "6",
		"[PCI]\npassthrough_whitelist = []\nalias = {\"name\": \"b\"}\nalias = []\n":            "4",
		"[pci]\nalias = [\n ]\n[filter_scheduler]\nenabled_filters = A\n":                       "2",
		"# a comment\n[pci]\ndevice_spec = {\"address\": \"0000:0a:00.0\"}\nalias = {}, {}\n\n": "4",
	} {
		_, _, err := planAlias(t, "K4200=10de:11b4", nova.All, nova.Zed, nova.Place{}, false, "-- etc/nova/nova.conf --\n"+text)
		if want := nova.DefaultConf + ":" + line + ": the value of alias is not a single JSON object"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestProgramFiles: what only one program reads counts for that program alone. An option with one
// value is set wherever a program that needs it may read it, and an alias ends where all read it.
func TestProgramFiles(t *testing.T) {
	const (
		alias = `{"name": "K4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}`
		other = `{"name": "K4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PF"}`
		spec  = `{"vendor_id": "10de", "product_id": "11b4"}`
		full  = "[pci]\nalias = " + alias + "\ndevice_spec = " + spec + "\n[filter_scheduler]\nenabled_filters = PciPassthroughFilter\n"
	)
	for _, test := range []struct {
		name      string
		role      nova.Role
		release   nova.Release
		placement bool
		place     nova.Place
		tree      string
		want      map[string]string
		err       string
	}{
		{"an alias of nova-compute's alone moves", nova.All, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n" + strings.Replace(full, "alias = "+alias+"\n", "", 1) + "-- etc/nova/nova-compute.conf --\n[pci]\nalias = " + alias + "\n",
			map[string]string{"nova.conf": strings.Replace(full, "alias = "+alias+"\ndevice_spec = "+spec+"\n", "device_spec = "+spec+"\nalias = "+alias+"\n", 1), "nova-compute.conf": "[pci]\n"}, ""},
		{"an alias of nova-compute's stays on a compute node", nova.Compute, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n[pci]\ndevice_spec = " + spec + "\n-- etc/nova/nova-compute.conf --\n[pci]\nalias = " + alias + "\n", map[string]string{}, ""},
		{"nova-compute's other values do not stay beside the planned ones", nova.All, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n" + full + "-- etc/nova/nova-compute.conf.d/a.conf --\n[pci]\nalias = " + other + "\n",
			map[string]string{"nova-compute.conf.d/a.conf": "[pci]\n"}, ""},
		{"nova-api.conf may not be read", nova.Controller, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n[filter_scheduler]\nenabled_filters = PciPassthroughFilter\n-- etc/nova/nova-api.conf --\n[pci]\nalias = " + alias + "\n",
			map[string]string{"nova.conf": "[filter_scheduler]\nenabled_filters = PciPassthroughFilter\n\n[pci]\nalias = " + alias + "\n", "nova-api.conf": "[pci]\n"}, ""},
		{"nova-api.conf.d is read", nova.Controller, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n[filter_scheduler]\nenabled_filters = PciPassthroughFilter\n-- etc/nova/nova-api.conf.d/a.conf --\n[pci]\nalias = " + alias + "\n", map[string]string{}, ""},
		{"filters of nova-scheduler.conf", nova.All, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n" + full + "-- etc/nova/nova-scheduler.conf --\n[filter_scheduler]\nenabled_filters = SameHostFilter\n" +
				"-- etc/nova/nova-scheduler.conf.d/a.conf --\n[filter_scheduler]\nenabled_filters = DifferentHostFilter, RetryFilter\n-- etc/nova/nova-compute.conf --\n[filter_scheduler]\nenabled_filters = C\n",
			map[string]string{"nova-scheduler.conf": "[filter_scheduler]\nenabled_filters = SameHostFilter,PciPassthroughFilter\n", "nova-scheduler.conf.d/a.conf": "[filter_scheduler]\nenabled_filters = DifferentHostFilter, PciPassthroughFilter\n"}, ""},
		{"filters in nova-scheduler.conf alone, which may not be read", nova.Controller, nova.Xena, false, nova.Place{},
			"-- etc/nova/nova.conf --\n[pci]\nalias = " + alias + "\n-- etc/nova/nova-scheduler.conf --\n[filter_scheduler]\nenabled_filters = PciPassthroughFilter\n",
			map[string]string{"nova.conf": "[pci]\nalias = " + alias + "\n\n[filter_scheduler]\nenabled_filters = " + strings.Join(nova.Xena.DefaultFilters(), ",") + ",PciPassthroughFilter\n"}, ""},
		{"pci_in_placement of one service alone", nova.Controller, nova.Antelope, true, nova.Place{},
			"-- etc/nova/nova.conf --\n" + full + "-- etc/nova/nova-scheduler.conf.d/a.conf --\n[filter_scheduler]\npci_in_placement = false\n",
			map[string]string{"nova.conf": full + "pci_in_placement = true\n", "nova-scheduler.conf.d/a.conf": "[filter_scheduler]\npci_in_placement = true\n"}, ""},
		{"a spec that nova-compute.conf.d shadows", nova.Compute, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n[pci]\nalias = " + alias + "\n-- etc/nova/nova-compute.conf.d/a.conf --\n[pci]\ndevice_spec = {\"vendor_id\": \"10de\", \"managed\": \"no\"}\n",
			nil, "/etc/nova/nova-compute.conf.d/a.conf:2: {\"managed\": \"no\", \"vendor_id\": \"10de\"} conflicts with the planned device_spec " + spec},
		{"filters of the package are the ones to begin with", nova.Controller, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n[pci]\nalias = " + alias + "\n-- usr/share/nova/nova-dist.conf --\n[filter_scheduler]\nenabled_filters = SameHostFilter\n",
			map[string]string{"nova.conf": "[pci]\nalias = " + alias + "\n\n[filter_scheduler]\nenabled_filters = SameHostFilter,PciPassthroughFilter\n"}, ""},
		{"an alias of the package", nova.Controller, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n-- usr/share/nova/nova-dist.conf --\n[pci]\nalias = " + other + "\n",
			nil, "/usr/share/nova/nova-dist.conf:2: the same alias exists with different values, but the file belongs to a package, which would overwrite a change"},
		{"an alias of one program, with --drop-in", nova.All, nova.Zed, false, nova.Place{DropIn: true},
			"-- etc/nova/nova.conf --\n" + full + "-- etc/nova/nova-compute.conf --\n[pci]\nalias = " + other + "\n",
			nil, "/etc/nova/nova-compute.conf:2: the same alias exists in a file that only nova-compute reads: --drop-in leaves this line as it is"},
		{"a folder in the home of Nova's user", nova.Compute, nova.Zed, false, nova.Place{},
			"-- etc/passwd --\nnova:x:1:1::/home/nova:/bin/sh\n-- etc/nova/nova.conf --\n" + full + "-- home/nova/nova.conf.d/a.conf --\n[pci]\nreport_in_placement = true\n",
			nil, "/home/nova/nova.conf.d/a.conf:2: sets report_in_placement: services of Nova that are started without --config-file read it"},
		{"files of a tool", nova.All, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n-- etc/kolla/nova-scheduler/nova.conf --\n-- var/lib/openstack/config/nova/01-nova.conf --\n", nil,
			"/etc/kolla/nova-scheduler/nova.conf: is generated by kolla-ansible, which would overwrite a change\n" +
				"/var/lib/openstack/config/nova/01-nova.conf: is generated by RHOSO, which would overwrite a change"},
		{"files of a tool for the other role", nova.Compute, nova.Zed, false, nova.Place{},
			"-- etc/nova/nova.conf --\n" + full + "-- etc/kolla/nova-scheduler/nova.conf --\n", map[string]string{}, ""},
		{"files of a tool, but the file is named", nova.All, nova.Zed, false, nova.Place{Given: true},
			"-- etc/nova/nova.conf --\n" + full + "-- etc/kolla/nova-scheduler/nova.conf --\n", map[string]string{}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, got, err := plan(t, test.role, test.release, test.place, test.placement, test.tree)
			text := ""
			if err != nil {
				text, got = err.Error(), nil
			}
			if err != nil && (test.err == "" || !strings.HasPrefix(text, test.err)) || err == nil && test.err != "" {
				t.Errorf("error %q, want %q", text, test.err)
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestFilesByName: the files that each role reads, in their order, which program reads them, and
// files elsewhere.
func TestFilesByName(t *testing.T) {
	root := hosttest.Lay(t, `
-- etc/passwd --
nova:x:1:1::/var/lib/nova:/bin/sh
-- usr/share/nova/nova-dist.conf --
-- usr/share/nova/nova-compute-dist.conf --
-- etc/nova/nova.conf --
-- etc/nova/nova-api.conf --
-- etc/nova/nova-compute.conf --
-- etc/nova/nova-cells.conf --
-- etc/nova/nova.conf.d/b.conf --
-- etc/nova/nova.conf.d/.hidden.conf --
-- etc/nova/nova.conf.d/a.conf.bak --
-- etc/nova/nova-compute.conf.d/a.conf --
-- var/lib/nova/nova-scheduler.conf --
-- etc/nova-conductor.conf.d/c.conf --
-- etc/nova-api.conf --
`)
	for role, want := range map[nova.Role]string{
		nova.Controller: "/usr/share/nova/nova-dist.conf /etc/nova/nova.conf nova-api:/etc/nova/nova-api.conf /etc/nova/nova.conf.d/b.conf",
		nova.Compute: "/usr/share/nova/nova-dist.conf nova-compute:/usr/share/nova/nova-compute-dist.conf /etc/nova/nova.conf nova-compute:/etc/nova/nova-compute.conf " +
			"/etc/nova/nova.conf.d/b.conf nova-compute:/etc/nova/nova-compute.conf.d/a.conf",
	} {
		names, err := nova.Files(root, nova.DefaultConf, role)
		hosttest.NoError(t, err)
		var got []string
		for _, n := range names {
			if by := nova.ReadBy(n, nova.DefaultConf); by != "" {
				n = by + ":" + n
			}
			got = append(got, n)
		}
		hosttest.EqualIn(t, fmt.Sprint(role), want, strings.Join(got, " "))
	}
	strays, err := nova.Elsewhere(root, nova.All)
	want := []nova.Stray{
		{Name: "/var/lib/nova/nova-scheduler.conf", Files: []string{"/var/lib/nova/nova-scheduler.conf"}},
		{Name: "/etc/nova-conductor.conf.d", Files: []string{"/etc/nova-conductor.conf.d/c.conf"}},
	}
	if diff := cmp.Diff(want, strays); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestRestart: the units of the machine, by each way of installing Nova.
func TestRestart(t *testing.T) {
	const configured = "-- etc/nova/nova.conf --\n"
	for _, test := range []struct{ name, tree, want string }{
		{"none", "", "nova-compute: none, nova-scheduler: none, nova-api: none"},
		{"Debian", "-- lib/systemd/system/nova-compute.service --\n-- lib/systemd/system/nova-scheduler.service --\n",
			"nova-compute: systemctl restart nova-compute, nova-scheduler: systemctl restart nova-scheduler, nova-api: none"},
		{"RDO", "-- usr/lib/systemd/system/openstack-nova-compute.service --\n", "nova-compute: systemctl restart openstack-nova-compute, nova-scheduler: none, nova-api: none"},
		{"devstack", "-- etc/systemd/system/devstack@n-cpu.service --\n-- etc/systemd/system/devstack@n-api.service --\n-- etc/systemd/system/devstack@n-sch.service --\n",
			"nova-compute: systemctl restart devstack@n-cpu, nova-scheduler: systemctl restart devstack@n-sch, nova-api: systemctl restart devstack@n-api"},
		{"kolla", "-- etc/systemd/system/kolla-nova_compute-container.service --\n", "nova-compute: systemctl restart kolla-nova_compute-container, nova-scheduler: none, nova-api: none"},
		{"kolla without units", "-- etc/kolla/nova-compute/config.json --\n-- usr/bin/podman --\n", "nova-compute: podman restart nova_compute, nova-scheduler: none, nova-api: none"},
		{"TripleO", "-- etc/systemd/system/tripleo_nova_compute.service --\n-- etc/systemd/system/tripleo_nova_api.service --\n",
			"nova-compute: systemctl restart tripleo_nova_compute, nova-scheduler: none, nova-api: systemctl restart tripleo_nova_api"},
		{"RHOSO", "-- etc/systemd/system/edpm_nova_compute.service --\n", "nova-compute: systemctl restart edpm_nova_compute, nova-scheduler: none, nova-api: none"},
	} {
		p, _, err := plan(t, nova.All, nova.Zed, nova.Place{}, false, configured+test.tree)
		hosttest.NoError(t, err)
		var got []string
		for _, s := range p.Restart {
			command := "none"
			if s.Command != nil {
				command = *s.Command
			}
			got = append(got, s.Name+": "+command)
			if names := strings.Join(s.Names(), " "); command == "none" && names != s.Name || command != "none" && !strings.HasSuffix(command, " restart "+names) {
				t.Errorf("%s: names %q of %s", test.name, names, command)
			}
		}
		hosttest.EqualIn(t, test.name, test.want, strings.Join(got, ", "))
	}
}

// TestUnreadable: a file that cannot be read is an error, not an absent one.
func TestUnreadable(t *testing.T) {
	for _, tree := range []string{
		"-- etc/nova/nova.conf --\n-- etc/nova/nova-compute.conf/x --\n", "-- etc/nova/nova.conf --\n-- etc/nova/nova.conf.d --\n",
		"-- etc/nova/nova.conf --\n-- etc/kolla/nova-compute/nova.conf/x --\n",
	} {
		if _, _, err := plan(t, nova.Compute, nova.Zed, nova.Place{}, false, tree); err == nil || errors.Is(err, nova.ErrUnset) {
			t.Errorf("%s: %v", tree, err)
		}
	}
}
