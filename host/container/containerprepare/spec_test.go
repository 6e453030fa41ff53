package containerprepare_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

const (
	gpu0, gpu1, hca = "0000:84:00.0", "0000:88:00.0", "0000:0c:00.1"
	uuid            = "GPU-5f5e1c5a-1d8e-4b57-9f0e-2f4f0d1f7a11"
)

// node is a machine with two GPUs and an RDMA adapter, and the record of them for containers.
type node struct {
	root    host.Root
	devices pci.Devices
	driver  nvidia.Driver
	stack   rdma.Stack
	record  machine.Containers
}

func newNode(t *testing.T) *node {
	t.Helper()
	var tree strings.Builder
	tree.WriteString("symlink var/run -> /run\n-- usr/lib/systemd/systemd --\n\n-- usr/bin/gpustack --\n\n")
	for _, f := range []struct{ address, class, vendor, product string }{
		{gpu0, "030200", "10de", "20b2"}, {gpu1, "030200", "10de", "20b2"}, {hca, "020700", "15b3", "101b"},
	} {
		at := "sys/bus/pci/devices/" + f.address
		fmt.Fprintf(&tree, "-- %s/class --\n0x%s\n-- %[1]s/vendor --\n0x%[3]s\n-- %[1]s/device --\n0x%[4]s\n", at, f.class, f.vendor, f.product)
	}
	for name, numbers := range map[string]string{
		"nvidia0": "195:0", "nvidia3": "195:3", "nvidiactl": "195:255", "nvidia-uvm": "509:0", "nvidia-uvm-tools": "509:1",
		"infiniband/uverbs0": "231:192", "infiniband/rdma_cm": "10:124", "infiniband/umad0": "231:0", "infiniband/umad1": "231:1",
	} {
		fmt.Fprintf(&tree, "-- dev/%s --\nc %s 666\n", name, numbers)
	}
	for _, link := range nvidia.CoreLinks() {
		fmt.Fprintf(&tree, "-- usr/lib64/%s --\n", link)
	}
	n := &node{root: hosttest.Lay(t, tree.String())}
	var err error
	if n.devices, _, err = pci.Scan(n.root, pci.Options{}); err != nil {
		t.Fatal(err)
	}
	zero, three, id := 0, 3, uuid
	n.driver = nvidia.Driver{GPUs: []nvidia.GPU{{Address: hosttest.Address(t, gpu0), Minor: &three, UUID: &id},
		{Address: hosttest.Address(t, gpu1), Minor: &zero}}}
	for _, link := range nvidia.CoreLinks() {
		n.driver.Libraries = append(n.driver.Libraries, nvidia.Library{Folder: "/usr/lib64", Link: link, File: "/usr/lib64/" + link})
	}
	at := hosttest.Address(t, hca)
	n.stack.CM = &rdma.Node{Name: "rdma_cm"}
	n.stack.Adapters = []rdma.Adapter{{Name: "rxe0"}, {
		Address: &at, Name: "mlx5_0", Verbs: &rdma.Node{Name: "uverbs0"}, Ports: []rdma.Port{{UMAD: &rdma.Node{Name: "umad0"}}, {UMAD: &rdma.Node{Name: "umad1"}}},
	}}
	for _, name := range []string{hca, gpu0, gpu1} {
		d := n.devices.At(hosttest.Address(t, name))
		n.record.Functions = append(n.record.Functions, machine.ContainerFunction{
			Address: d.Address, VendorID: *d.VendorID, ProductID: *d.ProductID, HCA: name == hca,
		})
	}
	return n
}

func (n *node) specs() container.Specs {
	return container.SpecOf(&n.record, n.driver, n.stack, n.devices)
}

// TestSpecOf: the specs are those of the facts, without a number and with links of libraries; the
// library that runtimes use resolves each device on the machine that they were made for.
func TestSpecOf(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	out := n.specs()
	if len(out.Missing) > 0 {
		t.Errorf("missing: %v", out.Missing)
	}
	text, err := cdi.Text(*out.GPU)
	hosttest.NoError(t, err)
	for _, want := range []string{
		`"kind": "gpustack.local/gpu"`, `"name": "0000:84:00.0"`, `"name": "` + uuid + `"`, `"path": "/dev/nvidia3"`,
		`"hostPath": "/usr/lib64/libcuda.so.1"`, `"containerPath": "/usr/local/nvidia/lib64/libcuda.so.1"`, `"NVIDIA_VISIBLE_DEVICES=void"`,
	} {
		hosttest.Contains(t, want, string(text))
	}
	for _, without := range []string{"LD_LIBRARY_PATH", "major", "minor", "hooks"} {
		if strings.Contains(string(text), without) {
			t.Errorf("%s is in the spec:\n%s", without, text)
		}
	}
	const want = `{
  "cdiVersion": "0.5.0",
  "kind": "gpustack.local/hca",
  "devices": [
    {
      "name": "0000:0c:00.1",
      "containerEdits": {
        "deviceNodes": [
          {
            "path": "/dev/infiniband/uverbs0",
            "type": "c",
            "permissions": "rw"
          }
        ]
      }
    }
  ],
  "containerEdits": {
    "deviceNodes": [
      {
        "path": "/dev/infiniband/rdma_cm",
        "type": "c",
        "permissions": "rw"
      }
    ]
  }
}
`
	hcaText, err := cdi.Text(*out.HCA)
	hosttest.NoError(t, err)
	hosttest.Equal(t, want, string(hcaText))

	root := hosttest.Lay(t, "symlink var/run -> /run\n-- etc/cdi/"+container.GPUFile+" --\n"+string(text)+"-- etc/cdi/"+container.HCAFile+" --\n"+string(hcaText))
	folders := cdi.Read(root)
	for _, p := range folders.All() { // this tree has no devices and libraries
		if p.Kind != cdi.Missing {
			t.Error(p)
		}
	}
	if names := folders.Devices(); len(names) != 4 {
		t.Errorf("%+v", names)
	}
}

// TestSpecOfOptions: each option changes what it says, and nothing else.
func TestSpecOfOptions(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.record.Options = machine.ContainerOptions{UMAD: true, LibraryPath: true}
	out := n.specs()
	hosttest.Equal(t, []string{"NVIDIA_VISIBLE_DEVICES=void", "LD_LIBRARY_PATH=/usr/local/nvidia/lib64", "TRITON_LIBCUDA_PATH=/usr/local/nvidia/lib64"},
		out.GPU.ContainerEdits.Env)
	if m := out.GPU.ContainerEdits.Mounts[0]; m.ContainerPath != "/usr/local/nvidia/lib64/libcuda.so.1" || m.HostPath != "/usr/lib64/libcuda.so.1" {
		t.Errorf("%+v", m)
	}
	if len(out.HCA.Devices) != 2 || out.HCA.Devices[1].Name != hca+"-umad" || len(out.HCA.Devices[1].ContainerEdits.DeviceNodes) != 2 {
		t.Errorf("%+v", out.HCA.Devices)
	}
	hosttest.Equal(t, "/run/cdi/gpustack-gpu.json", container.SpecFile(n.record.Options, container.GPUFile))
	hosttest.Equal(t, "/etc/cdi/gpustack-hca.json", container.SpecFile(machine.ContainerOptions{Static: true}, container.HCAFile))
}

// TestSpecOfMissing: a function that containers cannot get is in no spec, and has a reason.
func TestSpecOfMissing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.driver.GPUs[0].Minor = nil
	n.driver.MIG = map[pci.Address]bool{hosttest.Address(t, gpu1): true}
	n.stack.Adapters[1].Verbs = nil
	out := n.specs()
	if out.GPU != nil || out.HCA != nil {
		t.Errorf("%+v", out)
	}
	var reasons []string
	for _, m := range out.Missing {
		reasons = append(reasons, m.Address.String()+": "+m.Reason)
	}
	want := []string{
		hca + ": the adapter has no uverbs device: module ib_uverbs or the adapter's driver is not loaded",
		gpu0 + ": the driver shows no device minor of the GPU, so its device node is not known",
		gpu1 + ": the GPU is divided into MIG instances, whose devices nvidia-ctk describes",
	}
	hosttest.Equal(t, want, reasons)

	n = newNode(t)
	n.driver.GPUs = n.driver.GPUs[:1]
	n.driver.Libraries = n.driver.Libraries[1:]
	n.record.Functions[0].ProductID = 0x1019 // another adapter is in the slot now
	out = n.specs()
	if out.HCA != nil || out.GPU == nil || len(out.GPU.Devices) != 2 || len(out.Missing) != 3 ||
		out.Missing[0].Reason != "the recorded function is not at this address" ||
		out.Missing[1].Reason != "the GPU is not bound to NVIDIA's driver, so its device node is not known" ||
		out.Missing[2].Address != nil || out.Missing[2].Reason != "containers get no libcuda.so.1" {
		t.Errorf("%+v", out.Missing)
	}
	if out := container.SpecOf(nil, n.driver, n.stack, n.devices); out.GPU != nil || out.HCA != nil || out.Missing != nil {
		t.Errorf("nothing is recorded: %+v", out)
	}
}
