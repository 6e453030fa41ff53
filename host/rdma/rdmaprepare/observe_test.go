package rdmaprepare_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
)

// TestVFDevice: Linux prints the product id of VFs without leading zeros, as QEMU's NVMe controller
// shows.
func TestVFDevice(t *testing.T) {
	for _, test := range []struct{ text, want, err string }{
		{text: "101c", want: "101c"},
		{text: "c1c", want: "0c1c"},
		{text: "10", want: "0010"},
		{text: "1101c", err: `sriov_vf_device: not a product id: "1101c"`},
		{text: "mlx5", err: `sriov_vf_device: not a product id: "mlx5"`},
		{text: "", err: `sriov_vf_device: not a product id: ""`},
	} {
		t.Run(test.text, func(t *testing.T) {
			files := strings.Replace(machineOf([]hca{infiniband()}, "", ""), "/sriov_vf_device --\n101c\n", "/sriov_vf_device --\n"+test.text+"\n", 1)
			root := hosttest.Lay(t, files)
			m, err := rdmaprepare.Observe(root, machine.ObserveRecord(root, nil, true), rdmaprepare.Options{Add: []pci.Address{{}}})
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("%v, want %s", err, test.err)
				}
				return
			}
			hosttest.NoError(t, err)
			got := m.Functions[address(infiniband().address)].VFDevice
			if got == nil || got.String() != test.want {
				t.Errorf("%v, want %s", got, test.want)
			}
		})
	}
}

// TestObserveNeeded: what an adapter is used for is read only if it leaves, or VFs may.
func TestObserveNeeded(t *testing.T) {
	const unread = "mkdir etc/fstab\n"
	root := hosttest.Lay(t, machineOf([]hca{ethernet()}, unread, record(t, rdma.ForGuests)))
	one := []pci.Address{address("0d:00.0")}
	if _, got := plan(t, root, rdmaprepare.Options{Add: one, Whole: true}); !strings.HasPrefix(got, "/etc/fstab: ") {
		t.Errorf("an adapter leaves: %q", got)
	}
	if _, got := plan(t, root, rdmaprepare.Options{Remove: one}); got != "" {
		t.Errorf("it returns: %q", got)
	}
}

// record returns the file of a record of VFs of 0000:0d:00.0.
func record(t *testing.T, use rdma.Use) string {
	t.Helper()
	root := hosttest.Lay(t, machineOf([]hca{ethernet()}, "", ""))
	p, got := plan(t, root, rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2, Use: use})
	if got != "" {
		t.Fatal(got)
	}
	text, err := p.Record.Text()
	hosttest.NoError(t, err)
	return "-- " + strings.TrimPrefix(rdma.RecordFile, "/") + " --\n" + string(text)
}
