package machine_test

import (
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// TestJudgeLinks: which links are narrower than card and slot allow. A slot with fewer lanes than
// the card, a width that cannot be read and that of a card which is powered down are no findings.
func TestJudgeLinks(t *testing.T) {
	t.Parallel()
	const gpu, slot = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/", "sys/devices/pci0000:00/0000:00:01.0/"
	const all, none = "1 PCIe link with all lanes of card and slot", "the kernel shows no PCIe link of a GPU"
	for _, test := range []struct{ name, width, most, slot, want string }{
		{"all lanes", "16", "16", "16", all},
		{"badly seated", "8", "16", "16", "0000:01:00.0: the PCIe link has 8 lanes; the card supports 16, the slot 16"},
		{"one lane", "1", "16", "8", "0000:01:00.0: the PCIe link has 1 lane; the card supports 16, the slot 8"},
		{"a narrow slot", "8", "16", "8", all},
		{"a narrow card", "8", "8", "16", all},
		{"the slot shows nothing", "4", "16", "", "0000:01:00.0: the PCIe link has 4 of 16 lanes"},
		{"the slot shows all ones", "4", "16", "255", "0000:01:00.0: the PCIe link has 4 of 16 lanes"},
		{"no link", "0", "16", "16", none},
		{"in a virtual machine", "", "", "", none},
		{"powered down", "63", "16", "16", none},
		{"off the bus", "63", "63", "16", none},
		{"not a number", "Unknown", "16", "16", none},
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
		devices := hosttest.Devices(t, root)
		links := pci.ReadPCIeLinks(root, devices[1:])
		f := machine.JudgeLinks(links, "a GPU", machine.SlowCopies)[0]
		if err := links[devices[1].Address].Err; f.Seen != test.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", test.name, f.Seen, err, test.want)
		}
		if f.Status == host.Warn && (f.Effect != machine.SlowCopies || !strings.HasSuffix(f.File, "/0000:01:00.0/current_link_width")) {
			t.Errorf("%s: file %s, %s", test.name, f.File, f.Effect)
		}
	}
}
