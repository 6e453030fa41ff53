package explain

import (
	"slices"
	"strings"
	"testing"

	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/conf"
	"gpustack/nova/fit"
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
	if err != nil {
		t.Fatal(err)
	}
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

func pool(numa int) fit.Pool {
	return fit.Pool{Vendor: "10de", Product: "11b4", Type: "type-PCI", NUMA: &numa, Count: 1}
}

// computeNode returns a compute node with two NUMA nodes, each with room for any guest.
func computeNode() *Node {
	cell := func(id int) fit.Cell {
		c := fit.Cell{ID: id, Memory: 1 << 20}
		for cpu := range 64 {
			c.Shared = append(c.Shared, id*64+cpu)
			c.Siblings = append(c.Siblings, []int{id*64 + cpu})
		}
		c.Dedicated = c.Shared
		return c
	}
	return &Node{Topology: &fit.Topology{Cells: []fit.Cell{cell(0), cell(1)}}, Limits: fit.Limits{CPU: 16, RAM: 1.5}, Hypervisor: "QEMU",
		Supported: [][]string{{"x86_64", "kvm", "hvm"}}, HypervisorVersion: 7002000, CPUInfo: `{"model": "EPYC"}`}
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
				Pools: []fit.Pool{pool(0), pool(1)}, Node: computeNode()},
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
		"alias in other letters": {func(t *testing.T, f *Facts) { own(t, f, strings.ReplaceAll(controller, "K4200", "k4200"), computing) }, Alias,
			"only k4200: names are case-sensitive"},
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
			f.Hosts[0].Stock = &Stock{Rows: []Row{row("0000:84:00.0", "allocated", 0), row("0000:88:00.0", "available", 1)}, Pools: []fit.Pool{pool(1)}}
		}, Rows, "1 allocated, 1 available"},
		"device in use, pools unreadable": {func(_ *testing.T, f *Facts) {
			f.Hosts[0].Stock = &Stock{Rows: []Row{row("0000:84:00.0", "claimed", 0), row("0000:88:00.0", "available", 1)}}
		}, Rows, "has 1 free K4200 of 2"},
		"stale row": {func(_ *testing.T, f *Facts) {
			stale := row("0000:84:00.0", "allocated", 0)
			stale.Instance, stale.Verdict, stale.Reason = "u1", "stale", "the instance is gone"
			f.Hosts[0].Stock = &Stock{Rows: []Row{stale, row("0000:88:00.0", "available", 1)}, Pools: []fit.Pool{pool(1)}}
		}, Rows, "gpustack repair-migration --instance u1"},
		"too few stale rows": {func(t *testing.T, f *Facts) {
			stale := row("0000:84:00.0", "allocated", 0)
			stale.Instance, stale.Verdict = "u1", "stale"
			f.Hosts[0].Stock = &Stock{Rows: []Row{stale, row("0000:88:00.0", "allocated", 1)}, Pools: []fit.Pool{}}
		}, Rows, "has no free K4200"},
		"suspicious row": {func(_ *testing.T, f *Facts) {
			odd := row("0000:84:00.0", "allocated", 0)
			odd.Instance, odd.Verdict, odd.Reason = "u1", "suspicious", "the guest may run"
			f.Hosts[0].Stock = &Stock{Rows: []Row{odd, row("0000:88:00.0", "available", 1)}, Pools: []fit.Pool{pool(1)}}
		}, Rows, "has suspicious rows of K4200"},
		"stale rows of two instances": {func(_ *testing.T, f *Facts) {
			one, two := row("0000:84:00.0", "allocated", 0), row("0000:88:00.0", "allocated", 0)
			one.Instance, one.Verdict, two.Instance, two.Verdict = "u1", "stale", "u2", "unknown"
			f.Hosts[0].Stock = &Stock{Rows: []Row{one, two}, Pools: []fit.Pool{}}
		}, Rows, "gpustack repair-migration --host gpu1"},
		"free rows that are not reported": {func(_ *testing.T, f *Facts) { f.Hosts[0].Stock.Pools = []fit.Pool{} }, Rows, "restart nova-compute on gpu1"},
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
		"aggregate without the extra spec": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, "Compute", "AggregateInstanceExtraSpecsFilter,Compute", 1), computing)
			specs(f, "aggregate_instance_extra_specs:gpu", "true")
			f.Aggregates = []cloud.Aggregate{{Name: "plain", Hosts: []string{"gpu1"}, Metadata: map[string]string{"gpu": "false"}}}
		}, Filters, "the aggregates of the host have false"},
		"extra spec without a namespace": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, "Compute", "AggregateInstanceExtraSpecsFilter,Compute", 1), computing)
			specs(f, "hide_hypervisor_id", "true")
		}, Filters, "openstack flavor unset --property hide_hypervisor_id gpu.k4200.2"},
		"aggregate of other projects": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, "Compute", "AggregateMultiTenancyIsolation,Compute", 1), computing)
			f.Project = "mine"
			f.Aggregates = []cloud.Aggregate{{Name: "theirs", Hosts: []string{"gpu1"}, Metadata: map[string]string{"filter_tenant_id": "theirs"}}}
		}, Filters, "is reserved for other projects"},
		"image of another architecture": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, "Compute", "ImagePropertiesFilter,Compute", 1), computing)
			f.Image = &cloud.Image{Name: "arm", Properties: map[string]string{"hw_architecture": "aarch64"}}
		}, Filters, "the image requires aarch64"},
		"server group": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, "Compute", "ServerGroupAntiAffinityFilter,Compute", 1), computing)
			f.Group = &ServerGroup{Name: "apart", Policy: "anti-affinity", Members: map[string]int{"gpu1": 1}}
		}, Filters, "the host has 1 of server group apart"},
		"server group without its filter": {func(_ *testing.T, f *Facts) {
			f.Group = &ServerGroup{Name: "apart", Policy: "anti-affinity"}
		}, Filters, "ServerGroupAntiAffinityFilter is not enabled"},
		"unknown NUMA policy": {func(_ *testing.T, f *Facts) { specs(f, "hw:pci_numa_affinity_policy", "strict") }, Flavor, "InvalidPCINUMAAffinity"},
		"NUMA policies that differ": {func(_ *testing.T, f *Facts) {
			specs(f, "hw:pci_numa_affinity_policy", "required")
			f.Image = &cloud.Image{Name: "numa", Properties: map[string]string{"hw_pci_numa_affinity_policy": "preferred"}}
		}, Flavor, "ImagePCINUMAPolicyForbidden"},
		"resources:PCPU of another number":               {func(_ *testing.T, f *Facts) { specs(f, "resources:PCPU", "2") }, Flavor, "resources:PCPU is 2, and the flavor needs 4"},
		"encrypted memory":                               {func(_ *testing.T, f *Facts) { specs(f, "hw:mem_encryption", "true") }, Flavor, "hw_firmware_type=uefi"},
		"more guest cells than host cells":               {func(_ *testing.T, f *Facts) { specs(f, "hw:numa_nodes", "4") }, NUMA, "the guest has 4 NUMA nodes, and the host 2"},
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
			specs(f, "hw:cpu_policy", "dedicated", "hw:cpu_thread_policy", "require")
			f.Placement.Steps = append(f.Placement.Steps, trait("HW_CPU_HYPERTHREADING"))
		}, Placing, "\nuse another host\n"},
		"trait of the image": {func(_ *testing.T, f *Facts) {
			f.Image = &cloud.Image{Name: "special", Properties: map[string]string{"trait:CUSTOM_I": "required"}}
			f.Placement.Steps = append(f.Placement.Steps, trait("CUSTOM_I"))
		}, Placing, "use another image than special, or another host"},
		"tenant aggregate of another zone": {func(t *testing.T, f *Facts) {
			own(t, f, controller+"[scheduler]\nlimit_tenants_to_placement_aggregate = true\n", computing)
			f.Project = "mine"
			f.Hosts[0].Service.Zone = "az1"
			f.Aggregates = []cloud.Aggregate{{Name: "ours", Metadata: map[string]string{"filter_tenant_id": "mine", "availability_zone": "az2"}},
				{Name: "first", Hosts: []string{"gpu1"}, Metadata: map[string]string{"availability_zone": "az1"}}}
		}, Filters, "\nuse a host of these aggregates"},
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
		}, DeviceSpec, "remove capability_type from alias K4200"},
		"pools that are not live-migratable": {func(t *testing.T, f *Facts) {
			f.Release = nova.Epoxy
			own(t, f, strings.Replace(controller, `"type-PCI"`, `"type-PCI", "live_migratable": "yes"`, 1), computing)
			f.Hosts[0].Service.Up = false
		}, DeviceSpec, "alias K4200 requires devices with live_migratable=true"},
		"rows of devices that are not live-migratable": {func(t *testing.T, f *Facts) {
			f.Release, f.Hosts[0].Devices = nova.Epoxy, nil
			own(t, f, strings.Replace(controller, `"type-PCI"`, `"type-PCI", "live_migratable": "yes"`, 1), computing)
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
		"near physical functions count, and are dropped": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, `, "device_type": "type-PCI"`, "", 1), strings.Replace(computing, `, "device_type": "type-PCI"`, "", 1))
			specs(f, "hw:numa_nodes", "1", nova.RequestKey, "K4200:1", "hw:pci_numa_affinity_policy", "preferred")
			far, near := pool(1), pool(0)
			near.Type = "type-PF"
			f.Hosts[0].Stock.Pools = []fit.Pool{near, far}
			f.Hosts[0].Stock.Node.Topology.Cells[1].Memory = 1
		}, NUMA, "near which 0 of 1 K4200 are free"},
		"tenant aggregates": {func(t *testing.T, f *Facts) {
			own(t, f, controller+"[scheduler]\nlimit_tenants_to_placement_aggregate = true\n", computing)
			f.Project = "mine"
			f.Aggregates = []cloud.Aggregate{{Name: "ours", Metadata: map[string]string{"filter_tenant_id": "mine"}}}
		}, Filters, "openstack aggregate add host ours gpu1"},
		"suffixed tenant keys before 2024.2": {func(t *testing.T, f *Facts) {
			own(t, f, strings.Replace(controller, "Compute", "AggregateMultiTenancyIsolation,Compute", 1), computing)
			f.Project = "mine"
			f.Aggregates = []cloud.Aggregate{{Name: "theirs", Hosts: []string{"gpu1"}, Metadata: map[string]string{"filter_tenant_id2": "theirs"}}}
		}, "", ""},
		"isolated aggregate, and an image with the trait": {func(t *testing.T, f *Facts) {
			own(t, f, controller+"[scheduler]\nenable_isolated_aggregate_filtering = true\n", computing)
			f.Aggregates = []cloud.Aggregate{{Name: "licensed", Hosts: []string{"gpu1"}, Metadata: map[string]string{"trait:CUSTOM_L": "required"}}}
			f.Image = &cloud.Image{Name: "licensed", Properties: map[string]string{"trait:CUSTOM_L": "required"}}
		}, "", ""},
		"isolated aggregate": {func(t *testing.T, f *Facts) {
			own(t, f, controller+"[scheduler]\nenable_isolated_aggregate_filtering = true\n", computing)
			f.Aggregates = []cloud.Aggregate{{Name: "licensed", Hosts: []string{"gpu1"}, Metadata: map[string]string{"trait:CUSTOM_L": "required"}}}
		}, Filters, "openstack flavor set --property trait:CUSTOM_L=required gpu.k4200.2"},
		"another availability zone": {func(_ *testing.T, f *Facts) {
			f.Zone = "az2"
			f.Aggregates = []cloud.Aggregate{{Name: "second", Metadata: map[string]string{"availability_zone": "az2"}}}
		}, Zone, "openstack aggregate add host second gpu1"},
		"default availability zone": {func(t *testing.T, f *Facts) {
			own(t, f, "[DEFAULT]\ndefault_schedule_zone = az3\n"+controller, computing)
		}, Zone, "az3 is requested (default_schedule_zone, ctl.conf)"},
		"devices on two NUMA nodes": {func(_ *testing.T, f *Facts) { specs(f, "hw:numa_nodes", "1") }, NUMA,
			"near which 1 of 2 K4200 are free; the host has 1 on node 0, 1 on node 1"},
		"dedicated CPUs, devices on two NUMA nodes": {func(_ *testing.T, f *Facts) { specs(f, "hw:cpu_policy", "dedicated") }, NUMA, "one NUMA node"},
		"two NUMA nodes for the guest":              {func(_ *testing.T, f *Facts) { specs(f, "hw:numa_nodes", "2") }, "", ""},
		"preferred NUMA policy": {func(_ *testing.T, f *Facts) {
			specs(f, "hw:numa_nodes", "1", "hw:pci_numa_affinity_policy", "preferred")
		}, "", ""},
		"required, and no device has a NUMA node": {func(_ *testing.T, f *Facts) {
			specs(f, "hw:numa_nodes", "1", "hw:pci_numa_affinity_policy", "required")
			f.Hosts[0].Stock.Pools = []fit.Pool{{Vendor: "10de", Product: "11b4", Type: "type-PCI", Count: 2}}
		}, NUMA, "2 on no node"},
		"legacy, and no device has a NUMA node": {func(_ *testing.T, f *Facts) {
			specs(f, "hw:numa_nodes", "1")
			f.Hosts[0].Stock.Pools = []fit.Pool{{Vendor: "10de", Product: "11b4", Type: "type-PCI", Count: 2}}
		}, "", ""},
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
			if text := strings.Join([]string{first.Seen, first.Reason, first.From, first.Remedy.String(), ""}, "\n"); !strings.Contains(text, c.says) || first.Remedy == "" {
				t.Errorf("%s\nwithout %q", text, c.says)
			}
		})
	}
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
		"part of the request": {func(f *Facts) { f.Placement.Skipped = []string{"resources1:VGPU"} }, Unknown, Placing, "not judged: resources1:VGPU"},
		"unknown alias": {func(f *Facts) { f.Sides = nil; specs(f, nova.RequestKey, "fast:1") }, Unknown, Alias,
			"no file defines alias fast"},
		"zone unknown": {func(f *Facts) { f.Zone, f.Hosts[0].Service.Zone = "az1", "" }, Unknown, Zone, "the availability zone of the host is unknown"},
		"NUMA nodes of the host": {func(f *Facts) { f.Hosts[0].Stock.Node = nil; specs(f, "hw:numa_nodes", "2") }, Unknown, NUMA,
			"the free CPUs and memory of the NUMA nodes of the host are unknown"},
		"socket, without a database": {func(f *Facts) {
			f.Databases, f.Hosts[0].Stock, f.Placement.Devices = false, nil, devices(2, 2, nil)
			specs(f, "hw:numa_nodes", "1", "hw:pci_numa_affinity_policy", "socket")
		}, Unknown, NUMA, "the free CPUs and memory"},
		"preferred, without a database": {func(f *Facts) {
			f.Databases, f.Hosts[0].Stock, f.Placement.Devices = false, nil, devices(2, 2, nil)
			specs(f, "hw:numa_nodes", "1", "hw:pci_numa_affinity_policy", "preferred")
		}, Unknown, NUMA, "the free CPUs and memory"},
		"capabilities, without a database": {func(f *Facts) {
			f.Databases, f.Hosts[0].Stock, f.Placement.Devices = false, nil, devices(2, 2, nil)
			f.Sides[0].Files[0].File = mustParse(strings.Replace(controller, "Compute", "ComputeCapabilitiesFilter,Compute", 1))
			specs(f, "capabilities:cpu_info:model", "EPYC")
		}, Unknown, Filters, "capabilities:cpu_info:model is not judged"},
		"image, without a database": {func(f *Facts) {
			f.Databases, f.Hosts[0].Stock, f.Placement.Devices = false, nil, devices(2, 2, nil)
			f.Sides[0].Files[0].File = mustParse(strings.Replace(controller, "Compute", "ImagePropertiesFilter,Compute", 1))
			f.Image = &cloud.Image{Name: "arm", Properties: map[string]string{"hw_architecture": "aarch64"}}
		}, Unknown, Filters, "what the hypervisor supports is unknown"},
		"isolated host, without an image": {func(f *Facts) {
			f.Sides[0].Files[0].File = mustParse(strings.Replace(controller, "Compute", "IsolatedHostsFilter,Compute", 1) + "isolated_hosts = gpu1\nisolated_images = i1\n")
		}, Unknown, Filters, "the image of the guest is unknown"},
		"filter that is not judged": {func(f *Facts) {
			file, err := conf.Parse([]byte(strings.Replace(controller, "Compute", "JsonFilter,Compute", 1)))
			if err != nil {
				panic(err)
			}
			f.Sides[0].Files[0].File = file
		}, Can, Filters, "JsonFilter (ctl.conf:4) is not judged"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			c.change(&f)
			r := Judge(f)
			if r.Verdict != c.verdict {
				t.Errorf("%s, want %s: %s", r.Verdict, c.verdict, r.Conclusion)
			}
			if !slices.ContainsFunc(r.NotChecked, func(o Omission) bool {
				return o.Link == c.link && strings.Contains(o.Reason+"\n"+o.Remedy.String(), c.says) && o.Remedy != "" && o.Count == 1
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
	full := &Stock{Rows: []Row{row("0000:84:00.0", "allocated", 0), row("0000:88:00.0", "allocated", 0)}, Pools: []fit.Pool{}}
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
	if r := Judge(f); r.Conclusion != "0 of 7 hosts can build gpu.k4200.2: an administrator has disabled the flavor" {
		t.Error(r.Conclusion)
	}
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
		if got := Names(names, 2); got != want {
			t.Errorf("%q: %s, want %s", names, got, want)
		}
	}
}

// TestAsks: what is asked for is what nova-scheduler asks for.
func TestAsks(t *testing.T) {
	f := cloud.Flavor{VCPUs: 4, RAM: 8192, Disk: 20, Ephemeral: 5, Swap: 1025, ExtraSpecs: map[string]string{
		"resources:VGPU": "1", "resources:MEMORY_MB": "0", "trait:CUSTOM_A": "required", "trait:CUSTOM_B": "forbidden", "resources1:X": "1"}}
	text := func(f cloud.Flavor, isVolume, isFallback bool) string {
		list, skipped := Facts{Release: nova.Zed, Flavor: f, Volume: isVolume, Image: &cloud.Image{Properties: map[string]string{"trait:HW_I": "required"}}}.asks(isFallback)
		var words []string
		for _, a := range list {
			words = append(words, a.String())
		}
		return strings.Join(append(words, skipped...), " ")
	}
	if got, want := text(f, false, false), "VCPU:4 DISK_GB:27 VGPU:1 trait CUSTOM_A trait !CUSTOM_B trait HW_I resources1:X"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.ExtraSpecs = map[string]string{"hw:cpu_policy": "dedicated"}
	if got, want := text(f, true, false), "PCPU:4 MEMORY_MB:8192 DISK_GB:7 trait HW_I"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := text(f, true, true), "VCPU:4 MEMORY_MB:8192 DISK_GB:7 trait HW_I"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	f.ExtraSpecs["hw:emulator_threads_policy"], f.ExtraSpecs["hw:cpu_thread_policy"] = "isolate", "isolate"
	if got, want := text(f, true, false), "PCPU:5 MEMORY_MB:8192 DISK_GB:7 trait HW_I trait !HW_CPU_HYPERTHREADING"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
