package pci_test

import (
	"errors"
	"slices"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

func TestParseGiven(t *testing.T) {
	for given, want := range map[string]string{
		"ca:00.0": "0000:ca:00.0", "0000:CA:00.0": "0000:ca:00.0", "pci_0000_ca_00_0": "0000:ca:00.0", "pci@0000:ca:00.0": "0000:ca:00.0",
		"00000000:CA:00.0": "0000:ca:00.0", " 0000:ca:00.1\n": "0000:ca:00.1", "pci_10000_01_00_0": "10000:01:00.0",
		"ca:00": "", "pci_0000_ca_00": "", "ca:00.0,cb:00.0": "", "10de:11b4": "", "": "", "pci_0000_ca_00_8": "", "K4200": "",
	} {
		a, err := pci.ParseGiven(given)
		if got := a.String(); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q: %s, %v; want %q", given, got, err, want)
		}
	}
}

// TestLike: what an operator may mean by a text, and what is offered for a selector without a
// function.
func TestLike(t *testing.T) {
	device := func(address, vendor, product, name, class string) pci.Device {
		a := hosttest.Address(t, address)
		v, _ := pci.ParseID(vendor)
		p, _ := pci.ParseID(product)
		c, _ := pci.ParseClass(class)
		return pci.Device{Address: a, VendorID: &v, ProductID: &p, Product: &name, Class: &c}
	}
	all := pci.Devices{
		device("0000:84:00.0", "10de", "11b4", "GK104GL [Quadro K4200]", "0300"), device("0000:84:00.1", "10de", "0e0a", "GK104 HDMI Audio Controller", "0403"),
		device("0001:ca:00.0", "10de", "20b2", "GA100 [A100 SXM4 80GB]", "0302"), device("0000:c3:00.0", "15b3", "101b", "MT28908 Family [ConnectX-6]", "0207"),
	}
	for text, want := range map[string][]string{
		"84:00": {"0000:84:00.0", "0000:84:00.1"}, "0000:84": {"0000:84:00.0", "0000:84:00.1"}, "84": {"0000:84:00.0", "0000:84:00.1"}, "ca:00": {"0001:ca:00.0"},
		"k4200": {"0000:84:00.0"}, "Quadro-K4200": {"0000:84:00.0"}, "a100": {"0001:ca:00.0"}, "ConnectX6": {"0000:c3:00.0"}, "11b4": {"0000:84:00.0"},
		"10de": {"0000:84:00.0", "0001:ca:00.0"}, "15b3:101b": {"0000:c3:00.0"}, "nothing": nil, "": nil, "x": nil,
	} {
		var got []string
		for _, d := range all.Like(text) {
			got = append(got, d.Address.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	for selector, want := range map[string]string{
		"11de:11b4": "10de:11b4", "20b2:10de": "10de:20b2", "84:00.5": "0000:84:00.0", "ca:00.0": "0001:ca:00.0", "99:00.0": "", "10de:ffff": "",
	} {
		s, err := pci.ParseSelector(selector)
		hosttest.NoError(t, err)
		hosttest.EqualIn(t, selector, want, all.Meant(s))
		if len(host.HintOf(all.NotFound(errors.New("none"), s, pci.ListFunctions()))) == 0 {
			t.Errorf("%s: no hint", selector)
		}
	}
}
