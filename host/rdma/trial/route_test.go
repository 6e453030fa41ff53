package trial

import (
	"net/netip"
	"slices"
	"testing"
)

// TestNetdevAddresses reads the addresses of the loopback interface.
func TestNetdevAddresses(t *testing.T) {
	got, err := netdevAddresses("lo")
	if err != nil || !slices.Contains(got, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := netdevAddresses("gpustack-none"); err == nil {
		t.Error("an interface that does not exist has addresses")
	}
}
