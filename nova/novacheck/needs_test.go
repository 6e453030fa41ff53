package novacheck_test

import (
	"fmt"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/novacheck"
)

// TestNeeds: in a cloud with different GPUs, a compute node needs the aliases of the devices that
// it offers, and controllers all of them.
func TestNeeds(t *testing.T) {
	const (
		t4     = `{"name": "T4", "vendor_id": "10de", "product_id": "1eb8", "device_type": "type-PF"}`
		gpu    = `{"name": "GPU", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}`
		orT4   = `{"name": "GPU", "vendor_id": "10de", "product_id": "1eb8", "device_type": "type-PCI"}`
		orP4   = `{"name": "GPU", "vendor_id": "10de", "product_id": "1bb3", "device_type": "type-PCI"}`
		specK  = "device_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n"
		specT4 = "device_spec = {\"vendor_id\": \"10de\", \"product_id\": \"1eb8\"}\n"
		vendor = "device_spec = {\"vendor_id\": \"10de\"}\n"
		alias  = "alias = "
		end    = "\n"
	)
	devices := hosttest.Devices(t, hosttest.Lay(t, k4200s))
	for _, test := range []struct {
		name      string
		ctl, node string
		machine   []pci.Device // of node
		want      string
	}{
		{"each its own", alias + k4200 + end + alias + t4 + end, alias + k4200 + end + specK, nil, ""},
		{"by vendor, on unknown hardware", alias + k4200 + end + alias + t4 + end, alias + k4200 + end + vendor, nil, "fail alias node:0 alias T4 is missing, which ctl has"},
		{"by vendor, on known hardware", alias + k4200 + end + alias + t4 + end, alias + k4200 + end + vendor, devices, ""},
		{"what it offers", alias + k4200 + end + alias + t4 + end, alias + t4 + end + vendor, devices, "fail alias node:0 alias K4200 is missing, which ctl has"},
		{"a product that it does not have", alias + k4200 + end + alias + t4 + end, alias + k4200 + end + specK + specT4, devices,
			"warn device_spec node:4 a device_spec selects product 10de:1eb8, which this machine does not have"},
		{"nothing offered", alias + k4200 + end + alias + t4 + end, "", nil, ""},
		{"missing on the controller", alias + t4 + end, alias + k4200 + end + specK, nil, "fail alias ctl:0 alias K4200 is missing, which node has"},
		{"one of two alternatives", alias + gpu + end + alias + orT4 + end, alias + gpu + end + specK, nil, ""},
		{"the other of two alternatives", alias + gpu + end + alias + orT4 + end, alias + orT4 + end + specK, nil, "fail alias node:2 alias GPU differs from the one in ctl"},
		{"an alternative of its own", alias + gpu + end, alias + gpu + end + alias + orP4 + end + specK, nil, "fail alias node:2 alias GPU differs from the one in ctl"},
	} {
		// A compute node that offers all that controllers request.
		sides := []nova.Side{
			{Role: nova.Compute, Files: []conf.Source{source(t, "other", "[pci]\n"+test.ctl+specK+specT4)}},
			{Role: nova.Controller, Files: []conf.Source{source(t, "ctl", "[pci]\n"+test.ctl+"[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n")}},
			{Role: nova.Compute, Files: []conf.Source{source(t, "node", "[pci]\n"+test.node)}, ComputeNode: nova.ComputeNode{Devices: test.machine}},
		}
		if test.name == "missing on the controller" {
			sides = sides[1:]
			sides[0].Files[0] = source(t, "ctl", "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n")
		}
		hosttest.EqualIn(t, test.name, test.want, found(novacheck.Run(nova.Zed, sides, nil, nil)))
	}
	// nova-compute of Mitaka reads no alias.
	sides := []nova.Side{
		{Role: nova.Controller, Files: []conf.Source{source(t, "ctl", "[DEFAULT]\npci_alias = "+k4200+"\nscheduler_default_filters = ComputeFilter,PciPassthroughFilter\n")}},
		{Role: nova.Compute, Files: []conf.Source{source(t, "node", "[DEFAULT]\npci_passthrough_whitelist = {\"vendor_id\": \"10de\"}\n")}},
	}
	for r, want := range map[nova.Release]string{nova.Mitaka: "", nova.Newton: "fail alias node:0 alias K4200 is missing, which ctl has"} {
		hosttest.EqualIn(t, fmt.Sprint(r), want, found(novacheck.Run(r, sides, nil, nil)))
	}
}
