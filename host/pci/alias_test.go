package pci_test

import (
	"regexp"
	"testing"

	"gpustack/host/pci"
)

func TestAliasHint(t *testing.T) {
	for product, want := range map[string]string{
		"GK104GL [Quadro K4200]":                                     "K4200",
		"GK104GL [GRID K2]":                                          "K2",
		"GK210GL [Tesla K80]":                                        "K80",
		"GM204GL [Tesla M60]":                                        "M60",
		"GV100GL [Tesla V100 SXM2 16GB]":                             "V100",
		"GV100GL [Tesla V100S PCIe 32GB]":                            "V100S",
		"TU104GL [Tesla T4]":                                         "T4",
		"TU102GL [Tesla T10 16GB / GRID RTX T10-2/T10-4/T10-8]":      "T10",
		"TU102GL [Quadro RTX 6000/8000]":                             "RTX6000",
		"TU104GL [Quadro RTX 4000]":                                  "RTX4000",
		"GA100 [A100 SXM4 40GB]":                                     "A100",
		"GA100 [A100-SXM-64GB]":                                      "A100",
		"GA100 [A800 40GB PCIe]":                                     "A800",
		"GA100GL [A30 PCIe]":                                         "A30",
		"GA102GL [RTX A6000]":                                        "A6000",
		"GA102GL [A10G]":                                             "A10G",
		"GA107GL [A2 / A16]":                                         "A2",
		"GH100[H100 SXM5 80GB]":                                      "H100", // as pci.ids had it in 2023
		"GH100 [H100L 94GB]":                                         "H100L",
		"GH100 [H200 NVL]":                                           "H200",
		"GH100 [GH200 120GB / 480GB]":                                "GH200",
		"GB100 [HGX B200 168GB]":                                     "B200",
		"AD102GL [L40S]":                                             "L40S",
		"AD102GL [RTX 6000 Ada Generation]":                          "RTX6000Ada",
		"AD104GL [RTX 4000 SFF Ada Generation]":                      "RTX4000SFFAda",
		"GB202GL [RTX PRO 6000 Blackwell Server Edition]":            "RTXPRO6000",
		"GB202GL [RTX PRO 6000 Blackwell Max-Q Workstation Edition]": "RTXPRO6000",
		"GA102 [GeForce RTX 3090]":                                   "RTX3090",
		"GA102 [GeForce RTX 3080 12GB]":                              "RTX3080",
		"AD103 [GeForce RTX 4070 Ti SUPER]":                          "RTX4070TiSUPER",
		"AD102 [GeForce RTX 4090 D]":                                 "RTX4090D",
		"GA104 [Geforce RTX 3070 Ti Laptop GPU]":                     "RTX3070Ti",
		"GP108M [GeForce MX150]":                                     "MX150",
		"GF119 [NVS 310]":                                            "NVS310",
		"GV100 [TITAN V]":                                            "TITANV",
		"TU102 [TITAN RTX]":                                          "TITANRTX",
		"GM200 [GeForce GTX TITAN X]":                                "GTXTITANX",
		"GK110 [GeForce GTX TITAN]":                                  "GTXTITAN",
		"GF100GL [Quadro 6000]":                                      "Quadro6000",
		"GA100":                                                      "",
		"GA100 [INT SKU]":                                            "",
		"GH100 [Skinny Joe]":                                         "",
		"":                                                           "",
		"[":                                                          "",
	} {
		if got := pci.AliasHint(product); got != want {
			t.Errorf("%s: %q, want %q", product, got, want)
		}
	}
}

// A flavor writes "alias:count,…", so a hint may not hold what separates them.
var aliasName = regexp.MustCompile(`^[A-Za-z0-9]*$`)

func FuzzAliasHint(f *testing.F) {
	for _, seed := range []string{"GK104GL [Quadro K4200]", "x [TITAN :,]", "[RTX 6000/8000]", "[A2\x00]", "[Ärger 7]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, product string) {
		if hint := pci.AliasHint(product); !aliasName.MatchString(hint) {
			t.Fatalf("%q gave %q", product, hint)
		}
	})
}
