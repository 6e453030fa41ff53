package novacheck_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/novacheck"
)

// gpu is a function of product 10de:20b5, which vfio-pci has.
func gpu(t *testing.T, address string, kind pci.DeviceType) pci.Device {
	t.Helper()
	a := hosttest.Address(t, address)
	vendor, product, class := pci.NVIDIA, pci.ID(0x20b5), pci.Class(0x0302)
	driver := "vfio-pci"
	return pci.Device{Address: a, VendorID: &vendor, ProductID: &product, DeviceType: &kind, Class: &class, Driver: &driver}
}

// TestGets: files and hardware together decide what an alias gets on a host: nova check fails where
// that is nothing although the host has the product, and the answer of flavor list is the same.
func TestGets(t *testing.T) {
	const (
		alias = `alias = {"name": "A100", "vendor_id": "10de", "product_id": "20b5", "device_type": "type-PF"}` + "\n"
		spec  = `device_spec = {"vendor_id": "10de", "product_id": "20b5"}` + "\n"
		on    = "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
	)
	bound := []pci.Device{gpu(t, "0000:17:00.0", pci.TypePF), gpu(t, "0000:31:00.0", pci.TypePF)}
	nouveau := "nouveau"
	kept := gpu(t, "0000:17:00.0", pci.TypePF)
	kept.Driver = &nouveau
	vf := gpu(t, "0000:17:00.4", pci.TypeVF)
	vf.SRIOV.PF = &bound[0].Address
	for name, test := range map[string]struct {
		alias, spec string
		devices     []pci.Device
		gets        bool
		says        string // in a failure; "" for no failure of aliases
	}{
		"all":                {alias, spec, bound, true, ""},
		"one by address":     {alias, `device_spec = {"address": "0000:31:00.0"}` + "\n", bound, true, ""},
		"a mistyped address": {alias, `device_spec = {"vendor_id": "10de", "product_id": "20b5", "address": "0000:18:00.0"}` + "\n", bound, false, "no device_spec offers a device of alias A100, and host gpu1 has such a device"},
		"none is offered":    {alias, "", bound, false, "no device_spec offers a device of alias A100, and host gpu1 has such a device"},
		// Every compute node has the aliases of the cloud, also one whose GPUs remain with it.
		"none is offered, and the host keeps them": {alias, "", []pci.Device{kept}, false, ""},
		"a mistyped address of one that is not prepared": {alias, `device_spec = {"address": "0000:18:00.0"}` + "\n", []pci.Device{kept}, false,
			"no device_spec offers a device of alias A100"},
		"a wildcard of a bus without one": {alias, `device_spec = {"address": "*:02:*.*"}` + "\n", bound, false,
			"no device_spec offers a device of alias A100"},
		"capability_type, which no pool has": {strings.Replace(alias, `"name"`, `"capability_type": "pci", "name"`, 1), spec, bound, false,
			"alias A100 and the device_spec that offers its devices on host gpu1 differ in tags"},
		"live_migratable in the alias alone": {strings.Replace(alias, `"name"`, `"live_migratable": "yes", "name"`, 1), spec, bound, false, "differ in tags"},
		"remote_managed":                     {alias, strings.Replace(spec, `{`, `{"remote_managed": "true", `, 1), bound, false, "differ in tags"},
		"another type":                       {strings.Replace(alias, "type-PF", "type-PCI", 1), spec, bound, false, "the devices of alias A100 have device_type type-PF"},
		"no type":                            {strings.Replace(alias, `, "device_type": "type-PF"`, "", 1), spec, bound, false, "the devices of alias A100 have device_type type-PF"},
		"a wrong type beside a right one": {alias + strings.Replace(strings.Replace(alias, "A100", "old", 1), "type-PF", "type-PCI", 1), spec, bound, true,
			"the devices of alias old have device_type type-PF"},
		"PF and VF with one id, of which only the VF is offered": {alias, `device_spec = {"address": "0000:17:00.4"}` + "\n", append(bound[:1:1], vf), false,
			"the devices of alias A100 have device_type type-VF"},
		"a product that the host does not have": {alias + strings.NewReplacer("A100", "T4", "20b5", "1eb8").Replace(alias), spec, bound, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var sides []nova.Side
			for role, text := range map[nova.Role]string{nova.Controller: "[pci]\n" + test.alias + on, nova.Compute: "[DEFAULT]\nhost = gpu1\n[pci]\n" + test.alias + test.spec} {
				file, err := conf.Parse([]byte(text))
				hosttest.NoError(t, err)
				sides = append(sides, nova.Side{Role: role, Files: []conf.Source{{Name: string(role), File: file}}})
			}
			hosts := []nova.Host{{Name: "gpu1", Scope: nova.ScopeAll, Devices: test.devices}}
			var failures []string
			for _, f := range novacheck.Run(nova.Epoxy, sides, hosts, nil) {
				if f.Status == host.Fail && f.Check == "alias" {
					failures = append(failures, f.Seen)
				}
			}
			if got := strings.Join(failures, "\n"); (test.says == "") != (got == "") || !strings.Contains(got, test.says) {
				t.Errorf("%q, want %q", got, test.says)
			}
			request := nova.Request{{Alias: "A100", Count: 1}}
			if a := novacheck.Request(request, nova.Epoxy, sides, hosts); (a.Met == host.Yes) != test.gets {
				t.Errorf("Request: %+v", a)
			}
		})
	}
}

// TestManyHosts: of many hosts whose devices no device_spec offers, the first are named.
func TestManyHosts(t *testing.T) {
	file, err := conf.Parse([]byte("[pci]\nalias = " + `{"name": "A100", "vendor_id": "10de", "product_id": "20b5", "device_type": "type-PF"}` + "\ndevice_spec = " +
		`{"vendor_id": "10de", "product_id": "1eb8"}` + "\n"))
	hosttest.NoError(t, err)
	sides := []nova.Side{{Role: nova.All, Files: []conf.Source{{Name: "all", File: file}}}}
	for number, want := range map[int]string{1: "host gpu1 has such a device", 2: "host gpu1, host gpu2 have such a device",
		5: "host gpu1, host gpu2, host gpu3 and 2 more have such a device"} {
		var hosts []nova.Host
		for i := range number {
			hosts = append(hosts, nova.Host{Name: fmt.Sprint("gpu", i+1), Scope: nova.ScopeAll, Devices: []pci.Device{gpu(t, "0000:17:00.0", pci.TypePF)}})
		}
		want = "no device_spec offers a device of alias A100, and " + want
		findings := novacheck.Run(nova.Epoxy, sides, hosts, nil)
		if !slices.ContainsFunc(findings, func(f host.Finding) bool { return f.Seen == want }) {
			t.Errorf("%d: no %q in %v", number, want, findings)
		}
	}
}

// TestPublicFiles: what public guides and questions have in nova.conf, on the hardware that they name.
func TestPublicFiles(t *testing.T) {
	device := func(address, ids string, kind pci.DeviceType) pci.Device {
		d := gpu(t, address, kind)
		vendor, product, _ := strings.Cut(ids, ":")
		v, _ := pci.ParseID(vendor)
		p, _ := pci.ParseID(product)
		d.VendorID, d.ProductID = &v, &p
		return d
	}
	for name, test := range map[string]struct {
		release nova.Release
		text    string // without filters that of [pci]
		devices []pci.Device
		says    string // the findings and their remedies
	}{
		// https://github.com/osism-archive/documentation/pull/28: an 82599 has SR-IOV.
		"osism": {nova.Rocky, `alias = {"vendor_id": "8086", "product_id":"10fb", "device_type":"type-PCI", "name":"testing"}
passthrough_whitelist = {"vendor_id": "8086", "product_id": "10fb"}`, []pci.Device{device("0000:04:00.0", "8086:10fb", pci.TypePF)},
			"the devices of alias testing have device_type type-PF: run gpustack nova configure --role all --alias testing=8086:10fb,device_type=type-PF, " +
				"and with its role on every other host that has the alias"},
		// https://github.com/SUSE-Cloud/doc-cloud/pull/1236: two products of V100, without SR-IOV.
		"SUSE": {nova.Rocky, `passthrough_whitelist = [{"vendor_id": "10de", "product_id": "1db4"}, {"vendor_id": "10de", "product_id": "1db1"}]
alias = {"vendor_id": "10de", "name": "a2", "device_type": "type-PCI", "product_id": "1db1"}
alias = {"vendor_id": "10de", "name": "a1", "device_type": "type-PCI", "product_id": "1db4"}`,
			[]pci.Device{device("0000:84:00.0", "10de:1db4", pci.TypePCI), device("0000:85:00.0", "10de:1db1", pci.TypePCI)}, ""},
		// https://docs.openstack.org/nova/wallaby/admin/pci-passthrough.html names 8086:154d, an X520 with
		// SR-IOV: its alias without device_type selects no physical function.
		"Nova's guide": {nova.Wallaby, `passthrough_whitelist = { "address": "0000:41:00.0" }
alias = { "vendor_id":"8086", "product_id":"154d", "name":"a1" }`, []pci.Device{device("0000:41:00.0", "8086:154d", pci.TypePF)},
			"the devices of alias a1 have device_type type-PF: run gpustack nova configure --role all --alias a1=8086:154d,device_type=type-PF, " +
				"and with its role on every other host that has the alias"},
		// https://github.com/satishdotpatel/satishdotpatel.github.io, _posts/2022-02-17-gpu-passthrough-for-openstack.markdown:
		// V100S without SR-IOV, and a list of filters that replaces the others.
		"one filter": {nova.Wallaby, `[PCI]
passthrough_whitelist = { "vendor_id": "10de", "product_id": "1df6" }
alias: { "vendor_id":"10de", "product_id":"1df6", "device_type":"type-PCI", "name":"tesla-v100" }
[filter_scheduler]
enabled_filters = PciPassthroughFilter`,
			[]pci.Device{device("0000:5e:00.0", "10de:1df6", pci.TypePCI), device("0000:d8:00.0", "10de:1df6", pci.TypePCI)},
			"ComputeFilter is not enabled: add ComputeFilter to enabled_filters, and restart nova-scheduler"},
		// The same site, _posts/2022-02-20-HPC-on-openstack.markdown: the whitelist of another node.
		"another node's whitelist": {nova.Wallaby, `[PCI]
passthrough_whitelist = { "vendor_id": "10de", "product_id": "1df6" }
alias = { "vendor_id":"15b3", "product_id":"101c", "device_type":"type-VF", "name":"mlx5-sriov-ib" }
[filter_scheduler]
enabled_filters=PciPassthroughFilter,NUMATopologyFilter`,
			[]pci.Device{device("0000:af:00.1", "15b3:101c", pci.TypeVF)},
			`a device_spec selects product 10de:1df6, which this machine does not have: gpustack host scan --all lists the devices of a host
no device_spec offers a device of alias mlx5-sriov-ib, and this machine has such a device: run gpustack nova configure --role compute ` +
				`--alias mlx5-sriov-ib=15b3:101c,device_type=type-VF there
ComputeFilter is not enabled: add ComputeFilter to enabled_filters, and restart nova-scheduler`},
		// https://github.com/justindav1s/openshift-ansible-on-openstack, nvidia/Openstack/README.md: options of
		// before Ocata, which later releases read too.
		"old names": {nova.Queens, `[DEFAULT]
pci_alias = { "vendor_id":"10de", "product_id":"1c82", "device_type":"type-PCI", "name":"gtx1050" }
pci_passthrough_whitelist = { "vendor_id": "10de", "product_id": "1c82" }
[filter_scheduler]
enabled_filters=RetryFilter,RamFilter,DiskFilter,ComputeFilter,ImagePropertiesFilter,CoreFilter,PciPassthroughFilter`,
			[]pci.Device{device("0000:03:00.0", "10de:1c82", pci.TypePCI)}, ""},
		// https://github.com/dholt/openstack-lab, README.md: names of filters that Ocata renamed.
		"old filters": {nova.Ocata, `[DEFAULT]
scheduler_default_filters = RetryFilter,RamFilter,DiskFilter,ComputeFilter,SameHostFilter,DifferentHostFilter,PciPassthroughFilter
scheduler_available_filters = nova.scheduler.filters.all_filters
pci_passthrough_whitelist={"vendor_id":"10de","product_id":"102d"}
pci_alias={"vendor_id":"10de","product_id":"102d","name":"K80","device_type":"type-PCI"}`,
			[]pci.Device{device("0000:04:00.0", "10de:102d", pci.TypePCI), device("0000:86:00.0", "10de:102d", pci.TypePCI)}, ""},
		// https://github.com/openstack/charm-deployment-guide, deploy-guide/source/app-pci-passthrough-gpu.rst:
		// a Quadro P5000 has no SR-IOV, so that the alias needs no device_type.
		"charms": {nova.Queens, `[pci]
alias = {"vendor_id":"10de", "product_id":"1bb0", "name":"gpu"}
passthrough_whitelist = { "vendor_id": "10de", "product_id": "1bb0" }
[filter_scheduler]
enabled_filters = RetryFilter,CoreFilter,RamFilter,ComputeFilter,DifferentHostFilter,AggregateInstanceExtraSpecsFilter,PciPassthroughFilter`,
			[]pci.Device{device("0000:83:00.0", "10de:1bb0", pci.TypePCI), device("0000:84:00.0", "10de:1bb0", pci.TypePCI)}, ""},
		// https://github.com/openstack-k8s-operators/architecture,
		// examples/va/nvidia-vfio-passthrough/edpm/nodeset/values.yaml: an A100 by its address, in Placement.
		"RHOSO": {nova.Antelope, `[pci]
device_spec = {"vendor_id":"10de", "product_id":"20f1", "address": "0000:04:00.0", "physical_network":null}
alias = { "vendor_id":"10de", "product_id":"20f1", "device_type":"type-PCI", "name":"nvidia_a2" }
report_in_placement = True
[filter_scheduler]
pci_in_placement = True
enabled_filters = ComputeFilter,PciPassthroughFilter`,
			[]pci.Device{device("0000:04:00.0", "10de:20f1", pci.TypePF)},
			"the devices of alias nvidia_a2 have device_type type-PF: run gpustack nova configure --role all --alias nvidia_a2=10de:20f1,device_type=type-PF, " +
				"and with its role on every other host that has the alias"},
		// https://github.com/kdelphinus/infra-cheatsheets, docs/openstack/install/openstack2025.1-install.md:
		// a key and filters that Nova does not have.
		"Epoxy": {nova.Epoxy, `[pci]
report_in_placement = True
device_spec = { "vendor_id": "10de", "product_id": "20b7", "resource_class": "CUSTOM_GPU_NVIDIA", "name": "nvidia-gpu" }
alias = { "name": "gpu-alias", "device_type": "type-PF", "custom_resource_class": "CUSTOM_GPU_NVIDIA" }
[filter_scheduler]
enabled_filters = PciPassthroughFilter, ComputeFilter, AvailabilityZoneFilter, ImagePropertiesFilter, ValidationFilter`,
			[]pci.Device{device("0000:17:00.0", "10de:20b7", pci.TypePF)},
			`pci_in_placement is not set, but nova.conf reports its devices: run gpustack nova configure --role controller --placement here
an alias has the key "custom_resource_class", which 2025.1 does not support: remove the key
alias gpu-alias has no vendor_id: add vendor_id and product_id
alias gpu-alias has no product_id: add vendor_id and product_id
2025.1 has no AvailabilityZoneFilter: remove it from the list
no filter is called ValidationFilter: correct the name, or add the path of its class to available_filters`},
		// https://github.com/osism/documentation, source/configuration/kolla/nova.rst: a P40 by its address.
		"by address": {nova.Stein, `alias = { "vendor_id": "10de", "product_id":"1b38", "device_type":"type-PCI", "name":"nvidiap40" }
passthrough_whitelist = { "address": "0000:41:00.0" }`, []pci.Device{device("0000:41:00.0", "10de:1b38", pci.TypePCI)}, ""},
		// https://github.com/openstack/nova-specs, specs/2025.1/approved/enable-vfio-devices-with-kernel-variant-drivers.rst:
		// keys without quotes.
		"Nova's specification": {nova.Epoxy, `device_spec = { "vendor_id": "10de", "product_id": "25b6", "address": "0000:25:00.4", managed: "no" }
alias = { "vendor_id": "10de", "product_id": "25b6", "device_type": "type-VF", "name": "MYVF" }`, []pci.Device{device("0000:25:00.4", "10de:25b6", pci.TypeVF)},
			"the value of device_spec is not a JSON object: write a JSON object or a list of JSON objects"},
		// microstack's forum: a key with a blank.
		"a key with a blank": {nova.Train, `alias = {"vendor_id":"10de","product_id":"1b06"," device_type":"type-PCI","name":"1b06"}
passthrough_whitelist = {"vendor_id": "10de", "product_id": "1b06"}`, []pci.Device{device("0000:01:00.0", "10de:1b06", pci.TypePCI)},
			`an alias has the key " device_type", which train does not support: write the key as "device_type"`},
	} {
		if !strings.Contains(test.text, "_filters") {
			test.text = "[pci]\n" + test.text + "\n[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter"
		}
		file, err := conf.Parse([]byte(test.text + "\n"))
		hosttest.NoError(t, err)
		var got []string
		side := nova.Side{Role: nova.All, Files: []conf.Source{{Name: "nova.conf", File: file}}, ComputeNode: nova.ComputeNode{Devices: test.devices}}
		for _, f := range novacheck.Run(test.release, []nova.Side{side}, nil, nil) {
			got = append(got, f.Seen+": "+f.Remedy.String())
		}
		hosttest.EqualIn(t, name, test.says, strings.Join(got, "\n"))
	}
}
