package novacheck_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/document"
	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/novacheck"
)

// inventory returns the output of host scan on a host: its K4200s as ADDRESS/ROLE/DRIVER, where -
// stands for no role, as in inventories of earlier versions, and for no driver. /PRODUCT and
// /console may follow.
func inventory(host string, functions ...string) string {
	var devices []string
	for _, f := range functions {
		part := strings.Split(f, "/")
		text := func(s string) string {
			if s == "-" {
				return "null"
			}
			return `"` + s + `"`
		}
		product := "11b4"
		if len(part) > 3 {
			product = part[3]
		}
		devices = append(devices, fmt.Sprintf(`{"address": "0000:%s:00.0", "class": "0x0300", "vendor_id": "10de", "product_id": "%s", "device_type": "type-PCI",
			"candidate": true, "role": %s, "driver": %s, "boot_vga": %t}`, part[0], product, text(part[1]), text(part[2]), len(part) > 4))
	}
	return fmt.Sprintf(`{"schema": 1, "kind": "host scan", "host": %q, "scope": "gpus", "complete": true, "devices": [%s], "warnings": []}`+"\n", host, strings.Join(devices, ","))
}

// machineWith returns a machine with K4200s at these addresses and a record of those for guests.
func machineWith(t *testing.T, name string, given []string, buses ...string) nova.ComputeNode {
	t.Helper()
	m := nova.ComputeNode{Name: name}
	var tree strings.Builder
	for _, bus := range buses {
		dir := "sys/bus/pci/devices/0000:" + bus + ":00.0/"
		tree.WriteString("-- " + dir + "vendor --\n0x10de\n-- " + dir + "device --\n0x11b4\n-- " + dir + "class --\n0x030000\n")
	}
	if len(buses) > 0 {
		devices := hosttest.Devices(t, hosttest.Lay(t, tree.String()))
		m.Devices = devices
	}
	for _, bus := range given {
		a := hosttest.Address(t, "0000:"+bus+":00.0")
		m.Given = append(m.Given, a)
	}
	return m
}

// TestOffered: which functions nova configure offers for the hosts of inventories, and that nova
// check judges the same way: what is planned passes, and a device_spec by product alone passes
// where it would be planned.
func TestOffered(t *testing.T) {
	const product = "all"
	laptop := machineWith(t, "laptop", nil)
	onlyGuests := inventory("gpu1", "84/guest/vfio-pci", "88/guest/vfio-pci")
	console := inventory("gpu1", "84/host/nouveau", "88/guest/vfio-pci")
	for _, test := range []struct {
		name        string
		inventories string
		machine     nova.ComputeNode // that runs nova configure
		rendered    bool
		byAddress   bool
		want        string // addresses, product for all, "" for nothing, or the error
	}{
		{"all of a product are for guests", onlyGuests, laptop, false, false, product},
		{"the console remains", console, laptop, false, false, "88"},
		{"the console remains, rendered", console, laptop, true, false, "88"},
		{"prepared, not booted since", inventory("gpu1", "84/host/nouveau", "88/guest/nouveau"), laptop, false, false, "88"},
		{"one for containers", inventory("gpu1", "84/container/nvidia", "88/guest/vfio-pci"), laptop, false, false, "88"},
		{"one for containers, nothing else recorded", inventory("gpu1", "84/container/nvidia", "88/host/nouveau"), laptop, false, false, "88"},
		{"nothing recorded", inventory("gpu1", "84/host/nouveau", "88/host/nouveau"), laptop, false, false, product},
		{"nothing recorded, all bound by hand", inventory("gpu1", "84/host/vfio-pci", "88/host/vfio-pci"), laptop, false, false, product},
		{"nothing recorded, one bound by hand", inventory("gpu1", "84/host/nouveau", "88/host/vfio-pci"), laptop, false, false, "88"},
		{"an earlier version, one bound", inventory("gpu1", "84/-/nouveau", "88/-/vfio-pci"), laptop, false, false, "88"},
		{"an earlier version", inventory("gpu1", "84/-/-", "88/-/-"), laptop, false, false, product},
		{"nothing recorded, with a console", inventory("gpu1", "84/host/nouveau/11b4/console", "88/host/nouveau"), laptop, false, false, "88"},
		{"nothing recorded, with a console without a driver", inventory("gpu1", "84/host/-/11b4/console", "88/host/nouveau"), laptop, true, false, "88"},
		{"nothing recorded, a console alone", inventory("gpu1", "84/host/nouveau/11b4/console"), laptop, false, false, product},
		{"nothing recorded, a console bound for guests", inventory("gpu1", "84/host/vfio-pci/11b4/console", "88/host/vfio-pci"), laptop, false, false, product},
		{"nothing recorded, a console of another product", inventory("gpu1", "84/host/nouveau/1bb1/console", "88/host/nouveau"), laptop, false, false, product},
		{"a console that is recorded", inventory("gpu1", "84/guest/vfio-pci/11b4/console", "88/guest/vfio-pci"), laptop, false, false, product},
		{"by address", onlyGuests, laptop, false, true, "84 88"},
		{"another product remains", inventory("gpu1", "84/guest/vfio-pci", "88/host/nouveau/1bb1"), laptop, false, false, product},
		{"identical hosts", onlyGuests + inventory("gpu2", "84/guest/vfio-pci", "88/guest/vfio-pci"), laptop, false, false, product},
		{"hosts of other sizes", onlyGuests + inventory("gpu2", "0a/guest/vfio-pci"), laptop, false, false, product},
		{"identical hosts with a console", console + inventory("gpu2", "84/host/nouveau", "88/guest/vfio-pci"), laptop, false, false, "88"},
		{"one host with a console", console + inventory("gpu2", "0a/guest/vfio-pci"), laptop, true, false, "0a 88"},
		{"no text serves both", console + onlyGuestsOf("gpu2"), laptop, true, false,
			"alias K4200: 0000:84:00.0 is for guests on host gpu2, but remains with host gpu1: one text cannot serve both"},
		{"no text serves both, one has containers", inventory("gpu1", "84/container/nvidia", "88/guest/vfio-pci") + onlyGuestsOf("gpu2"), laptop, true, false,
			"alias K4200: 0000:84:00.0 is for guests on host gpu2, but remains with host gpu1: one text cannot serve both"},
		{"on the host itself", console, machineWith(t, "gpu1", []string{"84", "88"}, "84", "88"), false, false, product},
		{"on the host itself, with all others", console + onlyGuestsOf("gpu2"), machineWith(t, "gpu1.example.org", []string{"88"}, "84", "88"), false, false, "88"},
		{"on another host, whose own text is the same", console, machineWith(t, "gpu9", []string{"88"}, "84", "88"), false, false, "88"},
		{"on another host, whose own text differs", console, machineWith(t, "gpu9", []string{"84", "88"}, "84", "88"), false, false,
			"alias K4200: 0000:84:00.0 is for guests on this machine, but remains with host gpu1: one text cannot serve both"},
		{"rendered on another host", console, machineWith(t, "gpu9", []string{"84", "88"}, "84", "88"), true, false, "88"},
	} {
		t.Run(test.name, func(t *testing.T) {
			hosts, err := nova.ReadInventories(document.Source{Paths: []string{document.Stdin}, Stdin: strings.NewReader(test.inventories)}, nova.ScopeGPUs)
			hosttest.NoError(t, err)
			o := nova.Options{Role: nova.Compute, Release: nova.Zed, Hosts: hosts, ComputeNode: test.machine, Rendered: test.rendered, ByAddress: test.byAddress}
			w, err := nova.NewWant(o)
			var got []string
			for _, s := range w.Specs {
				if s.Address == nil {
					got = append(got, product)
				} else {
					got = append(got, strings.TrimSuffix(strings.TrimPrefix(s.Address.String(), "0000:"), ":00.0"))
				}
			}
			if err != nil {
				got = []string{err.Error()}
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Fatal(diff)
			}
			checked := func(text string, hosts []nova.Host) string {
				f, err := conf.Parse([]byte(text))
				hosttest.NoError(t, err)
				side := nova.Side{Role: nova.Compute, Files: []conf.Source{{Name: "node", File: f}}}
				if len(hosts) == 0 {
					side.ComputeNode = test.machine
				}
				var seen []string
				for _, f := range novacheck.Run(nova.Zed, []nova.Side{side}, hosts, nil) {
					if f.Check == "device_spec" {
						seen = append(seen, f.Seen)
					}
				}
				return strings.Join(seen, "; ")
			}
			judges := hosts
			if !test.rendered && hosts[0].Named(strings.TrimSuffix(test.machine.Name, ".example.org")) {
				judges = nil // the machine itself
			}
			if err == nil {
				text, err := nova.Render(o, w)
				hosttest.NoError(t, err)
				if seen := checked(text, judges); seen != "" {
					t.Errorf("nova check of what is planned: %s\n%s", seen, text)
				}
			}
			seen := checked("[pci]\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n", judges)
			if is := test.want == product || test.byAddress; is != (seen == "") && !strings.HasSuffix(test.name, "whose own text differs") {
				t.Errorf("nova check of a device_spec by product: %q", seen)
			}
			// The same file with the product offered already.
			root := hosttest.Lay(t, "-- etc/nova/nova.conf --\n[pci]\ndevice_spec = {\"vendor_id\": \"10de\"}\n")
			if err != nil || test.rendered {
				return
			}
			_, err = nova.NewPlan(root, o, w, nova.Place{File: "/etc/nova/nova.conf"})
			if isRefused := err != nil; isRefused != (test.want != product && !test.byAddress) {
				t.Errorf("nova configure beside a device_spec of the vendor: %v", err)
			}
		})
	}
}

func onlyGuestsOf(host string) string {
	return inventory(host, "84/guest/vfio-pci", "88/guest/vfio-pci")
}
