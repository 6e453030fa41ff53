package nova_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"gpustack/host/document"
	"gpustack/host/hosttest"
	"gpustack/nova"
)

// TestAliasConflicts: what definitions of alias A conflict in, by release and pci_in_placement.
// "own: " begins a conflict with which requests for this alias alone fail.
func TestAliasConflicts(t *testing.T) {
	const (
		plain  = `{"name": "A", "vendor_id": "10de", "product_id": "11b4"}`
		typed  = `{"name": "A", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}`
		second = `{"name": "A", "vendor_id": "10de", "product_id": "1bb1", "device_type": "type-PCI"}`
		strict = `{"name": "A", "vendor_id": "10de", "product_id": "1bb1", "device_type": "type-PCI", "numa_policy": "required"}`
		class  = `{"name": "A", "resource_class": "gpu"}`
		bare   = `{"name": "A", "vendor_id": "10de"}`
		pf     = `{"name": "A", "vendor_id": "10de", "product_id": "PRODUCT", "device_type": "type-PF", "numa_policy": "required", "traits": "B", "live_migratable": "no", "resource_class": "C"}`
		merge  = `replace its definitions by alias = {"device_type": "type-PCI", "name": "A", "resource_class": "CUSTOM_A"}, and on compute nodes give each product that resource class: ` +
			`device_spec = {"product_id": "11b4", "resource_class": "CUSTOM_A", "vendor_id": "10de"}; device_spec = {"product_id": "1bb1", "resource_class": "CUSTOM_A", "vendor_id": "10de"}`
	)
	for _, test := range []struct {
		name        string
		release     nova.Release
		inPlacement bool
		definitions []string
		want        []string
	}{
		{"one", 32, true, []string{plain}, nil},
		{"two products", 32, false, []string{typed, second}, nil},
		{"two products, before pci_in_placement", 26, true, []string{typed, second}, nil},
		{"two products, requested from Placement", 31, true, []string{typed, second}, []string{"own: alias A is defined twice, which pci_in_placement does not allow: " + merge}},
		{"two products, read with pci_in_placement", 32, true, []string{typed, second}, []string{"alias A is defined twice, which pci_in_placement does not allow: " + merge}},
		{"two products, with all else that aliases may have", 32, true, []string{strings.ReplaceAll(pf, "PRODUCT", "20b2"), strings.ReplaceAll(pf, "PRODUCT", "20b5")}, []string{
			`alias A is defined twice, which pci_in_placement does not allow: replace its definitions by alias = ` +
				`{"device_type": "type-PF", "live_migratable": "no", "name": "A", "numa_policy": "required", "resource_class": "CUSTOM_A", "traits": "B"}, and on compute nodes give each product that resource class: ` +
				`device_spec = {"live_migratable": "no", "product_id": "20b2", "resource_class": "CUSTOM_A", "traits": "B", "vendor_id": "10de"}; ` +
				`device_spec = {"live_migratable": "no", "product_id": "20b5", "resource_class": "CUSTOM_A", "traits": "B", "vendor_id": "10de"}`}},
		{"two products with traits of their own", 32, true, []string{strings.Replace(typed, "}", `, "traits": "B"}`, 1), second}, []string{
			`alias A is defined twice, which pci_in_placement does not allow: replace its definitions by alias = ` +
				`{"device_type": "type-PCI", "name": "A", "resource_class": "CUSTOM_A"}, and on compute nodes give each product that resource class: ` +
				`device_spec = {"product_id": "11b4", "resource_class": "CUSTOM_A", "traits": "B", "vendor_id": "10de"}; device_spec = {"product_id": "1bb1", "resource_class": "CUSTOM_A", "vendor_id": "10de"}`}},
		{"two, one without ids", 31, true, []string{typed, strings.Replace(class, "}", `, "device_type": "type-PCI"}`, 1)},
			[]string{"own: alias A is defined twice, which pci_in_placement does not allow: keep one of its definitions"}},
		{"twice the same, with pci_in_placement", 32, true, []string{typed, typed},
			[]string{"alias A is defined twice, which pci_in_placement does not allow: remove the other definitions of this product"}},
		{"two products without a type", 26, false, []string{plain, second}, []string{"alias A is defined twice without the same device_type: set the same device_type in both"}},
		{"two policies", 26, false, []string{typed, strict}, []string{"alias A is defined twice with different values of numa_policy: set the same numa_policy in both"}},
		{"a class", 31, false, []string{class}, nil},
		{"a class alone", 32, false, []string{class},
			[]string{"alias A lacks vendor_id or product_id, and a resource_class suffices only with pci_in_placement, which this service does not have: add vendor_id and product_id, or set [filter_scheduler] pci_in_placement for this service too"}},
		{"a class with pci_in_placement", 32, true, []string{class}, nil},
		{"one id", 31, true, []string{bare}, nil},
		{"one id, since 2025.2", 32, true, []string{bare}, []string{"alias A lacks vendor_id or product_id: add vendor_id and product_id"}},
	} {
		var definitions []map[string]any
		for _, text := range test.definitions {
			var object map[string]any
			hosttest.NoError(t, json.Unmarshal([]byte(text), &object))
			definitions = append(definitions, object)
		}
		var got []string
		for _, c := range nova.AliasConflicts("A", definitions, test.inPlacement, test.release) {
			text := c.Seen + ": " + c.Remedy
			if c.IsOwn {
				text = "own: " + text
			}
			got = append(got, text)
		}
		hosttest.EqualIn(t, test.name, test.want, got)
	}
}

// TestPlanWithBadAliases: no plan leaves a line with which Nova rejects every alias, in any file
// that a planned service reads; --placement is refused where it makes requests fail.
func TestPlanWithBadAliases(t *testing.T) {
	const (
		typed  = "alias = {\"name\": \"B\", \"vendor_id\": \"10de\", \"product_id\": \"1111\", \"device_type\": \"type-PCI\"}\n"
		second = "alias = {\"name\": \"B\", \"vendor_id\": \"10de\", \"product_id\": \"2222\", \"device_type\": \"type-PCI\"}\n"
		on     = "[filter_scheduler]\npci_in_placement = true\n"
	)
	for _, test := range []struct {
		name, file string
		release    nova.Release
		role       nova.Role
		placement  bool
		want       string // in the error; "" for none
	}{
		{"a policy", "[pci]\nalias = {\"name\": \"B\", \"vendor_id\": \"10de\", \"product_id\": \"1111\", \"numa_policy\": \"strict\"}\n", 26, nova.Controller, false, `numa_policy is "strict"`},
		{"traits in a list", "[pci]\nalias = {\"name\": \"B\", \"vendor_id\": \"10de\", \"product_id\": \"1111\", \"traits\": [\"A\"]}\n", 27, nova.Compute, false, `traits is ["A"], not a string`},
		{"two products", "[pci]\n" + typed + second, 32, nova.Controller, false, ""},
		{"two products, Placement on", "[pci]\n" + typed + second + on, 32, nova.Controller, false, "which pci_in_placement does not allow"},
		{"two products, Placement on before 2025.2", "[pci]\n" + typed + second + on, 31, nova.Controller, false, ""},
		{"two products, --placement", "[pci]\n" + typed + second, 32, nova.Controller, true, "which pci_in_placement does not allow"},
		{"two products, --placement before 2025.2", "[pci]\n" + typed + second, 31, nova.Controller, true, "rejects requests for this alias"},
		{"two products, --placement of Zed", "[pci]\n" + typed + second, 26, nova.Controller, true, ""},
		{"a class", "[pci]\nalias = {\"name\": \"B\", \"resource_class\": \"gpu\"}\n", 31, nova.Controller, false, ""},
		{"a class alone", "[pci]\nalias = {\"name\": \"B\", \"resource_class\": \"gpu\"}\n", 32, nova.Controller, false, "lacks vendor_id or product_id"},
		{"a class, --placement", "[pci]\nalias = {\"name\": \"B\", \"resource_class\": \"gpu\"}\n", 32, nova.Controller, true, ""},
		{"a class on a compute node", "[pci]\nalias = {\"name\": \"B\", \"resource_class\": \"gpu\"}\n", 32, nova.Compute, true, "lacks vendor_id or product_id"},
		{"a class on a compute node with Placement", "[pci]\nalias = {\"name\": \"B\", \"resource_class\": \"gpu\"}\n" + on, 32, nova.Compute, true, ""},
	} {
		_, _, err := plan(t, test.role, test.release, nova.Place{}, test.placement, "-- etc/nova/nova.conf --\n"+test.file)
		if got := ""; err != nil {
			got = err.Error()
			if test.want == "" || !strings.Contains(got, test.want) {
				t.Errorf("%s: %s", test.name, got)
			}
		} else if test.want != "" {
			t.Errorf("%s: no error", test.name)
		}
	}
}

// TestLinesOfRefusals: a refusal names the line on disk, although the plan moves it.
func TestLinesOfRefusals(t *testing.T) {
	const first, second = `{"name": "B", "vendor_id": "10de", "product_id": "1111", "device_type": "type-PCI"}`, `{"name": "B", "vendor_id": "10de", "product_id": "2222", "device_type": "type-PCI"}`
	const device = "-- sys/bus/pci/devices/0000:01:00.0/vendor --\n0x8086\n-- sys/bus/pci/devices/0000:01:00.0/device --\n0x154d\n"
	for _, test := range []struct {
		name, file, want string
		role             nova.Role
	}{
		{"an alias under the older name", "[pci]\nalias = " + first + "\n[filter_scheduler]\npci_in_placement = true\n[DEFAULT]\npci_alias = " + second + "\n",
			"/etc/nova/nova.conf:6: alias B is defined twice", nova.Controller},
		{"a device_spec under the older name", "[pci]\n[DEFAULT]\n# a\n# b\npci_passthrough_whitelist = {\"vendor_id\": \"8086\", \"one_time_use\": \"yes\"}\n",
			"/etc/nova/nova.conf:5: a device_spec has one_time_use", nova.Compute},
	} {
		_, _, err := plan(t, test.role, 32, nova.Place{}, false, device+"-- etc/nova/nova.conf --\n"+test.file)
		hosttest.ContainsIn(t, test.name, test.want, fmt.Sprint(err))
	}
}

// TestWantedAliasesInPlacement: an alias in use that has two products is refused with --placement,
// with the lines that merge them.
func TestWantedAliasesInPlacement(t *testing.T) {
	for _, test := range []struct {
		release   nova.Release
		placement bool
		want      string
	}{
		{32, false, ""},
		{26, true, ""},
		{27, true, "alias A is defined twice, which pci_in_placement does not allow"},
		{32, true, "alias A is defined twice, which pci_in_placement does not allow"},
	} {
		o := nova.Options{Role: nova.Controller, Release: test.release, Placement: test.placement, Hosts: []nova.Host{{Name: "gpu1", Devices: scanned(t, "11b4", "1bb1")}}}
		for _, product := range []string{"11b4", "1bb1"} {
			a, err := nova.ParseAlias("A=10de:" + product + ",device_type=type-PCI")
			hosttest.NoError(t, err)
			o.InUse = append(o.InUse, nova.Named{Alias: a, HasIDs: true, Where: "nova.conf"})
		}
		w, err := nova.NewWant(o)
		hosttest.NoError(t, err)
		_, err = nova.FormTripleO.Render(o, w)
		got := ""
		if err != nil {
			got = err.Error()
		}
		hosttest.EqualIn(t, fmt.Sprintf("%s, placement %v", test.release, test.placement), test.want, got)
	}
}

// TestPlanWithBadSpecs: no plan leaves a device_spec with which nova-compute does not start or
// never reports devices.
func TestPlanWithBadSpecs(t *testing.T) {
	const (
		device = "-- sys/bus/pci/devices/0000:01:00.0/vendor --\n0x8086\n-- sys/bus/pci/devices/0000:01:00.0/device --\n0x154d\n"
		vf     = "symlink sys/bus/pci/devices/0000:01:00.0/physfn -> ../0000:02:00.0\n" + device
	)
	for _, test := range []struct {
		name, spec, tree string
		role             nova.Role
		placement        bool
		want             string // in the error; "" for none
	}{
		{"traits in a list", `{"vendor_id": "8086", "traits": ["A"]}`, device, nova.Compute, true, `traits is ["A"], not a string`},
		{"traits in a list, not reported", `{"vendor_id": "8086", "traits": ["A"]}`, device, nova.Compute, false, ""},
		{"a tag in a list", `{"vendor_id": "8086", "physical_network": ["A"]}`, device, nova.Compute, false, `physical_network is ["A"], not a string`},
		{"a tag in a list, of nova-scheduler", `{"vendor_id": "8086", "physical_network": ["A"]}`, device, nova.Controller, false, ""},
		{"a reference to an option", `{"vendor_id": "8086", "tag": "$b"}`, device, nova.Compute, false, "the value of device_spec refers to the option b, which oslo.config replaces"},
		{"a dollar sign", `{"vendor_id": "8086", "tag": "$$b"}`, device, nova.Compute, false, ""},
		{"a dollar sign after a backslash", `{"vendor_id": "8086", "tag": "\$b"}`, device, nova.Compute, false, ""},
		{"the end of a regular expression", `{"vendor_id": "8086", "address": {"bus": "^0[12]$"}}`, device, nova.Compute, false, ""},
		{"a class of Neutron's", `{"vendor_id": "8086", "physical_network": "A", "resource_class": 1}`, device, nova.Compute, true, ""},
		{"a class", `{"vendor_id": "8086", "resource_class": 1}`, device, nova.Compute, true, `resource_class is 1, not a string`},
		{"no one_time_use on a VF", `{"vendor_id": "8086", "one_time_use": "no"}`, vf, nova.Compute, true, "has one_time_use, but 0000:01:00.0 is a VF"},
		{"no one_time_use on a VF, not reported", `{"vendor_id": "8086", "one_time_use": "no"}`, vf, nova.Compute, false, ""},
	} {
		_, _, err := plan(t, test.role, 32, nova.Place{}, test.placement, test.tree+"-- etc/nova/nova.conf --\n[pci]\ndevice_spec = "+test.spec+"\n")
		if got := ""; err != nil {
			got = err.Error()
			if test.want == "" || !strings.Contains(got, test.want) {
				t.Errorf("%s: %s", test.name, got)
			}
		} else if test.want != "" {
			t.Errorf("%s: no error", test.name)
		}
	}
}

// TestPlanWithFilters: what a plan leaves of filters, or why it is refused. nova-scheduler starts
// with each plan.
func TestPlanWithFilters(t *testing.T) {
	const own = "available_filters = nova.scheduler.filters.all_filters\navailable_filters = own.filters.OwnFilter\n"
	for _, test := range []struct {
		name, before string // of [filter_scheduler]
		release      nova.Release
		want         string // enabled_filters, or the error
	}{
		{"an empty item", "enabled_filters = ComputeFilter,,ImagePropertiesFilter\n", 31, "ComputeFilter,ImagePropertiesFilter,PciPassthroughFilter"},
		{"a comma at the end", "enabled_filters = ComputeFilter,\n", 31, "ComputeFilter,PciPassthroughFilter"},
		{"a filter that is gone", "enabled_filters = ComputeFilter,RamFilter\n", 31, "ComputeFilter,PciPassthroughFilter"},
		{"an unknown name", "enabled_filters = ComputeFilter,PCIPassthroughFilter\n", 31,
			"error: /etc/nova/nova.conf:2: no filter is called PCIPassthroughFilter: Nova does not start nova-scheduler"},
		{"an operator's own", "enabled_filters = ComputeFilter,OwnFilter\n" + own, 31, "ComputeFilter,OwnFilter,PciPassthroughFilter"},
		{"an operator's own, of a function", "enabled_filters = OwnFilter\navailable_filters = own.filters.all_of_ours\n", 31, "OwnFilter,PciPassthroughFilter"},
		{"an operator's own with the name of one that is gone", "enabled_filters = RamFilter\navailable_filters = own.filters.RamFilter\n", 31, "RamFilter,PciPassthroughFilter"},
		{"one that is not offered", "enabled_filters = ComputeFilter\navailable_filters = own.filters.OwnFilter\n", 31,
			"error: /etc/nova/nova.conf:2: ComputeFilter is enabled, but no available_filters offers it: Nova does not start nova-scheduler"},
		{"ours alone is not offered", "enabled_filters = ComputeFilter\navailable_filters = nova.scheduler.filters.compute_filter.ComputeFilter\n", 31, "ComputeFilter,PciPassthroughFilter"},
		{"a module", "enabled_filters = ComputeFilter\navailable_filters = nova.scheduler.filters\navailable_filters = nova.scheduler.filters.all_filters\n", 31,
			"error: /etc/nova/nova.conf:2: available_filters has \"nova.scheduler.filters\", which is not the path of a class or function: " +
				"Nova does not start nova-scheduler"},
		{"a path that Nova does not have", "enabled_filters = ComputeFilter\navailable_filters = nova.scheduler.filters.standard_filters\navailable_filters = nova.scheduler.filters.all_filters\n", 31,
			"error: /etc/nova/nova.conf:2: available_filters has \"nova.scheduler.filters.standard_filters\", which 2025.1 does not have: " +
				"Nova does not start nova-scheduler"},
	} {
		_, changed, err := plan(t, nova.Controller, test.release, nova.Place{}, false, "-- etc/nova/nova.conf --\n[filter_scheduler]\n"+test.before)
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		}
		for line := range strings.Lines(changed["nova.conf"]) {
			if filters, ok := strings.CutPrefix(line, "enabled_filters = "); ok {
				got = strings.TrimSuffix(filters, "\n")
			}
		}
		hosttest.EqualIn(t, test.name, test.want, got)
	}
}

// TestNamesOfBadAliases: the names of a cloud are not read from aliases that Nova rejects. A key of
// a later release is no error.
func TestNamesOfBadAliases(t *testing.T) {
	for _, test := range []struct{ alias, want string }{
		{`{"name": "B", "vendor_id": "10de", "product_id": "1111"}`, ""},
		{`{"name": "B", "vendor_id": "10de", "product_id": "1111", "later": "x"}`, ""},
		{`{"name": "B", "resource_class": "x"}`, ""},
		{`{"name": "B", "vendor_id": "10de", "product_id": "1111", "numa_policy": "strict"}`,
			`standard input:2: alias B: numa_policy is "strict", not one of required, preferred, legacy, socket: this line makes Nova reject all aliases`},
		{`{"name": "B", "vendor_id": "10de", "product_id": null}`, "standard input:2: alias B: product_id is null, not a string: this line makes Nova reject all aliases"},
		{`["B"]`, "standard input:2: the value of alias is not a JSON object with a name: Nova rejects every alias of the file"},
	} {
		_, err := nova.ReadNames(document.Source{Paths: []string{"-"}, Stdin: strings.NewReader("[pci]\nalias = " + test.alias + "\n")})
		got := ""
		if err != nil {
			got = err.Error()
		}
		hosttest.EqualIn(t, test.alias, test.want, got)
	}
}
