package pci_test

import (
	"regexp"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

func TestParseAddress(t *testing.T) {
	for _, test := range []struct {
		in, want string // want "" for an error
	}{
		{"0000:84:00.1", "0000:84:00.1"},
		{"84:00.1", "0000:84:00.1"},
		{"0000:FF:1F.7", "0000:ff:1f.7"},
		{"10000:e1:00.0", "10000:e1:00.0"}, // Intel VMD
		{"20ab0000:00:00.0", "20ab0000:00:00.0"},
		{"", ""},
		{"84:00", ""},
		{"84:00.8", ""},
		{"84:00.10", ""},
		{"84:20.0", ""}, // slots end at 1f
		{"184:00.0", ""},
		{"4:00.0", ""},
		{"000:84:00.0", ""},
		{"000000000:84:00.0", ""},
		{"0000:84:00:0", ""},
		{"0000:84:+1.0", ""},
		{"0000:84:00.0\n", ""},
		{" 84:00.0", ""},
		{"0000:0000:84:00.0", ""},
	} {
		t.Run(test.in, func(t *testing.T) {
			address, err := pci.ParseAddress(test.in)
			switch {
			case test.want == "" && err == nil:
				t.Errorf("got %s, want an error", address)
			case test.want != "" && (err != nil || address.String() != test.want):
				t.Errorf("got %s, %v; want %s", address, err, test.want)
			}
		})
	}
}

func TestAddressOrder(t *testing.T) {
	ordered := []string{"0000:00:00.0", "0000:00:00.1", "0000:00:01.0", "0000:0a:00.0", "0001:00:00.0", "10000:00:00.0"}
	for i := range ordered[1:] {
		a, b := hosttest.Address(t, ordered[i]), hosttest.Address(t, ordered[i+1])
		if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
			t.Errorf("%s does not come before %s", a, b)
		}
	}
	if a := hosttest.Address(t, "84:00.0"); !a.SameSlot(hosttest.Address(t, "84:00.3")) || a.SameSlot(hosttest.Address(t, "84:01.0")) {
		t.Error("functions of a slot are those with its bus and slot number")
	}
}

// kernelName is what pci_setup_device (drivers/pci/probe.c) can make of "%04x:%02x:
// %02x.%d", of which the domain grows as it must.
var kernelName = regexp.MustCompile(`^([0-9a-f]{4}|[1-9a-f][0-9a-f]{4,7}):[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{"0000:84:00.1", "84:00.1", "10000:e1:00.0", "ffffffff:FF:1f.7", "0000:84:00.9", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		address, err := pci.ParseAddress(s)
		if kernelName.MatchString(s) && (err != nil || address.String() != s) {
			t.Fatalf("%q, a name of the kernel's, came back as %s, %v", s, address, err)
		}
		if err != nil {
			return
		}
		again, err := pci.ParseAddress(address.String())
		if err != nil || again != address || !kernelName.MatchString(address.String()) {
			t.Fatalf("%q became %s, and that %s, %v", s, address, again, err)
		}
		var back pci.Address
		if text, _ := address.MarshalText(); back.UnmarshalText(text) != nil || back != address {
			t.Fatalf("%s came back from text as %s", address, back)
		}
	})
}
