package pci_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestPCIeLink: which links are narrower than card and slot allow. A slot with fewer lanes than the
// card, a width that cannot be read and that of a card which is powered down are no findings.
func TestPCIeLink(t *testing.T) {
	t.Parallel()
	const gpu, slot = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/", "sys/devices/pci0000:00/0000:00:01.0/"
	for _, test := range []struct{ name, width, most, slot, want string }{
		{"all lanes", "16", "16", "16", ""},
		{"badly seated", "8", "16", "16", "0000:01:00.0: the PCIe link has 8 lanes; the card supports 16, the slot 16"},
		{"one lane", "1", "16", "8", "0000:01:00.0: the PCIe link has 1 lane; the card supports 16, the slot 8"},
		{"a narrow slot", "8", "16", "8", ""},
		{"a narrow card", "8", "8", "16", ""},
		{"the slot shows nothing", "4", "16", "", "0000:01:00.0: the PCIe link has 4 of 16 lanes"},
		{"the slot shows all ones", "4", "16", "255", "0000:01:00.0: the PCIe link has 4 of 16 lanes"},
		{"no link", "0", "16", "16", ""},
		{"in a virtual machine", "", "", "", ""},
		{"powered down", "63", "16", "16", ""},
		{"off the bus", "63", "63", "16", ""},
		{"not a number", "Unknown", "16", "16", ""},
	} {
		tree := "symlink sys/bus/pci/devices/0000:00:01.0 -> ../../../devices/pci0000:00/0000:00:01.0\n" +
			"symlink sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0\n" +
			"-- " + slot + "class --\n0x060400\n-- " + gpu + "class --\n0x030200\n"
		for file, text := range map[string]string{gpu + "current_link_width": test.width, gpu + "max_link_width": test.most, slot + "max_link_width": test.slot} {
			if text != "" {
				tree += "-- " + file + " --\n" + text + "\n"
			}
		}
		root := hosttest.Lay(t, tree)
		devices, _, err := pci.Scan(root, pci.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := pci.ReadPCIeLink(root, &devices[1])
		f, narrow := l.Narrow(devices[1].Address)
		if narrow != (test.want != "") || f.Seen != test.want || l.Err != nil {
			t.Errorf("%s: %t, %q, %v; want %q", test.name, narrow, f.Seen, l.Err, test.want)
		}
		if narrow && !strings.HasSuffix(f.File, "/0000:01:00.0/current_link_width") {
			t.Errorf("%s: file %s", test.name, f.File)
		}
	}
}
