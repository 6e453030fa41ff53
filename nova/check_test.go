package nova_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
)

const (
	k4200    = `{"name": "K4200", "vendor_id": "10de", "product_id": "11b4"}`
	goodCtl  = "[pci]\nalias = " + k4200 + "\n[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
	goodNode = "[pci]\nalias = " + k4200 + "\ndevice_spec = {\"vendor_id\": \"10DE\", \"product_id\": \"11b4\"}\n"
)

// TestCheck: each finding, by what is wrong with a pair of files that is right but
// for that.
func TestCheck(t *testing.T) {
	const noHost = "alias ctl:2 no compute node offers what alias K4200 asks for"
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
			[]string{"fail alias node:2 alias K4200 is another one than in ctl"}},
		{"a list", "zed", strings.Replace(goodCtl, k4200, "["+k4200+"]", 1), goodNode, "",
			[]string{"fail alias ctl:0 alias K4200 is missing, which node has", "fail alias ctl:2 an alias is not one JSON object"}},
		{"Python's quotes", "zed", strings.Replace(goodCtl, k4200, "{'name': 'K4200'}", 1), goodNode, "",
			[]string{"fail alias ctl:0 alias K4200 is missing, which node has", "fail alias ctl:2 an alias is not one JSON object"}},
		{"a key too new", "zed", strings.Replace(goodCtl, "11b4\"", "11b4\", \"traits\": \"CUSTOM_X\"", 1), strings.Replace(goodNode, "11b4\"", "11b4\", \"traits\": \"CUSTOM_X\"", 1), "",
			[]string{"fail alias ctl:2 an alias has the key \"traits\", which zed does not know", "fail alias node:2 an alias has the key \"traits\", which zed does not know"}},
		{"0x", "zed", strings.Replace(goodCtl, `"10de"`, `"0x10de"`, 1), strings.Replace(goodNode, `"10de"`, `"0x10de"`, 1), "",
			[]string{"fail alias ctl:2 alias K4200: vendor_id is not four hexadecimal digits", "fail " + noHost, "fail alias node:2 alias K4200: vendor_id is not four hexadecimal digits"}},
		{"capitals before Rocky", "queens", strings.Replace(goodCtl, "11b4", "11B4", 1), strings.Replace(strings.Replace(goodNode, "11b4", "11B4", 1), "device_spec", "passthrough_whitelist", 1), "",
			[]string{"fail alias ctl:2 alias K4200: product_id has capitals", "fail alias node:2 alias K4200: product_id has capitals"}},
		{"nothing offered", "zed", goodCtl, strings.Replace(goodNode, "10DE", "8086", 1), "", []string{"fail " + noHost}},
		{"no such hardware", "zed", goodCtl, goodNode, "1bb1",
			[]string{"fail alias ctl:2 no host of the inventories has what alias K4200 asks for", "warn device_spec node:3 a device_spec names a product that no host of the inventories has"}},
		{"hardware of another type", "zed", goodCtl, goodNode, "11b4/16", []string{"fail alias ctl:2 the devices that alias K4200 asks for are of another type: type-PF"}},
		{"every device", "zed", goodCtl, goodNode + "device_spec = {}\n", "", []string{"warn device_spec node:4 a device_spec names neither ids nor an address"}},
		{"no JSON in a spec", "zed", goodCtl, goodNode + "device_spec = {\n", "", []string{"fail device_spec node:4 a device_spec is no JSON object"}},
		{"no filter", "zed", strings.Replace(goodCtl, ",PciPassthroughFilter", "", 1), goodNode, "", []string{"fail filters ctl:4 PciPassthroughFilter is not enabled"}},
		{"no filters set", "zed", "[pci]\nalias = " + k4200 + "\n", goodNode, "", []string{"fail filters ctl:0 PciPassthroughFilter is not enabled"}},
		{"a dead filter", "zed", strings.Replace(goodCtl, "ComputeFilter,", "RamFilter,", 1), goodNode, "", []string{"fail filters ctl:4 zed has no RamFilter"}},
		{"names too new", "yoga", goodCtl, goodNode, "", []string{"fail " + noHost, "fail option node:3 [pci] device_spec is no option of yoga"}},
		{"a name too old", "zed", goodCtl + "[DEFAULT]\nscheduler_default_filters = A\n", goodNode, "", []string{"fail option ctl:6 [DEFAULT] scheduler_default_filters is no option of zed"}},
		{"a name of nobody's", "zed", goodCtl, goodNode + "pci_passthrough_whitelist = {}\n", "", []string{"fail option node:4 [pci] pci_passthrough_whitelist is no option of zed"}},
		{"Placement on the controller only", "2024.1", goodCtl + "pci_in_placement = true\n", goodNode, "", []string{"fail placement node:0 report_in_placement is not set, and ctl has pci_in_placement"}},
		{"Placement on the compute node only", "2024.1", goodCtl, goodNode + "report_in_placement = yes\n", "", []string{"warn placement ctl:0 pci_in_placement is not set, and node reports its devices"}},
		{"Placement on both", "2024.1", goodCtl + "pci_in_placement = true\n", goodNode + "report_in_placement = yes\n", "", nil},
		{"alternatives without a type", "zed", strings.Replace(goodCtl, "[filter", "alias = "+strings.Replace(k4200, "11b4", "1bb1", 1)+"\n[filter", 1), goodNode, "",
			[]string{"fail alias ctl:3 alias K4200 is there again without the same device_type", "fail alias node:2 alias K4200 is another one than in ctl"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := nova.ParseRelease(test.release)
			if err != nil {
				t.Fatal(err)
			}
			side := func(role nova.Role, name, text string) nova.Side {
				f, err := conf.Parse([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				return nova.Side{Role: role, Files: []nova.SideFile{{Name: name, File: f}}}
			}
			var hosts []nova.Host
			if test.hardware != "" {
				product, vfs, _ := strings.Cut(test.hardware, "/")
				const dir = "sys/bus/pci/devices/0000:01:00.0"
				tree := fmt.Sprintf("-- %s/class --\n0x030200\n-- %s/vendor --\n0x10de\n-- %s/device --\n0x%s\n", dir, dir, dir, product)
				if vfs != "" {
					tree += fmt.Sprintf("-- %s/sriov_totalvfs --\n%s\n", dir, vfs)
				}
				devices, _, err := pci.Scan(hosttest.Lay(t, tree), pci.Options{})
				if err != nil {
					t.Fatal(err)
				}
				hosts = []nova.Host{{Name: "gpu1", Devices: devices}}
			}
			var got []string
			for _, f := range nova.Check(r, []nova.Side{side(nova.Controller, "ctl", test.ctl), side(nova.Compute, "node", test.node)}, hosts, nil) {
				got = append(got, fmt.Sprintf("%s %s %s:%d %s", f.Status, f.Check, f.File, f.Line, f.Seen))
				if f.Effect == "" || f.Remedy == "" {
					t.Errorf("%s: effect %q, remedy %q", f.Seen, f.Effect, f.Remedy)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCheckFlavors: what flavors ask for, against an alias K4200.
func TestCheckFlavors(t *testing.T) {
	f, err := conf.Parse([]byte("[pci]\nalias = " + k4200 + "\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n[filter_scheduler]\nenabled_filters = PciPassthroughFilter\n"))
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]string{
		"K4200:2":            "",
		"K4200:1 , K4200:1":  "",
		"k4200:1":            "fail flavors :0 flavor gpu names alias k4200, which no file defines",
		"K4200":              `fail flavors :0 flavor gpu: "K4200" is not NAME:COUNT`,
		"K4200:0":            `fail flavors :0 flavor gpu: "K4200:0" is not NAME:COUNT`,
		"K4200: 1":           "",
		"K4200:1,A100:8,B:x": `fail flavors :0 flavor gpu: "B:x" is not NAME:COUNT, fail flavors :0 flavor gpu names alias A100, which no file defines`,
	} {
		var got []string
		for _, f := range nova.Check(26, []nova.Side{{Role: nova.All, Files: []nova.SideFile{{Name: "all", File: f}}}}, nil, []nova.Flavor{{Name: "gpu", Request: request}}) {
			got = append(got, fmt.Sprintf("%s %s %s:%d %s", f.Status, f.Check, f.File, f.Line, f.Seen))
		}
		if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%q: %s", request, diff)
		}
	}
}

// TestCheckTwins: a spec by ids, on a host that keeps one of two cards.
func TestCheckTwins(t *testing.T) {
	f, err := conf.Parse([]byte(goodNode))
	if err != nil {
		t.Fatal(err)
	}
	for driver, want := range map[string]string{
		"vfio-pci": "",
		"nouveau":  "fail device_spec node:3 a device_spec offers 0000:02:00.0 too, which host gpu1 keeps for itself",
	} {
		tree := "symlink sys/bus/pci/devices/0000:01:00.0/driver -> ../../drivers/vfio-pci\nsymlink sys/bus/pci/devices/0000:02:00.0/driver -> ../../drivers/" + driver + "\n"
		for _, bus := range []string{"01", "02"} {
			tree += fmt.Sprintf("-- sys/bus/pci/devices/0000:%s:00.0/vendor --\n0x10de\n-- sys/bus/pci/devices/0000:%s:00.0/device --\n0x11b4\n", bus, bus)
		}
		devices, _, err := pci.Scan(hosttest.Lay(t, tree), pci.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range nova.Check(26, []nova.Side{{Role: nova.Compute, Files: []nova.SideFile{{Name: "node", File: f}}}}, []nova.Host{{Name: "gpu1", Devices: devices}}, nil) {
			got = append(got, fmt.Sprintf("%s %s %s:%d %s", f.Status, f.Check, f.File, f.Line, f.Seen))
		}
		if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s: %s", driver, diff)
		}
	}
}
