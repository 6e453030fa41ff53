package selection_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// TestCompanions: functions that only share a card or an IOMMU group with a GPU are companions. A
// GPU, a bridge and what shares nothing with a GPU are none.
func TestCompanions(t *testing.T) {
	const (
		gpu         = pci.Class(0x0300)
		audio       = pci.Class(0x0403)
		usb         = pci.Class(0x0c03)
		nic         = pci.Class(0x0200)
		ports       = pci.Class(0x0604)
		nodes       = pci.Class(0x0680)
		accelerator = pci.Class(0x1200)
	)
	type function struct {
		address string
		class   pci.Class
		group   int // 0 for none
	}
	card := []function{{"0000:84:00.0", gpu, 7}, {"0000:84:00.1", audio, 7}}
	for name, test := range map[string]struct {
		functions []function
		want      string
	}{
		"a card":              {card, "0000:84:00.1"},
		"without an IOMMU":    {[]function{{"0000:84:00.0", gpu, 0}, {"0000:84:00.1", audio, 0}, {"0000:85:00.0", nic, 0}}, "0000:84:00.1"},
		"a group":             {append([]function{{"0000:05:00.0", nic, 7}, {"0000:06:00.0", usb, 8}}, card...), "0000:05:00.0 0000:84:00.1"},
		"a bridge":            {append([]function{{"0000:80:01.0", ports, 7}}, card...), "0000:84:00.1"},
		"two GPUs of a group": {append([]function{{"0000:88:00.0", gpu, 7}}, card...), "0000:84:00.1"},
		"an accelerator":      {[]function{{"0000:09:00.0", accelerator, 7}, {"0000:09:00.1", audio, 7}}, "0000:09:00.1"},
		"an NVSwitch":         {append([]function{{"0000:84:00.2", nodes, 7}}, card...), "0000:84:00.1"},
		"no function":         {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var devices pci.Devices
			nvidia, above := pci.NVIDIA, pci.Address{}
			for _, f := range test.functions {
				a := hosttest.Address(t, f.address)
				d := pci.Device{Address: a, VendorID: &nvidia, Class: &f.class, Parent: &above}
				if f.group != 0 {
					d.IOMMUGroup = &f.group
				}
				devices = append(devices, d)
			}
			var got []string
			for _, d := range selection.Companions(devices) {
				got = append(got, d.Address.String())
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	if selection.IsCompanion(nil, nil) {
		t.Error("a function that is missing is a companion")
	}
}
