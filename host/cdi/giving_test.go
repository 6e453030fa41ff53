package cdi_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/cdi"
	"gpustack/host/hosttest"
)

// TestGiving: a container gets nodes by the device of our file, whose address comes before its
// UUID, else by the device that gives it least besides. Devices that cannot be injected are named.
func TestGiving(t *testing.T) {
	device := func(name string, nodes ...string) string {
		return `{"name":"` + name + `","containerEdits":{"deviceNodes":[{"path":"` + strings.Join(nodes, `"},{"path":"`) + `"}]}}`
	}
	spec := func(file, kind string, devices ...string) string {
		return "-- etc/cdi/" + file + " --\n" + `{"cdiVersion":"0.5.0","kind":"` + kind + `","devices":[` + strings.Join(devices, ",") + "]}\n"
	}
	const gpu, other, gone = "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia7"
	theirs := spec("nvidia.json", "nvidia.com/gpu", device("0", gpu), device("1", other), device("all", gpu, other))
	for _, row := range []struct {
		name, specs string
		nodes       []string
		want        string // the device, how many nodes it gives, how many devices failed
	}{
		{"no spec", "", []string{gpu}, ` 0 0`},
		{"another's", spec("x.json", "x.example.com/gpu", device("1", other)), []string{gpu}, ` 0 0`},
		{"all of them", spec("x.json", "x.example.com/gpu", device("all", gpu, other)), []string{gpu}, `x.example.com/gpu=all 2 0`},
		{"least besides", theirs, []string{gpu}, `nvidia.com/gpu=0 1 0`},
		{"both", theirs, []string{gpu, other}, `nvidia.com/gpu=all 2 0`},
		{"ours", theirs + spec(cdi.GPUFile, "gpustack.local/gpu", device("GPU-5f", gpu, other), device("0000:84:00.0", gpu, other)), []string{gpu},
			`gpustack.local/gpu=0000:84:00.0 2 0`},
		{"ours, another kind", theirs + spec(cdi.GPUFile, "x.example.com/gpu", device("0000:84:00.0", gpu, other)), []string{gpu},
			`x.example.com/gpu=0000:84:00.0 2 0`},
		{"a node that is gone", spec(cdi.GPUFile, "gpustack.local/gpu", device("0000:84:00.0", gpu, gone)), []string{gpu}, ` 0 1`},
		{"ours is gone", theirs + spec(cdi.GPUFile, "gpustack.local/gpu", device("0000:84:00.0", gpu, gone)), []string{gpu}, `nvidia.com/gpu=0 1 1`},
	} {
		folders := cdi.Read(hosttest.Lay(t, "-- dev/nvidia0 --\nc 195:0 666\n-- dev/nvidia1 --\nc 195:1 666\n"+row.specs))
		name, edits, failed := folders.Giving(cdi.GPUFile, row.nodes...)
		if got := fmt.Sprintf("%s %d %d", name, len(edits.DeviceNodes), len(failed)); got != row.want {
			t.Errorf("%s: %s, want %s (%v)", row.name, got, row.want, failed)
		}
	}
}
