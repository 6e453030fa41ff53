package prepare_test

import (
	"strings"
	"testing"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma/prepare"
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
			m, err := prepare.Observe(hosttest.Lay(t, files), guard.Running{}, prepare.Options{Add: []pci.Address{{}}})
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("%v, want %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := m.Functions[address(infiniband().address)].VFDevice
			if got == nil || got.String() != test.want {
				t.Errorf("%v, want %s", got, test.want)
			}
		})
	}
}
