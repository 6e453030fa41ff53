package pci_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// machine is a table of functions: address, class, vendor:product, group.
const machine = `
0000:00:01.0 0604 8086:2f02 1
0000:01:00.0 0300 10de:11b4 1
0000:01:00.1 0403 10de:0e0a 1
0000:02:00.0 0302 10de:20b2 2
0000:02:00.1 0c03 1022:1234 3
0000:03:00.0 0680 10de:1af1 4
0000:04:00.0 0300 1a03:2000 5
0000:05:00.0 0108 144d:a824 2
0000:06:00.0 0300 10de:11b4 -
`

func functions(t *testing.T, table string) []pci.Device {
	t.Helper()
	var devices []pci.Device
	for line := range strings.Lines(strings.TrimSpace(table)) {
		field := strings.Fields(line)
		var d pci.Device
		vendor, product, _ := strings.Cut(field[2], ":")
		d.Address = hosttest.Address(t, field[0])
		d.Class = parsed(t, pci.ParseClass, field[1])
		d.VendorID = parsed(t, pci.ParseID, vendor)
		d.ProductID = parsed(t, pci.ParseID, product)
		if group := field[3]; group != "-" {
			number := int(group[0] - '0')
			d.IOMMUGroup = &number
		}
		d.Candidate = d.IsVendor(pci.NVIDIA) && d.IsGPU()
		devices = append(devices, d)
	}
	return devices
}

func parsed[T any](t *testing.T, parse func(string) (T, error), s string) *T {
	t.Helper()
	v, err := parse(s)
	hosttest.NoError(t, err)
	return &v
}

func addresses(devices []pci.Device) string {
	var list []string
	for _, d := range devices {
		list = append(list, strings.TrimPrefix(d.Address.String(), "0000:"))
	}
	return strings.Join(list, " ")
}

func matching(devices []pci.Device, matches func(*pci.Device) bool) (matching []pci.Device) {
	for i := range devices {
		if matches(&devices[i]) {
			matching = append(matching, devices[i])
		}
	}
	return matching
}

func TestCandidates(t *testing.T) {
	devices := functions(t, machine)
	// With both displays that NVIDIA made: what shares a slot or a group, and
	// neither the NVSwitch nor the board's own graphics.
	want := "00:01.0 01:00.0 01:00.1 02:00.0 02:00.1 05:00.0 06:00.0"
	hosttest.Equal(t, want, addresses(matching(devices, pci.Candidates(devices))))
	if got := matching(devices, pci.Candidates(devices[6:7])); len(got) != 0 {
		t.Errorf("without a GPU: %v, want none", got)
	}
}

func TestFilter(t *testing.T) {
	devices := functions(t, machine)
	for _, test := range []struct {
		name                      string
		vendors, classes, selects []string
		want                      string
	}{
		{"by vendor", []string{"10de"}, nil, nil, "01:00.0 01:00.1 02:00.0 03:00.0 06:00.0"},
		{"by several vendors", []string{"144d", "1A03"}, nil, nil, "04:00.0 05:00.0"},
		{"by class", nil, []string{"0300"}, nil, "01:00.0 04:00.0 06:00.0"},
		{"by base class", nil, []string{"03"}, nil, "01:00.0 02:00.0 04:00.0 06:00.0"},
		{"by vendor and class", []string{"10de"}, []string{"03"}, nil, "01:00.0 02:00.0 06:00.0"},
		{"by product", nil, nil, []string{"10de:11b4"}, "01:00.0 06:00.0"},
		{"by address", nil, nil, []string{"02:00.1", "0000:05:00.0"}, "02:00.1 05:00.0"},
		{"by what nothing is", []string{"ffff"}, nil, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var f pci.Filter
			for _, s := range test.vendors {
				f.Vendors = append(f.Vendors, *parsed(t, pci.ParseID, s))
			}
			for _, s := range test.classes {
				f.Classes = append(f.Classes, *parsed(t, pci.ParseClassPrefix, s))
			}
			for _, s := range test.selects {
				f.Devices = append(f.Devices, *parsed(t, pci.ParseSelector, s))
			}
			hosttest.Equal(t, test.want, addresses(matching(devices, f.Matches)))
		})
	}
}

func TestParseSelectorRefuses(t *testing.T) {
	for _, s := range []string{"", "10de", "10de:", ":11b4", "10de:11b4:0300", "84:00", "84:00.9", "nvidia:k4200"} {
		if got, err := pci.ParseSelector(s); err == nil {
			t.Errorf("%q became %s", s, got)
		}
	}
}

func TestParseClassPrefixRefuses(t *testing.T) {
	for _, s := range []string{"", "0", "030", "03000", "030000", "zz", "03zz", "0x"} {
		if _, err := pci.ParseClassPrefix(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}
