package trial

import (
	"slices"
	"testing"

	"gpustack/host/cdi"
	"gpustack/host/hosttest"
	"gpustack/host/rdma"
)

// TestContainerDevices: a test's containers get the adapter by the device of container prepare,
// whatever its kind is, else by the device that gives them least besides, else by the nodes.
func TestContainerDevices(t *testing.T) {
	const uverbs, cm, other = `{"path":"/dev/infiniband/uverbs0"}`, `{"path":"/dev/infiniband/rdma_cm"}`, `{"path":"/dev/infiniband/uverbs1"}`
	spec := func(file, kind, device, nodes string) string {
		return "-- run/cdi/" + file + " --\n" + `{"cdiVersion":"0.5.0","kind":"` + kind + `","devices":[{"name":"` + device + `","containerEdits":{"deviceNodes":[` + nodes + "]}}]}\n"
	}
	all := spec("a.json", "a.example.com/mofed", "all", uverbs+","+cm+","+other)
	one := spec("b.json", "b.example.com/net", "0000:0c:00.0", uverbs+","+cm)
	for name, test := range map[string]struct {
		specs string
		want  []string
	}{
		"no spec":             {"", []string{"/dev/infiniband/uverbs0:/dev/infiniband/uverbs0:rw", "/dev/infiniband/rdma_cm:/dev/infiniband/rdma_cm:rw"}},
		"another adapter's":   {spec("a.json", "a.example.com/net", "x", other+","+cm), []string{"/dev/infiniband/uverbs0:/dev/infiniband/uverbs0:rw", "/dev/infiniband/rdma_cm:/dev/infiniband/rdma_cm:rw"}},
		"one of all adapters": {all, []string{"a.example.com/mofed=all"}},
		"one of this adapter": {all + one, []string{"b.example.com/net=0000:0c:00.0"}},
		"ours":                {all + one + spec("gpustack-hca.json", "gpustack.local/hca", "0000:0c:00.0", uverbs+","+cm), []string{"gpustack.local/hca=0000:0c:00.0"}},
		"ours, another kind":  {all + one + spec("gpustack-hca.json", "x.example.com/hca", "0000:0c:00.0", uverbs+","+cm), []string{"x.example.com/hca=0000:0c:00.0"}},
	} {
		folders := cdi.Read(hosttest.Lay(t, "symlink var/run -> /run\n-- dev/infiniband/uverbs0 --\nc 231:192 666\n-- dev/infiniband/uverbs1 --\nc 231:193 666\n-- dev/infiniband/rdma_cm --\nc 10:58 666\n"+test.specs))
		target := Target{Adapter: rdma.Adapter{Name: "mlx5_0", Verbs: &rdma.Node{Name: "uverbs0"}}}
		if got := containerDevices(folders, target); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
