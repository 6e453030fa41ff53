package novacheck

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
)

// TestAnswer: whether flavors can be met, as far as nova.conf and inventories tell.
func TestAnswer(t *testing.T) {
	device := func(address, product string, kind pci.DeviceType) pci.Device {
		a := hosttest.Address(t, address)
		vendor := pci.ID(0x10de)
		id, err := pci.ParseID(product)
		hosttest.NoError(t, err)
		class := pci.Controller3D
		return pci.Device{Address: a, Class: &class, VendorID: &vendor, ProductID: &id, DeviceType: &kind}
	}
	gpu1 := nova.Host{Name: "gpu1", Devices: []pci.Device{device("84:00.0", "11b4", pci.TypePCI), device("88:00.0", "11b4", pci.TypePCI)}}
	gpu2 := nova.Host{Name: "gpu2", Devices: []pci.Device{device("07:00.0", "20b0", pci.TypePF)}}
	const (
		k4200 = `alias = {"name": "K4200", "vendor_id": "10de", "product_id": "11b4"}` + "\n"
		any   = `alias = {"name": "any", "vendor_id": "10de", "product_id": "11b4"}` + "\n"
		pf    = `alias = {"name": "A100", "vendor_id": "10de", "product_id": "20b0", "device_type": "type-PF"}` + "\n"
		noPF  = `alias = {"name": "A100", "vendor_id": "10de", "product_id": "20b0"}` + "\n"
		class = `alias = {"name": "acc", "resource_class": "CUSTOM_ACC"}` + "\n"
		on    = "[filter_scheduler]\npci_in_placement = true\n"
		specs = `device_spec = {"vendor_id": "10de", "product_id": "11b4"}` + "\n"
		first = `device_spec = {"vendor_id": "10de", "product_id": "11b4", "address": "0000:84:00.0"}` + "\n"
	)
	for name, test := range map[string]struct {
		request string
		conf    string // [pci] of a machine that is both sides; "" for none
		hosts   []nova.Host
		want    string
	}{
		"nothing is known":          {"K4200:2", "", nil, "unknown"},
		"by the names of host scan": {"K4200:2", "", []nova.Host{gpu1, gpu2}, "by [gpu1]"},
		"too many":                  {"K4200:3", "", []nova.Host{gpu2, gpu1}, "no: no host has enough devices: gpu1 has 2 of 3 []"},
		"spread over hosts": {"K4200:1,A100-SXM4-40GB:1", "", []nova.Host{gpu1, gpu2},
			"no: no host has enough devices: gpu1 has 1 of 2 []"},
		"none":                        {"T4:1", "", []nova.Host{gpu1}, "no: no host has a matching device []"},
		"a great many":                {"K4200:1000000000", "", []nova.Host{gpu1}, "no: no host has enough devices: gpu1 has 2 of 1000000000 []"},
		"no alias":                    {"A100:1", k4200 + specs, nil, "no: no file defines alias A100 []"},
		"names count as written":      {"k4200:1", k4200 + specs, nil, "no: no file defines alias k4200: it differs in case only from K4200 []"},
		"defined and offered":         {"K4200:1", k4200 + specs, nil, "unknown"},
		"defined, not offered":        {"A100:1", pf + specs, nil, "no: no device_spec of a compute node matches alias A100 []"},
		"defined, offered and there":  {"K4200:2", k4200 + specs, []nova.Host{gpu1}, "by [gpu1]"},
		"only one of them is offered": {"K4200:2", k4200 + first, []nova.Host{gpu1}, "no: no host has enough devices: gpu1 has 1 of 2 []"},
		"two aliases of one product":  {"K4200:1,any:1", k4200 + any + specs, []nova.Host{gpu1}, "by [gpu1]"},
		"a device is not there twice": {"K4200:2,any:1", k4200 + any + specs, []nova.Host{gpu1},
			"no: no host has enough devices: gpu1 has 2 of 3 []"},
		"a physical function, told": {"A100:1", pf + strings.Replace(specs, "11b4", "20b0", 1), []nova.Host{gpu2}, "by [gpu2]"},
		"a physical function, not told": {"A100:1", noPF + strings.Replace(specs, "11b4", "20b0", 1), []nova.Host{gpu2},
			"no: no host has a matching device []"},
		"a resource class, of unknown device specs": {"acc:1", class + on, []nova.Host{gpu1}, "unknown"},
		"no ids, of unknown device specs":           {"acc:1", class, []nova.Host{gpu1}, "unknown"},
		"a resource class that one device has": {"acc:2", class + strings.Replace(first, "{", `{"resource_class": "acc", `, 1) + specs + on, []nova.Host{gpu1},
			"no: no host has enough devices: gpu1 has 1 of 2 []"},
	} {
		t.Run(name, func(t *testing.T) {
			var sides []nova.Side
			role := nova.All
			if !strings.Contains(test.conf, "device_spec") {
				role = nova.Controller
			}
			if test.conf != "" {
				file, err := conf.Parse([]byte("[pci]\n" + test.conf))
				hosttest.NoError(t, err)
				sides = []nova.Side{{Role: role, Files: []conf.Source{{Name: "nova.conf", File: file}}}}
			}
			request, err := nova.ParseRequest(test.request)
			hosttest.NoError(t, err)
			a := Request(request, nova.Bobcat, sides, test.hosts)
			if c := Count(nova.Bobcat, sides, test.hosts); role == nova.Controller && len(c.Devices) > 0 {
				t.Errorf("the aliases select %v", c.Devices)
			}
			got := "unknown"
			switch a.Met {
			case host.Yes:
				got = fmt.Sprintf("by %v", a.Hosts)
			case host.No:
				got = fmt.Sprintf("no: %s %v", a.Reason, a.Hosts)
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestPlaces: where aliases overlap, a device is the first one's that requests it, as Nova does it
// (nova/pci/stats.py, support_requests).
func TestPlaces(t *testing.T) {
	kind := pci.TypePCI
	var devices []pci.Device
	vendor, a, b := pci.ID(0x10de), pci.ID(1), pci.ID(2)
	devices = append(devices, pci.Device{VendorID: &vendor, ProductID: &a, DeviceType: &kind}, pci.Device{VendorID: &vendor, ProductID: &b, DeviceType: &kind})
	c := &checker{sides: []side{{Side: nova.Side{Role: nova.Controller}}}, aliases: map[string][]aliasAt{
		"either": {{object: map[string]any{"vendor_id": "10de", "product_id": "0001"}}, {object: map[string]any{"vendor_id": "10de", "product_id": "0002"}}},
		"first":  {{object: map[string]any{"vendor_id": "10de", "product_id": "0001"}}},
	}}
	for text, want := range map[string]int{"either:1,first:1": 1, "first:1,either:1": 2} {
		r, err := nova.ParseRequest(text)
		hosttest.NoError(t, err)
		hosttest.EqualIn(t, fmt.Sprint(r), want, c.meets(r, nova.Host{Devices: devices}))
	}
}
