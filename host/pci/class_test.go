package pci_test

import (
	"strings"
	"testing"

	"gpustack/host/pci"
)

func TestParseClass(t *testing.T) {
	for in, want := range map[string]string{
		"0x030000": "0300", // as sysfs has it
		"0x0302ff": "0302",
		"0300":     "0300",
		"010802":   "0108",
		"0C03":     "0c03",
		"":         "",
		"0x":       "",
		"03":       "",
		"0x03000":  "",
		"0x03zz00": "",
		"0x0300 0": "",
	} {
		class, err := pci.ParseClass(in)
		if want == "" && err == nil || want != "" && (err != nil || class.String() != want) {
			t.Errorf("%q: %s, %v; want %q", in, class, err, want)
		}
	}
}

func TestClassKinds(t *testing.T) {
	for in, want := range map[string]struct{ display, bridge bool }{
		"0300": {display: true},
		"0302": {display: true},
		"0380": {display: true},
		"0403": {},
		"0600": {}, // a host bridge has an endpoint's header
		"0601": {}, // so has an ISA bridge
		"0604": {bridge: true},
		"0607": {bridge: true},
		"0609": {bridge: true},
		"0680": {}, // an NVSwitch
	} {
		class, err := pci.ParseClass(in)
		if err != nil || class.IsDisplay() != want.display || class.IsBridge() != want.bridge {
			t.Errorf("%s: display %v, bridge %v, %v", in, class.IsDisplay(), class.IsBridge(), err)
		}
	}
}

func TestParseID(t *testing.T) {
	for in, want := range map[string]string{
		"10de": "10de", "0x10de": "10de", "10DE": "10de", "0000": "0000", "ffff": "ffff",
		"": "", "10d": "", "10dea": "", "0x10": "", "10dg": "", "0x10de ": "", "-0de": "",
	} {
		id, err := pci.ParseID(in)
		if want == "" && err == nil || want != "" && (err != nil || id.String() != want) {
			t.Errorf("%q: %s, %v; want %q", in, id, err, want)
		}
	}
}

func FuzzParseClass(f *testing.F) {
	for _, seed := range []string{"0x030000", "0300", "03", "0xffffff", "0x0300zz"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		class, err := pci.ParseClass(s)
		if err != nil {
			return
		}
		digits := strings.ToLower(strings.TrimPrefix(s, "0x"))
		if !strings.HasPrefix(digits, class.String()) {
			t.Fatalf("%q became %s", s, class)
		}
		if again, err := pci.ParseClass(class.String()); err != nil || again != class {
			t.Fatalf("%s became %s, %v", class, again, err)
		}
	})
}
