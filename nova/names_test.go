package nova_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/document"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
)

// scanned returns the GPUs of a host: PRODUCT, or PRODUCT/VFS if it supports SR-IOV.
func scanned(t *testing.T, functions ...string) []pci.Device {
	t.Helper()
	var tree strings.Builder
	for i, f := range functions {
		product, vfs, _ := strings.Cut(f, "/")
		dir := fmt.Sprintf("sys/bus/pci/devices/0000:%02x:00.0", i+1)
		fmt.Fprintf(&tree, "-- %s/class --\n0x030200\n-- %s/vendor --\n0x10de\n-- %s/device --\n0x%s\n", dir, dir, dir, product)
		if vfs != "" {
			fmt.Fprintf(&tree, "-- %s/sriov_totalvfs --\n%s\n", dir, vfs)
		}
	}
	return hosttest.Devices(t, hosttest.Lay(t, tree.String()))
}

func alias(name, product, more string) string {
	return `alias = {"name": "` + name + `", "vendor_id": "10de", "product_id": "` + product + `"` + more + "}\n"
}

// TestNamesInUse: the name of a product is that of --alias, else that of --names, else that of the
// machine's own files, else its own.
func TestNamesInUse(t *testing.T) {
	const pf, kind = `, "device_type": "type-PF"`, `, "device_type": "type-PCI"`
	for name, test := range map[string]struct {
		role     nova.Role
		given    string // --alias
		cloud    string // [pci] of --names
		conf     string // [pci] of the machine
		devices  []string
		want     string // NAME=PRODUCT type and numa_policy, or the errors
		warnings string
	}{
		"derived": {nova.Controller, "", "", "", []string{"11b4"}, "K4200=11b4 type-PCI", ""},
		"derived on a compute node": {nova.Compute, "", "", "", []string{"11b4", "20b2/16"}, "K4200=11b4 type-PCI, A100-SXM4-80GB=20b2 type-PF",
			"aliases with names derived from the product: K4200, A100-SXM4-80GB: pass --names FILE, a controller's nova.conf, to use the names of the cloud"},
		"the machine's own": {nova.Compute, "", "", alias("A100-20b2", "20b2", pf), []string{"20b2/16"}, "A100-20b2=20b2 type-PF", ""},
		"whole": {nova.Compute, "", "", alias("gold", "11b4", `, "numa_policy": "required", "capability_type": "pci"`),
			[]string{"11b4"}, "gold=11b4  required", ""},
		"several": {nova.Compute, "", "", alias("a", "11b4", kind) + alias("b", "11b4", kind), []string{"11b4"},
			"a=11b4 type-PCI, b=11b4 type-PCI", ""},
		"one name of two products": {nova.Compute, "", alias("gpu", "11b4", kind) + alias("gpu", "1eb1", kind), "", []string{"11b4", "1eb1"},
			"gpu=11b4 type-PCI, gpu=1eb1 type-PCI", ""},
		"the cloud's before its own": {nova.Compute, "", alias("gold", "11b4", kind), alias("K4200", "11b4", kind), []string{"11b4"},
			"gold=11b4 type-PCI", "/etc/nova/nova.conf:2: alias K4200 is for the same devices and is kept, but the files of --names do not have it: --remove-alias K4200 removes it"},
		"--alias before the cloud's": {nova.Compute, "x=10de:11b4", alias("gold", "11b4", kind), "", []string{"11b4"}, "x=11b4 type-PCI", ""},
		"--alias with another type": {nova.Controller, "x=10de:20b2,device_type=type-VF", "", "", []string{"20b2/16"},
			"x=20b2 type-VF, A100-SXM4-80GB=20b2 type-PF", ""},
		"a type that nothing tells": {nova.Controller, "x=10de:20b2", "", alias("x", "20b2", ""), nil, "x=20b2 ",
			"alias x: the device_type of 10de:20b2 is unknown, and without it Nova assigns no device of type-PF: " +
				"give --inventory FILE of a compute node, or --alias x=10de:20b2,device_type=type-PF if the device supports SR-IOV"},
		"a type that the alias in use tells": {nova.Controller, "x=10de:20b2,numa_policy=preferred", "", alias("x", "20b2", `, "device_type": "type-PF"`), nil,
			"x=20b2 type-PF preferred", ""},
		"a type that the cloud tells": {nova.Compute, "x=10de:20b2", alias("x", "20b2", `, "device_type": "type-PF"`), alias("x", "20b2", ""), nil, "x=20b2 type-PF", ""},
		"the inventory before the alias in use": {nova.Controller, "x=10de:20b2", "", alias("x", "20b2", `, "device_type": "type-VF"`), []string{"20b2/16"},
			"x=20b2 type-PF", ""},
		"another type": {nova.Controller, "", alias("vf", "20b2", `, "device_type": "type-VF"`), "", []string{"20b2/16"},
			"A100-SXM4-80GB=20b2 type-PF", ""},
		"without a type": {nova.Controller, "", "", alias("gold", "20b2", ""), []string{"20b2/16"}, "gold=20b2 type-PF",
			"/etc/nova/nova.conf:2: alias gold has no device_type, so Nova matches it with no device of type-PF: it becomes type-PF here, and needs that on every other host"},
		"upper-case ids": {nova.Controller, "", alias("gold", "11B4", ""), "", []string{"11b4"}, "gold=11b4 ", ""},
		"not in the cloud": {nova.Compute, "", alias("gold", "11b4", ""), "", []string{"1eb1"}, "RTX4000=1eb1 type-PCI",
			"aliases with names derived from the product: RTX4000: the files of --names have no alias for these devices; define the same aliases on the controllers"},
		"taken here": {nova.Controller, "K4200=10de:1eb1", "", alias("K4200", "11b4", ""), nil,
			"alias K4200 for 10de:1eb1: the name exists with another product: /etc/nova/nova.conf:2 defines it for 10de:11b4", ""},
		"taken in the cloud": {nova.Compute, "", alias("K4200", "1eb1", ""), "", []string{"11b4"},
			"alias K4200 for 10de:11b4: the name exists with another product: cloud.conf:2 defines it for 10de:1eb1", ""},
		"taken for any device": {nova.Controller, "K=10de:11b4", "", `alias = {"name": "K"}` + "\n", nil,
			"alias K for 10de:11b4: the name exists with another product: /etc/nova/nova.conf:2 defines it without ids", ""},
		"another value of its own": {nova.Controller, "K4200=10de:11b4,numa_policy=preferred", "", alias("K4200", "11b4", kind), nil,
			"K4200=11b4 type-PCI preferred", ""},
		"differs in case only": {nova.Controller, "k4200=10de:11b4", "", alias("K4200", "11b4", kind), nil, "k4200=11b4 type-PCI",
			"alias k4200 differs in case only from alias K4200 (/etc/nova/nova.conf:2): to Nova they are two aliases"},
		"no name": {nova.Controller, "", "", "", []string{"fffe", "ffff"},
			"10de:fffe: cannot derive the name of an alias: neither gpustack nor pci.ids knows the model\n10de:ffff: cannot derive the name of an alias: neither gpustack nor pci.ids knows the model", ""},
		"no name, but one in the use": {nova.Compute, "new=10de:ffff", "", alias("old", "fffe", ""), []string{"fffe", "ffff"},
			"new=ffff type-PCI, old=fffe ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			read := nova.Options{Role: test.role, Release: nova.Zed}
			err := read.ReadFiles(hosttest.Lay(t, "-- etc/nova/nova.conf --\n[pci]\n"+test.conf), nova.Place{File: "/etc/nova/nova.conf"})
			hosttest.NoError(t, err)
			used := read.InUse
			o := nova.Options{Role: test.role, Release: nova.Zed, InUse: used}
			if test.given != "" {
				a, err := nova.ParseAlias(test.given)
				hosttest.NoError(t, err)
				o.Aliases = []nova.Alias{a}
			}
			if len(test.devices) > 0 {
				o.Hosts = []nova.Host{{Name: "gpu1", Devices: scanned(t, test.devices...)}}
			}
			if test.cloud != "" {
				t.Chdir(t.TempDir())
				hosttest.NoError(t, os.WriteFile("cloud.conf", []byte("[pci]\n"+test.cloud), 0o600))
				cloud, err := nova.ReadNames(document.Source{Paths: []string{"cloud.conf"}})
				hosttest.NoError(t, err)
				o.Cloud, o.NamesGiven = cloud, true
			}
			w, err := nova.NewWant(o)
			var got []string
			for _, a := range w.Aliases {
				got = append(got, strings.TrimSuffix(fmt.Sprintf("%s=%s %s %s", a.Name, a.ProductID, a.DeviceType, a.NUMAPolicy), " "))
			}
			if err != nil {
				got = []string{err.Error()}
			}
			hosttest.Equal(t, test.want, strings.Join(got, ", "))
			if diff := cmp.Diff(test.warnings, strings.Join(w.Warnings, "\n")); err == nil && diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestProductsOfOneDerivedName: two products that only pci.ids names, and names alike.
func TestProductsOfOneDerivedName(t *testing.T) {
	devices := scanned(t, "fffe", "ffff")
	for i := range devices {
		text := "GX100 [GeForce RTX 9070 Laptop GPU]"
		devices[i].Product = &text
	}
	_, err := nova.NewWant(nova.Options{Role: nova.Controller, Release: nova.Zed, Hosts: []nova.Host{{Name: "gpu1", Devices: devices}}})
	if !errors.Is(err, nova.ErrSameName) || err.Error() != "10de:fffe and 10de:ffff: the derived names are equal: RTX9070-Laptop" {
		t.Errorf("%v", err)
	}
}

// TestAliasName: an inventory of an earlier version has other hints, but the names are those of this
// version. NVSwitches of each generation have a name of their own.
func TestAliasName(t *testing.T) {
	earlier, bridge := pci.Alias("A100"), pci.Class(0x0680)
	for product, want := range map[string]string{"20b2": "A100-SXM4-80GB", "1ac2": "NVSwitch", "1af1": "A100-NVSwitch", "22a3": "H100-NVSwitch"} {
		d := scanned(t, product)[0]
		if want != "A100-SXM4-80GB" {
			d.Class, d.Product, d.Parent = &bridge, nil, &d.Address
		} else {
			d.AliasHint = &earlier
		}
		hosttest.EqualIn(t, product+": the name", want, nova.AliasName(&d))
	}
}

func TestReadNames(t *testing.T) {
	const plan = `{"schema":1,"kind":"nova configure","changed":false,"aliases":[{"name":"gold","vendor_id":"10de","product_id":"11b4","device_type":"type-PCI"}],"rendered":null}`
	for name, test := range map[string]struct{ text, want string }{
		"nova.conf":             {"[pci]\n" + alias("gold", "11b4", ""), "gold FILE:2 10de:11b4"},
		"of Mitaka":             {"[DEFAULT]\npci_" + alias("gold", "11b4", ""), "gold FILE:2 10de:11b4"},
		"without ids":           {"[pci]\nalias = {\"name\": \"gold\"}\n", "gold FILE:2 none"},
		"no alias":              {"[pci]\n", ""},
		"empty":                 {"", ""},
		"JSON":                  {plan, "gold FILE 10de:11b4"},
		"YAML":                  {"schema: 1\nkind: nova configure\naliases:\n- name: gold\n  vendor_id: 10de\n  product_id: \"1104\"\nrendered: null\n", "gold FILE 10de:1104"},
		"YAML, cut":             {"schema: 1\nkind: nova configure\naliases:\n- name: gold\n  vendor_id: 10de\n  product_id: \"1104\"\n", "FILE: neither a nova.conf nor the output of nova configure"},
		"two documents":         {plan + "\n" + plan, "FILE: neither a nova.conf nor the output of nova configure"},
		"no kind":               {`{"schema":1,"aliases":[],"rendered":null}`, "FILE: neither a nova.conf nor the output of nova configure"},
		"no aliases":            {`{"schema":1,"kind":"nova configure","aliases":[],"rendered":null}`, ""},
		"another document":      {`{"schema":1,"kind":"host scan","devices":[],"warnings":[]}`, "FILE: is the output of host scan, neither a nova.conf nor the output of nova configure"},
		"a document's errors":   {`{"schema":1,"kind":"failure","errors":[]}`, "FILE: is the error report of a failed command, neither a nova.conf nor the output of nova configure"},
		"an alias without name": {`{"schema":1,"kind":"nova configure","aliases":[{}],"rendered":null}`, "FILE: neither a nova.conf nor the output of nova configure"},
		"aliases of words":      {`{"schema":1,"kind":"nova configure","aliases":["gold"],"rendered":null}`, "FILE: neither a nova.conf nor the output of nova configure"},
		"another schema":        {`{"schema":2,"kind":"nova configure","aliases":[]}`, "FILE: schema 2 is of another version of gpustack, neither a nova.conf nor the output of nova configure that this version reads"},
		"neither":               {"gold\n", "FILE: line 1: not an option, a section header or a comment"},
		"a list": {"[pci]\nalias = [" + strings.TrimPrefix(strings.TrimSpace(alias("gold", "11b4", "")), "alias = ") + ", {}]\n",
			"FILE:2: the value of alias is not a JSON object with a name: Nova rejects every alias of the file"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "names")
			hosttest.NoError(t, os.WriteFile(file, []byte(test.text), 0o600))
			for _, from := range []string{file, "-"} {
				names, err := nova.ReadNames(document.Source{Paths: []string{from}, Stdin: strings.NewReader(test.text)})
				var got []string
				for _, n := range names {
					ids := "none"
					if n.HasIDs {
						ids = n.VendorID.String() + ":" + n.ProductID.String()
					}
					got = append(got, n.Name+" "+n.Where+" "+ids)
				}
				if err != nil {
					got = append(got, err.Error())
				}
				text := strings.NewReplacer(file, "FILE", "standard input", "FILE").Replace(strings.Join(got, "\n"))
				hosttest.Equal(t, test.want, text)
			}
		})
	}
}

// TestRemoveAlias: an alias goes with the specs that only it uses.
func TestRemoveAlias(t *testing.T) {
	const spec = `device_spec = {"vendor_id": "10de", "product_id": "11b4"}` + "\n"
	const port = `device_spec = {"vendor_id": "10de", "product_id": "11b4", "physical_network": "physnet1"}` + "\n"
	const tunnels = `device_spec = {"address": "0000:01:00.0", "vendor_id": "10de", "product_id": "11b4", "physical_network": null}` + "\n"
	k4200 := alias("K4200", "11b4", "")
	kept := `alias = {"name": "T4", "vendor_id": "10de", "product_id": "1eb8"}` + "\n"
	for name, test := range map[string]struct {
		conf, want string // [pci] before and after, or "error: …"
		warning    string // part of the warnings
		change     func(*nova.Options, *nova.Place)
	}{
		"with its spec": {k4200 + spec + kept, kept,
			"nova-compute deletes the records of free devices when it starts, keeps those of devices that guests use", nil},
		"used by a guest": {k4200 + spec, "", "until the guest is deleted or migrated: 0000:02:00.0 is in use by guest 6f3e",
			func(o *nova.Options, _ *nova.Place) {
				o.Guests = map[pci.Address]string{o.Devices[1].Address: "guest 6f3e"}
			}},
		"without ids": {`alias = {"name": "K4200"}` + "\n" + spec, spec, "/etc/nova/nova.conf:2: alias K4200 has no ids: the device specs that it uses stay", nil},
		"before Stein": {k4200 + strings.Replace(spec, "device_spec", "passthrough_whitelist", 1), "",
			"also those of devices that guests use, which another guest could then be given", func(o *nova.Options, _ *nova.Place) { o.Release = nova.Rocky }},
		"all definitions": {k4200 + alias("K4200 ", "1eb1", "") + spec, "", "without alias K4200 Nova rejects", nil},
		"another alias": {k4200 + alias("any", "11B4", `, "device_type": "type-VF"`) + spec,
			alias("any", "11B4", `, "device_type": "type-VF"`) + spec, "", nil},
		"an alias of all products": {k4200 + `alias = {"name": "any", "vendor_id": "10de"}` + "\n" + spec,
			`alias = {"name": "any", "vendor_id": "10de"}` + "\n" + spec, "", nil},
		"an earlier name": {k4200 + `passthrough_whitelist = {"vendor_id": "0x10DE", "product_id": "11b4", "address": "0000:01:00.0"}` + "\n",
			"", "", nil},
		"tags of others": {k4200 + `device_spec = {"name": "K4200", "vendor_id": "10de", "product_id": "11b4", "trusted": "true"}` + "\n", "", "", nil},
		"in a list":      {k4200 + `device_spec = [{"vendor_id": "8086", "product_id": "154d"}, {"vendor_id": "10de", "product_id": "11b4"}]` + "\n", `device_spec = {"vendor_id": "8086", "product_id": "154d"}` + "\n", "", nil},
		"a broader spec": {k4200 + `device_spec = {"vendor_id": "10de"}` + "\n", `device_spec = {"vendor_id": "10de"}` + "\n",
			`/etc/nova/nova.conf:3: {"vendor_id": "10de"} matches other devices too and stays: it still offers 0000:01:00.0, 0000:02:00.0, which no alias requests`, nil},
		"a spec of other devices": {k4200 + `device_spec = {"address": "0000:0a:00.0"}` + "\n", `device_spec = {"address": "0000:0a:00.0"}` + "\n",
			"", nil},
		"a spec of ports":        {k4200 + port, port, "without alias K4200 Nova rejects", nil},
		"a spec of tunnel ports": {k4200 + tunnels, tunnels, "without alias K4200 Nova rejects", nil},
		"beside specs of ports": {k4200 + `device_spec = [` + port[14:len(port)-1] + `, ` + spec[14:len(spec)-1] + "]\n" + spec + tunnels, port + tunnels,
			"without alias K4200 Nova rejects", nil},
		"on a controller": {k4200 + spec, spec, "without alias K4200 Nova rejects",
			func(o *nova.Options, _ *nova.Place) { o.Role = nova.Controller }},
		"renamed": {k4200 + spec, alias("gold", "11b4", `, "device_type": "type-PCI"`) + spec, "without alias K4200 Nova rejects", func(o *nova.Options, _ *nova.Place) {
			o.Aliases = []nova.Alias{{Name: "gold", VendorID: 0x10de, ProductID: 0x11b4}}
		}},
		"with another product": {k4200 + spec, alias("K4200", "1eb1", "") + strings.Replace(spec, "11b4", "1eb1", 1),
			"10de:11b4, are no longer offered", func(o *nova.Options, _ *nova.Place) {
				o.Aliases = []nova.Alias{{Name: "K4200", VendorID: 0x10de, ProductID: 0x1eb1}}
			}},
		"its definitions, another": {k4200 + alias("K4200", "1eb8", ""), alias("K4200", "1eb1", "") + strings.Replace(spec, "11b4", "1eb1", 1), "",
			func(o *nova.Options, _ *nova.Place) {
				o.Aliases = []nova.Alias{{Name: "K4200", VendorID: 0x10de, ProductID: 0x1eb1}}
			}},
		"planned too": {k4200 + spec, "error: alias K4200 for 10de:11b4: --remove-alias removes the alias that is planned", "",
			func(o *nova.Options, _ *nova.Place) {
				o.Aliases = []nova.Alias{{Name: "K4200", VendorID: 0x10de, ProductID: 0x11b4}}
			}},
		"an alias that is not there": {kept, "error: --remove-alias: no file of this host defines alias K4200", "", nil},
		"if it is there":             {kept, kept, "", func(o *nova.Options, _ *nova.Place) { o.IfPresent = true }},
		"into a file of its own": {k4200 + spec, "error: /etc/nova/nova.conf:2: --remove-alias would remove the line: --drop-in leaves this line as it is", "",
			func(_ *nova.Options, p *nova.Place) { p.DropIn = true }},
		"its product gets a new name": {k4200 + spec, "error: alias K4200 for 10de:11b4: --remove-alias removes the alias that is planned", "",
			func(o *nova.Options, _ *nova.Place) { o.Hosts = []nova.Host{{Name: "gpu1", Devices: o.Devices}} }},
	} {
		t.Run(name, func(t *testing.T) {
			place := nova.Place{File: "/etc/nova/nova.conf"}
			root := hosttest.Lay(t, "-- etc/nova/nova.conf --\n[pci]\n"+test.conf)
			o := nova.Options{Role: nova.Compute, Release: nova.Zed, Remove: []string{"K4200"}, ComputeNode: nova.ComputeNode{Devices: scanned(t, "11b4", "11b4")}}
			if test.change != nil {
				test.change(&o, &place)
			}
			var err error
			if err = o.ReadFiles(root, place); err != nil {
				t.Fatal(err)
			}
			w, err := nova.NewWant(o)
			var p nova.Plan
			if err == nil {
				p, err = nova.NewPlan(root, o, w, place)
			}
			got := ""
			if err != nil {
				got = "error: " + err.Error()
			} else {
				got = strings.TrimPrefix(string(p.Files[0].After.Content), "[pci]\n")
			}
			hosttest.Equal(t, test.want, got)
			warnings := strings.Join(p.Warnings, "\n")
			if o.IfPresent && warnings != "" {
				t.Errorf("nothing to remove, and yet: %s", warnings)
			}
			if !strings.Contains(warnings, test.warning) || strings.Contains(warnings, "no longer offered") && strings.Contains(got, `"product_id": "11b4"`) {
				t.Errorf("warnings: %s", warnings)
			}
		})
	}
}

// TestTwoProducts: a name of two products in the cloud keeps both on a compute node, whatever its
// files have of it.
func TestTwoProducts(t *testing.T) {
	const kind = `, "device_type": "type-PCI"`
	both := alias("gpu", "11b4", kind) + alias("gpu", "1eb1", kind)
	for name, before := range map[string]string{
		"none": "", "one": alias("gpu", "11b4", kind), "the other": alias("gpu", "1eb1", kind), "both": both,
		"one without a type": alias("gpu", "11b4", ""), "the other without a type": alias("gpu", "1eb1", ""),
		"both without a type": alias("gpu", "1eb1", "") + alias("gpu", "11b4", ""),
		"one in other words":  alias("gpu", "11b4", `, "capability_type": "pci"`+kind),
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, "-- etc/nova/nova.conf --\n[pci]\n"+before)
			place := nova.Place{File: "/etc/nova/nova.conf"}
			read := nova.Options{Role: nova.Compute, Release: nova.Zed}
			err := read.ReadFiles(root, place)
			hosttest.NoError(t, err)
			used := read.InUse
			path := filepath.Join(t.TempDir(), "cloud.conf")
			hosttest.NoError(t, os.WriteFile(path, []byte("[pci]\n"+both), 0o600))
			cloud, err := nova.ReadNames(document.Source{Paths: []string{path}})
			hosttest.NoError(t, err)
			o := nova.Options{Role: nova.Compute, Release: nova.Zed, InUse: used, Cloud: cloud, NamesGiven: true,
				Hosts: []nova.Host{{Name: "gpu1", Devices: scanned(t, "11b4", "1eb1")}}}
			w, err := nova.NewWant(o)
			hosttest.NoError(t, err)
			p, err := nova.NewPlan(root, o, w, place)
			hosttest.NoError(t, err)
			text := string(p.Files[0].After.Content)
			for _, product := range []string{"11b4", "1eb1"} {
				found := 0
				for line := range strings.Lines(text) {
					if strings.HasPrefix(line, "alias = ") && strings.Contains(line, product) && strings.Contains(line, "type-PCI") {
						found++
					}
				}
				if found != 1 {
					t.Errorf("%d aliases for %s:\n%s", found, product, text)
				}
			}
		})
	}
}
