package rdmaprepare_test

import (
	"errors"
	"strings"
	"testing"

	"gpustack/host/guard"
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
			m, err := rdmaprepare.Observe(root, machine.Observe(root, machine.Record, machine.Options{}), guard.Running{}, rdmaprepare.Options{Add: []pci.Address{{}}})
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

// TestObserveNeeded: owners are read only if VFs are made or an adapter is for guests as a whole,
// and networks only if they are for containers: what cannot be read must not prevent anything else.
// Only that an adapter leaves that has no address, which such a file may give it, is refused until
// it is allowed.
func TestObserveNeeded(t *testing.T) {
	const netplan = "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n   eth1: [\n"
	const unknown = "symlink proc/fs/nfsd/portlist -> portlist\n"
	for _, test := range []struct {
		name, commands, files string
		options               rdmaprepare.Options
		want                  string
	}{
		{"whole, for guests, netplan", "", netplan, rdmaprepare.Options{Whole: true}, "0000:0d:00.0: may have to carry an address of eth1, which has none now: /etc/netplan/50.yaml:3: "},
		{"whole, for guests, netplan, allowed", "", netplan, rdmaprepare.Options{Whole: true, Allow: []pci.Address{address("0d:00.0")}}, ""},
		{"whole, for containers, netplan", "", netplan, rdmaprepare.Options{Whole: true, Use: rdma.ForContainers}, ""},
		{"VFs for guests, netplan", "", netplan, rdmaprepare.Options{VFs: 2}, ""},
		{"VFs for containers, netplan", "", netplan, rdmaprepare.Options{VFs: 2, Use: rdma.ForContainers}, "/etc/netplan/50.yaml:3: "},
		{"whole, what uses it by RDMA is unknown", unknown, "", rdmaprepare.Options{Whole: true}, "0000:0d:00.0: cannot determine whether the host uses it by RDMA: "},
		{"whole, what uses it by RDMA is unknown, allowed", unknown, "", rdmaprepare.Options{Whole: true, Allow: []pci.Address{address("0d:00.0")}}, ""},
		{"VFs for guests, what uses it by RDMA is unknown", unknown, "", rdmaprepare.Options{VFs: 2}, ""},
		{"whole, for guests, a loop", "symlink etc/rc.local -> rc.local\n", "", rdmaprepare.Options{Whole: true}, "/etc/rc.local: "},
		{"whole, for containers, a loop", "symlink etc/rc.local -> rc.local\n", "", rdmaprepare.Options{Whole: true, Use: rdma.ForContainers}, ""},
		{"VFs for guests, a loop", "symlink etc/rc.local -> rc.local\n", "", rdmaprepare.Options{VFs: 2}, "/etc/rc.local: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.options.Add = []pci.Address{address("0d:00.0")}
			_, got := plan(t, hosttest.Lay(t, machineOf([]hca{ethernet()}, test.commands, test.files)), test.options)
			if test.want == "" && got != "" || !strings.HasPrefix(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	t.Run("the running machine cannot be read", func(t *testing.T) {
		root := hosttest.Lay(t, machineOf([]hca{ethernet()}, "", record(t, rdma.ForGuests)))
		unread := guard.Running{Unread: errors.New("network interfaces: out of memory")}
		if _, err := rdmaprepare.Observe(root, machine.Observe(root, machine.Record, machine.Options{}), unread, rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, Whole: true}); !errors.Is(err, unread.Unread) {
			t.Errorf("an adapter leaves: %v", err)
		}
		if _, err := rdmaprepare.Observe(root, machine.Observe(root, machine.Record, machine.Options{}), unread, rdmaprepare.Options{Remove: []pci.Address{address("0d:00.0")}}); err != nil {
			t.Errorf("it returns: %v", err)
		}
	})
	t.Run("VFs for containers, as recorded", func(t *testing.T) {
		root := hosttest.Lay(t, machineOf([]hca{ethernet()}, "", netplan+record(t, rdma.ForContainers)))
		_, got := plan(t, root, rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2})
		if want := "/etc/netplan/50.yaml:3: "; !strings.HasPrefix(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
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
	if err != nil {
		t.Fatal(err)
	}
	return "-- " + strings.TrimPrefix(rdma.RecordFile, "/") + " --\n" + string(text)
}
