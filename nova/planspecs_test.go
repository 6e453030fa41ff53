package nova_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
)

// TestSpecLines: the lines of device_spec that a plan leaves, for an alias of 10de:11b4
// with a resource class. What Nova makes of them is tested in integration.
func TestSpecLines(t *testing.T) {
	const ours = `{"vendor_id": "10de", "product_id": "11b4", "resource_class": "CUSTOM_K"}`
	for _, test := range []struct{ name, before, after string }{
		{"in a list, before a broader one", "device_spec = [" + ours + ", {\"vendor_id\": \"10de\"}]\n", ""},
		{"in a list, with the talk's name", "device_spec = [{\"vendor_id\": \"8086\"}, {\"name\": \"K\", \"vendor_id\": \"10DE\", \"product_id\": \"11b4\", \"resource_class\": \"CUSTOM_K\"}]\n",
			""},
		{"between others", "device_spec = {\"vendor_id\": \"8086\"}\ndevice_spec=" + ours + "\ndevice_spec = {\"vendor_id\": \"10de\"}\n", ""},
		{"in a list, behind a broader one", "device_spec = [{\"vendor_id\": \"10de\"}, " + ours + ", {\"product_id\":\"1\"}]\n",
			"device_spec = " + ours + "\ndevice_spec = [{\"vendor_id\": \"10de\"}, {\"product_id\":\"1\"}]\n"},
		{"in a list, without the tag", "device_spec = [{\"vendor_id\":\t\"8086\"}, {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}]\n",
			"device_spec = " + ours + "\ndevice_spec = {\"vendor_id\": \"8086\"}\n"},
		{"tabs and lines that move", "device_spec = {\"vendor_id\": \"10de\"}\npassthrough_whitelist = {\n \t\"vendor_id\":\t\"8086\"}\n",
			"device_spec = {\n \t\"vendor_id\":\t\"8086\"}\ndevice_spec = " + ours + "\ndevice_spec = {\"vendor_id\": \"10de\"}\n"},
		{"the older one in its place", "device_spec   =   {\"vendor_id\": \"0x10DE\", \"product_id\": \"11B4\"}\n", "device_spec   =   " + ours + "\n"},
		{"a pattern for everything", "device_spec = {\"address\": {\"domain\": \".*\", \"bus\": \"\"}}\n",
			"device_spec = " + ours + "\ndevice_spec = {\"address\": {\"domain\": \".*\", \"bus\": \"\"}}\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, err := nova.ParseAlias("K=10de:11b4,resource_class=CUSTOM_K")
			hosttest.NoError(t, err)
			o := nova.Options{Role: nova.Compute, Release: 27, Aliases: []nova.Alias{a}, Placement: true}
			w, err := nova.NewWant(o)
			hosttest.NoError(t, err)
			const rest = "report_in_placement = true\nalias = {\"name\": \"K\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\", " +
				"\"device_type\": \"type-PCI\", \"resource_class\": \"CUSTOM_K\"}\n"
			root := hosttest.Lay(t, "-- etc/nova/nova.conf --\n")
			hosttest.NoError(t, os.WriteFile(root.Path("etc/nova/nova.conf"), []byte("[pci]\n"+test.before+rest), 0o640))
			p, err := nova.NewPlan(root, o, w, nova.Place{File: "/etc/nova/nova.conf"})
			hosttest.NoError(t, err)
			want := test.after
			if want == "" {
				want = test.before
			}
			hosttest.Equal(t, "[pci]\n"+want+rest, string(p.Files[0].After.Content))
		})
	}
}

// TestSameDevices: two aliases of one product get one spec, if they can. An alias without
// live_migratable requests any device.
func TestSameDevices(t *testing.T) {
	const another = "alias B: another alias selects the same devices with different tags, but Nova applies only one device_spec to a device: "
	recent := nova.Hypervisor{Libvirt: nova.Version{10, 0, 0}, QEMU: nova.Version{8, 2, 2}}
	for _, test := range []struct {
		first, second string // tags
		hypervisor    nova.Hypervisor
		want          string
	}{
		{"", "", nova.Hypervisor{}, `{"vendor_id": "10de", "product_id": "20b2"}`},
		{"", ",resource_class=CUSTOM_B", nova.Hypervisor{},
			another + `{"vendor_id": "10de", "product_id": "20b2"}, {"vendor_id": "10de", "product_id": "20b2", "resource_class": "CUSTOM_B"}`},
		{"", ",live_migratable=yes", nova.Hypervisor{}, `{"vendor_id": "10de", "product_id": "20b2"}`},
		{"", ",live_migratable=yes", recent, `{"vendor_id": "10de", "product_id": "20b2", "live_migratable": "yes"}`},
		{",live_migratable=yes", "", recent, `{"vendor_id": "10de", "product_id": "20b2", "live_migratable": "yes"}`},
		{",live_migratable=no", ",live_migratable=yes", recent, another +
			`{"vendor_id": "10de", "product_id": "20b2", "live_migratable": "no"}, {"vendor_id": "10de", "product_id": "20b2", "live_migratable": "yes"}`},
	} {
		o := nova.Options{Role: nova.Compute, Release: nova.Epoxy, Placement: true, Hypervisor: test.hypervisor}
		for _, text := range []string{"A=10de:20b2,device_type=type-PF" + test.first, "B=10de:20b2,device_type=type-VF" + test.second} {
			a, err := nova.ParseAlias(text)
			hosttest.NoError(t, err)
			o.Aliases = append(o.Aliases, a)
		}
		w, err := nova.NewWant(o)
		got := fmt.Sprint(err)
		if err == nil {
			specs, err := json.Marshal(w.Specs)
			hosttest.NoError(t, err)
			got = strings.NewReplacer(":", ": ", ",", ", ").Replace(strings.Trim(string(specs), "[]"))
		}
		hosttest.EqualIn(t, test.first+" and "+test.second, test.want, strings.TrimSpace(got))
	}
}

// twoCards returns the functions of a machine with two identical GPUs.
func twoCards(t *testing.T) []pci.Device {
	t.Helper()
	var tree strings.Builder
	for _, bus := range []string{"84", "88"} {
		dir := "sys/bus/pci/devices/0000:" + bus + ":00.0/"
		tree.WriteString("-- " + dir + "class --\n0x030000\n-- " + dir + "vendor --\n0x10de\n-- " + dir + "device --\n0x11b4\n")
	}
	return hosttest.Devices(t, hosttest.Lay(t, tree.String()))
}

// planSpecs plans a compute node's files, named below /etc/nova, and returns the [pci]
// section of each without the alias.
func planSpecs(t *testing.T, o nova.Options, alias string, files map[string]string) (map[string]string, nova.Plan, error) {
	t.Helper()
	a, err := nova.ParseAlias(alias)
	hosttest.NoError(t, err)
	o.Role, o.Aliases = nova.Compute, []nova.Alias{a}
	w, err := nova.NewWant(o)
	hosttest.NoError(t, err)
	var tree strings.Builder
	for name, text := range files {
		tree.WriteString("-- etc/nova/" + name + " --\n[pci]\n" + text)
		if o.Placement {
			tree.WriteString("report_in_placement = true\n") // has been set before
		}
	}
	p, err := nova.NewPlan(hosttest.Lay(t, tree.String()), o, w, nova.Place{File: "/etc/nova/nova.conf"})
	after := map[string]string{}
	for _, c := range p.Files {
		var kept strings.Builder
		for line := range strings.Lines(string(c.After.Content)) {
			if !strings.HasPrefix(line, "alias = ") && !strings.HasPrefix(line, "report_in_placement") {
				kept.WriteString(line)
			}
		}
		after[strings.TrimPrefix(c.Name, "/etc/nova/")] = strings.TrimPrefix(kept.String(), "[pci]\n")
	}
	return after, p, err
}

// TestKeptDevices: a function that remains with the host is offered by no device_spec, and neither
// is one that containers have.
func TestKeptDevices(t *testing.T) {
	const product, one = `{"vendor_id": "10de", "product_id": "11b4"}`, `{"address": "0000:84:00.0", "vendor_id": "10de", "product_id": "11b4"}`
	devices := twoCards(t)
	for _, test := range []struct{ name, before, want string }{
		{"one of gpustack's own is replaced", "device_spec = " + product + "\n", "device_spec = " + one + "\n"},
		{"with the talk's name", "device_spec = {\"name\": \"K\", \"vendor_id\": \"10DE\", \"product_id\": \"11b4\"}\n", "device_spec = " + one + "\n"},
		{"in a list", "device_spec = [{\"vendor_id\": \"8086\"}, " + product + "]\n", "device_spec = " + one + "\ndevice_spec = {\"vendor_id\": \"8086\"}\n"},
		{"gpustack's own by address", "device_spec = " + strings.Replace(one, "84", "88", 1) + "\n", "device_spec = " + one + "\n"},
		{"gpustack's own by address, beside the planned one", "device_spec = " + one + "\ndevice_spec = " + strings.Replace(one, "84", "88", 1) + "\n", "device_spec = " + one + "\n"},
		{"another device only", "device_spec = {\"address\": \"0000:01:00.0\"}\n", "device_spec = {\"address\": \"0000:01:00.0\"}\ndevice_spec = " + one + "\n"},
		{"the vendor's", "device_spec = {\"vendor_id\": \"10de\"}\n",
			`/etc/nova/nova.conf:2: {"vendor_id": "10de"} offers 0000:88:00.0 to guests, but the device remains with the host`},
		{"the function's address", "device_spec = {\"address\": \"0000:88:00.0\"}\n",
			`/etc/nova/nova.conf:2: {"address": "0000:88:00.0"} offers 0000:88:00.0 to guests, but the device remains with the host`},
		{"with a tag that is not gpustack's", "device_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\", \"x\": \"1\"}\n",
			`/etc/nova/nova.conf:2: {"product_id": "11b4", "vendor_id": "10de", "x": "1"} conflicts with the planned device_spec ` +
				one + `: devices that both specs match would lose its x`},
	} {
		for of, m := range map[string]nova.ComputeNode{
			"host":       {Devices: devices, Recorded: nova.Recorded{Given: []pci.Address{devices[0].Address}}},
			"containers": {Devices: devices, Recorded: nova.Recorded{Containers: []pci.Address{devices[1].Address}}},
		} {
			t.Run(test.name+", "+of, func(t *testing.T) {
				after, _, err := planSpecs(t, nova.Options{Release: 26, ComputeNode: m}, "K=10de:11b4", map[string]string{"nova.conf": test.before})
				got := after["nova.conf"]
				if err != nil {
					got = err.Error()
				}
				hosttest.Equal(t, test.want, got)
			})
		}
	}
}

// TestRerun: what stands first already plans nothing, gpustack's own tags change, and a
// second run finds nothing to do.
func TestRerun(t *testing.T) {
	const product = `"vendor_id": "10de", "product_id": "11b4"`
	const ours, a = "device_spec = {" + product + "}\n", "device_spec = {" + product + ", \"resource_class\": \"CUSTOM_A\"}\n"
	const rest = "device_spec = {\"vendor_id\": \"10de\", \"resource_class\": \"CUSTOM_REST\"}\n"
	const first = `device_spec = {"address": "0000:84:00.0", ` + product + "}\n"
	const second = `device_spec = {"address": "0000:88:00.0", ` + product + "}\n"
	for _, test := range []struct {
		name, alias   string
		options       nova.Options
		before, after map[string]string
		warning, err  string
	}{
		{name: "a broader one with tags behind", before: map[string]string{"nova.conf": ours + rest}},
		{name: "a tag is added before a broader one", alias: ",resource_class=CUSTOM_A",
			before: map[string]string{"nova.conf": ours + rest}, after: map[string]string{"nova.conf": a + rest}},
		{name: "a broader one with tags in front", before: map[string]string{"nova.conf": rest + ours}, err: "would lose its resource_class"},
		{name: "another value", alias: ",resource_class=CUSTOM_B", before: map[string]string{"nova.conf": a + rest},
			after:   map[string]string{"nova.conf": strings.Replace(a, "_A", "_B", 1) + rest},
			warning: `/etc/nova/nova.conf:2: resource_class changes from "CUSTOM_A" to "CUSTOM_B"`},
		{name: "managed", options: nova.Options{Managed: "no"},
			before:  map[string]string{"nova.conf": "device_spec = {" + product + ", \"managed\": \"yes\"}\n"},
			after:   map[string]string{"nova.conf": "device_spec = {" + product + ", \"managed\": \"no\"}\n"},
			warning: `/etc/nova/nova.conf:2: managed changes from "yes" to "no"`},
		{name: "tags that no option names",
			before: map[string]string{"nova.conf": "device_spec = {" + product + ", \"managed\": \"no\", \"one_time_use\": \"true\"}\n"}},
		{name: "those of one function, for a further one", options: nova.Options{ByAddress: true},
			before: map[string]string{"nova.conf": strings.Replace(first, "}", ", \"managed\": \"no\"}", 1)},
			after:  map[string]string{"nova.conf": strings.ReplaceAll(first+second, "}", ", \"managed\": \"no\"}")}},
		{name: "those of each function", options: nova.Options{ByAddress: true},
			before: map[string]string{"nova.conf": strings.Replace(first, "}", ", \"managed\": \"no\"}", 1) + second}},
		{name: "a tag that is not gpustack's",
			before: map[string]string{"nova.conf": "device_spec = {" + product + ", \"x\": \"1\"}\n"}, err: "would lose its x"},
		{name: "by address, then by ids with a tag", alias: ",resource_class=CUSTOM_A", before: map[string]string{"nova.conf": first + second}, after: map[string]string{"nova.conf": a}},
		{name: "by address, then by ids with a tag, before a broader one", alias: ",resource_class=CUSTOM_A", before: map[string]string{"nova.conf": first + second + rest}, after: map[string]string{"nova.conf": a + rest}},
		{name: "a broader one with tags between", alias: ",resource_class=CUSTOM_A", before: map[string]string{"nova.conf": first + rest + second}, err: "would lose its resource_class"},
		{name: "one of two by address, then by ids with a tag", alias: ",resource_class=CUSTOM_A", before: map[string]string{"nova.conf": first}, err: "would not get resource_class"},
		{name: "by ids, then by address with another tag", alias: ",resource_class=CUSTOM_B", options: nova.Options{ByAddress: true}, before: map[string]string{"nova.conf": a},
			after:   map[string]string{"nova.conf": strings.ReplaceAll(first+second, "}", ", \"resource_class\": \"CUSTOM_B\"}")},
			warning: `/etc/nova/nova.conf:2: resource_class changes from "CUSTOM_A" to "CUSTOM_B"`},
		{name: "duplicates of ours, a broader one in the other group", alias: ",resource_class=CUSTOM_A",
			before: map[string]string{"nova.conf": a, "nova.conf.d/1.conf": a + "device_spec = {\"vendor_id\": \"10de\"}\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := test.options
			o.Release, o.Placement, o.Devices = 31, true, twoCards(t)
			after, plan, err := planSpecs(t, o, "K=10de:11b4"+test.alias, test.before)
			switch {
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
				t.Errorf("%v", err)
			case test.err != "":
				return
			case err != nil:
				t.Fatal(err)
			}
			want := test.after
			if want == nil {
				want = test.before
			}
			hosttest.Equal(t, want, after)
			hosttest.EqualIn(t, "warnings", test.warning, strings.Join(plan.Warnings, "\n"))
			again, plan, err := planSpecs(t, o, "K=10de:11b4"+test.alias, after)
			hosttest.NoError(t, err)
			if diff := cmp.Diff(after, again); diff != "" || len(plan.Warnings) > 0 {
				t.Errorf("again (-want +got):\n%s%q", diff, plan.Warnings)
			}
		})
	}
}

// TestRerunList: two products in one list, of which one gets a tag.
func TestRerunList(t *testing.T) {
	aliases := []string{"L=10de:20b0,resource_class=CUSTOM_B", "K=10de:11b4,resource_class=CUSTOM_A"}
	o := nova.Options{Role: nova.Compute, Release: 27, Placement: true}
	for _, text := range aliases {
		a, err := nova.ParseAlias(text)
		hosttest.NoError(t, err)
		o.Aliases = append(o.Aliases, a)
	}
	w, err := nova.NewWant(o)
	hosttest.NoError(t, err)
	text := "[pci]\ndevice_spec = [{\"name\": \"L\", \"vendor_id\": \"10de\", \"product_id\": \"20b0\", \"resource_class\": \"CUSTOM_B\"}, {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}]\n"
	for run := range 2 {
		p, err := nova.NewPlan(hosttest.Lay(t, "-- etc/nova/nova.conf --\n"+text), o, w, nova.Place{File: "/etc/nova/nova.conf"})
		hosttest.NoError(t, err)
		got := string(p.Files[0].After.Content)
		if run > 0 && got != text {
			t.Errorf("again:\n%s", cmp.Diff(text, got))
		}
		text = got
	}
	if strings.Contains(text, "[{") || strings.Count(text, "device_spec") != 2 {
		t.Errorf("got\n%s", text)
	}
}

// TestInterfaceNames: a devname whose function is unknown is a warning beside an alias of a
// network card, and one whose function is known counts as its address.
func TestInterfaceNames(t *testing.T) {
	devices := hosttest.Devices(t, hosttest.Lay(t, "-- sys/bus/pci/devices/0000:0a:00.0/class --\n0x020000\n-- sys/bus/pci/devices/0000:0a:00.0/vendor --\n0x8086\n-- sys/bus/pci/devices/0000:0a:00.0/device --\n0x154d\n"))
	for _, test := range []struct {
		name       string
		interfaces map[string]pci.Address
		warning    string
		err        string
	}{
		{"unknown", nil, `/etc/nova/nova.conf:2: cannot determine which function devname "ens1" names: `, ""},
		{"known", map[string]pci.Address{"ens1": devices[0].Address}, "", "would lose its physical_network"},
		{"another", map[string]pci.Address{"ens1": {Bus: 0x0b}}, "", ""},
	} {
		const before = "device_spec = {\"devname\": \"ens1\", \"physical_network\": \"a\"}\n"
		_, plan, err := planSpecs(t, nova.Options{Release: 26,
			ComputeNode: nova.ComputeNode{Devices: devices, Interfaces: test.interfaces}}, "N=8086:154d", map[string]string{"nova.conf": before})
		if (test.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := strings.Join(plan.Warnings, "\n"); !strings.HasPrefix(got, test.warning) || test.warning == "" && got != "" {
			t.Errorf("%s: warnings: %s", test.name, got)
		}
	}
}

// TestUsed: without a record, no alias offers the functions that the host uses; with one, the
// record alone tells. Other products, controllers and other hosts are as before.
func TestUsed(t *testing.T) {
	const none = "alias K: the host needs or uses 0000:84:00.0, 0000:88:00.0"
	devices := twoCards(t)
	first, both := []pci.Address{devices[0].Address}, []pci.Address{devices[0].Address, devices[1].Address}
	for name, test := range map[string]struct {
		used, given []pci.Address
		change      func(*nova.Options)
		want        string // the addresses of device specs, "all" for one by ids, or an error
	}{
		"nothing is used":                   {nil, nil, nil, "all"},
		"one is used":                       {first, nil, nil, "0000:88:00.0"},
		"all are used":                      {both, nil, nil, none},
		"all, for Placement":                {both, nil, func(o *nova.Options) { o.Placement = true }, none},
		"all, on a machine of all services": {both, nil, func(o *nova.Options) { o.Role = nova.All }, none},
		"all, rendered":                     {both, nil, func(o *nova.Options) { o.Rendered = true }, none},
		"by the record":                     {first, first, nil, "0000:84:00.0"},
		"another product":                   {both, nil, func(o *nova.Options) { o.Aliases[0].ProductID = 0x20b5 }, "all"},
		"on a controller":                   {both, nil, func(o *nova.Options) { o.Role = nova.Controller }, "all"},
		"rendered for other hosts": {both, nil, func(o *nova.Options) {
			o.Rendered, o.Hosts = true, []nova.Host{{Name: "gpu2", Devices: devices}}
		}, "all"},
		"on no machine": {nil, nil, func(o *nova.Options) { o.Devices = nil }, "all"},
	} {
		o := nova.Options{Role: nova.Compute, Release: 27, Aliases: []nova.Alias{{Name: "K", VendorID: 0x10de, ProductID: 0x11b4}}, Used: test.used,
			ComputeNode: nova.ComputeNode{Devices: devices, Recorded: nova.Recorded{Given: test.given}}}
		if test.change != nil {
			test.change(&o)
		}
		w, err := nova.NewWant(o)
		hosttest.EqualIn(t, name, test.want, specsOf(w, err))
	}
}
