package pci_test

import (
	"fmt"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestPCIeLinkRate: what links carry without their encoding, by the rates that the PCI Express Base
// Specification gives for each generation; none where the kernel shows no link.
func TestPCIeLinkRate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ width, most, speed, want string }{
		{"16", "16", "2.5 GT/s PCIe", "32.00 8b/10b true"},
		{"8", "16", "5.0 GT/s PCIe", "32.00 8b/10b true"},
		{"8", "8", "8.0 GT/s PCIe", "63.02 128b/130b true"},
		{"16", "16", "16.0 GT/s PCIe", "252.06 128b/130b true"},
		{"16", "16", "32.0 GT/s PCIe", "504.12 128b/130b true"},
		{"16", "16", "64.0 GT/s PCIe", "944.00 flits of 256 bytes true"},
		{"1", "1", "2.5 GT/s", "2.00 8b/10b true"}, // as kernels before 5.7 write it
		{"16", "16", "Unknown", "0.00  false"},
		{"16", "16", "Unknown speed", "0.00  false"},
		{"16", "16", "", "0.00  false"},
		{"16", "16", "NaN GT/s", "0.00  false"},
		{"16", "16", "128.0 GT/s PCIe", "0.00  false"},
		{"0", "16", "16.0 GT/s PCIe", "0.00  false"},
		{"63", "63", "16.0 GT/s PCIe", "0.00  false"},
		{"", "", "16.0 GT/s PCIe", "0.00  false"},
	} {
		gbps, encoding, ok := pci.PCIeLink{Width: test.width, MaxWidth: test.most, Speed: test.speed}.Rate()
		hosttest.EqualIn(t, fmt.Sprintf("x%s of x%s at %q", test.width, test.most, test.speed), test.want, fmt.Sprintf("%.2f %s %t", gbps, encoding, ok))
	}
}
