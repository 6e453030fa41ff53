package pci_test

import (
	"fmt"
	"regexp"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// A product has one name, whatever pci.ids of the machine says of it.
func TestAliasNameOfTheTable(t *testing.T) {
	for id, want := range map[pci.ID]string{
		0x11b4: "K4200", 0x11bf: "K2", 0x102d: "K80", 0x13f2: "M60", 0x1db4: "V100-PCIE-16GB", 0x1db5: "V100-SXM2-32GB", 0x1df5: "V100-SXM2-16GB-1df5",
		0x1df6: "V100S", 0x1eb8: "T4", 0x1e30: "RTX6000-8000", 0x1eb1: "RTX4000", 0x20b0: "A100-SXM4-40GB", 0x20b2: "A100-SXM4-80GB", 0x20f1: "A100-PCIE-40GB",
		0x20b5: "A100-PCIE-80GB", 0x20b7: "A30", 0x2230: "A6000", 0x2237: "A10G", 0x25b6: "A2-A16", 0x2204: "RTX3090", 0x2330: "H100-SXM5-80GB", 0x2331: "H100-PCIE",
		0x2335: "H200-SXM", 0x2342: "GH200-120GB-480GB", 0x26b1: "RTX6000Ada", 0x27b0: "RTX4000Ada-SFF", 0x26b9: "L40S", 0x2901: "B200", 0x2bb5: "RTXPRO6000-Server",
		0x2c38: "RTXPRO5000-Laptop", 0x2e12: "GB10", 0x2e2a: "N1X", 0x31c0: "GB300-31c0",
	} {
		for _, text := range []string{"", "GA100", "GA100 [Something 7]", "GA100 [A100 SXM4 40GB]"} {
			hosttest.EqualIn(t, fmt.Sprintf("%s, called %q", id, text), want, pci.AliasName(pci.NVIDIA, id, text))
		}
	}
}

func TestAliasNameOfText(t *testing.T) {
	for text, want := range map[string]string{
		"GR100 [R200 SXM7 288GB]":                   "R200-SXM7-288GB",
		"GR100 [R200 288GB PCIe]":                   "R200-PCIE-288GB",
		"GR100[R200-SXM7-288GB]":                    "R200-SXM7-288GB",
		"GR100 [GR200 144G HBM3e]":                  "GR200-HBM3e-144G",
		"GH100 [H100L 94GB]":                        "H100L-94GB",
		"GB202GL [RTX PRO 6500 Blackwell Max-Q]":    "RTXPRO6500-Max-Q",
		"GA104 [Geforce RTX 3070 Ti Laptop GPU]":    "RTX3070Ti-Laptop",
		"TU117M [GeForce GTX 1650 Mobile / Max-Q]":  "GTX1650-Mobile",
		"TU102 [GeForce RTX 2080 Ti Rev. B]":        "RTX2080Ti-Rev-B",
		"GP106 [P106-090]":                          "P106-090",
		"GP108M [GeForce MX150]":                    "MX150",
		"GF119 [NVS 310]":                           "NVS310",
		"GF100GL [Quadro 6000]":                     "Quadro6000",
		"GV100 [TITAN V CEO Edition]":               "TITANV-CEO",
		"GB20C [RTX Spark N2X (6144-core RTX GPU)]": "N2X",
		"AD102 [GeForce RTX 4090 D]":                "RTX4090D-ffff", // the table has the name for another product
		"GA100 [a100 sxm4 40gb]":                    "a100-sxm4-40gb-ffff",
		"GA100":                                     "",
		"GA100 [INT SKU]":                           "",
		"GH100 [Skinny Joe]":                        "",
		"GB100 [Reserved Dev ID A]":                 "",
		"":                                          "",
		"[":                                         "",
		"x [:,/ 7]":                                 "",
		"x [Ärger 7:8,9]":                           "789",
	} {
		hosttest.EqualIn(t, text, want, pci.AliasName(pci.NVIDIA, 0xffff, text))
	}
}

// The names of other vendors' GPUs are those of pci.ids, also on machines without that file (the PCI
// ID Repository; Intel Arc Pro A40 beside NVIDIA A40).
func TestAliasNameOfOthers(t *testing.T) {
	for _, test := range []struct {
		vendor, product pci.ID
		text, want      string
	}{
		{0x1002, 0x74a1, "", "MI300X"},
		{0x1002, 0x74a1, "Aqua Vanjaram", "MI300X"},
		{0x1002, 0x74b5, "", "MI300X-VF"},
		{0x1002, 0x740c, "", "MI250X"},
		{0x1002, 0x7460, "", "V710"},
		{0x1002, 0x744c, "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M]", "RX7900-XT"},
		{0x1002, 0x7448, "Navi 31 [Radeon Pro W7900]", "W7900"},
		{0x8086, 0x56c0, "", "Flex170"},
		{0x8086, 0x0bda, "", "Max1100"},
		{0x8086, 0xe211, "", "ArcProB60"},
		{0x8086, 0x56b1, "DG2 [Arc Pro A30M/A40/A50]", "ArcProA30M"},
		{0x8086, 0x4680, "AlderLake-S GT1", ""},
		{0x1da3, 0x1060, "", "Gaudi3"},
	} {
		hosttest.EqualIn(t, fmt.Sprintf("%s:%s %q", test.vendor, test.product, test.text), test.want, pci.AliasName(test.vendor, test.product, test.text))
	}
}

// A flavor writes "alias:count,…", so a name must not have what separates them.
var legalName = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9-]*)?$`)

func FuzzAliasName(f *testing.F) {
	for _, seed := range []string{"GK104GL [Quadro K4200]", "x [TITAN :,]", "[RTX 6000/8000]", "[A2\x00]", "[Ärger 7]", "[-- 7 --]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if name := pci.AliasName(pci.NVIDIA, 0xffff, text); !legalName.MatchString(name) {
			t.Fatalf("%q gave %q", text, name)
		}
	})
}

// A GPU of which nothing but the ids is known has no name, and neither has an audio function.
func TestNoAliasName(t *testing.T) {
	for _, product := range []string{"0xfffe", "0x0e0a"} {
		class := "0x030200"
		if product == "0x0e0a" {
			class = "0x040300"
		}
		devices, _ := scan(t, folder("class = "+class+"\nvendor = 0x10de\ndevice = "+product))
		if devices[0].AliasHint != nil {
			t.Errorf("%s: %s", product, *devices[0].AliasHint)
		}
	}
}
