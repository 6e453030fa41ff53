package devspec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// Nova itself judges this package elsewhere: which specs it accepts, which functions they match,
// the classes and traits that it gives them (nova/novacheck, TestVerdictsOn…, by recorded answers
// of four releases; integration, TestVerdicts, TestSpecsAtRandom and TestSpecsThatStart, by the
// installed one). These tests hold what the recorded answers do not name.

// parse returns the spec in a JSON object.
func parse(t testing.TB, text string) (devspec.Spec, error) {
	t.Helper()
	objects := conf.ParseObjects(text)
	if len(objects) != 1 {
		t.Fatalf("%s: %d objects", text, len(objects))
	}
	s, faults := devspec.Parse(objects[0])
	if s.Faulty != (len(faults) > 0) {
		t.Errorf("%s: faulty %t, %v", text, s.Faulty, faults)
	}
	return s, errors.Join(faults...)
}

// function is a function of a machine: a PF has VFs, a VF has a PF.
func function(t testing.TB, address, ids, pf string, vfs int) pci.Device {
	t.Helper()
	at := func(s string) pci.Address {
		return hosttest.Address(t, s)
	}
	var vendor, product pci.ID
	if _, err := fmt.Sscanf(ids, "%04x:%04x", &vendor, &product); err != nil {
		t.Fatal(err)
	}
	class := pci.Class(0x0200)
	d := pci.Device{Address: at(address), VendorID: &vendor, ProductID: &product, Class: &class}
	if pf != "" {
		parent := at(pf)
		d.SRIOV.PF = &parent
	}
	if vfs > 0 {
		d.SRIOV.TotalVFs = &vfs
	}
	return d
}

// server has a GPU, and an adapter with two VFs and the interface eth1.
func server(t testing.TB) devspec.Hardware {
	t.Helper()
	devices := []pci.Device{function(t, "0000:84:00.0", "10de:11b4", "", 0), function(t, "0000:a1:00.0", "15b3:101b", "", 2),
		function(t, "0000:a1:00.1", "15b3:101c", "0000:a1:00.0", 0), function(t, "0000:a1:00.2", "15b3:101c", "0000:a1:00.0", 0)}
	return devspec.NewHardware(devices, map[string]pci.Address{"eth1": devices[1].Address})
}

// TestParse: which functions of the server a spec matches, or why nova-compute does not start with
// it.
func TestParse(t *testing.T) {
	const all = "84:00.0 a1:00.0 a1:00.1 a1:00.2"
	for _, test := range []struct{ name, spec, matches, err string }{
		{"nothing named", `{}`, all, ""},
		{"ids", `{"vendor_id": "15B3", "product_id": "101c"}`, "a1:00.1 a1:00.2", ""},
		{"a vendor with spaces and a prefix", `{"vendor_id": " 0x15b3 "}`, "a1:00.0 a1:00.1 a1:00.2", ""},
		{"digits with an underscore", `{"product_id": "1_01c"}`, "a1:00.1 a1:00.2", ""},
		{"two underscores", `{"product_id": "1__01c"}`, "", `product_id: "1__01c" is not a hexadecimal number`},
		{"an underscore after the prefix", `{"vendor_id": "0x_15b3"}`, "a1:00.0 a1:00.1 a1:00.2", ""},
		{"a sign", `{"product_id": "+101b"}`, "a1:00.0", ""},
		{"too large", `{"product_id": "1101b"}`, "", `product_id: "1101b" is greater than ffff`},
		{"a wildcard in part", `{"product_id": "101*"}`, "", `product_id: "101*" is neither * nor a hexadecimal number; * replaces a whole field only`},
		{"an id that is a number", `{"product_id": 101}`, "", "product_id is 101, not a string"},
		{"null", `{"vendor_id": null}`, "", "vendor_id is null, not a string"},
		{"all that is wrong", `{"vendor_id": 1, "product_id": "x", "address": 7}`, "",
			"vendor_id is 1, not a string\nproduct_id: \"x\" is not a hexadecimal number\naddress is 7, neither a string nor an object"},
		{"one address", `{"address": "0000:84:00.0"}`, "84:00.0", ""},
		{"an address without its domain", `{"address": "84:00.0"}`, "84:00.0", ""},
		{"a function only", `{"address": ".1"}`, "a1:00.1", ""},
		{"a PF, with its VFs", `{"address": "0000:a1:00.0"}`, "a1:00.0 a1:00.1 a1:00.2", ""},
		{"wildcards", `{"address": "*:a1:*.*", "product_id": "101c"}`, "a1:00.1 a1:00.2", ""},
		{"four fields", `{"address": "0:0000:a1:00.0"}`, "", `address "0:0000:a1:00.0": has more than three colons`},
		{"a slot out of range", `{"address": "0000:a1:20.0"}`, "", `address "0000:a1:20.0": slot: "20" is greater than 1f`},
		{"an empty address", `{"address": ""}`, all, ""},
		{"expressions", `{"address": {"bus": "a[0-9]", "function": "[12]"}}`, "a1:00.1 a1:00.2", ""},
		{"expressions match from the beginning, not to the end", `{"address": {"domain": "00", "bus": "8"}}`, "84:00.0", ""},
		{"expressions that are one address", `{"address": {"domain": "0000", "bus": "a1", "slot": "00", "function": "0"}}`, "a1:00.0 a1:00.1 a1:00.2", ""},
		{"an expression of Python's", `{"address": {"bus": "(?=a1)a1"}}`, "", ""},
		{"no expression", `{"address": {"bus": "(a1"}}`, "", `address: bus "(a1" is not a regular expression`},
		{"an expression that is a number", `{"address": {"bus": 1}}`, "", "address: bus is 1, not a string"},
		{"an interface", `{"devname": "eth1"}`, "a1:00.0 a1:00.1 a1:00.2", ""},
		{"an interface of another machine", `{"devname": "eth7"}`, "", ""},
		{"an interface and an address", `{"devname": "eth1", "address": "84:00.0"}`, "", "address and devname cannot be combined"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := parse(t, test.spec)
			if got := fmt.Sprint(err); err != nil && got != test.err || err == nil && test.err != "" {
				t.Errorf("error %v, want %q", err, test.err)
			}
			h := server(t)
			var matched []string
			for i := range h.Devices {
				if d := &h.Devices[i]; h.Matches(s, d) {
					matched = append(matched, strings.TrimPrefix(d.Address.String(), "0000:"))
				}
			}
			hosttest.EqualIn(t, "matches", test.matches, strings.Join(matched, " "))
		})
	}
	unknown := function(t, "0000:99:00.0", "10de:11b4", "", 0)
	unknown.ProductID = nil
	if s, _ := parse(t, `{}`); server(t).Matches(s, &unknown) {
		t.Error("a function whose product cannot be read is matched")
	}
}

// TestContains: a spec contains another one if it matches all that the other one can match, on a
// machine with these PFs.
func TestContains(t *testing.T) {
	for _, test := range []struct {
		name, spec, other string
		want, back        bool
	}{
		{"the same", `{"address": "0000:84:00.0"}`, `{"address": "0:84:0.0"}`, true, true},
		{"any domain", `{"address": "84:00.0"}`, `{"address": "0000:84:00.0"}`, true, false},
		{"everything", `{}`, `{"product_id": "101c"}`, true, false},
		{"a vendor and a product", `{"vendor_id": "15b3"}`, `{"vendor_id": "15b3", "product_id": "101c"}`, true, false},
		{"other products", `{"product_id": "101b"}`, `{"product_id": "101c"}`, false, false},
		{"a slot", `{"address": "a1:00.*"}`, `{"address": "a1:00.1"}`, true, false},
		{"a PF and its VF", `{"address": "0000:a1:00.0"}`, `{"address": "0000:a1:00.1"}`, true, false},
		{"a PF without its VFs, as any domain may be meant", `{"address": "a1:00.0"}`, `{"address": "0000:a1:00.0"}`, false, false},
		{"expressions", `{"address": {"bus": "[0-9a-f]+"}}`, `{"address": {"bus": "a."}}`, true, false},
		{"an expression and a number", `{"address": {"bus": "8"}}`, `{"address": "*:84:*.*"}`, true, false},
		{"an expression of Python's", `{"address": {"bus": "(?=a)a1"}}`, `{"address": "*:a1:*.*"}`, false, false},
		{"everything, and an expression of Python's", `{}`, `{"address": {"bus": "(?=a)a1"}}`, true, false},
		{"an interface", `{"devname": "eth1"}`, `{"address": "0000:a1:00.2"}`, true, false},
		{"an interface of another machine", `{"devname": "eth7"}`, `{"devname": "eth7"}`, false, false},
		{"one that nova-compute does not start with", `{}`, `{"vendor_id": 1}`, false, false},
	} {
		h := server(t)
		a, _ := parse(t, test.spec)
		b, _ := parse(t, test.other)
		if got, back := h.Contains(a, b), h.Contains(b, a); got != test.want || back != test.back {
			t.Errorf("%s: %t, the other way round %t", test.name, got, back)
		}
	}
}

// TestTags: what Nova knows of the devices of a spec: keys other than ids, address and name, with
// booleans as such. Two specs differ by the tags that one lacks or has otherwise.
func TestTags(t *testing.T) {
	s, err := parse(t, `{"vendor_id": "10de", "name": "x", "managed": "Yes", "trusted": "maybe", "resource_class": "gpu", "physical_network": null}`)
	hosttest.NoError(t, err)
	hosttest.Equal(t, map[string]any{"managed": true, "trusted": "maybe", "resource_class": "gpu", "physical_network": nil}, s.Tags())
	if names := s.TagNames(); !slices.Equal(names, []string{"managed", "name", "physical_network", "resource_class", "trusted"}) {
		t.Errorf("%q", names)
	}
	if s.IsNetwork() || !s.IsOn("managed") || s.IsOn("trusted") {
		t.Errorf("network %t, managed %t, trusted %t", s.IsNetwork(), s.IsOn("managed"), s.IsOn("trusted"))
	}
	other, _ := parse(t, `{"managed": true, "trusted": "no", "resource_class": "gpu"}`)
	if lost := s.Lost(other); !slices.Equal(lost, []string{"physical_network", "trusted"}) {
		t.Errorf("%q", lost)
	}
	if lost := other.Lost(s); !slices.Equal(lost, []string{"trusted"}) {
		t.Errorf("%q", lost)
	}
}

// TestReportFaults: VFs of one PF need one class and one set of traits, and are not reported
// beside their PF.
func TestReportFaults(t *testing.T) {
	for _, test := range []struct{ name, value, want string }{
		{"the VFs", `{"product_id": "101c", "resource_class": "vf"}`, ""},
		{"the PF and its VFs by one spec", `{"vendor_id": "15b3"}`,
			`the device_spec {"vendor_id": "15b3"} matches the PF 0000:a1:00.0 and its VF 0000:a1:00.1`},
		{"two classes", `[{"address": "a1:00.1", "resource_class": "a"}, {"address": "a1:00.2", "resource_class": "b"}]`,
			"VFs of the PF 0000:a1:00.0 have more than one resource class: 0000:a1:00.1 has CUSTOM_A, 0000:a1:00.2 has CUSTOM_B"},
		{"two sets of traits", `[{"address": "a1:00.1", "traits": "b,HW_GPU_API_VULKAN,b"}, {"product_id": "101c"}]`,
			"VFs of the PF 0000:a1:00.0 have more than one set of traits: 0000:a1:00.1 has CUSTOM_B,HW_GPU_API_VULKAN, 0000:a1:00.2 has none"},
		{"traits in another order", `[{"address": "a1:00.1", "traits": "a,b"}, {"product_id": "101c", "traits": "b,a"}]`, ""},
		{"of Neutron", `{"vendor_id": "15b3", "physical_network": "net"}`, ""},
		{"an interface", `{"devname": "eth7"}`, `the device_spec {"devname": "eth7"} has a devname, which is not supported with report_in_placement`},
	} {
		f, err := conf.Parse([]byte("[pci]\ndevice_spec = " + test.value + "\n"))
		hosttest.NoError(t, err)
		lines := devspec.Lines([]conf.Source{{Name: "nova.conf", File: f}}, []conf.Name{{Section: "pci", Key: "device_spec"}})
		var seen []string
		for _, fault := range server(t).ReportFaults(lines) {
			seen = append(seen, fault.Seen)
		}
		hosttest.EqualIn(t, test.name, test.want, strings.Join(seen, "\n"))
	}
}

// TestInterfaces: interfaces without a PCI function are left out; a folder that cannot be read is
// an error.
func TestInterfaces(t *testing.T) {
	got, err := devspec.Interfaces(hosttest.Lay(t, "symlink sys/class/net/eth1/device -> ../../../0000:a1:00.0\nmkdir sys/class/net/lo\n"+
		"symlink sys/class/net/usb0/device -> ../../../1-1:1.0\n"))
	if len(got) != 1 || got["eth1"].String() != "0000:a1:00.0" || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := devspec.Interfaces(hosttest.Lay(t, "mkdir sys\n")); got == nil || len(got) > 0 || err != nil {
		t.Errorf("without interfaces: %v, %v", got, err)
	}
	if got, err := devspec.Interfaces(hosttest.Lay(t, "symlink sys/class/net -> net\n")); err == nil {
		t.Errorf("a folder that cannot be read: %v", got)
	}
}

// FuzzParse: of any two objects, a spec that contains the other one matches all functions that the
// other one matches, and Everywhere, Single and Matches agree.
func FuzzParse(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"vendor_id": "15b3"}`, `{"vendor_id": "15b3", "address": "a1:00.*"}`}, {`{"address": {"bus": "[0-9]+"}}`, `{"address": {"bus": "8"}}`},
		{`{"address": "a1:00.0"}`, `{"address": ".1"}`}, {`{"devname": "eth1"}`, `{"address": "*:a1:00.0"}`},
		{`{"address": {"domain": "0000", "bus": "a1", "slot": "00", "function": "0"}}`, `{}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		h := server(t)
		var specs []devspec.Spec
		for _, text := range []string{one, two} {
			var object map[string]any
			if json.Unmarshal([]byte(text), &object) != nil || object == nil {
				return
			}
			s, faults := devspec.Parse(object)
			if s.Faulty != (len(faults) > 0) {
				t.Errorf("%s: faulty %t, %v", text, s.Faulty, faults)
			}
			specs = append(specs, s)
		}
		a, b := specs[0], specs[1]
		contains := h.Contains(a, b)
		for i := range h.Devices {
			d := &h.Devices[i]
			if contains && h.Matches(b, d) && !h.Matches(a, d) {
				t.Errorf("%s contains %s, but only that matches %s", one, two, d.Address)
			}
			if a.Single == d.Address.String() && !a.Faulty && !a.Opaque() && a.MatchesIDs(d.VendorID.String(), d.ProductID.String()) && !h.Matches(a, d) {
				t.Errorf("%s does not match %s", one, d.Address)
			}
			if a.Everywhere() && !a.Faulty && a.MatchesIDs(d.VendorID.String(), d.ProductID.String()) && !h.Matches(a, d) {
				t.Errorf("%s does not match everywhere: %s", one, d.Address)
			}
		}
	})
}
