package prepare_test

import (
	"os"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// sharing is the network card in the IOMMU group of a GPU, as an RDMA adapter with this capability
// mask of its port.
func sharing(mask, more string) string {
	const dir = "sys/bus/pci/devices/0000:04:00.0/"
	return "-- " + dir + "infiniband/mlx5_0/ports/1/cap_mask --\n" + mask + "\n" +
		"-- " + dir + "net/enp4s0/mtu --\n1500\n" + more
}

// withAdapter returns a machine whose network card is an RDMA adapter.
func withAdapter(mask, more string) string {
	return "symlink sys/class/infiniband/mlx5_0 -> ../../bus/pci/devices/0000:04:00.0/infiniband/mlx5_0\n" +
		"symlink sys/class/net/enp4s0 -> ../../bus/pci/devices/0000:04:00.0/net/enp4s0\n" +
		node{CPU: "GenuineIntel", CardGroup: 10, More: sharing(mask, more)}.Archive()
}

// TestAdapterJoins: an idle RDMA adapter goes with the group of a selected GPU, is recorded as
// such, and stays accepted when it is bound for guests; --remove of the GPU returns it.
func TestAdapterJoins(t *testing.T) {
	root := hosttest.Lay(t, withAdapter("0x0", ""))
	p, err := plan(t, root, selection.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "0000:04:00.0: the RDMA adapter leaves the host at the next boot, with mlx5_0 and enp4s0: it shares IOMMU group 10 with a selected GPU"
	if !strings.Contains(strings.Join(p.Warnings, "\n"), want) {
		t.Errorf("%q, want %s", p.Warnings, want)
	}
	apply(t, root, selection.Options{})
	c := contractOf(t, root)
	a, _ := pci.ParseAddress("0000:04:00.0")
	if f := c.At(a); f == nil || !f.RDMA || len(c.Allowed) > 0 {
		t.Fatalf("recorded %+v, allowed %v", c.At(a), c.Allowed)
	}
	// Until the next boot the host may use it again.
	mask := root.Path("sys/bus/pci/devices/0000:04:00.0/infiniband/mlx5_0/ports/1/cap_mask")
	if err := os.WriteFile(mask, []byte("0x2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := plan(t, root, selection.Options{}); err == nil || !strings.Contains(err.Error(), "subnet manager") {
		t.Errorf("recorded and used: %v, want a refusal", err)
	}
	// After the boot neither the RDMA device nor the interface exists.
	for _, name := range []string{"sys/class/infiniband", "sys/bus/pci/devices/0000:04:00.0/infiniband", "sys/bus/pci/devices/0000:04:00.0/net"} {
		if err := os.RemoveAll(root.Path(name)); err != nil {
			t.Fatal(err)
		}
	}
	p, err = plan(t, root, selection.Options{})
	if err != nil || len(p.Files.Pending()) > 0 || strings.Contains(strings.Join(p.Warnings, "\n"), "leaves the host") {
		t.Errorf("again: %v, %d changes, %q", err, len(p.Files.Pending()), p.Warnings)
	}
	apply(t, root, selection.Options{Remove: selectors(t, "0000:01:00.0")})
	if c := contractOf(t, root); c.At(a) != nil {
		t.Error("the adapter stays recorded without its GPU")
	}
}

// TestAdapterStays: an RDMA adapter that is used, has virtual functions, or whose use cannot be
// determined, is refused; --allow lifts that of a use.
func TestAdapterStays(t *testing.T) {
	a, _ := pci.ParseAddress("0000:04:00.0")
	for _, test := range []struct {
		name, mask, more, want string
		lifted                 bool
	}{
		{"a subnet manager", "0x2", "", "the host needs it: runs the fabric's subnet manager, on port 1 of mlx5_0", true},
		{"not a mask", "what", "", "cannot determine whether the host uses it by RDMA: /sys/class/infiniband/mlx5_0/ports/1/cap_mask: not a number", true},
		{"virtual functions", "0x0", "-- sys/bus/pci/devices/0000:04:00.0/sriov_totalvfs --\n8\n-- sys/bus/pci/devices/0000:04:00.0/sriov_numvfs --\n2\n",
			"has virtual functions enabled (2)", false},
		{"the default route", "0x0", "-- proc/net/route --\nIface Destination\nenp4s0 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n",
			"the host needs it: ", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, withAdapter(test.mask, test.more))
			_, err := plan(t, root, selection.Options{})
			if err == nil || !strings.Contains(err.Error(), "0000:04:00.0: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if _, err = plan(t, root, selection.Options{Allow: []pci.Address{a}}); (err == nil) != test.lifted {
				t.Errorf("--allow: %v", err)
			}
		})
	}
	// Without the GPU of its group the adapter is no companion of the selection.
	root := hosttest.Lay(t, withAdapter("0x2", ""))
	if _, err := plan(t, root, selection.Options{Add: selectors(t, "0000:02:00.0")}); err != nil {
		t.Error(err)
	}
}

// TestAllowAgain: what --allow lifts of a function that is recorded already is recorded too, and
// honoured by the next run.
func TestAllowAgain(t *testing.T) {
	root := hosttest.Lay(t, withAdapter("0x0", ""))
	a, _ := pci.ParseAddress("0000:04:00.0")
	apply(t, root, selection.Options{})
	mask := root.Path("sys/bus/pci/devices/0000:04:00.0/infiniband/mlx5_0/ports/1/cap_mask")
	if err := os.WriteFile(mask, []byte("0x2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := plan(t, root, selection.Options{}); err == nil {
		t.Error("recorded and used: accepted")
	}
	apply(t, root, selection.Options{Allow: []pci.Address{a}})
	if c, want := contractOf(t, root), (host.Lift{Function: a.String(), Use: string(guard.UseSubnetManager)}); len(c.Lifted) != 1 || c.Lifted[0] != want {
		t.Errorf("recorded %v, want %v", c.Lifted, want)
	}
	if p, err := plan(t, root, selection.Options{}); err != nil || len(p.Files.Pending()) > 0 {
		t.Errorf("again: %d changes, %v", len(p.Files.Pending()), err)
	}
}
