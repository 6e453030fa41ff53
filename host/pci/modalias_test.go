package pci_test

import (
	"fmt"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

func TestParseModalias(t *testing.T) {
	got, err := pci.ParseModalias("pci:v000010DEd000011B4sv0000103Csd00001096bc03sc02i01")
	want := pci.Modalias{Vendor: 0x10de, Product: 0x11b4, SubsystemVendor: 0x103c, Subsystem: 0x1096, Class: 0x0302}
	if got != want || err != nil {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{
		"",
		"pci:v000010DEd000011B4",
		"pci:v000010ded000011b4sv0000103csd00001096bc03sc02i01",   // lower case
		"pci:v000110DEd000011B4sv0000103Csd00001096bc03sc02i01",   // a vendor id of more than 16 bits
		"pci:v000010DEd000011B4sv0000103Csd00001096bc03sc02i0",    // cut off
		"pci:v000010DEd000011B4sv0000103Csd00001096bc03sc02i01\n", // two lines
		"pci:v000010DEd000011B4sv*sd*bc03sc02i01",                 // a pattern
		"pci:v000010DEd000011B4sv0000103Csd00001096bc03sc02iXX",
		"usb:v000010DEd000011B4sv0000103Csd00001096bc03sc02i01",
	} {
		if got, err := pci.ParseModalias(text); err == nil || got != (pci.Modalias{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// FuzzParseModalias: what is parsed is written again as the kernel writes it, apart from the
// programming interface.
func FuzzParseModalias(f *testing.F) {
	f.Add("pci:v000010DEd000011B4sv0000103Csd00001096bc03sc02i01")
	f.Add("pci:v000010DEd000011B4sv*sd*bc03sc02i01")
	f.Add("pci:v0000FFFFd0000FFFFsv0000FFFFsd0000FFFFbcFFscFFiFF")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := pci.ParseModalias(text)
		if err != nil {
			if m != (pci.Modalias{}) {
				t.Errorf("%q: %+v with an error", text, m)
			}
			return
		}
		again := fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%s", int(m.Vendor), int(m.Product),
			int(m.SubsystemVendor), int(m.Subsystem), int(m.Class)>>8, int(m.Class)&0xff, text[len(text)-2:])
		hosttest.EqualIn(t, "parsed again", text, again)
	})
}
