package nova_test

import (
	"errors"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
)

// oneAlias is a nova.conf with an alias.
const oneAlias = "-- etc/nova/nova.conf --\n[pci]\nalias = {\"name\": \"K4200\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n"

// unit is the file of a unit that starts a service with options.
func unit(name, options string) string {
	return "-- etc/systemd/system/" + name + ".service --\n[Service]\nExecStart = /usr/bin/nova-service " + options + "\n"
}

// TestNamedFiles: files that the command line of a unit names, and that would not be read, are
// refused by name; those of packages are read.
func TestNamedFiles(t *testing.T) {
	const (
		cpu  = "-- etc/nova/nova-cpu.conf --\n[pci]\n"
		more = "-- etc/nova/nova.d/gpu.conf --\n[pci]\n"
		both = "--config-file /etc/nova/nova.conf --config-file /etc/nova/nova-cpu.conf"
		own  = "-- etc/nova/nova-compute.conf --\n[pci]\n-- etc/nova/nova.conf.d/a.conf --\n[pci]\n"
	)
	for name, test := range map[string]struct{ tree, names string }{
		"no options":  {oneAlias + unit("nova-compute", ""), ""},
		"of packages": {oneAlias + own + unit("nova-compute", "--config-file=/etc/nova/nova.conf --config-file=/etc/nova/nova-compute.conf --config-dir=/etc/nova/nova.conf.d"), ""},
		"of devstack": {oneAlias + cpu + unit("devstack@n-cpu", "--config-file /etc/nova/nova-cpu.conf"), "/etc/nova/nova-cpu.conf"},
		"a folder": {oneAlias + more + unit("openstack-nova-compute", "--config-file /etc/nova/nova.conf --config-dir /etc/nova/nova.d"),
			"/etc/nova/nova.d/gpu.conf"},
		"of a drop-in": {oneAlias + cpu + unit("nova-compute", "") + "-- etc/systemd/system/nova-compute.service.d/a.conf --\n[Service]\nExecStart=\nExecStart=/usr/bin/nova-compute --config-file /etc/nova/nova-cpu.conf\n",
			"/etc/nova/nova-cpu.conf"},
		"removed by a drop-in": {oneAlias + cpu + unit("nova-compute",
			"--config-file /etc/nova/nova-cpu.conf") + "-- usr/lib/systemd/system/nova-compute.service.d/a.conf --\n[Service]\nExecStart=\nExecStart=/usr/bin/nova-compute\n", ""},
		"a masked drop-in": {"symlink etc/systemd/system/nova-compute.service.d/a.conf -> /dev/null\n" + oneAlias + cpu +
			unit("nova-compute", "--config-file /etc/nova/nova-cpu.conf") +
			"-- usr/lib/systemd/system/nova-compute.service.d/a.conf --\n[Service]\nExecStart=\nExecStart=/usr/bin/nova-compute\n", "/etc/nova/nova-cpu.conf"},
		"a drop-in that is a link to nowhere": {"symlink etc/systemd/system/nova-compute.service.d/a.conf -> /etc/none\n" + oneAlias + cpu +
			unit("nova-compute", "--config-file /etc/nova/nova-cpu.conf"), "/etc/nova/nova-cpu.conf"},
		"a drop-in that is a folder": {oneAlias + cpu + unit("nova-compute", "--config-file /etc/nova/nova-cpu.conf") +
			"-- etc/systemd/system/nova-compute.service.d/a.conf/b --\n", "/etc/nova/nova-cpu.conf"},
		"on several lines": {oneAlias + cpu + unit("nova-compute", strings.ReplaceAll(both, "--", "\\\n  --")), "/etc/nova/nova-cpu.conf"},
		"in quotes": {oneAlias + cpu + unit("nova-compute",
			`--config-file /etc/nova/nova.conf "--config-file" "/etc/nova/nova-cpu.conf"`), "/etc/nova/nova-cpu.conf"},
		"of a shell":        {oneAlias + cpu + unit("nova-compute", `; sh -c "exec nova-compute `+both+`"`), "/etc/nova/nova-cpu.conf"},
		"a comment between": {oneAlias + cpu + unit("nova-compute", "\\\n# of old: \\\n  --config-file /etc/nova/nova-cpu.conf"), "/etc/nova/nova-cpu.conf"},
		"beside a variable": {oneAlias + cpu + unit("nova-compute", "$OPTIONS --config-file /etc/nova/nova-cpu.conf"), "/etc/nova/nova-cpu.conf"},
		"a variable":        {oneAlias + cpu + unit("nova-compute", "--config-file ${CONF}"), ""},
		"masked": {"symlink run/systemd/system/nova-compute.service -> /dev/null\n" + oneAlias + cpu +
			strings.Replace(unit("nova-compute", "--config-file /etc/nova/nova-cpu.conf"), "etc/systemd", "usr/lib/systemd", 1), ""},
		"a folder without file": {oneAlias + unit("nova-compute", "--config-file /etc/nova/nova.conf --config-dir /etc/nova/nova.d"), ""},
	} {
		root := hosttest.Lay(t, test.tree)
		_, _, readErr := nova.ReadServices(root, nova.Compute, "", nova.Recorded{})
		o := nova.Options{Role: nova.Compute, Release: nova.Zed}
		_, planErr := nova.NewPlan(root, o, nova.Want{}, nova.Place{File: nova.DefaultConf})
		for _, err := range []error{readErr, planErr} {
			if errors.Is(err, nova.ErrNamed) != (test.names != "") || err != nil && !strings.Contains(err.Error(), test.names) {
				t.Errorf("%s: %v, want %q", name, err, test.names)
			}
		}
		// The operator names one file: it is planned if the unit names no other.
		_, err := nova.NewPlan(root, o, nova.Want{}, nova.Place{File: "/etc/nova/nova-cpu.conf", Given: true})
		if isOnly := test.names == "/etc/nova/nova-cpu.conf" && !strings.Contains(test.tree, "--config-file /etc/nova/nova.conf"); test.names != "" &&
			errors.Is(err, nova.ErrNamed) == isOnly {
			t.Errorf("%s: the operator names the file: %v", name, err)
		}
	}
}

// TestUnnamedFiles: a service whose command line names files or folders reads no others.
func TestUnnamedFiles(t *testing.T) {
	const (
		compute = "-- etc/nova/nova-compute.conf --\n[pci]\n"
		dropIn  = "-- etc/nova/nova.conf.d/a.conf --\n[pci]\n"
		other   = "-- etc/nova/nova-compute.conf.d/a.conf --\n[pci]\n"
		file    = "--config-file=/etc/nova/nova.conf"
		dir     = "--config-dir=/etc/nova/nova-compute.conf.d"
	)
	for name, test := range map[string]struct {
		tree   string
		dropIn bool
		want   string
	}{
		"no options":                {oneAlias + compute + dropIn + unit("nova-compute", ""), true, ""},
		"nova.conf alone":           {oneAlias + unit("nova-compute", file), true, ""},
		"a folder beside":           {oneAlias + dropIn + unit("nova-compute", file), true, ""},
		"a file beside":             {oneAlias + compute + unit("nova-compute", file), false, "/etc/nova/nova-compute.conf"},
		"a file of another service": {oneAlias + compute + unit("nova-compute", "") + unit("nova-scheduler", file), false, ""},
		"a file of packages":        {oneAlias + "-- usr/share/nova/nova-dist.conf --\n[pci]\n" + unit("nova-compute", file), false, ""},
		"another folder":            {oneAlias + dropIn + other + unit("nova-compute", dir), false, "/etc/nova/nova.conf.d/a.conf"},
		"a planned file":            {oneAlias + other + unit("nova-compute", file+" "+dir), true, "/etc/nova/nova.conf.d/zz-gpustack.conf"},
		"a variable":                {oneAlias + compute + unit("nova-compute", file+" $OPTIONS"), false, ""},
		"no file is planned":        {oneAlias + other + unit("nova-compute", file+" "+dir), false, ""},
	} {
		root := hosttest.Lay(t, test.tree)
		o := nova.Options{Role: nova.All, Release: nova.Zed}
		_, err := nova.NewPlan(root, o, nova.Want{}, nova.Place{File: nova.DefaultConf, DropIn: test.dropIn})
		if errors.Is(err, nova.ErrUnnamed) != (err != nil) || (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), ": "+test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	// The conductor of a cell, whose file devstack names, needs options of Placement alone.
	root := hosttest.Lay(t, oneAlias+"-- etc/nova/nova_cell1.conf --\n"+unit("nova-conductor", "--config-file=/etc/nova/nova_cell1.conf"))
	for _, placement := range []bool{false, true} {
		o := nova.Options{Role: nova.All, Release: nova.Zed, Placement: placement}
		if _, err := nova.NewPlan(root, o, nova.Want{}, nova.Place{File: nova.DefaultConf}); errors.Is(err, nova.ErrNamed) != placement {
			t.Errorf("a conductor's file, placement %t: %v", placement, err)
		}
	}
}

// TestBooleans: a boolean with a comment behind it makes the service that reads it fail: no plan
// leaves one behind.
func TestBooleans(t *testing.T) {
	for value, isBad := range map[string]bool{"true": false, "False": false, "1": false, "on": false, "True # since 2023.1": true, "maybe": true, "": true} {
		tree := "-- etc/nova/nova.conf --\n[pci]\nreport_in_placement = " + value + "\n"
		_, _, err := plan(t, nova.Compute, nova.Epoxy, nova.Place{}, false, tree)
		if (err != nil && strings.Contains(err.Error(), "/etc/nova/nova.conf:2: report_in_placement = "+value+" is not a boolean")) != isBad {
			t.Errorf("%q: %v", value, err)
		}
		// --placement sets it.
		if _, _, err := plan(t, nova.Compute, nova.Epoxy, nova.Place{}, true, tree); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}
