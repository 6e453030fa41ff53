package containertest

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"gpustack/host/container"
	"gpustack/host/cuda/answer"
	"gpustack/host/engine"
	"gpustack/host/hosttest"
	"gpustack/host/nvidia"
)

// h200 is the machine of testdata/h200.txtar.
func h200(t *testing.T) Observed {
	t.Helper()
	address := hosttest.Address(t, "0000:00:06.0")
	minor := 0
	return Observed{
		Request:   Request{Device: address, Image: "localhost/cuda"},
		Container: engine.Container{Devices: []string{"gpustack.local/gpu=0000:00:06.0"}},
		Driver: nvidia.Driver{
			Loaded: &nvidia.Module{Version: "580.159.04", Open: true},
			GPUs:   []nvidia.GPU{{Address: address, Minor: &minor}},
			Majors: map[string]int{"nvidia": 195, "nvidia-uvm": 238},
		},
		Given: container.Given{Library: "/usr/local/nvidia/lib64/libcuda.so.1"},
	}
}

func parse(t *testing.T, text []byte) (a answer.Answer) {
	t.Helper()
	if err := json.Unmarshal(text, &a); err != nil || a.Version != answer.Version {
		t.Fatalf("%s: %v", text, err)
	}
	return a
}

// TestJudgeH200: what a real driver said when something was missing in the container leads to that
// which was missing, with the message that users see.
func TestJudgeH200(t *testing.T) {
	archive, err := txtar.ParseFile(filepath.Join("testdata", "h200.txtar"))
	hosttest.NoError(t, err)
	const insufficient, noDevice, unknown = "35 cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
		"100 CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "999 CUDA_ERROR_UNKNOWN: unknown error"
	want := map[string][2]string{ // message and cause; none: it computes
		"host": {},
		"its libraries in a folder that the loader does not search": {insufficient,
			"the loader of the image does not look into /usr/local/nvidia/lib64, where gpustack.local/gpu=0000:00:06.0 mounts libcuda.so.1"},
		"nothing":       {insufficient, "the image has no libcuda.so.1, and gpustack.local/gpu=0000:00:06.0 mounts none"},
		"libcuda alone": {noDevice, "/dev/nvidiactl is missing in the container"},
		"libcuda, nvidia0, nvidiactl, nvidia-uvm": {"221 CUDA_ERROR_JIT_COMPILER_NOT_FOUND: PTX JIT compiler library not found",
			"libnvidia-ptxjitcompiler.so.1 of the driver is missing in the container, without which programs that bring PTX do not run"},
		"libcuda, nvidiactl, nvidia-uvm": {noDevice, "/dev/nvidia0 is missing in the container"},
		"libcuda, nvidia0, nvidia-uvm":   {noDevice, "/dev/nvidiactl is missing in the container"},
		"libcuda, nvidia0, nvidiactl":    {unknown, "/dev/nvidia-uvm is missing in the container"},
		"libcuda, nvidia0, nvidiactl, null as nvidia-uvm": {unknown,
			"in the container /dev/nvidia-uvm is device 1:3, the driver's is 238:0"},
	}
	if len(want) != len(archive.Files) {
		t.Errorf("%d sections, %d expectations", len(archive.Files), len(want))
	}
	for _, f := range archive.Files {
		t.Run(f.Name, func(t *testing.T) {
			m := h200(t)
			if f.Name == "nothing" {
				m.Given.Library = ""
			}
			causes := m.judge(parse(t, f.Data))
			got := [2]string{}
			if len(causes) == 1 {
				got = [2]string{causes[0].Message, causes[0].Cause}
			}
			if got != want[f.Name] || len(causes) > 1 || len(causes) == 1 && len(causes[0].Remedy) == 0 {
				t.Errorf("%q, want %q", causes, want[f.Name])
			}
		})
	}
}

// TestJudge: what libcuda can say besides, one cause each.
func TestJudge(t *testing.T) {
	nodes := []answer.Node{{Path: "/dev/nvidiactl", Major: 195, Minor: 255}, {Path: "/dev/nvidia0", Major: 195}, {Path: "/dev/nvidia-uvm", Major: 238}}
	fails := func(result int, name string) answer.Answer {
		return answer.Answer{Library: "/usr/lib/x86_64-linux-gnu/libcuda.so.1", Failed: &answer.Failure{Function: "cuInit", Result: result, Name: name},
			Nodes: nodes}
	}
	with := func(gpus ...answer.GPU) answer.Answer { return answer.Answer{GPUs: gpus, Nodes: nodes} }
	denied, dead := fails(999, ""), fails(100, "")
	denied.Nodes = []answer.Node{nodes[0], {Path: "/dev/nvidia0", Major: 195, Denied: true}, nodes[2]}
	dead.Nodes = []answer.Node{nodes[0], {Path: "/dev/nvidia0", Major: 195, Dead: true}, nodes[2]}
	for _, row := range []struct {
		name   string
		answer answer.Answer
		want   string // of the cause; "": it computes
	}{
		{"another libcuda than the module", fails(803, "X"),
			"/usr/lib/x86_64-linux-gnu/libcuda.so.1 in the container is of another version than the loaded module"},
		{"no Fabric Manager", fails(802, "X"), "Fabric Manager does not run"},
		{"forward compatibility", fails(804, "X"), "is for forward compatibility, which this GPU does not support"},
		{"a stub", fails(34, "X"), "a library without a driver for linking programs"},
		{"another result", fails(36, "X"), "cuInit failed in the container"},
		{"unknown, with all nodes", fails(999, "X"), "cuInit failed in the container"},
		{"a node that is denied", denied, "/dev/nvidia0 cannot be opened in the container"},
		{"a node of a GPU that was unbound", dead, "/dev/nvidia0 in the container is the node of a GPU without a driver"},
		{"a library that cannot be loaded", answer.Answer{LoadError: "libcuda.so.1: wrong ELF class: ELFCLASS32"}, "a libcuda.so.1 that it cannot load"},
		{"no GPU", with(), "CUDA finds no GPU in the container"},
		{"another GPU", with(answer.GPU{Address: "0000:0a:00.0"}), "CUDA finds 0000:0a:00.0 in the container, not 0000:00:06.0"},
		{"an address that is none", with(answer.GPU{Address: "?"}), "CUDA finds ? in the container"},
		{"wrong numbers", with(answer.GPU{Address: "0000:00:06.0", Numbers: 10, Wrong: 3}), "3 of 10 numbers that the GPU has computed are wrong"},
		{"a function that the library lacks", answer.Answer{Failed: &answer.Failure{Function: "cuInit", Result: -1, Text: "undefined symbol: cuInit"}},
			"cuInit failed"},
		{"a long domain", with(answer.GPU{Address: "00000000:00:06.0"}), ""},
		{"the GPU and another one", with(answer.GPU{Address: "0000:0a:00.0"}, answer.GPU{Address: "0000:00:06.0"}), ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			causes := h200(t).judge(row.answer)
			switch {
			case row.want == "" && len(causes) > 0, row.want != "" && len(causes) != 1:
				t.Errorf("%+v", causes)
			case row.want != "" && (!strings.Contains(causes[0].Cause, row.want) || len(causes[0].Remedy) == 0):
				t.Errorf("%+v, want %s", causes[0], row.want)
			}
		})
	}
}
