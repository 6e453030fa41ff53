package pci_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// layTable returns the functions of a machine's table, with what Link reads.
func layTable(t *testing.T, file string) pci.Devices {
	t.Helper()
	text, err := os.ReadFile(file)
	hosttest.NoError(t, err)
	var devices pci.Devices
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(line, "#") || len(f) < 11 {
			continue
		}
		var d pci.Device
		if d.Address, err = pci.ParseAddress(f[0]); err != nil {
			t.Fatal(err)
		}
		if v, err := pci.ParseID(f[2]); err == nil {
			d.VendorID = &v
		}
		if p, err := pci.ParseID(f[3]); err == nil {
			d.ProductID = &p
		}
		if f[9] != "-" {
			n := int(f[9][0] - '0')
			d.NUMANode = &n
		}
		if parent, err := pci.ParseAddress(f[10]); err == nil {
			d.Parent = &parent
		}
		devices = append(devices, d)
	}
	return devices
}

// TestLink compares the links of a DGX A100 with what nvidia-smi topo -m prints on that machine
// without NVLink: each of the eight adapters for computing has two GPUs and one more adapter behind
// switches, which are PXB, and nothing else. The table names no NUMA nodes, so that all others are
// NODE where nvidia-smi prints SYS; a node is added to show that.
func TestLink(t *testing.T) {
	t.Parallel()
	devices := layTable(t, "../../integration/testdata/nodes/NVIDIA_DGXA100.tsv")
	var gpus, adapters []*pci.Device
	for i := range devices {
		switch d := &devices[i]; {
		case d.IsVendor(0x10de) && *d.ProductID == 0x20b0:
			gpus = append(gpus, d)
		case d.IsVendor(0x15b3):
			adapters = append(adapters, d)
		}
	}
	var rows []string
	for _, a := range adapters {
		row := a.Address.String()
		for _, gpu := range gpus {
			row += " " + string(devices.Link(a, gpu))
		}
		rows = append(rows, row)
	}
	want := []string{
		"0000:0c:00.0 PXB PXB NODE NODE NODE NODE NODE NODE",
		"0000:12:00.0 PXB PXB NODE NODE NODE NODE NODE NODE",
		"0000:4b:00.0 NODE NODE PXB PXB NODE NODE NODE NODE",
		"0000:54:00.0 NODE NODE PXB PXB NODE NODE NODE NODE",
		"0000:8d:00.0 NODE NODE NODE NODE PXB PXB NODE NODE",
		"0000:94:00.0 NODE NODE NODE NODE PXB PXB NODE NODE",
		"0000:ba:00.0 NODE NODE NODE NODE NODE NODE PXB PXB",
		"0000:cc:00.0 NODE NODE NODE NODE NODE NODE PXB PXB",
		"0000:e1:00.0 NODE NODE NODE NODE NODE NODE NODE NODE",
		"0000:e1:00.1 NODE NODE NODE NODE NODE NODE NODE NODE",
	}
	hosttest.EqualIn(t, "adapters to GPUs", want, rows)
	near, far := 3, 5
	adapters[0].NUMANode, gpus[2].NUMANode = &near, &far
	hosttest.EqualIn(t, "on other NUMA nodes", pci.LinkSys, devices.Link(adapters[0], gpus[2]))
	hosttest.EqualIn(t, "beside an unknown NUMA node", pci.LinkSys, devices.Link(adapters[0], gpus[3]))
	hosttest.EqualIn(t, "functions of one slot", pci.LinkPIX, devices.Link(adapters[8], adapters[9]))
}

// TestLinkIsSymmetric: on every machine, and a function is nearest to itself.
func TestLinkIsSymmetric(t *testing.T) {
	t.Parallel()
	tables, err := filepath.Glob("../../integration/testdata/nodes/*.tsv")
	if err != nil || len(tables) < 50 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	for _, table := range tables {
		devices := layTable(t, table)
		for i := range devices {
			for k := range i {
				a, b := &devices[i], &devices[k]
				if there, back := devices.Link(a, b), devices.Link(b, a); there != back || there.Distance() > pci.LinkSys.Distance() {
					t.Fatalf("%s: %s and %s: %s, back %s", table, a.Address, b.Address, there, back)
				}
			}
		}
	}
}
