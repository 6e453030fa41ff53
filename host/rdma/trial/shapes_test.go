package trial_test

import (
	"net/netip"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/rdma"
	"gpustack/host/rdma/trial"
)

// TestTargetsOfShapes: which ports of machines of real shapes rdma test can test, and why not the
// others.
func TestTargetsOfShapes(t *testing.T) {
	t.Parallel()
	addresses := func(netdev string) ([]netip.Addr, error) {
		if netdev == "bond0" {
			return []netip.Addr{netip.MustParseAddr("10.60.0.1")}, nil
		}
		return nil, nil
	}
	for shape, want := range map[string][]string{
		"roce-lag": {"mlx5_bond_0 port 1 10.10.0.11 bond0", "0000:3b:00.1 has no RDMA device of its own: mlx5_bond_0 of 0000:3b:00.0 serves its port"},
		"ipoib-bond": {"mlx5_0 port 1 10.60.0.1 bond0",
			"mlx5_1 port 1 has only a backup of a bond, whose address is at another port: ib1 of bond0",
			"mlx5_2 port 1 has no IP address, and rdma_cm needs one", "mlx5_3 port 1 is not ACTIVE: its state is DOWN (Polling)"},
		"efa": {"rdmap0s6 port 1 has no connection manager: its link layer is Unspecified", "rdmap0s7 port 1 has no connection manager: its link layer is Unspecified"},
	} {
		text := hosttest.Read(t, "../../../integration/testdata/shapes/"+shape+".txtar")
		_, stack, err := rdma.Scan(hosttest.Lay(t, text), rdma.Options{GIDs: true})
		hosttest.NoError(t, err)
		targets, skipped := trial.Targets(stack.Adapters, addresses)
		var got []string
		for _, target := range targets {
			got = append(got, target.String()+" "+target.Addresses[0].IP.String()+" "+target.Addresses[0].Netdev)
		}
		for _, s := range skipped {
			got = append(got, s.Err.Error())
		}
		hosttest.EqualIn(t, shape, want, got)
	}
}
