package rdma_test

import (
	"fmt"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/rdma"
)

// TestDataRate: rates as kernels write them, and what a port can carry of them.
func TestDataRate(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ link, rate, want string }{
		{rdma.LinkInfiniBand, "10 Gb/sec (4X)", "8.00 8b/10b true"},
		{rdma.LinkInfiniBand, "2.5 Gb/sec (1X SDR)", "2.00 8b/10b true"},
		{"", "40 Gb/sec (4X QDR)", "32.00 8b/10b true"},
		{rdma.LinkInfiniBand, "56 Gb/sec (4X FDR)", "54.55 64b/66b true"},
		{rdma.LinkInfiniBand, "40 Gb/sec (4X FDR10)", "40.00  true"},
		{rdma.LinkInfiniBand, "100 Gb/sec (4X EDR)", "100.00  true"},
		{rdma.LinkInfiniBand, "800 Gb/sec (4X XDR)", "800.00  true"},
		{rdma.LinkEthernet, "40 Gb/sec (4X QDR)", "40.00  true"},
		{rdma.LinkEthernet, "25 Gb/sec (1X EDR)", "25.00  true"},
		{rdma.LinkInfiniBand, "0 Gb/sec (4X EDR)", "0.00  false"},
		{rdma.LinkInfiniBand, "", "0.00  false"},
		{rdma.LinkInfiniBand, "fast", "0.00  false"},
		{rdma.LinkInfiniBand, "100 Gb/sec (4X EDR) more", "0.00  false"},
		{rdma.LinkInfiniBand, "56 Gb/sec (99999999999999999999X FDR)", "0.00  false"},
	} {
		gbps, encoding, ok := rdma.Port{LinkLayer: test.link, Rate: test.rate}.DataRate()
		hosttest.EqualIn(t, test.link+", "+test.rate, test.want, fmt.Sprintf("%.2f %s %t", gbps, encoding, ok))
	}
}
