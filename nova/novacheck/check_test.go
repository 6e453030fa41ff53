package novacheck_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
	"gpustack/nova/novacheck"
)

const (
	k4200   = `{"name": "K4200", "vendor_id": "10de", "product_id": "11b4"}`
	byClass = `{"name": "GPU", "resource_class": "GPU"}`
	// os-traits of 2025.1 has the trait; nova-compute gives it to devices since 2026.2.
	migratable = `{"name": "GPU", "resource_class": "GPU", "traits": "HW_PCI_LIVE_MIGRATABLE"}`
	goodCtl    = "[pci]\nalias = " + k4200 + "\n[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
	goodNode   = "[pci]\nalias = " + k4200 + "\ndevice_spec = {\"vendor_id\": \"10DE\", \"product_id\": \"11b4\"}\n"
)

// TestCheck: each finding, by what is wrong with a pair of files that is right but
// for that.
func TestCheck(t *testing.T) {
	const noHost = "alias ctl:2 no device_spec of a compute node that was given matches alias K4200"
	for _, test := range []struct {
		name, release, ctl, node string
		hardware                 string // functions as PRODUCT[/VFs]; none is no inventory
		want                     []string
	}{
		{"all is well", "zed", goodCtl, goodNode, "11b4", nil},
		{"missing on the compute node", "zed", goodCtl, "[pci]\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n", "",
			[]string{"fail alias node:0 alias K4200 is missing, which ctl has"}},
		{"missing on the controller", "zed", strings.Replace(goodCtl, "alias", "#alias", 1), goodNode, "",
			[]string{"fail alias ctl:0 alias K4200 is missing, which node has"}},
		{"another one", "zed", goodCtl, strings.Replace(goodNode, "11b4\"}", "11b4\", \"device_type\": \"type-PF\"}", 1), "",
			[]string{"fail alias node:2 alias K4200 differs from the one in ctl"}},
		{"a list", "zed", strings.Replace(goodCtl, k4200, "["+k4200+"]", 1), goodNode, "",
			[]string{"fail alias ctl:0 alias K4200 is missing, which node has", "fail alias ctl:2 the value of alias is not a single JSON object"}},
		{"Python's quotes", "zed", strings.Replace(goodCtl, k4200, "{'name': 'K4200'}", 1), goodNode, "",
			[]string{"fail alias ctl:0 alias K4200 is missing, which node has", "fail alias ctl:2 the value of alias is not a single JSON object"}},
		{"a key too new", "zed", strings.Replace(goodCtl, "11b4\"", "11b4\", \"traits\": \"CUSTOM_X\"", 1), strings.Replace(goodNode, "11b4\"", "11b4\", \"traits\": \"CUSTOM_X\"", 1), "",
			[]string{"fail alias ctl:2 an alias has the key \"traits\", which zed does not support", "fail alias node:2 an alias has the key \"traits\", which zed does not support"}},
		{"null for an id", "zed", strings.Replace(goodCtl, `"11b4"`, "null", 1), goodNode, "",
			[]string{"fail alias ctl:2 alias K4200: product_id is null, not a string", "fail alias node:2 alias K4200 differs from the one in ctl"}},
		{"no id", "zed", strings.Replace(goodCtl, `, "product_id": "11b4"`, "", 1), strings.Replace(goodNode, `, "product_id": "11b4"`, "", 1), "",
			[]string{"warn alias ctl:2 alias K4200 has no product_id", "warn alias node:2 alias K4200 has no product_id"}},
		{"0x", "zed", strings.Replace(goodCtl, `"10de"`, `"0x10de"`, 1), strings.Replace(goodNode, `"10de"`, `"0x10de"`, 1), "",
			[]string{"fail alias ctl:2 alias K4200: vendor_id is \"0x10de\", not four hexadecimal digits without 0x", "warn " + noHost, "fail alias node:2 alias K4200: vendor_id is \"0x10de\", not four hexadecimal digits without 0x"}},
		{"capitals before Rocky", "queens", strings.Replace(goodCtl, "11b4", "11B4", 1), strings.Replace(strings.Replace(goodNode, "11b4", "11B4", 1), "device_spec", "passthrough_whitelist", 1), "",
			[]string{"fail alias ctl:2 alias K4200: product_id has upper-case letters", "fail alias node:2 alias K4200: product_id has upper-case letters"}},
		{"nothing offered", "zed", goodCtl, strings.Replace(goodNode, "10DE", "8086", 1), "", []string{"warn " + noHost}},
		{"nothing offered of what the host has", "zed", goodCtl, strings.Replace(goodNode, "10DE", "8086", 1), "11b4",
			[]string{"fail alias ctl:2 no device_spec offers a device of alias K4200, and host gpu1 has such a device",
				"warn device_spec node:3 a device_spec selects product 8086:11b4, which host gpu1 does not have"}},
		{"no such hardware", "zed", goodCtl, goodNode, "1bb1",
			[]string{"warn alias ctl:2 no host in the inventories has a device of alias K4200", "warn device_spec node:3 a device_spec selects product 10de:11b4, which host gpu1 does not have"}},
		{"hardware of another type", "zed", goodCtl, goodNode, "11b4/16", []string{"fail alias ctl:2 the devices of alias K4200 have device_type type-PF"}},
		{"every device", "zed", goodCtl, goodNode + "device_spec = {}\n", "", []string{"warn device_spec node:4 a device_spec has neither ids nor an address"}},
		{"no JSON in a spec", "zed", goodCtl, goodNode + "device_spec = {\n", "", []string{"fail device_spec node:4 the value of device_spec is not a JSON object"}},
		{"no JSON in a spec of the controller", "zed", goodCtl + "[pci]\ndevice_spec = {\n", goodNode, "", []string{"fail device_spec ctl:6 the value of device_spec is not a JSON object"}},
		{"a partial wildcard", "zed", goodCtl, goodNode + "device_spec = {\"address\": \"4*:00.0\"}\n", "",
			[]string{`fail device_spec node:4 a device_spec: address "4*:00.0": bus: "4*" is neither * nor a hexadecimal number; * replaces a whole field only`}},
		{"address and devname", "zed", goodCtl, goodNode + "device_spec = {\"address\": \"44:00.0\", \"devname\": \"eth1\"}\n", "",
			[]string{"fail device_spec node:4 a device_spec: address and devname cannot be combined"}},
		{"numbers for ids", "zed", goodCtl, goodNode + "device_spec = {\"vendor_id\": 4318, \"product_id\": null}\n", "",
			[]string{"fail device_spec node:4 a device_spec: vendor_id is 4318, not a string", "fail device_spec node:4 a device_spec: product_id is null, not a string"}},
		{"booleans that are none", "2025.2", goodCtl, goodNode + "report_in_placement = true\ndevice_spec = {\"vendor_id\": \"8086\", \"managed\": \"maybe\", \"one_time_use\": 7, \"trusted\": \"si\", \"remote_managed\": \"ja\", \"live_migratable\": \"\"}\n", "",
			[]string{"warn placement ctl:0 pci_in_placement is not set, but node reports its devices",
				"fail device_spec node:5 a device_spec: managed \"maybe\" is not a boolean: write \"yes\" or \"no\"", "fail device_spec node:5 a device_spec: one_time_use 7 is not a boolean: write \"yes\" or \"no\"",
				"fail device_spec node:5 a device_spec: live_migratable \"\" is not a boolean: write \"yes\" or \"no\"",
				"warn device_spec node:5 a device_spec: remote_managed \"ja\" is not a boolean: write \"yes\" or \"no\"", "warn device_spec node:5 a device_spec: trusted \"si\" is not a boolean: write \"yes\" or \"no\""}},
		{"booleans of a later release", "zed", goodCtl, goodNode + "device_spec = {\"vendor_id\": \"8086\", \"managed\": \"maybe\"}\n", "", nil},
		{"one_time_use without Placement", "2025.2", goodCtl, goodNode + "device_spec = {\"vendor_id\": \"8086\", \"one_time_use\": \"yes\"}\n", "",
			[]string{"fail device_spec node:4 a device_spec has one_time_use, but report_in_placement is not set"}},
		{"live_migratable on unknown versions", "2025.1", goodCtl, goodNode + "device_spec = {\"vendor_id\": \"8086\", \"live_migratable\": \"yes\"}\n", "",
			[]string{"n/a device_spec node:4 a device_spec has live_migratable, but the version of libvirt is unknown", "n/a device_spec node:4 a device_spec has live_migratable, but the version of QEMU is unknown"}},
		{"a devname that is reported", "zed", goodCtl, goodNode + "device_spec = {\"devname\": \"eth1\"}\nreport_in_placement = true\n", "",
			[]string{"fail device_spec node:4 the device_spec {\"devname\": \"eth1\"} has a devname, which is not supported with report_in_placement"}},
		{"shadowed", "zed", goodCtl, strings.Replace(goodNode, "device_spec", "device_spec = {\"vendor_id\": \"10de\"}\ndevice_spec", 1), "",
			[]string{"warn device_spec node:4 spec 2 {\"product_id\": \"11b4\", \"vendor_id\": \"10DE\"} is shadowed by spec 1 {\"vendor_id\": \"10de\"} (node:3)"}},
		{"shadowed, with tags, in a list", "zed", goodCtl, strings.Replace(goodNode, "device_spec", "device_spec = [{\"vendor_id\": \"10de\"}, {\"address\": \":84:00.\", \"vendor_id\": \"10de\", \"managed\": \"no\"}]\n#", 1), "",
			[]string{"fail device_spec node:3 spec 2 {\"address\": \":84:00.\", \"managed\": \"no\", \"vendor_id\": \"10de\"} is shadowed by spec 1 {\"vendor_id\": \"10de\"} (node:3)"}},
		{"shadowed by an older name below it", "zed", goodCtl, goodNode + "passthrough_whitelist = {\"vendor_id\": \"10de\", \"a\": \"b\"}\n", "",
			[]string{"fail device_spec node:3 spec 2 {\"product_id\": \"11b4\", \"vendor_id\": \"10DE\"} is shadowed by spec 1 {\"a\": \"b\", \"vendor_id\": \"10de\"} (node:4)"}},
		{"PF and VFs", "zed", goodCtl, goodNode + "report_in_placement = true\n", "11b4/2", []string{
			"fail alias ctl:2 the devices of alias K4200 have device_type type-PF"}},
		{"no filter", "zed", strings.Replace(goodCtl, ",PciPassthroughFilter", "", 1), goodNode, "", []string{"fail filters ctl:4 PciPassthroughFilter is not enabled"}},
		{"no filters set", "zed", "[pci]\nalias = " + k4200 + "\n", goodNode, "", []string{"fail filters ctl:0 PciPassthroughFilter is not enabled"}},
		{"without ComputeFilter", "zed", strings.Replace(goodCtl, "ComputeFilter,", "", 1), goodNode, "11b4", []string{"warn filters ctl:4 ComputeFilter is not enabled"}},
		{"a required policy without its filter", "zed", strings.Replace(goodCtl, `"11b4"`, `"11b4", "numa_policy": "required"`, 1),
			strings.Replace(goodNode, `"11b4"`, `"11b4", "numa_policy": "required"`, 1), "11b4",
			[]string{"warn filters ctl:4 NUMATopologyFilter is not enabled, and alias K4200 has numa_policy required"}},
		{"one filter is available", "zed", goodCtl + "available_filters = nova.scheduler.filters.all_hosts_filter.AllHostsFilter\n", goodNode, "11b4",
			[]string{"fail filters ctl:4 2 filters are enabled, but no available_filters offers them: ComputeFilter, PciPassthroughFilter"}},
		{"a comment behind a boolean", "2024.1", goodCtl + "pci_in_placement = true # since 2023.1\n", goodNode + "report_in_placement = maybe\n", "11b4",
			[]string{"fail option ctl:5 pci_in_placement = true # since 2023.1 is not a boolean", "fail option node:4 report_in_placement = maybe is not a boolean"}},
		{"a dead filter", "zed", strings.Replace(goodCtl, "ComputeFilter,", "ComputeFilter,RamFilter,", 1), goodNode, "", []string{"fail filters ctl:4 zed has no RamFilter"}},
		{"names too new", "yoga", goodCtl, goodNode, "", []string{"warn " + noHost, "fail option node:3 [pci] device_spec is not an option of yoga"}},
		{"a name too old", "zed", goodCtl + "[DEFAULT]\nscheduler_default_filters = A\n", goodNode, "", []string{"fail option ctl:6 [DEFAULT] scheduler_default_filters is not an option of zed"}},
		{"a name of nobody's", "zed", goodCtl, goodNode + "pci_passthrough_whitelist = {}\n", "", []string{"fail option node:4 [pci] pci_passthrough_whitelist is not an option of zed"}},
		{"Placement on the controller only", "2024.1", goodCtl + "pci_in_placement = true\n", goodNode, "", []string{"fail placement node:0 report_in_placement is not set, but ctl sets pci_in_placement"}},
		{"Placement on the compute node only", "2024.1", goodCtl, goodNode + "report_in_placement = yes\n", "", []string{"warn placement ctl:0 pci_in_placement is not set, but node reports its devices"}},
		{"Placement on both", "2024.1", goodCtl + "pci_in_placement = true\n", goodNode + "report_in_placement = yes\n", "", nil},
		{"another resource class than the spec's", "2024.1", strings.Replace(goodCtl, "11b4\"", "11b4\", \"resource_class\": \"K\"", 1) + "pci_in_placement = true\n", strings.Replace(goodNode, "11b4\"", "11b4\", \"resource_class\": \"K\"", 1) + "report_in_placement = yes\n", "",
			[]string{"fail placement ctl:2 alias K4200 requires resource class CUSTOM_K and traits none, but node:3 gives its devices resource class CUSTOM_PCI_10DE_11B4 and traits none"}},
		{"the spec's resource class", "2024.1", strings.Replace(goodCtl, "11b4\"", "11b4\", \"resource_class\": \"custom_k\", \"traits\": \"A\"", 1) + "pci_in_placement = true\n", strings.ReplaceAll(goodNode, "11b4\"", "11b4\", \"resource_class\": \"custom_k\", \"traits\": \"A\"") + "report_in_placement = yes\n", "11b4", nil},
		{"traits that the spec lacks", "2024.1", strings.Replace(goodCtl, "11b4\"", "11b4\", \"traits\": \"A\"", 1) + "pci_in_placement = true\n", strings.Replace(goodNode, "11b4\"", "11b4\", \"traits\": \"A\"", 1) + "report_in_placement = yes\n", "11b4",
			[]string{"fail placement ctl:2 alias K4200 requires resource class CUSTOM_PCI_10DE_11B4 and traits CUSTOM_A, but node:3 gives its devices resource class CUSTOM_PCI_10DE_11B4 and traits none"}},
		{"an alias that only ports of Neutron can meet", "2024.1", goodCtl + "pci_in_placement = true\n", strings.Replace(goodNode, "\"10DE\"", "\"10DE\", \"physical_network\": \"net1\"", 1) + "report_in_placement = yes\n", "11b4", []string{"fail placement ctl:2 alias K4200 can be met only by devices of node:3, which have a physical_network"}},
		{"the same without Placement", "2024.1", goodCtl, strings.Replace(goodNode, "\"10DE\"", "\"10DE\", \"physical_network\": \"net1\"", 1), "11b4", nil},
		{"an alias of a resource class", "2025.2", "[pci]\nalias = " + byClass + "\n[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\npci_in_placement = true\n",
			"[pci]\nalias = " + byClass + "\nreport_in_placement = true\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\", \"resource_class\": \"GPU\"}\n[filter_scheduler]\npci_in_placement = true\n", "11b4", nil},
		{"an alias of a resource class that no device has", "2025.2", "[pci]\nalias = " + byClass + "\n[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\npci_in_placement = true\n",
			"[pci]\nalias = " + byClass + "\nreport_in_placement = true\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n[filter_scheduler]\npci_in_placement = true\n", "11b4",
			[]string{"fail placement ctl:2 alias GPU requires resource class CUSTOM_GPU and traits none, which no device_spec of a compute node gives its devices"}},
		{"the trait of devices that can be live migrated", "2026.2", "[pci]\nalias = " + migratable + "\n[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\npci_in_placement = true\n",
			"[pci]\nalias = " + migratable + "\nreport_in_placement = true\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\", \"resource_class\": \"GPU\", \"live_migratable\": \"yes\"}\n[filter_scheduler]\npci_in_placement = true\n", "11b4",
			[]string{"n/a device_spec node:4 a device_spec has live_migratable, but the version of libvirt is unknown",
				"n/a device_spec node:4 a device_spec has live_migratable, but the version of QEMU is unknown"}},
		{"the same before nova-compute gives it", "2026.1", "[pci]\nalias = " + migratable + "\n[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\npci_in_placement = true\n",
			"[pci]\nalias = " + migratable + "\nreport_in_placement = true\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\", \"resource_class\": \"GPU\", \"live_migratable\": \"yes\"}\n[filter_scheduler]\npci_in_placement = true\n", "11b4",
			[]string{"fail placement ctl:2 alias GPU requires resource class CUSTOM_GPU and traits HW_PCI_LIVE_MIGRATABLE, which no device_spec of a compute node gives its devices",
				"n/a device_spec node:4 a device_spec has live_migratable, but the version of libvirt is unknown",
				"n/a device_spec node:4 a device_spec has live_migratable, but the version of QEMU is unknown"}},
		{"an alias of a resource class, read without pci_in_placement", "2025.2", "[pci]\nalias = " + byClass + "\n[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\npci_in_placement = true\n",
			"[pci]\nalias = " + byClass + "\nreport_in_placement = true\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\", \"resource_class\": \"GPU\"}\n", "11b4",
			[]string{"fail alias node:2 alias GPU lacks vendor_id or product_id, and a resource_class suffices only with pci_in_placement, which this service does not have"}},
		{"alternatives without a type", "zed", strings.Replace(goodCtl, "[filter", "alias = "+strings.Replace(k4200, "11b4", "1bb1", 1)+"\n[filter", 1), goodNode, "",
			[]string{"fail alias ctl:3 alias K4200 is defined twice without the same device_type"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := nova.ParseRelease(test.release)
			hosttest.NoError(t, err)
			side := func(role nova.Role, name, text string) nova.Side {
				f, err := conf.Parse([]byte(text))
				hosttest.NoError(t, err)
				return nova.Side{Role: role, Files: []conf.Source{{Name: name, File: f}}}
			}
			var hosts []nova.Host
			if test.hardware != "" {
				product, vfs, _ := strings.Cut(test.hardware, "/")
				const dir = "sys/bus/pci/devices/0000:01:00.0"
				tree := fmt.Sprintf("-- %s/class --\n0x030200\n-- %s/vendor --\n0x10de\n-- %s/device --\n0x%s\n", dir, dir, dir, product)
				if vfs != "" {
					tree += fmt.Sprintf("-- %s/sriov_totalvfs --\n%s\n", dir, vfs)
				}
				devices := hosttest.Devices(t, hosttest.Lay(t, tree))
				hosts = []nova.Host{{Name: "gpu1", Devices: devices}}
			}
			var got []string
			for _, f := range novacheck.Run(r, []nova.Side{side(nova.Controller, "ctl", test.ctl), side(nova.Compute, "node", test.node)}, hosts, nil) {
				got = append(got, fmt.Sprintf("%s %s %s:%d %s", f.Status, f.Check, f.File, f.Line, f.Seen))
				if f.Effect == "" || len(f.Remedy) == 0 {
					t.Errorf("%s: effect %q, remedy %q", f.Seen, f.Effect, f.Remedy)
				}
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestCheckFunctions: specs of a compute node by themselves, on a machine with an SR-IOV
// capable GPU and two VFs of it, and a hypervisor.
func TestCheckFunctions(t *testing.T) {
	tree := "symlink sys/bus/pci/devices/0000:01:00.4/physfn -> ../0000:01:00.0\nsymlink sys/bus/pci/devices/0000:01:00.5/physfn -> ../0000:01:00.0\n-- sys/bus/pci/devices/0000:01:00.0/sriov_totalvfs --\n2\n"
	for _, function := range []string{"0", "4", "5"} {
		dir := "sys/bus/pci/devices/0000:01:00." + function
		tree += fmt.Sprintf("-- %s/class --\n0x030200\n-- %s/vendor --\n0x10de\n-- %s/device --\n0x20b2\n", dir, dir, dir)
	}
	devices := hosttest.Devices(t, hosttest.Lay(t, tree))
	version := func(s string) nova.Version {
		v, err := nova.ParseVersion(s)
		hosttest.NoError(t, err)
		return v
	}
	const reported = "report_in_placement = true\n"
	for _, test := range []struct {
		name, pci     string
		libvirt, qemu string
		want          string
	}{
		{"the PF and its VFs", "device_spec = {\"vendor_id\": \"10de\", \"product_id\": \"20b2\"}\n", "", "", ""},
		{"the PF and its VFs, reported", reported + "device_spec = {\"vendor_id\": \"10de\", \"product_id\": \"20b2\"}\n", "", "",
			`fail:3 the device_spec {"product_id": "20b2", "vendor_id": "10de"} matches the PF 0000:01:00.0 and its VF 0000:01:00.4`},
		{"the PF's address, reported", reported + "device_spec = {\"address\": \"0000:01:00.0\"}\n", "", "",
			`fail:3 the device_spec {"address": "0000:01:00.0"} matches the PF 0000:01:00.0 and its VF 0000:01:00.4`},
		{"two specs, reported", reported + "device_spec = {\"address\": \"01:00.5\"}\ndevice_spec = {\"address\": {\"function\": \"0\"}}\n", "", "",
			`fail:3 the device_spec {"address": {"function": "0"}} matches the PF 0000:01:00.0, and {"address": "01:00.5"} its VF 0000:01:00.5`},
		{"VFs in two classes", reported + "device_spec = {\"address\": \"01:00.5\"}\ndevice_spec = {\"address\": \"01:00.4\", \"resource_class\": \"gpu.1\"}\n", "", "",
			"fail:3 VFs of the PF 0000:01:00.0 have more than one resource class: 0000:01:00.4 has CUSTOM_GPU_1, 0000:01:00.5 has CUSTOM_PCI_10DE_20B2"},
		{"no one_time_use on a VF", reported + "device_spec = {\"address\": \"01:00.5\", \"one_time_use\": \"no\"}\n", "", "",
			`fail:3 the device_spec {"address": "01:00.5", "one_time_use": "no"} has one_time_use, but 0000:01:00.5 is a VF`},
		{"no one_time_use on a VF that is not reported", "device_spec = {\"address\": \"01:00.5\", \"one_time_use\": \"no\"}\n", "", "", ""},
		{"one_time_use on a VF", reported + "device_spec = {\"address\": \"01:00.5\", \"one_time_use\": \"true\"}\n", "", "",
			`fail:3 the device_spec {"address": "01:00.5", "one_time_use": "true"} has one_time_use, but 0000:01:00.5 is a VF`},
		{"live_migratable", "device_spec = {\"address\": \"01:00.5\", \"live_migratable\": \"yes\"}\n", "10.0.0", "8.2.2+ds-0ubuntu1", ""},
		{"live_migratable, of later versions", "device_spec = {\"address\": \"01:00.5\", \"live_migratable\": \"yes\"}\n", "11", "10.0", ""},
		{"live_migratable, too old", "device_spec = {\"address\": \"01:00.5\", \"live_migratable\": \"yes\"}\n", "9.0.0-4+deb12u2", "8.2.1",
			"fail:2 a device_spec has live_migratable, but libvirt is 9.0.0; fail:2 a device_spec has live_migratable, but QEMU is 8.2.1"},
		{"live_migratable, one is unknown", "device_spec = {\"address\": \"01:00.5\", \"live_migratable\": \"yes\"}\n", "10.1", "",
			"n/a:2 a device_spec has live_migratable, but the version of QEMU is unknown"},
		{"not live_migratable", "device_spec = {\"address\": \"01:00.5\", \"live_migratable\": \"no\"}\n", "9.0.0", "8.2.2",
			"fail:2 a device_spec has live_migratable, but libvirt is 9.0.0"},
		{"live_migratable of null", "device_spec = {\"address\": \"01:00.5\", \"live_migratable\": null}\n", "9.0.0", "8.2.2", ""},
		{"shadowed by two", "device_spec = {\"address\": \".4\"}\ndevice_spec = {\"address\": \".5\"}\ndevice_spec = {\"address\": {\"function\": \"[45]\"}, \"managed\": \"no\"}\n", "", "",
			`fail:4 spec 3 {"address": {"function": "[45]"}, "managed": "no"} is shadowed by spec 1 {"address": ".4"} (node:2)`},
		{"a pattern that covers another", "device_spec = {\"address\": {\"bus\": \"0[0-9a-f]\"}}\ndevice_spec = {\"address\": {\"bus\": \"(01|02)$$\"}, \"managed\": \"no\"}\n", "", "",
			`fail:3 spec 2 {"address": {"bus": "(01|02)$$"}, "managed": "no"} is shadowed by spec 1 {"address": {"bus": "0[0-9a-f]"}} (node:2)`},
		{"a VF behind its PF's address", "device_spec = {\"address\": \"0000:01:00.0\"}\ndevice_spec = {\"address\": \"0000:01:00.4\", \"managed\": \"no\"}\n", "", "",
			`fail:3 spec 2 {"address": "0000:01:00.4", "managed": "no"} is shadowed by spec 1 {"address": "0000:01:00.0"} (node:2)`},
		{"the talk's name means nothing", "device_spec = {\"address\": \".4\"}\ndevice_spec = {\"address\": \"01:00.4\", \"name\": \"A\"}\n", "", "",
			`warn:3 spec 2 {"address": "01:00.4", "name": "A"} is shadowed by spec 1 {"address": ".4"} (node:2)`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := conf.Parse([]byte("[pci]\n" + test.pci))
			hosttest.NoError(t, err)
			side := nova.Side{Role: nova.Compute, Files: []conf.Source{{Name: "node", File: f}}, ComputeNode: nova.ComputeNode{Devices: devices}}
			if test.libvirt != "" {
				side.Hypervisor.Libvirt = version(test.libvirt)
			}
			if test.qemu != "" {
				side.Hypervisor.QEMU = version(test.qemu)
			}
			var got []string
			for _, f := range novacheck.Run(32, []nova.Side{side}, nil, nil) {
				got = append(got, fmt.Sprintf("%s:%d %s", f.Status, f.Line, f.Seen))
			}
			hosttest.Equal(t, test.want, strings.Join(got, "; "))
		})
	}
}

// TestCheckRemedies: the remedy of a device_spec with which nova-compute does not start is one with
// which it does.
func TestCheckRemedies(t *testing.T) {
	const dir = "sys/bus/pci/devices/0000:01:00."
	tree := "symlink " + dir + "4/physfn -> ../0000:01:00.0\n-- " + dir + "0/sriov_totalvfs --\n2\n"
	for _, function := range []string{"0", "4"} {
		tree += fmt.Sprintf("-- %s%s/class --\n0x020000\n-- %s%s/vendor --\n0x10de\n-- %s%s/device --\n0x20b2\n", dir, function, dir, function, dir, function)
	}
	devices := hosttest.Devices(t, hosttest.Lay(t, tree))
	for _, test := range []struct{ spec, seen, want string }{
		{`{"address": "01:00.4", "one_time_use": "no"}`, "is a VF", "remove one_time_use: select the whole PF for guests that may use a device once"},
		{`{"address": "0000:01:00.0", "remote_managed": "yes"}`, "is a PF", "remove remote_managed, or select VFs"},
		{`{"devname": "eth9", "remote_managed": "yes"}`, "no such interface", "remove remote_managed, or correct the devname"},
		{`{"devname": "eth9"}`, "has a devname", "select the function by address"},
		{`{"vendor_id": "10de"}`, "matches the PF 0000:01:00.0 and its VF", "select functions by address: either the PF or its VFs"},
	} {
		f, err := conf.Parse([]byte("[pci]\nreport_in_placement = true\ndevice_spec = " + test.spec + "\n"))
		hosttest.NoError(t, err)
		side := nova.Side{Role: nova.Compute, Files: []conf.Source{{Name: "node", File: f}},
			ComputeNode: nova.ComputeNode{Devices: devices, Interfaces: map[string]pci.Address{}}}
		var got string
		for _, f := range novacheck.Run(32, []nova.Side{side}, nil, nil) {
			if strings.Contains(f.Seen, test.seen) {
				got = f.Remedy.String()
			}
		}
		hosttest.EqualIn(t, test.spec, test.want, got)
	}
}

// TestCheckDropIn: which of two files is read first depends on how nova-compute is
// started.
func TestCheckDropIn(t *testing.T) {
	parse := func(text string) *conf.File {
		f, err := conf.Parse([]byte("[pci]\n" + text))
		hosttest.NoError(t, err)
		return f
	}
	narrow, broad := parse("device_spec = {\"vendor_id\": \"10de\", \"product_id\": \"20b2\", \"managed\": \"no\"}\n"), parse("device_spec = {\"vendor_id\": \"10de\"}\n")
	for _, files := range [][]conf.Source{
		{{Name: "/etc/nova/nova.conf", File: narrow}, {Name: "/etc/nova/nova.conf.d/1.conf", File: broad}},
		{{Name: "/etc/nova/nova.conf", File: broad}, {Name: "/etc/nova/nova.conf.d/1.conf", File: narrow}},
	} {
		findings := novacheck.Run(32, []nova.Side{{Role: nova.Compute, Files: files}}, nil, nil)
		if len(findings) != 1 || findings[0].Status != "warn" || !strings.Contains(findings[0].Seen, "is shadowed by") || !strings.HasSuffix(findings[0].Seen, " if nova-compute reads that file first") {
			t.Errorf("%+v", findings)
		}
	}
}

// TestCheckFlavors: what flavors ask for, against an alias K4200.
func TestCheckFlavors(t *testing.T) {
	f, err := conf.Parse([]byte("[pci]\nalias = " + k4200 + "\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"))
	hosttest.NoError(t, err)
	for request, want := range map[string]string{
		"K4200:2":            "",
		"K4200:1 , K4200:1":  "",
		"k4200:1":            "fail flavors :0 flavor gpu requests alias k4200, which differs in case only from alias K4200 (all:2)",
		"K4200":              `fail flavors :0 flavor gpu: "K4200" must be NAME:COUNT`,
		"K4200:0":            `fail flavors :0 flavor gpu: "K4200:0" must be NAME:COUNT`,
		"K4200: 1":           "",
		"K4200:1,A100:8,B:x": `fail flavors :0 flavor gpu: "B:x" must be NAME:COUNT, fail flavors :0 flavor gpu requests alias A100, which no file defines`,
	} {
		var got []string
		for _, f := range novacheck.Run(26, []nova.Side{{Role: nova.All, Files: []conf.Source{{Name: "all", File: f}}}}, nil, []novacheck.Flavor{{Name: "gpu", Request: request}}) {
			got = append(got, fmt.Sprintf("%s %s %s:%d %s", f.Status, f.Check, f.File, f.Line, f.Seen))
		}
		hosttest.EqualIn(t, request, want, strings.Join(got, ", "))
	}
}

// TestCheckTwins: a spec by ids, on a host that keeps one of two cards.
func TestCheckTwins(t *testing.T) {
	f, err := conf.Parse([]byte(goodNode))
	hosttest.NoError(t, err)
	for driver, want := range map[string]string{
		"vfio-pci": "",
		"nouveau":  "fail device_spec node:3 a device_spec also matches 0000:02:00.0, which should remain with host gpu1",
	} {
		tree := "symlink sys/bus/pci/devices/0000:01:00.0/driver -> ../../drivers/vfio-pci\nsymlink sys/bus/pci/devices/0000:02:00.0/driver -> ../../drivers/" + driver + "\n"
		for _, bus := range []string{"01", "02"} {
			tree += fmt.Sprintf("-- sys/bus/pci/devices/0000:%s:00.0/vendor --\n0x10de\n-- sys/bus/pci/devices/0000:%s:00.0/device --\n0x11b4\n", bus, bus)
		}
		devices := hosttest.Devices(t, hosttest.Lay(t, tree))
		var got []string
		for _, f := range novacheck.Run(26, []nova.Side{{Role: nova.Compute, Files: []conf.Source{{Name: "node", File: f}}}}, []nova.Host{{Name: "gpu1", Devices: devices}}, nil) {
			got = append(got, fmt.Sprintf("%s %s %s:%d %s", f.Status, f.Check, f.File, f.Line, f.Seen))
		}
		hosttest.EqualIn(t, driver, want, strings.Join(got, ", "))
	}
}

// TestCheckMachine: what the machine itself tells of the specs in its files.
func TestCheckMachine(t *testing.T) {
	var tree strings.Builder
	tree.WriteString("symlink sys/class/net/ens1/device -> ../../../0000:0a:00.0\n")
	for _, bus := range []string{"84", "88"} {
		dir := "sys/bus/pci/devices/0000:" + bus + ":00.0/"
		tree.WriteString("-- " + dir + "vendor --\n0x10de\n-- " + dir + "device --\n0x11b4\n")
	}
	for _, bus := range []string{"0a", "0b"} {
		dir := "sys/bus/pci/devices/0000:" + bus + ":00.0/"
		tree.WriteString("-- " + dir + "class --\n0x020000\n-- " + dir + "vendor --\n0x8086\n-- " + dir + "device --\n0x154d\n")
	}
	root := hosttest.Lay(t, tree.String())
	devices := hosttest.Devices(t, root)
	interfaces, err := devspec.Interfaces(root)
	hosttest.NoError(t, err)
	given := hosttest.Address(t, "0000:84:00.0")
	const live = "device_spec = {\"vendor_id\": \"8086\", \"product_id\": \"154d\", \"live_migratable\": \"yes\"}\n"
	for _, test := range []struct{ name, pci, want string }{
		{"an identical device of the host", "device_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n",
			"fail:2 a device_spec also matches 0000:88:00.0, which should remain with this machine"},
		{"an unknown interface, then an address", "device_spec = {\"devname\": \"ens9\", \"physical_network\": \"a\"}\ndevice_spec = {\"address\": \"0000:0b:00.0\", \"physical_network\": \"b\"}\n", ""},
		{"an interface, then another's address", "device_spec = {\"devname\": \"ens1\", \"physical_network\": \"a\"}\ndevice_spec = {\"address\": \"0000:0b:00.0\", \"physical_network\": \"b\"}\n", ""},
		{"an interface, then its address", "device_spec = {\"devname\": \"ens1\", \"physical_network\": \"a\"}\ndevice_spec = {\"address\": \"0000:0a:00.0\", \"physical_network\": \"b\"}\n",
			`fail:3 spec 2 {"address": "0000:0a:00.0", "physical_network": "b"} is shadowed by spec 1 {"devname": "ens1", "physical_network": "a"} (node:2)`},
		{"versions are unknown", live + "device_spec = {\"address\": \"0000:0b:00.0\", \"vendor_id\": \"10de\", \"live_migratable\": \"yes\"}\n",
			"n/a:2 a device_spec has live_migratable, but the version of libvirt is unknown; " +
				"n/a:2 a device_spec has live_migratable, but the version of QEMU is unknown" +
				`; warn:3 no function of this machine matches the device_spec {"address": "0000:0b:00.0", "live_migratable": "yes", "vendor_id": "10de"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := conf.Parse([]byte("[pci]\n" + test.pci))
			hosttest.NoError(t, err)
			side := nova.Side{Role: nova.Compute, Files: []conf.Source{{Name: "node", File: f}},
				ComputeNode: nova.ComputeNode{Devices: devices, Interfaces: interfaces, Recorded: nova.Recorded{Given: []pci.Address{given}}}}
			var got []string
			for _, f := range novacheck.Run(32, []nova.Side{side}, nil, nil) {
				got = append(got, fmt.Sprintf("%s:%d %s", f.Status, f.Line, f.Seen))
			}
			hosttest.Equal(t, test.want, strings.Join(got, "; "))
		})
	}
}

// TestCheckPairs: with several compute nodes, an inventory counts for the files of its host.
func TestCheckPairs(t *testing.T) {
	inventory := func(name, vfs string) nova.Host {
		tree := "-- sys/bus/pci/devices/0000:01:00.0/sriov_totalvfs --\n2\n"
		functions := []string{"0"}
		if vfs != "" {
			tree = "symlink sys/bus/pci/devices/0000:01:00.4/physfn -> ../0000:01:00.0\n" + tree
			functions = append(functions, "4")
		}
		for _, f := range functions {
			dir := "sys/bus/pci/devices/0000:01:00." + f
			tree += fmt.Sprintf("-- %s/class --\n0x030200\n-- %s/vendor --\n0x10de\n-- %s/device --\n0x20b2\n", dir, dir, dir)
		}
		devices := hosttest.Devices(t, hosttest.Lay(t, tree))
		return nova.Host{Name: name, Devices: devices}
	}
	const all, vfs = `{"vendor_id": "10de", "product_id": "20b2"}`, `{"address": {"function": "[1-7]"}, "vendor_id": "10de", "product_id": "20b2"}`
	hosts := []nova.Host{inventory("gpu1", ""), inventory("gpu2.example.org", "yes")}
	hosts[0].NovaHost, hosts[1].NovaHost = "nova-a", "nova-b"
	const fault = `matches the PF 0000:01:00.0 and its VF 0000:01:00.4`
	for _, test := range []struct{ name, first, second, firstSpec, secondSpec, want string }{
		{"by the names of files", "gpu1.conf", "gpu2.conf", all, vfs, ""},
		{"by the names of files, the wrong way round", "gpu1.conf", "gpu2.conf", vfs, all, "fail gpu2.conf:4 host gpu2.example.org: the device_spec " + `{"product_id": "20b2", "vendor_id": "10de"} ` + fault},
		{"by host", "a.conf", "b.conf", all + "\n[DEFAULT]\nhost = gpu1", vfs + "\n[DEFAULT]\nhost = gpu2.example.org", ""},
		{"by the name in Nova", "a.conf", "b.conf", all + "\n[DEFAULT]\nhost = nova-a", vfs + "\n[DEFAULT]\nhost = nova-b", ""},
		{"by the name in Nova, the wrong way round", "a.conf", "b.conf", vfs + "\n[DEFAULT]\nhost = nova-a", all + "\n[DEFAULT]\nhost = nova-b",
			"fail b.conf:4 host gpu2.example.org: the device_spec " + `{"product_id": "20b2", "vendor_id": "10de"} ` + fault},
		{"unknown", "a.conf", "b.conf", all, vfs, "warn a.conf:4 if a.conf belongs to host gpu2.example.org: the device_spec " + `{"product_id": "20b2", "vendor_id": "10de"} ` + fault},
	} {
		var sides []nova.Side
		for _, side := range [][2]string{{test.first, test.firstSpec}, {test.second, test.secondSpec}} {
			f, err := conf.Parse([]byte("[pci]\nreport_in_placement = true\n\ndevice_spec = " + side[1] + "\n"))
			hosttest.NoError(t, err)
			sides = append(sides, nova.Side{Role: nova.Compute, Files: []conf.Source{{Name: side[0], File: f}}})
		}
		var got []string
		for _, f := range novacheck.Run(32, sides, hosts, nil) {
			got = append(got, fmt.Sprintf("%s %s:%d %s", f.Status, f.File, f.Line, f.Seen))
		}
		hosttest.EqualIn(t, test.name, test.want, strings.Join(got, "; "))
	}
}
