package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/conf"
	"gpustack/nova/pools"
)

const (
	aliasK4200 = `alias = {"name": "K4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}`
	specK4200  = `device_spec = {"vendor_id": "10de", "product_id": "11b4"}`
	filtersSet = "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
	controller = "[pci]\n" + aliasK4200 + "\n" + filtersSet
	computing  = "[pci]\n" + aliasK4200 + "\n" + specK4200 + "\n"
)

func side(t *testing.T, role nova.Role, name, text string) nova.Side {
	t.Helper()
	file, err := conf.Parse([]byte(text))
	hosttest.NoError(t, err)
	return nova.Side{Role: role, Files: []conf.Source{{Name: name, File: file}}}
}

// sides returns a controller and the compute node gpu1.
func sides(t *testing.T, controls, computes string) []nova.Side {
	return []nova.Side{side(t, nova.Controller, "ctl.conf", controls), side(t, nova.Compute, "gpu1.conf", computes)}
}

func function(address, product string, kind pci.DeviceType, numa int) pci.Device {
	var d pci.Device
	a, err := pci.ParseAddress(address)
	if err != nil {
		panic(err)
	}
	vendor, id, driver := pci.NVIDIA, pci.ID(0), "vfio-pci"
	if id, err = pci.ParseID(product); err != nil {
		panic(err)
	}
	d.Address, d.VendorID, d.ProductID, d.DeviceType, d.NUMANode, d.Driver = a, &vendor, &id, &kind, &numa, &driver
	class := pci.Class(0x0300)
	d.Class = &class
	return d
}

func inventory(devices ...pci.Device) *nova.Host {
	return &nova.Host{Name: "gpu1", Scope: nova.ScopeGPUs, Devices: devices}
}

func row(address, status string, numa int) Row {
	return Row{Address: address, Vendor: "10de", Product: "11b4", Type: "type-PCI", Status: status, NUMA: &numa}
}

func pool(numa int) pools.Pool {
	return pools.Pool{Vendor: "10de", Product: "11b4", Type: "type-PCI", NUMA: &numa, Count: 1}
}

// computeNode returns a compute node with two NUMA nodes.
func computeNode() *Node {
	return &Node{Topology: []byte(`{"nova_object.data": {"cells": [{"nova_object.data": {"id": 0, "cpuset": [0, 1], "pcpuset": [2, 3], "pinned_cpus": [3], "memory": 512}},
		{"nova_object.data": {"id": 1, "cpuset": [4], "pcpuset": [], "pinned_cpus": [], "memory": 1024, "memory_usage": 256}}]}}`)}
}

// step is an answer of Placement: the host is among its candidates, or is not.
func step(class string, amount int, has bool) Step {
	return Step{Ask: Ask{Class: class, Amount: amount}, Roots: map[string]bool{"rp1": has}}
}

// trait is an answer of Placement: the host does not have a trait, or has a forbidden one.
func trait(name string) Step {
	return Step{Ask: Ask{Trait: name}, Roots: map[string]bool{}}
}

// healthy returns a cloud with the host gpu1, which can build a guest with two K4200.
func healthy(t *testing.T) Facts {
	return Facts{
		Release: nova.Zed,
		Flavor: cloud.Flavor{ID: "1", Name: "gpu.k4200.2", VCPUs: 4, RAM: 8192, Disk: 20, Public: true,
			ExtraSpecs: map[string]string{nova.RequestKey: "K4200:2"}},
		Sides:     sides(t, controller, computing),
		Databases: true,
		Hosts: []Host{{
			Name: "gpu1", Node: "gpu1.example", Provider: "rp1",
			Service: &cloud.ComputeService{Host: "gpu1", Zone: "nova", Up: true, Enabled: true},
			Devices: inventory(function("0000:84:00.0", "11b4", pci.TypePCI, 0), function("0000:88:00.0", "11b4", pci.TypePCI, 1)),
			Stock: &Stock{Rows: []Row{row("0000:84:00.0", "available", 0), row("0000:88:00.0", "available", 1)},
				Pools: []pools.Pool{pool(0), pool(1)}, Node: computeNode()},
		}},
		Placement: &Placement{Steps: []Step{step("VCPU", 4, true), step("MEMORY_MB", 8192, true), step("DISK_GB", 20, true)}},
		Unread:    map[Source]string{},
	}
}

func specs(f *Facts, words ...string) {
	for i := 0; i < len(words); i += 2 {
		f.Flavor.ExtraSpecs[words[i]] = words[i+1]
	}
}

// zoneNova requests the default zone, which another host has, for a host of a zone of its own.
func zoneNova(f *Facts, r nova.Release) {
	f.Release, f.Zone = r, "nova"
	f.Hosts[0].Service.Zone = "az1"
	f.Aggregates = []cloud.Aggregate{{Name: "first", Hosts: []string{"gpu1"}, Metadata: map[string]string{"availability_zone": "az1"}}}
	f.Hosts = append(f.Hosts, Host{Name: "plain", Service: &cloud.ComputeService{Host: "plain", Zone: "nova"}})
}

// TestFirstLink: the first link that fails, its evidence and the command that mends it.
func TestFirstLink(t *testing.T) {
	large := int64(21 << 30)
	own := func(t *testing.T, f *Facts, controls, computes string) { f.Sides = sides(t, controls, computes) }
	for name, c := range map[string]struct {
		change func(*testing.T, *Facts)
		link   Link   // that fails first; "" for none
		says   string // in what was seen, the reason or the remedy
	}{
		"nothing": {func(*testing.T, *Facts) {}, "", ""},
		"flavor malformed": {func(_ *testing.T, f *Facts) { specs(f, nova.RequestKey, "K4200") }, Flavor,
			"openstack flavor set --property pci_passthrough:alias=ALIAS:COUNT gpu.k4200.2"},
		"flavor disabled": {func(_ *testing.T, f *Facts) { f.Flavor.Disabled = true }, Flavor, "disabled"},
		"image needs memory": {func(_ *testing.T, f *Facts) { f.Image = &cloud.Image{Name: "big", MinRAM: 16384} }, ImageLink,
			"the image requires 16384 MiB of memory, and the flavor has 8192"},
		"image needs disk": {func(_ *testing.T, f *Facts) { f.Image = &cloud.Image{Name: "big", MinDisk: 30} }, ImageLink, "a disk of 30 GiB"},
		"image deactivated": {func(_ *testing.T, f *Facts) { f.Image = &cloud.Image{ID: "i1", Name: "old", Status: "deactivated"} }, ImageLink,
			"openstack image set --activate i1"},
		"image larger than the disk": {func(_ *testing.T, f *Facts) { f.Image = &cloud.Image{Name: "big", VirtualSize: &large} }, ImageLink, "20 GiB"},
		"image larger, boot from volume": {func(_ *testing.T, f *Facts) {
			f.Image, f.Volume = &cloud.Image{Name: "big", VirtualSize: &large}, true
		}, "", ""},
		"alias not defined": {func(t *testing.T, f *Facts) { own(t, f, filtersSet, computing) }, Alias, "PciRequestAliasNotDefined"},
		"alias under a name that the release ignores": {func(t *testing.T, f *Facts) { f.Release = nova.Newton }, Alias,
			"use [DEFAULT] pci_alias instead of [pci] alias on every controller"},
		"a device_spec by a mistyped address": {func(t *testing.T, f *Facts) {
			own(t, f, controller, strings.Replace(computing, `device_spec = {`, `device_spec = {"address": "0000:ff:00.0", `, 1))
			f.Hosts[0].Stock, f.Databases, f.Hosts[0].Service.Up = nil, false, false
		}, DeviceSpec, "nova configure --role compute --alias K4200=10de:11b4"},
		"alias in other letters": {func(t *testing.T, f *Facts) { own(t, f, strings.ReplaceAll(controller, "K4200", "k4200"), computing) }, Alias,
			"openstack flavor set --property pci_passthrough:alias=k4200:2 gpu.k4200.2"},
		"live_migratable in the alias alone, by the file of the compute node": {func(t *testing.T, f *Facts) {
			f.Release, f.Hosts[0].Devices, f.Hosts[0].Stock, f.Databases = nova.Epoxy, nil, nil, false
			own(t, f, strings.Replace(controller, `"type-PCI"`, `"type-PCI", "live_migratable": "yes"`, 1), computing)
		}, DeviceSpec, "alias K4200 requires devices with live_migratable=true, which device_spec does not give them"},
		"alias with the type of its devices on the compute node alone": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, `, "device_type": "type-PCI"`, "", 1), computing)
		}, "", ""},
		"alias on one of two controllers": {func(t *testing.T, f *Facts) {
			f.Sides = append(f.Sides, side(t, nova.Controller, "ctl2.conf", filtersSet))
		}, Alias, "ctl2.conf"},
		"alias different on two controllers": {func(t *testing.T, f *Facts) {
			f.Sides = append(f.Sides, side(t, nova.Controller, "ctl2.conf", strings.ReplaceAll(controller, "11b4", "13f2")))
		}, Alias, "alias K4200 differs from the one in ctl.conf:2"},
		"another alias malformed": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, "alias", "alias = {\"name\": \"B\", \"vendor_id\": \"0x10de\"}\nalias", 1), computing)
		}, Alias, "Nova rejects every alias of the file"},
		"alias twice without a type": {func(t *testing.T, f *Facts) {
			own(t, f, "[pci]\n"+strings.Replace(aliasK4200, `, "device_type": "type-PCI"`, "", 1)+"\n"+controller, computing)
		}, Alias, "alias K4200 is defined twice without the same device_type"},
		"another alias twice with different policies": {func(t *testing.T, f *Facts) {
			other := strings.Replace(aliasK4200, "K4200", "B", 1) + "\n"
			own(t, f, "[pci]\n"+other+strings.Replace(other, "{", `{"numa_policy": "required", `, 1)+controller, computing)
		}, Alias, "alias B is defined twice with different values of numa_policy"},
		"alias twice with pci_in_placement": {func(t *testing.T, f *Facts) {
			f.Release = nova.Antelope
			own(t, f, "[pci]\n"+aliasK4200+"\n"+controller+"pci_in_placement = true\n", computing)
		}, Alias, "alias K4200 is defined twice, which pci_in_placement does not allow: Nova rejects requests for it"},
		"another alias twice with pci_in_placement": {func(t *testing.T, f *Facts) {
			f.Release = nova.Epoxy
			other := strings.Replace(aliasK4200, "K4200", "B", 1) + "\n"
			own(t, f, "[pci]\n"+other+other+controller+"pci_in_placement = true\n", computing)
		}, "", ""},
		"another alias twice with pci_in_placement in 2025.2": {func(t *testing.T, f *Facts) {
			f.Release = nova.Flamingo
			other := strings.Replace(aliasK4200, "K4200", "B", 1) + "\n"
			own(t, f, "[pci]\n"+other+other+controller+"pci_in_placement = true\n", computing)
		}, Alias, "Nova rejects every alias of the file"},
		"alias without ids in 2025.2": {func(t *testing.T, f *Facts) {
			f.Release = nova.Flamingo
			own(t, f, "[pci]\nalias = {\"name\": \"any\", \"vendor_id\": \"10de\"}\n"+controller, computing)
		}, Alias, "alias any lacks vendor_id or product_id"},
		"alias without product": {func(t *testing.T, f *Facts) {
			f.Sides = sides(t, strings.Replace(controller, `"product_id": "11b4", `, "", 1), strings.Replace(computing, `"product_id": "11b4", "device`, `"device`, 1))
		}, "", "it selects devices of any product"},
		"alias missing on the compute node": {func(t *testing.T, f *Facts) { own(t, f, controller, "[pci]\n"+specK4200+"\n") }, "",
			"builds work, but nova-compute rejects resizes"},
		"alias different on the compute node": {func(t *testing.T, f *Facts) {
			own(t, f, controller, strings.Replace(computing, `"type-PCI"`, `"type-PF"`, 1))
		}, "", "claim other devices than nova-scheduler selected"},
		"alias malformed on the compute node of 2025.2": {func(t *testing.T, f *Facts) {
			f.Release, f.Hosts[0].Service.Up = nova.Flamingo, false
			own(t, f, controller, strings.Replace(computing, `"11b4", "device`, `"0x11b4", "device`, 1))
		}, Alias, "nova-compute does not start"},
		"alias malformed on the compute node of 2025.2, whose nova-compute runs": {func(t *testing.T, f *Facts) {
			f.Release = nova.Flamingo
			own(t, f, controller, strings.Replace(computing, `"11b4", "device`, `"0x11b4", "device`, 1))
		}, "", "nova-compute runs, and has not read the file yet"},
		"device_spec rejected, and nova-compute runs": {func(t *testing.T, f *Facts) {
			own(t, f, controller, computing+"device_spec = {\"address\": \"4*:00.0\"}\n")
		}, "", "nova-compute runs, and has not read the file yet"},
		"device_spec for other devices, and Placement has them": {func(t *testing.T, f *Facts) {
			f.Databases, f.Hosts[0].Stock, f.Placement.Devices = false, nil, devices(2, 2, nil)
			own(t, f, controller, "[pci]\n"+aliasK4200+"\n"+strings.ReplaceAll(specK4200, "11b4", "13f2")+"\n")
		}, "", "Placement, to which nova-compute has reported devices, still has enough"},
		"device_spec rejected": {func(t *testing.T, f *Facts) {
			f.Hosts[0].Service.Up = false
			own(t, f, controller, computing+"device_spec = {\"address\": \"4*:00.0\"}\n")
		}, DeviceSpec,
			"nova-compute does not start"},
		"device_spec for other devices": {func(t *testing.T, f *Facts) {
			f.Hosts[0].Stock = &Stock{}
			own(t, f, controller, "[pci]\n"+aliasK4200+"\n"+strings.ReplaceAll(specK4200, "11b4", "13f2")+"\n")
		}, DeviceSpec, "the host has 2 K4200 (10de:11b4 type-PCI), but no device_spec matches one"},
		"device_spec for other devices, no inventory": {func(t *testing.T, f *Facts) {
			f.Hosts[0].Devices, f.Hosts[0].Stock = nil, &Stock{}
			own(t, f, controller, "[pci]\n"+aliasK4200+"\n"+strings.ReplaceAll(specK4200, "11b4", "13f2")+"\n")
		}, DeviceSpec, "no device_spec matches alias K4200"},
		"device_spec for other devices, which nova-compute still has": {func(t *testing.T, f *Facts) {
			own(t, f, controller, "[pci]\n"+aliasK4200+"\n"+strings.ReplaceAll(specK4200, "11b4", "13f2")+"\n")
		}, "", "no device_spec matches one; nova-compute, which runs, still has enough free devices"},
		"device_spec for one of two": {func(t *testing.T, f *Facts) {
			f.Hosts[0].Stock = &Stock{}
			own(t, f, controller, "[pci]\n"+aliasK4200+"\ndevice_spec = {\"address\": \"0000:84:00.0\"}\n")
		}, DeviceSpec, "the host has 2 K4200 (10de:11b4 type-PCI), but device_spec offers 1, and the flavor requests 2"},
		"no such device": {func(_ *testing.T, f *Facts) {
			f.Hosts[0].Stock = &Stock{}
			f.Hosts[0].Devices = inventory(function("0000:84:00.0", "13f2", pci.TypePCI, 0))
		}, DeviceSpec,
			"the host has no K4200"},
		"too few devices": {func(_ *testing.T, f *Facts) {
			f.Hosts[0].Stock = &Stock{}
			f.Hosts[0].Devices = inventory(function("0000:84:00.0", "11b4", pci.TypePCI, 0))
		}, DeviceSpec,
			"gpustack flavor create K4200:1"},
		"devices of another type": {func(_ *testing.T, f *Facts) {
			f.Hosts[0].Stock = &Stock{}
			f.Hosts[0].Devices = inventory(function("0000:84:00.0", "11b4", pci.TypePF, 0), function("0000:88:00.0", "11b4", pci.TypePF, 0))
		}, DeviceSpec, "--alias K4200=10de:11b4,device_type=type-PF"},
		"managed=no without vfio-pci": {func(t *testing.T, f *Facts) {
			f.Release = nova.Epoxy
			own(t, f, controller, strings.Replace(computing, `{"vendor_id": "10de", "product_id": "11b4"}`, `{"vendor_id": "10de", "product_id": "11b4", "managed": "no"}`, 1))
			nouveau := "nouveau"
			f.Hosts[0].Devices.Devices[1].Driver = &nouveau
		}, DeviceSpec, "0000:88:00.0 has driver nouveau"},
		"no row": {func(_ *testing.T, f *Facts) { f.Hosts[0].Stock = &Stock{} }, Rows, "pci_devices has no row"},
		"rows of another type": {func(_ *testing.T, f *Facts) {
			f.Hosts[0].Stock.Pools = nil
			for i := range f.Hosts[0].Stock.Rows {
				f.Hosts[0].Stock.Rows[i].Type = "type-PF"
			}
		}, Rows, "alias K4200 selects type-PCI, but the rows are type-PF"},
		"devices in use": {func(_ *testing.T, f *Facts) {
			f.Hosts[0].Stock = &Stock{Rows: []Row{row("0000:84:00.0", "allocated", 0), row("0000:88:00.0", "available", 1)}, Pools: []pools.Pool{pool(1)}}
		}, Rows, "1 allocated, 1 available"},
		"device in use, pools unreadable": {func(_ *testing.T, f *Facts) {
			f.Hosts[0].Stock = &Stock{Rows: []Row{row("0000:84:00.0", "claimed", 0), row("0000:88:00.0", "available", 1)}}
		}, Rows, "has 1 free K4200 of 2"},
		"stale row": {func(_ *testing.T, f *Facts) {
			stale := row("0000:84:00.0", "allocated", 0)
			stale.Instance, stale.Verdict, stale.Reason = "u1", "stale", "the instance is gone"
			f.Hosts[0].Stock = &Stock{Rows: []Row{stale, row("0000:88:00.0", "available", 1)}, Pools: []pools.Pool{pool(1)}}
		}, Rows, "gpustack repair-migration --instance u1"},
		"too few stale rows": {func(t *testing.T, f *Facts) {
			stale := row("0000:84:00.0", "allocated", 0)
			stale.Instance, stale.Verdict = "u1", "stale"
			f.Hosts[0].Stock = &Stock{Rows: []Row{stale, row("0000:88:00.0", "allocated", 1)}, Pools: []pools.Pool{}}
		}, Rows, "has no free K4200"},
		"suspicious row": {func(_ *testing.T, f *Facts) {
			odd := row("0000:84:00.0", "allocated", 0)
			odd.Instance, odd.Verdict, odd.Reason = "u1", "suspicious", "the guest may run"
			f.Hosts[0].Stock = &Stock{Rows: []Row{odd, row("0000:88:00.0", "available", 1)}, Pools: []pools.Pool{pool(1)}}
		}, Rows, "has suspicious rows of K4200"},
		"stale rows of two instances": {func(_ *testing.T, f *Facts) {
			one, two := row("0000:84:00.0", "allocated", 0), row("0000:88:00.0", "allocated", 0)
			one.Instance, one.Verdict, two.Instance, two.Verdict = "u1", "stale", "u2", "unknown"
			f.Hosts[0].Stock = &Stock{Rows: []Row{one, two}, Pools: []pools.Pool{}}
		}, Rows, "gpustack repair-migration --host gpu1"},
		"free rows that are not reported": {func(_ *testing.T, f *Facts) { f.Hosts[0].Stock.Pools = []pools.Pool{} }, Rows, "restart nova-compute on gpu1"},
		"too few VCPUs": {func(_ *testing.T, f *Facts) {
			f.Placement.Steps[0].Roots["rp1"] = false
			f.Placement.Details = map[string]map[string]cloud.Inventory{"rp1": {"VCPU": {Total: 8, Reserved: 2, Used: 5, MaxUnit: 8, Ratio: 1}}}
		}, Placing, "VCPU:4 is requested, 1 free: (total 8 - reserved 2) × ratio 1 - used 5"},
		"more than one guest gets": {func(_ *testing.T, f *Facts) {
			f.Placement.Steps[0].Roots["rp1"] = false
			f.Placement.Details = map[string]map[string]cloud.Inventory{"rp1": {"VCPU": {Total: 2, MaxUnit: 2, Ratio: 16}}}
		}, Placing, "one guest gets at most 2"},
		"more memory than one guest gets": {func(_ *testing.T, f *Facts) {
			f.Placement.Steps[1].Roots["rp1"] = false
			f.Placement.Details = map[string]map[string]cloud.Inventory{"rp1": {"MEMORY_MB": {Total: 4096, MaxUnit: 4096, Ratio: 16}}}
		}, Placing, "has too little memory"},
		"too little memory": {func(_ *testing.T, f *Facts) { f.Placement.Steps[1].Roots["rp1"] = false }, Placing, "ram_allocation_ratio"},
		"too little disk":   {func(_ *testing.T, f *Facts) { f.Placement.Steps[2].Roots["rp1"] = false }, Placing, "has too little disk"},
		"no inventory of a class": {func(_ *testing.T, f *Facts) {
			f.Placement.Steps = append(f.Placement.Steps, step("VGPU", 1, false))
			f.Placement.Details = map[string]map[string]cloud.Inventory{"rp1": {"VCPU": {}}}
		}, Placing, "the host has no inventory of VGPU"},
		"trait missing": {func(_ *testing.T, f *Facts) {
			specs(f, "trait:CUSTOM_A", "required")
			f.Placement.Steps = append(f.Placement.Steps, trait("CUSTOM_A"))
		}, Placing,
			"openstack flavor unset --property trait:CUSTOM_A gpu.k4200.2"},
		"trait forbidden": {func(_ *testing.T, f *Facts) { f.Placement.Steps = append(f.Placement.Steps, trait("!CUSTOM_A")) }, Placing,
			"the flavor forbids trait CUSTOM_A"},
		"name unknown to Placement": {func(_ *testing.T, f *Facts) {
			f.Placement.Steps = append(f.Placement.Steps, Step{Ask: Ask{Trait: "CUSTOM_B"}, Missing: "No such trait(s): CUSTOM_B"})
		}, Placing, "No such trait(s): CUSTOM_B"},
		"devices in use in Placement": {func(_ *testing.T, f *Facts) { f.Placement.Devices = devices(1, 2, nil) }, Placing, "CUSTOM_PCI_10DE_11B4:2 is requested, 1 free"},
		"devices reserved after one use": {func(_ *testing.T, f *Facts) {
			f.Placement.Devices = devices(0, 2, map[string]cloud.Inventory{"rp1/a": {Total: 1, Reserved: 1}})
		}, Placing, "one-time-use"},
		"devices not reported": {func(_ *testing.T, f *Facts) { f.Placement.Devices = devices(0, 0, nil) }, Placing,
			"on gpu1: gpustack nova configure --role compute --placement"},
		"class not reported by any host": {func(_ *testing.T, f *Facts) {
			f.Placement.Devices = devices(0, 0, nil)
			f.Placement.Devices[0].Missing = true
		}, Placing, "no nova-compute reports such a device"},
		"service missing": {func(_ *testing.T, f *Facts) { f.Hosts[0].Service = nil }, Service, "nova-manage cell_v2 discover_hosts"},
		"service down":    {func(_ *testing.T, f *Facts) { f.Hosts[0].Service.Up = false }, Service, "is down"},
		"service forced down": {func(_ *testing.T, f *Facts) { f.Hosts[0].Service.ForcedDown = true }, Service,
			"openstack compute service set --up gpu1 nova-compute"},
		"service disabled": {func(_ *testing.T, f *Facts) {
			f.Hosts[0].Service.Enabled, f.Hosts[0].Service.Reason = false, "new disk"
		}, Service,
			"nova-compute is disabled: new disk"},
		"filter of another release": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, "ComputeFilter", "RamFilter", 1), computing)
		}, Filters, "zed has no RamFilter: nova-scheduler does not start"},
		"filter that nobody has": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, "ComputeFilter", "ComputeFiltre", 1), computing)
		}, Filters, "no filter is called ComputeFiltre: nova-scheduler does not start"},
		"filter that is not available": {func(t *testing.T, f *Facts) {
			own(t, f, controller+"available_filters = nova.scheduler.filters.compute_filter.ComputeFilter\n", computing)
		}, Filters, "PciPassthroughFilter is enabled, but no available_filters offers it: nova-scheduler does not start"},
		"filter for PCI missing": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, ",PciPassthroughFilter", "", 1), computing)
		}, "",
			"also selects hosts without a free device"},
		"zone nova of a host in another one, in Wallaby": {func(_ *testing.T, f *Facts) { zoneNova(f, nova.Wallaby) }, Zone, "availability zone az1, and nova is requested"},
		"zone nova of a host in another one, in Wallaby with the option": {func(t *testing.T, f *Facts) {
			own(t, f, controller+"[scheduler]\nquery_placement_for_availability_zone = true\n", computing)
			zoneNova(f, nova.Wallaby)
		}, "", ""},
		"zone nova of a host in another one, in Zed": {func(_ *testing.T, f *Facts) { zoneNova(f, nova.Zed) }, "", ""},
		"zone nova of a host in another one, in Zed without the option": {func(t *testing.T, f *Facts) {
			own(t, f, controller+"[scheduler]\nquery_placement_for_availability_zone = false\n", computing)
			zoneNova(f, nova.Zed)
		}, Zone, "availability zone az1, and nova is requested"},
		"zone nova of a host in another one, in 2023.2": {func(_ *testing.T, f *Facts) { zoneNova(f, nova.Bobcat) }, "", ""},
		"forbidden trait of an image": {func(_ *testing.T, f *Facts) {
			f.Image = &cloud.Image{Name: "i", Properties: map[string]string{"trait:CUSTOM_L": "forbidden"}}
		}, "", ""},
		"trait of a CPU policy": {func(_ *testing.T, f *Facts) {
			specs(f, "hw:cpu_policy", "dedicated", "hw:cpu_thread_policy", "require", "hw:pci_numa_affinity_policy", "preferred")
			f.Placement.Steps = append(f.Placement.Steps, trait("HW_CPU_HYPERTHREADING"))
		}, Placing, "\nuse another host\n"},
		"trait of the image": {func(_ *testing.T, f *Facts) {
			f.Image = &cloud.Image{Name: "special", Properties: map[string]string{"trait:CUSTOM_I": "required"}}
			f.Placement.Steps = append(f.Placement.Steps, trait("CUSTOM_I"))
		}, Placing, "use another image than special, or another host"},
		"another zone, of a host with a zone": {func(_ *testing.T, f *Facts) {
			f.Zone = "az2"
			f.Hosts[0].Service.Zone = "az1"
			f.Aggregates = []cloud.Aggregate{{Name: "second", Metadata: map[string]string{"availability_zone": "az2"}},
				{Name: "first", Hosts: []string{"gpu1"}, Metadata: map[string]string{"availability_zone": "az1"}}}
		}, Zone, "\nrequest --availability-zone az1\n"},
		"policy preferred would contradict the image": {func(_ *testing.T, f *Facts) {
			specs(f, "hw:numa_nodes", "1")
			f.Image = &cloud.Image{Name: "numa", Properties: map[string]string{"hw_pci_numa_affinity_policy": "required"}}
		}, NUMA, "\nopenstack flavor set --property hw:numa_nodes=2 gpu.k4200.2"},
		"capability_type in an alias, which no pool has": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, `"type-PCI"`, `"type-PCI", "capability_type": "pci"`, 1), computing)
		}, DeviceSpec, "remove capability_type from the alias"},
		"pools that are not live-migratable": {func(t *testing.T, f *Facts) {
			f.Release = nova.Epoxy
			own(t, f, strings.Replace(controller, `"type-PCI"`, `"type-PCI", "live_migratable": "yes"`, 1), computing)
			f.Hosts[0].Service.Up = false
		}, DeviceSpec, "alias K4200 requires devices with live_migratable=true"},
		"rows of devices that are not live-migratable": {func(t *testing.T, f *Facts) {
			f.Release, f.Hosts[0].Devices = nova.Epoxy, nil
			own(t, f, strings.Replace(controller, `"type-PCI"`, `"type-PCI", "live_migratable": "yes"`, 1), computing)
			f.Sides = f.Sides[:1] // the file of the compute node tells before
		}, Rows, "2 available, but alias K4200 requires devices with live_migratable=true"},
		"pools that are live-migratable": {func(t *testing.T, f *Facts) {
			f.Release = nova.Epoxy
			own(t, f, strings.Replace(controller, `"type-PCI"`, `"type-PCI", "live_migratable": "yes"`, 1),
				strings.Replace(strings.Replace(computing, `"type-PCI"`, `"type-PCI", "live_migratable": "yes"`, 1), `"11b4"}`, `"11b4", "live_migratable": "on"}`, 1))
			for i := range f.Hosts[0].Stock.Pools {
				f.Hosts[0].Stock.Pools[i].Tags = map[string]string{"live_migratable": "true"}
			}
		}, "", ""},
		"remote-managed devices": {func(_ *testing.T, f *Facts) {
			for i := range f.Hosts[0].Stock.Pools {
				f.Hosts[0].Stock.Pools[i].Tags = map[string]string{"remote_managed": "true"}
			}
		}, Rows, "no remote_managed"},
		"another availability zone": {func(_ *testing.T, f *Facts) {
			f.Zone = "az2"
			f.Aggregates = []cloud.Aggregate{{Name: "second", Metadata: map[string]string{"availability_zone": "az2"}}}
		}, Zone, "openstack aggregate add host second gpu1"},
		"default availability zone": {func(t *testing.T, f *Facts) {
			own(t, f, "[DEFAULT]\ndefault_schedule_zone = az3\n"+controller, computing)
		}, Zone, "az3 is requested (default_schedule_zone, ctl.conf)"},
		"devices on two NUMA nodes": {func(_ *testing.T, f *Facts) { specs(f, "hw:numa_nodes", "1") }, NUMA,
			"the guest has 1 NUMA node and K4200:2 devices, of which the host has 1 on node 0, 1 on node 1"},
		"dedicated CPUs, devices on two NUMA nodes": {func(_ *testing.T, f *Facts) { specs(f, "hw:cpu_policy", "dedicated") }, NUMA, "1 NUMA node"},
		"required, and no device has a NUMA node": {func(_ *testing.T, f *Facts) {
			specs(f, "hw:numa_nodes", "1", "hw:pci_numa_affinity_policy", "required")
			f.Hosts[0].Stock.Pools = []pools.Pool{{Vendor: "10de", Product: "11b4", Type: "type-PCI", Count: 2}}
		}, NUMA, "2 on no node"},
		"policy and topology of the image": {func(_ *testing.T, f *Facts) {
			f.Image = &cloud.Image{Name: "numa", Properties: map[string]string{"hw_numa_nodes": "1", "hw_pci_numa_affinity_policy": "required"}}
		}, NUMA, "image numa"},
		"policy of the alias": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, `"type-PCI"`, `"type-PCI", "numa_policy": "required"`, 1), computing)
			specs(f, "hw:mem_page_size", "large")
		}, NUMA, "ctl.conf:2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			c.change(t, &f)
			r := Judge(f)
			first := r.Judgements[0].first()
			if c.link == "" {
				if first != nil || r.Verdict != Can || r.Able != 1 {
					t.Fatalf("%s: %s; %+v", r.Verdict, r.Conclusion, first)
				}
				if c.says != "" && (len(r.Concerns) != 1 || !strings.Contains(r.Concerns[0].Example.Seen, c.says)) {
					t.Errorf("warnings: %+v", r.Concerns)
				}
				return
			}
			if first == nil || first.Link != c.link || r.Verdict != Cannot || *r.Judgements[0].Failing != c.link {
				t.Fatalf("%s: %s; first %+v", r.Verdict, r.Conclusion, first)
			}
			if text := strings.Join([]string{first.Seen, first.Reason, first.From, first.Remedy.String(), ""}, "\n"); !strings.Contains(text, c.says) ||
				len(first.Remedy) == 0 {
				t.Errorf("%s\nwithout %q", text, c.says)
			}
		})
	}
}

// enable enables a filter on the controller.
func enable(f *Facts, filter string) {
	f.Sides[0].Files[0].File = mustParse(strings.Replace(controller, "Compute", filter+",Compute", 1))
}

func mustParse(text string) *conf.File {
	file, err := conf.Parse([]byte(text))
	if err != nil {
		panic(err)
	}
	return file
}

// devices returns Placement's answer about the K4200 of gpu1.
func devices(free, reported int, detail map[string]cloud.Inventory) []Devices {
	return []Devices{{DeviceAsk: DeviceAsk{Aliases: "K4200", Class: "CUSTOM_PCI_10DE_11B4", Count: 2}, Free: map[string]int{"rp1": free},
		Tree: map[string]int{"rp1": reported}, Detail: detail}}
}

// TestNotChecked: what was not read never passes, is named with what would read it, and leaves the
// host unknown where devices, resources or the service depend on it.
func TestNotChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Facts)
		verdict Verdict
		link    Link
		says    string
	}{
		"no database": {func(f *Facts) { f.Databases, f.Hosts[0].Stock = false, nil }, Unknown, Rows, "give --database URL"},
		"no database, devices in Placement": {func(f *Facts) {
			f.Databases, f.Hosts[0].Stock, f.Placement.Devices = false, nil, devices(2, 2, nil)
		}, Can, Rows, "no database is given"},
		"database out of reach": {func(f *Facts) {
			f.Databases, f.Hosts[0].Stock, f.Unread[Database] = false, nil, "10.0.0.1:3306: no connection"
		}, Unknown, Rows, "10.0.0.1:3306: no connection"},
		"cell out of reach":       {func(f *Facts) { f.Hosts[0].Stock = nil }, Unknown, Rows, "no database that was read has the host"},
		"no Placement":            {func(f *Facts) { f.Placement, f.Unread[Candidates] = nil, "permission denied" }, Unknown, Placing, "permission denied"},
		"provider unknown":        {func(f *Facts) { f.Hosts[0].Provider = "" }, Unknown, Placing, "the resource provider of the host is unknown"},
		"services forbidden":      {func(f *Facts) { f.Hosts[0].Service, f.Unread[Services] = nil, "permission denied" }, Unknown, Service, "permission denied"},
		"no file":                 {func(f *Facts) { f.Sides = nil }, Unknown, Alias, "alias K4200 is assumed to be 10de:11b4"},
		"no file of a controller": {func(f *Facts) { f.Sides = f.Sides[1:] }, Unknown, Filters, "--conf controller=FILE"},
		"no inventory and no file": {func(f *Facts) { f.Sides, f.Hosts[0].Devices = f.Sides[:1], nil }, Can, DeviceSpec,
			"give --conf compute=FILE and --inventory FILE"},
		"inventory without a file": {func(f *Facts) { f.Sides = f.Sides[:1] }, Can, DeviceSpec, "device_spec is unknown"},
		"devices in Placement, and their NUMA nodes unknown": {func(f *Facts) {
			f.Databases, f.Hosts[0].Stock, f.Hosts[0].Devices, f.Placement.Devices = false, nil, nil, devices(2, 2, nil)
			specs(f, "hw:numa_nodes", "1")
		}, Unknown, NUMA, "the NUMA nodes of the devices are unknown"},
		"a guest with NUMA nodes": {func(f *Facts) { specs(f, "hw:numa_nodes", "2") }, Unknown, Filters,
			"not judged: flavor hw:numa_nodes=2; NUMA node 0 of the host: 2 shared CPUs, 2 dedicated, 1 of them pinned, 0 of 512 MiB in use; NUMA node 1"},
		"a guest with NUMA nodes, and no database": {func(f *Facts) {
			f.Hosts[0].Stock.Node = nil
			specs(f, "hw:numa_nodes", "2")
		}, Unknown, Filters, "flavor hw:numa_nodes=2; NUMA nodes of the host unknown"},
		"policy preferred": {func(f *Facts) { specs(f, "hw:numa_nodes", "1", "hw:pci_numa_affinity_policy", "preferred") }, Unknown, Filters,
			"not judged: flavor hw:numa_nodes=1; NUMA node 0"},
		"policy legacy, and no device has a NUMA node": {func(f *Facts) {
			specs(f, "hw:numa_nodes", "1")
			f.Hosts[0].Stock.Pools = []pools.Pool{{Vendor: "10de", Product: "11b4", Type: "type-PCI", Count: 2}}
		}, Unknown, Filters, "hw:numa_nodes=1"},
		"an unknown policy": {func(f *Facts) { specs(f, "hw:pci_numa_affinity_policy", "strict") }, Unknown, Filters, "hw:pci_numa_affinity_policy=strict"},
		"policies that differ": {func(f *Facts) {
			specs(f, "hw:pci_numa_affinity_policy", "required")
			f.Image = &cloud.Image{Name: "i", Properties: map[string]string{"hw_pci_numa_affinity_policy": "preferred", "os_distro": "debian", "color": "blue"}}
		}, Unknown, Filters, "not judged: image hw_pci_numa_affinity_policy=preferred"},
		"an image with requirements": {func(f *Facts) {
			f.Image = &cloud.Image{Name: "arm", Properties: map[string]string{"hw_architecture": "aarch64"}}
		}, Unknown, Filters, "image hw_architecture=aarch64"},
		"capabilities": {func(f *Facts) { specs(f, "capabilities:cpu_info:model", "EPYC") }, Unknown, Filters, "flavor capabilities:cpu_info:model=EPYC"},
		"keys of flavor and aggregates": {func(f *Facts) {
			enable(f, filterExtra)
			specs(f, "gpu", "a100")
			f.Aggregates = []cloud.Aggregate{{Name: "fast", Hosts: []string{"gpu1"}, Metadata: map[string]string{"gpu": "a100,k4200"}},
				{Name: "other", Hosts: []string{"gpu2"}, Metadata: map[string]string{"gpu": "none"}}}
		}, Unknown, Filters, "not judged: flavor gpu=a100; aggregate fast gpu=a100,k4200"},
		"hide_hypervisor_id, which a filter compares with aggregates": {func(f *Facts) {
			enable(f, filterExtra)
			specs(f, "hide_hypervisor_id", "true")
		}, Unknown, Filters, "not judged: flavor hide_hypervisor_id=true"},
		"aggregate of projects": {func(f *Facts) {
			enable(f, filterTenants)
			f.Aggregates = []cloud.Aggregate{{Name: "theirs", Hosts: []string{"gpu1"}, Metadata: map[string]string{"filter_tenant_id": "theirs"}}}
		}, Unknown, Filters, "not judged: aggregate theirs filter_tenant_id=theirs"},
		"aggregates of projects that are forbidden": {func(f *Facts) {
			enable(f, filterTenants)
			f.Unread[Aggregates] = "permission denied"
		}, Unknown, Filters, "not judged: aggregates: permission denied"},
		"aggregates of flavors": {func(f *Facts) {
			enable(f, filterType)
			f.Aggregates = []cloud.Aggregate{{Name: "large", Hosts: []string{"gpu1"}, Metadata: map[string]string{"instance_type": "large"}}}
		}, Unknown, Filters, "aggregate large instance_type=large"},
		"isolated aggregate": {func(f *Facts) {
			f.Sides[0].Files[0].File = mustParse(controller + "[scheduler]\nenable_isolated_aggregate_filtering = true\n")
			f.Aggregates = []cloud.Aggregate{{Name: "licensed", Hosts: []string{"gpu1"}, Metadata: map[string]string{"trait:CUSTOM_L": "required"}}}
		}, Unknown, Filters, "aggregate licensed trait:CUSTOM_L=required"},
		"aggregates that projects require": {func(f *Facts) {
			f.Sides[0].Files[0].File = mustParse(controller + "[scheduler]\nlimit_tenants_to_placement_aggregate = true\n")
		}, Unknown, Filters, "[scheduler] limit_tenants_to_placement_aggregate"},
		"isolated hosts": {func(f *Facts) {
			f.Sides[0].Files[0].File = mustParse(strings.Replace(controller, "Compute", "IsolatedHostsFilter,Compute", 1) + "isolated_hosts = gpu1\n")
		}, Unknown, Filters, "[filter_scheduler] isolated_hosts=gpu1"},
		"isolated images without isolated hosts": {func(f *Facts) {
			f.Image = &cloud.Image{Name: "licensed"}
			f.Sides[0].Files[0].File = mustParse(strings.Replace(controller, "Compute", "IsolatedHostsFilter,Compute", 1) + "isolated_images = licensed\n")
		}, Unknown, Filters, "[filter_scheduler] isolated_images=licensed"},
		"a host without NUMA nodes": {func(f *Facts) {
			f.Hosts[0].Stock.Node.Topology = nil
			specs(f, "hw:numa_nodes", "1")
		}, Unknown, Filters, "NUMA nodes of the host unknown"},
		"a trait that nova-api reads": {func(f *Facts) { specs(f, "trait:HW_CPU_HYPERTHREADING", "forbidden") }, Unknown, Filters,
			"not judged: flavor trait:HW_CPU_HYPERTHREADING=forbidden"},
		"a trait of the image that nova-api reads": {func(f *Facts) {
			f.Image = &cloud.Image{Name: "i", Properties: map[string]string{"trait:HW_CPU_HYPERTHREADING": "required"}}
		}, Unknown, Filters, "not judged: image trait:HW_CPU_HYPERTHREADING=required"},
		"CPUs of NUMA nodes without their number": {func(f *Facts) { specs(f, "hw:numa_cpus.0", "0-1", "hw:numa_mem.0", "1024") }, Unknown, Filters,
			"not judged: flavor hw:numa_cpus.0=0-1, hw:numa_mem.0=1024"},
		"a server group": {func(f *Facts) {
			f.Group = &ServerGroup{Name: "apart", Policy: "anti-affinity", Members: map[string]int{"gpu1": 1, "gpu2": 2}}
		}, Unknown, Filters, "server group apart, anti-affinity, with 1 on the host and 2 elsewhere"},
		"a filter that is not Nova's": {func(f *Facts) {
			f.Sides[0].Files[0].File = mustParse(strings.Replace(controller, "Compute", "OurFilter,Compute", 1) +
				"available_filters = nova.scheduler.filters.all_filters\navailable_filters = ours.OurFilter\n")
		}, Unknown, Filters, "OurFilter, which is not Nova's own (ctl.conf:4)"},
		"Nova did not answer": {func(f *Facts) {
			specs(f, "hw:numa_nodes", "2")
			f.Unread[Scheduler] = "python3 did not end within 30s"
		}, Unknown, Filters, "Nova did not judge it: python3 did not end within 30s"},
		"Nova did not judge a filter": {func(f *Facts) {
			specs(f, "hw:numa_nodes", "2")
			f.Answer = &Answer{Version: "33.0.2", Queries: []Query{{}}, Hosts: []Answered{{Host: "gpu1", Node: "gpu1.example", Unjudged: []string{"OurFilter is not a filter of Nova"}}}}
		}, Unknown, Filters, "not judged: OurFilter is not a filter of Nova"},
		"filter of the load": {func(f *Facts) {
			enable(f, "JsonFilter")
		}, Can, Filters, "JsonFilter (ctl.conf:4) is not judged"},
		"part of the request": {func(f *Facts) { f.Placement.Skipped = []string{"resources1:VGPU"} }, Unknown, Placing, "not judged: resources1:VGPU"},
		"unknown alias": {func(f *Facts) { f.Sides = nil; specs(f, nova.RequestKey, "fast:1") }, Unknown, Alias,
			"no file defines alias fast"},
		"zone unknown": {func(f *Facts) { f.Zone, f.Hosts[0].Service.Zone = "az1", "" }, Unknown, Zone, "the availability zone of the host is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			c.change(&f)
			r := Judge(f)
			if r.Verdict != c.verdict {
				t.Errorf("%s, want %s: %s", r.Verdict, c.verdict, r.Conclusion)
			}
			if !slices.ContainsFunc(r.NotChecked, func(o Omission) bool {
				return o.Link == c.link && strings.Contains(o.Reason+"\n"+o.Remedy.String(), c.says) && len(o.Remedy) > 0 && o.Count == 1
			}) {
				t.Errorf("%q is not among %+v", c.says, r.NotChecked)
			}
		})
	}
}

// TestOverlap: devices that one alias has taken are not there for another one, as in Nova's pools.
func TestOverlap(t *testing.T) {
	f := healthy(t)
	both := strings.Replace(controller, "[pci]", "[pci]\n"+strings.ReplaceAll(aliasK4200, "K4200", "B"), 1)
	f.Sides = sides(t, both, computing)
	specs(&f, nova.RequestKey, "K4200:1,B:2")
	if r := Judge(f); r.Judgements[0].first() == nil || r.Judgements[0].first().Reason != "has only 1 B of 2" {
		t.Errorf("%+v", r.Judgements[0].first())
	}
	specs(&f, nova.RequestKey, "K4200:1,B:1")
	if r := Judge(f); r.Verdict != Can {
		t.Error(r.Conclusion)
	}
}

// TestClassOnly: an alias with a resource class selects the devices whose device_spec gives it to
// them, and Placement judges whether they are free.
func TestClassOnly(t *testing.T) {
	f := healthy(t)
	f.Release = nova.Flamingo
	alias := `alias = {"name": "K4200", "resource_class": "gold"}`
	on := "[filter_scheduler]\npci_in_placement = true\nenabled_filters = PciPassthroughFilter\n"
	spec := `device_spec = {"vendor_id": "10de", "product_id": "11b4", "resource_class": "CUSTOM_GOLD"}`
	f.Sides = sides(t, "[pci]\n"+alias+"\n"+on, "[pci]\n"+alias+"\n"+spec+"\n"+on)
	f.Placement.Devices = devices(2, 2, nil)
	if r := Judge(f); r.Verdict != Can {
		t.Errorf("%s: %+v", r.Conclusion, r.Judgements[0].first())
	}
	f.Placement.Devices = devices(0, 2, nil) // otherwise Placement shows that nova-compute offers them
	f.Sides = sides(t, "[pci]\n"+alias+"\n"+on, "[pci]\n"+alias+"\n"+specK4200+"\n"+on)
	if r := Judge(f); r.Judgements[0].first() == nil || r.Judgements[0].first().Link != DeviceSpec {
		t.Errorf("a device_spec without the class: %s", r.Conclusion)
	}
	if asks := f.readAliases(nova.Request{{Alias: "K4200", Count: 2}}).deviceAsks(nova.Request{{Alias: "K4200", Count: 2}}); len(asks) != 1 || asks[0].Class != "CUSTOM_GOLD" {
		t.Errorf("asked: %+v", asks)
	}
}

// TestConclusion: one line says how many hosts can, and what the others lack.
func TestConclusion(t *testing.T) {
	f := healthy(t)
	model := f.Hosts[0]
	f.Hosts = nil
	add := func(name string, change func(*Host)) {
		h := model
		service := *model.Service
		h.Name, h.Node, h.Service, h.Devices = name, name, &service, nil
		change(&h)
		f.Hosts = append(f.Hosts, h)
	}
	full := &Stock{Rows: []Row{row("0000:84:00.0", "allocated", 0), row("0000:88:00.0", "allocated", 0)}, Pools: []pools.Pool{}}
	f.Sides = f.Sides[:1]
	for _, name := range []string{"gpu1", "gpu2", "gpu3", "gpu5", "gpu10"} {
		add(name, func(h *Host) { h.Stock = full })
	}
	add("gpu4", func(h *Host) { h.Service.Up = false })
	if r := Judge(f); r.Conclusion != "0 of 6 hosts can build gpu.k4200.2: 5 have no free K4200, 1 is down" || Names(r.Groups[0].Members, 3) != "gpu[1-3], gpu5, gpu10" {
		t.Errorf("%s; %v", r.Conclusion, r.Groups)
	}
	add("gpu11", func(*Host) {})
	if r := Judge(f); r.Verdict != Can || r.Conclusion != "1 of 7 hosts can build gpu.k4200.2: gpu11; 5 have no free K4200, 1 is down" {
		t.Error(r.Conclusion)
	}
	f.Flavor.Disabled = true
	hosttest.Equal(t, "0 of 7 hosts can build gpu.k4200.2: an administrator has disabled the flavor", Judge(f).Conclusion)
	f.Flavor.Disabled, f.Placement = false, nil
	f.Hosts = f.Hosts[6:]
	if r := Judge(f); r.Verdict != Unknown || r.Conclusion != "0 of 1 host can build gpu.k4200.2: no link that was checked fails on 1" {
		t.Error(r.Conclusion)
	}
}

// TestNames: names are shortened so that a line can be read.
func TestNames(t *testing.T) {
	for want, names := range map[string][]string{
		"":                            nil,
		"gpu1":                        {"gpu1"},
		"gpu1, gpu2":                  {"gpu1", "gpu2"},
		"gpu[8-11]":                   {"gpu8", "gpu9", "gpu10", "gpu11"},
		"gpu[008-010].a.example":      {"gpu008.a.example", "gpu009.a.example", "gpu010.a.example"},
		"a, b and 2 more":             {"a", "b", "c", "d"},
		"r1-gpu[1-3], r2-gpu1":        {"r1-gpu1", "r1-gpu2", "r1-gpu3", "r2-gpu1"},
		"x99999999999999999999, gpu1": {"x99999999999999999999", "gpu1"},
	} {
		hosttest.EqualIn(t, fmt.Sprint(names), want, Names(names, 2))
	}
}

// TestAsks: what is asked for is what the flavor and the image name plainly, or what Nova's own code
// asks for.
func TestAsks(t *testing.T) {
	f := Facts{Release: nova.Zed, Image: &cloud.Image{Properties: map[string]string{"trait:HW_I": "required", "trait:HW_J": "forbidden"}},
		Flavor: cloud.Flavor{VCPUs: 4, RAM: 8192, Disk: 20, Ephemeral: 5, Swap: 1025, ExtraSpecs: map[string]string{
			"resources:VGPU": "1", "resources:MEMORY_MB": "0", "trait:CUSTOM_A": "required", "trait:CUSTOM_B": "forbidden", "resources1:X": "1"}}}
	text := func(f Facts, isFallback bool) string {
		var words []string
		for _, a := range f.query(isFallback).asks() {
			words = append(words, a.String())
		}
		return strings.Join(append(words, f.granular()...), " ")
	}
	hosttest.Equal(t, "VCPU:4 DISK_GB:27 VGPU:1 trait CUSTOM_A trait !CUSTOM_B trait HW_I resources1:X", text(f, false))
	f.Flavor.ExtraSpecs = map[string]string{"hw:cpu_policy": "dedicated"} // VCPU or PCPU: Nova decides
	f.Volume = true
	hosttest.Equal(t, "MEMORY_MB:8192 DISK_GB:7 trait HW_I", text(f, false))
	hosttest.Equal(t, "", text(f, true))
	f.Answer = &Answer{Queries: []Query{{map[string]int{"PCPU": 5}, []string{"!HW_B"}}, {map[string]int{"VCPU": 5}, nil}}}
	hosttest.Equal(t, "PCPU:5 trait !HW_B or VCPU:5", text(f, false)+" or "+text(f, true))
}

// TestAnswer: a host is what Nova's own code says of it, and a document that is not an answer to the
// question is none.
func TestAnswer(t *testing.T) {
	f := healthy(t)
	specs(&f, "hw:numa_nodes", "2")
	q, err := f.Question()
	if err != nil || len(q.Hosts) != 1 || q.Hosts[0].Columns == nil || len(q.Aliases) != 1 || q.Options["filter_scheduler.enabled_filters"] == "" {
		t.Fatalf("%+v, %v", q, err)
	}
	const host = `{"host": "gpu1", "node": "gpu1.example", "rejects": [%s], "unjudged": []}`
	for name, c := range map[string]struct {
		text string
		says string // "" for an answer with which the host is "can"; of an error, its beginning
	}{
		"accepted": {`{"version": "33.0.2", "rejects": [], "queries": [{"resources": {}, "traits": []}], "hosts": [` + strings.Replace(host, "%s", "", 1) + `]}`, ""},
		"rejected": {`{"version": "33.0.2", "rejects": [], "queries": [{"resources": {}, "traits": []}], "hosts": [` +
			strings.Replace(host, "%s", `{"filter": "NUMATopologyFilter", "message": "does not fit"}`, 1) + `]}`, "filters: NUMATopologyFilter: does not fit"},
		"rejected by nova-api": {`{"version": "33.0.2", "rejects": [{"filter": "nova-api", "message": "MemoryPageSizeInvalid"}], "queries": [], "hosts": [` +
			strings.Replace(host, "%s", "", 1) + `]}`, "flavor: nova-api rejects the request: MemoryPageSizeInvalid"},
		"nothing":            {"", "error"},
		"more than a text":   {`warning {}`, "error"},
		"another document":   {`{"verdict": "can"}`, "error"},
		"of other hosts":     {`{"version": "33.0.2", "rejects": [], "queries": [{"resources": {}, "traits": []}], "hosts": []}`, "error"},
		"without a query":    {`{"version": "33.0.2", "rejects": [], "queries": [], "hosts": [` + strings.Replace(host, "%s", "", 1) + `]}`, "error"},
		"followed by a text": {`{"version": "3", "rejects": [], "queries": [{"resources": {}, "traits": []}], "hosts": [` + strings.Replace(host, "%s", "", 1) + `]} x`, "error"},
	} {
		answer, err := ParseAnswer([]byte(c.text), q)
		if (err != nil) != (c.says == "error") {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
		if err != nil {
			continue
		}
		f.Answer = answer
		r := Judge(f)
		got := ""
		if first := r.Judgements[0].first(); first != nil {
			got = string(first.Link) + ": " + first.Seen
		}
		if got != c.says || (c.says == "") != (r.Verdict == Can) {
			t.Errorf("%s: %s: %s, want %s", name, r.Verdict, got, c.says)
		}
	}
}
