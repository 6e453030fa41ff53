package pci_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// BenchmarkScan is a scan inside a process: what the whole program takes, beside
// its peers, integration measures.
func BenchmarkScan(b *testing.B) {
	var tree strings.Builder
	for slot := range 256 {
		for name, text := range map[string]string{
			"class": "0x030000", "vendor": "0x10de", "device": "0x11b4", "revision": "0xa1", "numa_node": "-1",
			"modalias": "pci:v000010DEd000011B4sv000010DEsd0000109Abc03sc00i00",
		} {
			fmt.Fprintf(&tree, "-- sys/bus/pci/devices/0000:%02x:00.0/%s --\n%s\n", slot, name, text)
		}
	}
	root := hosttest.Lay(b, tree.String())
	for b.Loop() {
		if devices, _, err := pci.Scan(root, pci.Options{}); err != nil || len(devices) != 256 {
			b.Fatal(len(devices), err)
		}
	}
}
