package novacheck_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/novacheck"
)

// k4200s is a machine with two K4200.
const k4200s = "-- sys/bus/pci/devices/0000:84:00.0/vendor --\n0x10de\n-- sys/bus/pci/devices/0000:84:00.0/device --\n0x11b4\n" +
	"-- sys/bus/pci/devices/0000:88:00.0/vendor --\n0x10de\n-- sys/bus/pci/devices/0000:88:00.0/device --\n0x11b4\n"

// TestConfigured: what nova configure writes has no finding, in every release, for every role, with
// and without Placement, and the file tells its role.
func TestConfigured(t *testing.T) {
	alias, err := nova.ParseAlias("K4200=10de:11b4")
	hosttest.NoError(t, err)
	for r := nova.Mitaka; r <= nova.Newest; r++ {
		for _, role := range []nova.Role{nova.Controller, nova.Compute, nova.All} {
			for _, placement := range []bool{false, true} {
				if placement && r < nova.Zed {
					continue
				}
				t.Run(fmt.Sprintf("%s, %s, Placement %t", r, role, placement), func(t *testing.T) {
					root := hosttest.Lay(t, k4200s+"-- etc/nova/nova.conf --\n[DEFAULT]\n")
					o := nova.Options{Role: role, Release: r, Aliases: []nova.Alias{alias}, Placement: placement}
					want, err := nova.NewWant(o)
					hosttest.NoError(t, err)
					plan, err := nova.NewPlan(root, o, want, nova.Place{File: nova.DefaultConf})
					hosttest.NoError(t, err)
					for _, c := range plan.Files.Pending() {
						hosttest.NoError(t, os.WriteFile(root.Path(c.Name), c.After.Content, 0o600))
					}
					sides, warnings, err := nova.ObserveSides(root, "", "", nova.Recorded{})
					if err != nil || len(warnings) > 0 || len(sides) != 1 || sides[0].Role != role {
						t.Fatalf("%+v, %q, %v", sides, warnings, err)
					}
					if findings := novacheck.Run(r, sides, nil, nil); len(findings) > 0 {
						t.Errorf("%+v\n%s", findings, plan.Files.Pending()[0].After.Content)
					}
					counts := novacheck.Count(r, sides, nil)
					if devices := counts.Devices; counts.Files != 1 || (counts.Aliases == 1) != role.ReadsAliases(r) ||
						role.Computes() && len(devices) != 2 || !role.Computes() && devices != nil {
						t.Errorf("%+v", counts)
					}
				})
			}
		}
	}
}

// source parses text as a file.
func source(t *testing.T, name, text string) conf.Source {
	t.Helper()
	f, err := conf.Parse([]byte(text))
	hosttest.NoError(t, err)
	return conf.Source{Name: name, File: f}
}

// found returns findings as text.
func found(findings []host.Finding) string {
	var got []string
	for _, f := range findings {
		got = append(got, fmt.Sprintf("%s %s %s:%d %s", f.Status, f.Check, f.File, f.Line, f.Seen))
	}
	return strings.Join(got, "; ")
}

// TestPrograms: on a machine with all services, each is judged by the files that it reads.
func TestPrograms(t *testing.T) {
	const alias = "[pci]\nalias = " + k4200 + "\n"
	const spec = "[pci]\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n"
	const filters = "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
	for _, test := range []struct {
		name  string
		files []string // pairs of name and text
		want  string
	}{
		{"all in one", []string{"/etc/nova/nova.conf", alias + spec + filters}, ""},
		{"each where it is read", []string{"/etc/nova/nova.conf", alias, "/etc/nova/nova-compute.conf", spec, "/etc/nova/nova-scheduler.conf", filters}, ""},
		{"an alias that nova-api does not read", []string{"/etc/nova/nova.conf", spec + filters, "/etc/nova/nova-compute.conf", alias},
			"fail alias /etc/nova/nova.conf:0 alias K4200 is missing in the files that nova-api reads: it is in /etc/nova/nova-compute.conf"},
		{"an alias that nova-compute does not read", []string{"/etc/nova/nova.conf", spec + filters, "/etc/nova/nova-api.conf", alias},
			"fail alias /etc/nova/nova.conf:0 alias K4200 is missing in the files that nova-compute reads: it is in /etc/nova/nova-api.conf"},
		{"filters that nova-scheduler does not read", []string{"/etc/nova/nova.conf", alias + spec, "/etc/nova/nova-api.conf", filters},
			"fail filters /etc/nova/nova.conf:0 PciPassthroughFilter is not enabled"},
		{"filters of nova-scheduler that override others", []string{"/etc/nova/nova.conf", alias + spec + filters, "/etc/nova/nova-scheduler.conf", "[filter_scheduler]\nenabled_filters = ComputeFilter,SameHostFilter\n"},
			"fail filters /etc/nova/nova-scheduler.conf:2 PciPassthroughFilter is not enabled"},
		{"a spec that nova-compute does not read", []string{"/etc/nova/nova.conf", alias + filters, "/etc/nova/nova-api.conf.d/a.conf", spec},
			"warn alias /etc/nova/nova.conf:2 no device_spec of a compute node that was given matches alias K4200"},
		{"a finding of a file that both read", []string{"/etc/nova/nova.conf", alias + "[DEFAULT]\nscheduler_default_filters = A\n" + spec + filters, "/etc/nova/nova-compute.conf", "[DEFAULT]\n"},
			"fail option /etc/nova/nova.conf:4 [DEFAULT] scheduler_default_filters is not an option of zed"},
	} {
		side := nova.Side{Role: nova.All}
		for i := 0; i < len(test.files); i += 2 {
			side.Files = append(side.Files, source(t, test.files[i], test.files[i+1]))
		}
		hosttest.EqualIn(t, test.name, test.want, found(novacheck.Run(nova.Zed, []nova.Side{side}, nil, nil)))
	}
}

// TestSpecsAndHardware: specs by vendor and with wildcards are no finding; products that the
// machine does not have, and types that differ among hosts, are.
func TestSpecsAndHardware(t *testing.T) {
	devices := func(tree string) []pci.Device {
		return hosttest.Devices(t, hosttest.Lay(t, tree))
	}
	machine := nova.ComputeNode{Devices: devices(k4200s)}
	const pf = "-- sys/bus/pci/devices/0000:84:00.0/sriov_totalvfs --\n4\n"
	vf := "symlink sys/bus/pci/devices/0000:88:00.0/physfn -> ../0000:84:00.0\nsymlink sys/bus/pci/devices/0000:88:00.0/driver -> ../../drivers/mlx5_core\nmkdir sys/bus/pci/drivers/mlx5_core\n" + k4200s + pf
	kept := hosttest.Address(t, "0000:84:00.0")
	other := hosttest.Address(t, "0000:88:00.0")
	for _, test := range []struct {
		name, specs string
		machine     nova.ComputeNode
		hosts       []nova.Host
		want        string
		devices     int
	}{
		{"by vendor", `{"vendor_id": "10de"}`, machine, nil, "", 2},
		{"any product", `{"vendor_id": "10de", "product_id": "*"}`, machine, []nova.Host{{Name: "gpu2", Devices: machine.Devices}}, "", 2},
		{"any vendor", `{"vendor_id": "*", "product_id": "*"}`, nova.ComputeNode{}, []nova.Host{{Name: "gpu2", Devices: machine.Devices}}, "", 2},
		{"another product too", `[{"vendor_id": "10de", "product_id": "11b4"}, {"vendor_id": "0x10DE", "product_id": "1eb8"}]`, machine, nil,
			"warn device_spec node:2 a device_spec selects product 10de:1eb8, which this machine does not have", 2},
		{"another product than the inventory's", `[{"vendor_id": "10de"}, {"vendor_id": "10de", "product_id": "1eb8"}]`,
			nova.ComputeNode{}, []nova.Host{{Name: "node", Devices: machine.Devices}},
			`warn device_spec node:2 spec 2 {"product_id": "1eb8", "vendor_id": "10de"} is shadowed by spec 1 {"vendor_id": "10de"} (node:2); ` +
				"warn device_spec node:2 a device_spec selects product 10de:1eb8, which host node does not have", 2},
		{"a device of the host, by vendor", `{"vendor_id": "10de"}`,
			nova.ComputeNode{Devices: machine.Devices, Recorded: nova.Recorded{Given: []pci.Address{kept}}}, nil,
			"fail device_spec node:2 a device_spec also matches 0000:88:00.0, which should remain with this machine", 2},
		{"a device of containers here", `{"vendor_id": "10de"}`,
			nova.ComputeNode{Devices: machine.Devices, Recorded: nova.Recorded{Containers: []pci.Address{kept}}}, nil,
			"fail device_spec node:2 a device_spec matches 0000:84:00.0, which containers of this machine have", 2},
		{"a device of containers beside a twin of guests", `{"vendor_id": "10de"}`,
			nova.ComputeNode{Devices: machine.Devices, Recorded: nova.Recorded{Given: []pci.Address{other}, Containers: []pci.Address{kept}}}, nil,
			"fail device_spec node:2 a device_spec matches 0000:84:00.0, which containers of this machine have", 2},
		{"a device of containers on a host, by its address", `{"address": "0000:84:00.0"}`, nova.ComputeNode{},
			[]nova.Host{{Name: "gpu1", Devices: machine.Devices, Containers: []pci.Address{kept}}},
			"fail device_spec node:2 a device_spec matches 0000:84:00.0, which containers of host gpu1 have", 1},
		{"another device than that of containers", `{"address": "0000:88:00.0"}`,
			nova.ComputeNode{Devices: machine.Devices, Recorded: nova.Recorded{Containers: []pci.Address{kept}}}, nil, "", 1},
		{"another type here", `{"vendor_id": "10de"}`, nova.ComputeNode{Devices: devices(k4200s + pf)[:1]}, nil,
			"fail alias node:3 the devices of alias K4200 have device_type type-PF", 1},
		{"a PF and its VF of one product, of which the VF is offered", `{"address": "0000:88:00.0"}`,
			nova.ComputeNode{Devices: devices("symlink sys/bus/pci/devices/0000:88:00.0/physfn -> ../0000:84:00.0\n" + k4200s + pf)}, nil, "", 1},
		{"a VF that the host needs", `{"address": "0000:88:00.0"}`, nova.ComputeNode{Devices: devices(vf), Recorded: nova.Recorded{Needed: []pci.Address{other}}}, nil,
			"fail device_spec node:2 a device_spec offers 0000:88:00.0 (mlx5_core), and a driver of the host has it", 1},
		{"a VF that it does not need", `{"address": "0000:88:00.0"}`, nova.ComputeNode{Devices: devices(vf)}, nil, "", 1},
		{"a VF that it may need, for ports", `{"address": "0000:88:00.0", "physical_network": "x"}`,
			nova.ComputeNode{Devices: devices(vf), Recorded: nova.Recorded{Needed: []pci.Address{other}}}, nil, "", 1},
		{"the same PF, offered", `{"vendor_id": "10de"}`,
			nova.ComputeNode{Devices: devices("symlink sys/bus/pci/devices/0000:88:00.0/physfn -> ../0000:84:00.0\n" + k4200s + pf)[:1]}, nil,
			"fail alias node:3 the devices of alias K4200 have device_type type-PF", 1},
		{"another type on one host", `{"vendor_id": "10de"}`,
			nova.ComputeNode{}, []nova.Host{{Name: "gpu1", Devices: devices(k4200s + pf)[:1]}, {Name: "gpu2", Devices: machine.Devices}},
			"fail alias node:3 alias K4200 selects every type but type-PF, but host gpu1 has type-PF", 3},
		{"an alias for each type", `{"vendor_id": "10de"}` + "\nalias = " + strings.Replace(k4200, `"K4200", `, `"K4200-PF", "device_type": "type-PF", `, 1),
			nova.ComputeNode{},
			[]nova.Host{{Name: "gpu1", Devices: devices(k4200s + pf)[:1]}, {Name: "gpu2", Devices: machine.Devices}}, "", 3},
		{"another type on every host", `{"vendor_id": "10de"}`, nova.ComputeNode{}, []nova.Host{{Name: "gpu1", Devices: devices(k4200s + pf)[:1]}},
			"fail alias node:3 the devices of alias K4200 have device_type type-PF", 1},
	} {
		side := nova.Side{Role: nova.Compute, Files: []conf.Source{source(t, "node",
			"[pci]\ndevice_spec = "+test.specs+"\nalias = "+k4200+"\n")}, ComputeNode: test.machine}
		hosttest.EqualIn(t, test.name, test.want, found(novacheck.Run(nova.Epoxy, []nova.Side{side}, test.hosts, nil)))
		if got := novacheck.Count(nova.Epoxy, []nova.Side{side}, test.hosts).Devices; got == nil || len(got) != test.devices {
			t.Errorf("%s: devices %v", test.name, got)
		}
	}
}

// TestRemedyOfContainers: nova configure replaces a device_spec of a product, and no address.
func TestRemedyOfContainers(t *testing.T) {
	devices := hosttest.Devices(t, hosttest.Lay(t, k4200s))
	for spec, want := range map[string]string{
		`{"vendor_id": "10de", "product_id": "11b4"}`: "run gpustack nova configure --role compute there",
		`{"address": "0000:84:00.0"}`:                 "remove the address from the device_spec",
	} {
		side := nova.Side{Role: nova.Compute, Files: []conf.Source{source(t, "node", "[pci]\ndevice_spec = "+spec+"\nalias = "+k4200+"\n")},
			ComputeNode: nova.ComputeNode{Devices: devices, Recorded: nova.Recorded{Containers: []pci.Address{devices[0].Address}}}}
		findings := novacheck.Run(nova.Epoxy, []nova.Side{side}, nil, nil)
		if len(findings) != 1 || findings[0].Remedy.String() != want+", or take it from containers: gpustack container prepare --remove 0000:84:00.0" {
			t.Errorf("%s: %+v", spec, findings)
		}
	}
}

// TestPlanned: what nova configure plans is judged with the hardware before it is shown, as nova
// check judges it afterwards.
func TestPlanned(t *testing.T) {
	const k4200 = "-- sys/bus/pci/devices/0000:84:00.0/vendor --\n0x10de\n-- sys/bus/pci/devices/0000:84:00.0/device --\n0x11b4\n-- sys/bus/pci/devices/0000:84:00.0/class --\n0x030000\n"
	const pf = "-- sys/bus/pci/devices/0000:84:00.0/sriov_totalvfs --\n4\n"
	for _, test := range []struct{ name, alias, tree, want string }{
		{"no hardware is known", "", "-- etc/nova/nova.conf --\n", ""},
		{"it fits", "", k4200 + "-- etc/nova/nova.conf --\n", ""},
		{"another product", "", strings.Replace(k4200, "11b4", "20b0", 1) + "-- etc/nova/nova.conf --\n",
			"a device_spec selects product 10de:11b4, which this machine does not have"},
		{"an existing spec", "", k4200 + "-- etc/nova/nova.conf --\n[pci]\ndevice_spec = [{\"vendor_id\": \"8086\", \"product_id\": \"154d\"}]\n",
			"a device_spec selects product 8086:154d, which this machine does not have"},
		{"an existing alias", "", k4200 + pf + "-- etc/nova/nova.conf --\n[pci]\nalias = {\"name\": \"old\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n",
			"the devices of alias old have device_type type-PF"},
		{"a physical function", "", k4200 + pf + "-- etc/nova/nova.conf --\n", ""},
		{"a physical function, and another type", ",device_type=type-PCI", k4200 + pf + "-- etc/nova/nova.conf --\n",
			"the devices of alias K4200 have device_type type-PF"},
		{"a driver of the host has it", "", k4200 + "-- etc/nova/nova.conf --\n",
			"a device_spec offers 0000:84:00.0 (nouveau), and a driver of the host has it"},
	} {
		root := hosttest.Lay(t, test.tree)
		alias, err := nova.ParseAlias("K4200=10de:11b4" + test.alias)
		hosttest.NoError(t, err)
		machine, err := nova.Observe(root, nova.Recorded{})
		hosttest.NoError(t, err)
		if driver := "nouveau"; strings.HasPrefix(test.name, "a driver") {
			machine.Devices[0].Driver = &driver
		}
		o := nova.Options{Role: nova.Compute, Release: nova.Zed, Aliases: []nova.Alias{alias}, ComputeNode: machine}
		want, err := nova.NewWant(o)
		hosttest.NoError(t, err)
		plan, err := nova.NewPlan(root, o, want, nova.Place{File: nova.DefaultConf})
		hosttest.NoError(t, err)
		findings, err := novacheck.Planned(nova.Zed, plan)
		hosttest.NoError(t, err)
		var seen []string
		for _, f := range findings {
			seen = append(seen, f.Seen)
		}
		hosttest.EqualIn(t, test.name, test.want, strings.Join(seen, "; "))
	}
}

// TestPlannedPlacement: the plan for a machine with all services says that nova-scheduler asks
// Placement for devices which nova-compute does not report.
func TestPlannedPlacement(t *testing.T) {
	const asks = "pci_in_placement = true\n"
	for options, want := range map[string]string{
		"": "", "report_in_placement = true\n[filter_scheduler]\n" + asks: "",
		"[filter_scheduler]\n" + asks: "report_in_placement is not set, but /etc/nova/nova.conf sets pci_in_placement",
	} {
		alias, err := nova.ParseAlias("K4200=10de:11b4,device_type=type-PCI")
		hosttest.NoError(t, err)
		root := hosttest.Lay(t, "-- etc/nova/nova.conf --\n[pci]\n"+options)
		o := nova.Options{Role: nova.All, Release: nova.Bobcat, Aliases: []nova.Alias{alias}}
		plan, err := nova.NewPlan(root, o, nova.Want{Aliases: o.Aliases}, nova.Place{File: nova.DefaultConf})
		hosttest.NoError(t, err)
		findings, err := novacheck.Planned(o.Release, plan)
		var seen []string
		for _, f := range findings {
			if f.Check == "placement" {
				seen = append(seen, f.Seen)
			}
		}
		if got := strings.Join(seen, "; "); err != nil || got != want {
			t.Errorf("%q: %q, want %q (%v)", options, got, want, err)
		}
	}
}
