package novacheck_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/document"
	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/novacheck"
)

// TestSameMeaning: aliases of a controller and a compute node that select the same devices are the
// same, however they are written. TestAliasMeaning of integration asks Nova which devices an alias
// selects.
func TestSameMeaning(t *testing.T) {
	const k4200, a100 = "11b4", "20b0" // by the table of products, the first is type-PCI
	for _, test := range []struct {
		name, product string
		ctl, node     string // keys beyond name and ids
		types         string // device types of the inventory, none for no inventory
		release       nova.Release
		isSame        bool
	}{
		{"equal", k4200, "", "", "", nova.Zed, true},
		{"type-PCI by the table of products", k4200, "", `, "device_type": "type-PCI"`, "", nova.Mitaka, true},
		{"type-PCI by the table of products, the other way round", k4200, `, "device_type": "type-PCI"`, "", "", nova.Newest, true},
		{"type-PF", k4200, "", `, "device_type": "type-PF"`, "", nova.Zed, false},
		{"type-VF", k4200, "", `, "device_type": "type-VF"`, "", nova.Zed, false},
		{"type-PCI of a product that may have VFs", a100, "", `, "device_type": "type-PCI"`, "", nova.Zed, false},
		{"type-PCI by the inventory", a100, "", `, "device_type": "type-PCI"`, "type-PCI", nova.Zed, true},
		{"type-PF by the inventory", a100, "", `, "device_type": "type-PF"`, "type-PF", nova.Zed, false},
		{"type-PCI and VFs", a100, "", `, "device_type": "type-PCI"`, "type-PCI type-VF", nova.Zed, false},
		{"ids in capitals", "20B0", `, "vendor_id": "10DE"`, "", "", nova.Zed, true},
		{"capability_type", k4200, `, "capability_type": "pci"`, "", "", nova.Zed, false},
		{"the default numa_policy", k4200, `, "numa_policy": "legacy"`, "", "", nova.Zed, true},
		{"another numa_policy", k4200, `, "numa_policy": "required"`, "", "", nova.Zed, false},
		{"the derived resource class", k4200, `, "resource_class": "CUSTOM_PCI_10DE_11B4"`, "", "", nova.Epoxy, true},
		{"a resource class in another form", k4200, `, "resource_class": "gpu"`, `, "resource_class": "CUSTOM_GPU"`, "", nova.Epoxy, true},
		{"another resource class", k4200, `, "resource_class": "gpu"`, "", "", nova.Epoxy, false},
		{"traits in another order", k4200, `, "traits": "a,b"`, `, "traits": "CUSTOM_B,CUSTOM_A"`, "", nova.Epoxy, true},
		{"other traits", k4200, `, "traits": "a,b"`, `, "traits": "a"`, "", nova.Epoxy, false},
		{"live_migratable", k4200, `, "live_migratable": "no"`, "", "", nova.Epoxy, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			side := func(role nova.Role, name, keys, rest string) nova.Side {
				text := fmt.Sprintf(`{"name": "K", "product_id": %q%s}`, test.product, keys)
				if !strings.Contains(keys, "vendor_id") {
					text = strings.Replace(text, "{", `{"vendor_id": "10de", `, 1)
				}
				section := ""
				if name := test.release.AliasNames()[0]; name.Section == "DEFAULT" {
					section = "[DEFAULT]\npci_alias = "
				} else {
					section = "[pci]\nalias = "
				}
				f, err := conf.Parse([]byte(section + text + "\n" + rest))
				hosttest.NoError(t, err)
				return nova.Side{Role: role, Files: []conf.Source{{Name: name, File: f}}}
			}
			var hosts []nova.Host
			if test.types != "" {
				var functions []string
				for i := range strings.Fields(test.types) {
					functions = append(functions, fmt.Sprintf("8%d/-/-/%s", i, test.product))
				}
				text := inventory("gpu1", functions...)
				for _, kind := range strings.Fields(test.types) {
					text = strings.Replace(text, `"device_type": "type-PCI"`, `"device_type":"`+kind+`"`, 1)
				}
				var err error
				hosts, err = nova.ReadInventories(document.Source{Paths: []string{document.Stdin}, Stdin: strings.NewReader(text)}, nova.ScopeGPUs)
				hosttest.NoError(t, err)
			}
			spec := fmt.Sprintf("%s = {\"vendor_id\": \"10de\", \"product_id\": %q}\n", test.release.SpecNames()[0].Key, strings.ToLower(test.product))
			var got []string
			for _, f := range novacheck.Run(test.release, []nova.Side{side(nova.Controller, "ctl", test.ctl, ""), side(nova.Compute, "node", test.node, spec)}, hosts, nil) {
				if strings.Contains(f.Seen, "differs") {
					got = append(got, f.Seen)
				}
			}
			want := "alias K differs from the one in ctl"
			if test.types == "type-PF" { // the controller's lacks it
				want = "alias K differs from the one in node"
			}
			if test.isSame || test.release < nova.Newton { // nova-compute of Mitaka reads no alias
				want = ""
			}
			hosttest.Equal(t, want, strings.Join(got, "; "))
		})
	}
}

// TestLackingType: where the controller's alias lacks the device_type that a compute node's has,
// the remedy is to add it on every machine that lacks it, unless no inventory has a device of that
// type.
func TestLackingType(t *testing.T) {
	const (
		controller = "fail ctl:2 alias A differs from the one in node: run gpustack nova configure --role controller --alias A=10de:20b0,device_type=type-PF there"
		node       = "fail node:2 alias A differs from the one in ctl: run gpustack nova configure --role compute --alias A=10de:20b0 there"
	)
	for _, test := range []struct {
		name, ctl, node, node2 string // keys of the alias; no node2: there is none
		types                  string // the device type of the inventory, "" for no inventory
		want                   string
	}{
		{"on the controller", "", `, "device_type": "type-PF"`, "-", "", controller},
		{"on the controller, by an inventory", "", `, "device_type": "type-PF"`, "-", "type-PF", controller},
		{"on the node", `, "device_type": "type-PF"`, "", "-", "",
			"fail node:2 alias A differs from the one in ctl: run gpustack nova configure --role compute --alias A=10de:20b0,device_type=type-PF there"},
		{"of devices that no inventory has", "", `, "device_type": "type-PF"`, "-", "type-PCI", node},
		{"on the controller and another node", "", `, "device_type": "type-PF"`, "", "", controller +
			"; fail node2:2 alias A differs from the one in node: run gpustack nova configure --role compute --alias A=10de:20b0,device_type=type-PF there"},
		{"and another numa_policy", "", `, "device_type": "type-PF", "numa_policy": "required"`, "-", "", node},
	} {
		var sides []nova.Side
		for _, s := range []struct{ name, keys string }{{"ctl", test.ctl}, {"node", test.node}, {"node2", test.node2}} {
			if s.keys == "-" {
				continue
			}
			role, rest := nova.Compute, "device_spec = {\"vendor_id\": \"10de\", \"product_id\": \"20b0\"}\n"
			if s.name == "ctl" {
				role, rest = nova.Controller, "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
			}
			text := "[pci]\nalias = {\"name\": \"A\", \"vendor_id\": \"10de\", \"product_id\": \"20b0\"" + s.keys + "}\n" + rest
			sides = append(sides, nova.Side{Role: role, Files: []conf.Source{source(t, s.name, text)}})
		}
		var hosts []nova.Host
		if test.types != "" {
			text := strings.Replace(inventory("gpu1", "84/guest/vfio-pci/20b0"), `"device_type": "type-PCI"`, `"device_type":"`+test.types+`"`, 1)
			var err error
			hosts, err = nova.ReadInventories(document.Source{Paths: []string{document.Stdin}, Stdin: strings.NewReader(text)}, nova.ScopeGPUs)
			hosttest.NoError(t, err)
		}
		var got []string
		for _, f := range novacheck.Run(nova.Epoxy, sides, hosts, nil) {
			if strings.Contains(f.Seen, "differs") {
				got = append(got, fmt.Sprintf("%s %s:%d %s: %s", f.Status, f.File, f.Line, f.Seen, f.Remedy))
			}
		}
		hosttest.EqualIn(t, test.name, test.want, strings.Join(got, "; "))
	}
}

// TestOtherNodes: aliases of devices of compute nodes that were not given are a warning, and one of
// devices that a given compute node has and does not offer is a failure.
func TestOtherNodes(t *testing.T) {
	const t4 = "alias = {\"name\": \"T4\", \"vendor_id\": \"10de\", \"product_id\": \"1eb8\", \"device_type\": \"type-PCI\"}\n"
	const noSpec = "warn no device_spec of a compute node that was given matches alias T4"
	for _, test := range []struct {
		name, inventories string
		want              string
	}{
		{"no inventory", "", noSpec},
		{"an inventory of the given node", inventory("gpu1", "84/guest/vfio-pci"), noSpec},
		{"the given node has one", inventory("gpu1", "84/guest/vfio-pci", "88/guest/vfio-pci/1eb8"),
			"fail no device_spec offers a device of alias T4, and host gpu1 has such a device"},
		{"the given node has one that remains", inventory("gpu1", "84/guest/vfio-pci", "88/host/nouveau/1eb8"), noSpec},
		{"the given node has one for containers", inventory("gpu1", "84/guest/vfio-pci", "88/container/nvidia/1eb8"), noSpec},
	} {
		ctl := source(t, "ctl", "[pci]\nalias = "+k4200+"\n"+t4+"[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n")
		sides := []nova.Side{{Role: nova.Controller, Files: []conf.Source{ctl}}, {Role: nova.Compute, Files: []conf.Source{source(t, "node", goodNode)}}}
		var hosts []nova.Host
		if test.inventories != "" {
			var err error
			hosts, err = nova.ReadInventories(document.Source{Paths: []string{document.Stdin}, Stdin: strings.NewReader(test.inventories)}, nova.ScopeGPUs)
			hosttest.NoError(t, err)
		}
		var got []string
		for _, f := range novacheck.Run(nova.Zed, sides, hosts, nil) {
			got = append(got, string(f.Status)+" "+f.Seen)
		}
		hosttest.EqualIn(t, test.name, test.want, strings.Join(got, "; "))
	}
}
