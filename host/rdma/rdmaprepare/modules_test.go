package rdmaprepare_test

import (
	"os"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/iommu"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
)

// TestMissing: what guests and InfiniBand need of the machine.
func TestMissing(t *testing.T) {
	without := func(module string) func(*testing.T, *rdmaprepare.Observed) {
		return func(t *testing.T, m *rdmaprepare.Observed) {
			root := hosttest.Lay(t, "-- lib/modules/6.1/modules.dep --\nkernel/"+module+".ko:\n")
			names, err := modprobe.ReadNames(root, "6.1")
			hosttest.NoError(t, err)
			m.Kernels = []modprobe.Modules{names}
		}
	}
	contract := func(_ *testing.T, m *rdmaprepare.Observed) {
		m.IOMMU, m.Contract = iommu.State{Enabled: host.No}, &machine.Contract{}
	}
	for _, test := range []struct {
		name   string
		change func(*testing.T, *rdmaprepare.Observed)
		use    rdma.Use
		want   string
	}{
		{"IOMMU off", func(_ *testing.T, m *rdmaprepare.Observed) { m.IOMMU.Enabled = host.No }, rdma.ForGuests,
			"the IOMMU is off, so no guest can have a device"},
		{"IOMMU off, and on from the next boot", contract, rdma.ForGuests, ""},
		{"IOMMU off, for containers", func(_ *testing.T, m *rdmaprepare.Observed) { m.IOMMU.Enabled = host.No }, rdma.ForContainers, ""},
		{"no ib_ipoib", without("vfio-pci"), rdma.ForGuests,
			"0000:0c:00.0: no installed kernel has the module ib_ipoib, through whose interface the kernel sets the GUIDs of VFs"},
		{"no vfio-pci", without("ib_ipoib"), rdma.ForGuests, "no installed kernel has the module vfio-pci"},
		{"no vfio-pci, for containers", without("ib_ipoib"), rdma.ForContainers, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, machineOf([]hca{infiniband()}, "", ""))
			m, err := rdmaprepare.Observe(root, machine.ObserveRecord(root, nil, true), rdmaprepare.Options{Add: []pci.Address{{}}})
			hosttest.NoError(t, err)
			test.change(t, &m)
			_, err = rdmaprepare.NewWant(m, rdmaprepare.Options{Add: []pci.Address{address("0c:00.0")}, VFs: 2, Use: test.use})
			if err == nil && test.want != "" || err != nil && err.Error() != test.want {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// TestWholeIsBound: a whole adapter that is bound to vfio-pci has no RDMA device any more, and can
// be named again.
func TestWholeIsBound(t *testing.T) {
	root := hosttest.Lay(t, machineOf([]hca{infiniband()}, "", ""))
	whole := rdmaprepare.Options{Add: []pci.Address{address("0c:00.0")}, Whole: true, Allow: []pci.Address{address("0c:00.0")}}
	p, text := plan(t, root, whole)
	if text != "" {
		t.Fatal(text)
	}
	apply(t, root, p)
	for _, name := range []string{"/sys/class/infiniband/mlx5_0", "/sys/devices/pci0000:00/0000:00:01.0/0000:0c:00.0/driver"} {
		hosttest.NoError(t, os.Remove(root.Path(name)))
	}
	if p, text = plan(t, root, whole); text != "" || len(p.Files.Pending()) > 0 {
		t.Errorf("again: %s, %v", text, p.Files.Pending())
	}
	whole.Use = rdma.ForContainers
	if p, text = plan(t, root, whole); text != "" || p.Record.Adapters[0].Use != rdma.ForContainers {
		t.Errorf("for containers: %s, %v", text, p.Record.Adapters)
	}
	if _, text = plan(t, root, rdmaprepare.Options{Add: whole.Add, VFs: 2}); text != "0000:0c:00.0: has no RDMA device" {
		t.Errorf("VFs: %s", text)
	}
}
