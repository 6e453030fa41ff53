package nova_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
)

// TestReshapeWarning: where nova-compute begins to report devices, the plan names the role that its
// user needs, and the user as Nova's files name it; that Placement requires the role is tested in
// integration/nova.
func TestReshapeWarning(t *testing.T) {
	const begins = "[placement]\nusername = nova\nproject_name = $x\nuser_domain_id = default\nproject_domain_name = it's\n"
	const added = `openstack role add --project service --project-domain 'it'\''s' --user nova --user-domain default service`
	for _, test := range []struct {
		name    string
		release nova.Release
		role    nova.Role
		file    string
		want    string // how the warning ends; "" for none
	}{
		{"before oslo.policy enforced it", nova.Dalmatian - 1, nova.Compute, begins, ""},
		{"since then", nova.Dalmatian, nova.Compute, begins, added},
		{"with a controller's services", nova.Newest, nova.All, begins, added},
		{"a controller", nova.Newest, nova.Controller, begins, ""},
		{"no section", nova.Newest, nova.Compute, "", "--project service --project-domain Default --user placement --user-domain Default service"},
		{"set before", nova.Newest, nova.Compute, begins + "[pci]\nreport_in_placement = yes\n", ""},
		{"set to no", nova.Newest, nova.Compute, begins + "[pci]\nreport_in_placement = no\n", added},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, err := nova.ParseAlias("K=10de:11b4,device_type=type-PCI")
			hosttest.NoError(t, err)
			o := nova.Options{Role: test.role, Release: test.release, Aliases: []nova.Alias{a}, Placement: true}
			w, err := nova.NewWant(o)
			hosttest.NoError(t, err)
			plan, err := nova.NewPlan(hosttest.Lay(t, "-- etc/nova/nova.conf --\n"+test.file), o, w, nova.Place{File: "/etc/nova/nova.conf"})
			hosttest.NoError(t, err)
			got := ""
			for _, warning := range plan.Warnings {
				if strings.HasPrefix(warning, "report_in_placement: ") {
					got = warning
				}
			}
			if (got != "") != (test.want != "") || !strings.HasSuffix(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
