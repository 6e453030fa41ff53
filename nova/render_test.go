package nova_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/conf"
)

// TestRenderedFilters: each form keeps the filters that nova-scheduler has: what is pasted replaces
// the list, and filters that keep tenants apart would be lost.
func TestRenderedFilters(t *testing.T) {
	scheduler := func(text string) nova.Side {
		file, err := conf.Parse([]byte("[filter_scheduler]\n" + text))
		hosttest.NoError(t, err)
		return nova.Side{Role: nova.Controller, Files: []conf.Source{{Name: nova.DefaultConf, File: file}}}
	}
	const (
		pci     = "nova.scheduler.filters.pci_passthrough_filter.PciPassthroughFilter"
		compute = "nova.scheduler.filters.compute_filter.ComputeFilter"
	)
	for name, test := range map[string]struct {
		side      nova.Side
		policy    string
		want      string // enabled filters
		available string // that the form of kolla-ansible has, which replaces all
	}{
		"nothing read": {nova.Side{}, "", strings.Join(append(nova.Dalmatian.DefaultFilters(), "PciPassthroughFilter"), ","), ""},
		"kept, appended, dead and empty ones dropped": {scheduler("enabled_filters = ComputeFilter, ,RamFilter,AggregateMultiTenancyIsolation\n"), "",
			"ComputeFilter,AggregateMultiTenancyIsolation,PciPassthroughFilter", ""},
		"a NUMA policy": {scheduler("enabled_filters = AggregateMultiTenancyIsolation\n"), "required",
			"AggregateMultiTenancyIsolation,PciPassthroughFilter,NUMATopologyFilter", ""},
		"whole": {scheduler("enabled_filters = PciPassthroughFilter,ComputeFilter\n"), "", "PciPassthroughFilter,ComputeFilter", ""},
		"available ones": {scheduler("available_filters = " + compute + "\nenabled_filters = ComputeFilter\n"), "", "ComputeFilter,PciPassthroughFilter",
			compute + "\n" + pci},
	} {
		o := nova.Options{Role: nova.Controller, Release: nova.Dalmatian, SchedulerFiles: test.side}
		a := nova.Alias{Name: "A100", VendorID: 0x10de, ProductID: 0x20b0, NUMAPolicy: test.policy}
		for _, form := range []nova.Form{nova.FormINI, nova.FormKolla, nova.FormTripleO, nova.FormRHOSO} {
			text, err := form.Render(o, nova.Want{Aliases: []nova.Alias{a}})
			hosttest.NoError(t, err)
			enabled := "enabled_filters = " + test.want + "\n"
			if form == nova.FormTripleO {
				enabled = "NovaSchedulerEnabledFilters:\n  - " + strings.ReplaceAll(test.want, ",", "\n  - ") + "\n"
			}
			hosttest.ContainsIn(t, fmt.Sprintf("%s, %s", name, form), enabled, text)
			for path := range strings.Lines(test.available) {
				path = strings.TrimSpace(path)
				isNeeded := form == nova.FormKolla || form == nova.FormTripleO || path == pci
				if isNeeded != strings.Contains(text, path) {
					t.Errorf("%s, %s: %s in available_filters:\n%s", name, form, path, text)
				}
			}
		}
	}
}
