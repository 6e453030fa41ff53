package cuda_test

import (
	"fmt"
	"strings"
	"testing"

	"gpustack/host/cuda"
	"gpustack/host/hosttest"
)

// shown returns programs in one line.
func shown(programs []cuda.Program) string {
	var all []string
	for _, p := range programs {
		text := p.Name + " uses"
		if p.ListsAll {
			text = p.Name + " lists"
		}
		if p.Cut {
			text += fmt.Sprintf(" %d and more", p.Seen)
		} else if p.GPUs == nil {
			text += " ?"
		} else {
			text += fmt.Sprintf(" %d", *p.GPUs)
		}
		text += fmt.Sprintf(" %v", p.Models)
		for _, f := range p.Figures {
			switch {
			case f.MBps != nil:
				text += fmt.Sprintf(" %s=%.10gMB/s", f.Name, *f.MBps)
			case f.GFLOPs != nil:
				text += fmt.Sprintf(" %s=%.10gGFLOP/s", f.Name, *f.GFLOPs)
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// Outputs in the format of each program, written for these tests.
const (
	// nvidia-smi(1), -L; a GPU with MIG as in NVIDIA's Multi-Instance GPU User Guide.
	smiList = `GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-11111111-2222-3333-4444-555555555555)
  MIG 1g.5gb      Device  0: (UUID: MIG-11111111-2222-3333-4444-555555555555)
  MIG 1g.5gb      Device  1: (UUID: MIG-11111111-2222-3333-4444-555555555556)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-11111111-2222-3333-4444-666666666666)`

	// nvidia-smi(1), without options, of driver 580 and of driver 470.
	smiTable = `Fri Nov 27 10:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA H200                    On  |   00000000:00:06.0 Off |                    0 |
| N/A   31C    P0             76W /  700W |       0MiB / 143771MiB |      0%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|=========================================================================================|
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+`
	smiOldTable = `| NVIDIA-SMI 470.256.02   Driver Version: 470.256.02   CUDA Version: 11.4     |
|   0  Tesla K80           Off  | 00000000:00:05.0 Off |                    0 |
|   1  Tesla K80           Off  | 00000000:00:06.0 Off |                    0 |`

	// deviceQuery.cpp of NVIDIA/cuda-samples: its first and its last lines.
	query = `./deviceQuery Starting...

 CUDA Device Query (Runtime API) version (CUDART static linking)

Detected 2 CUDA Capable device(s)

Device 0: "Quadro K4200"
  CUDA Driver Version / Runtime Version          11.4 / 10.2
  CUDA Capability Major/Minor version number:    3.0
  Total amount of global memory:                 4034 MBytes (4230086656 bytes)

Device 1: "Quadro K4200"
  Compute Mode:
     < Default (multiple host threads can use ::cudaSetDevice() with device simultaneously) >
> Peer access from Quadro K4200 (GPU0) -> Quadro K4200 (GPU1) : Yes

deviceQuery, CUDA Driver = CUDART, CUDA Driver Version = 11.4, CUDA Runtime Version = 10.2, NumDevs = 2
Result = PASS`
	queryNone = `deviceQuery Starting...

 CUDA Device Query (Runtime API) version (CUDART static linking)

cudaGetDeviceCount returned 100
-> no CUDA-capable device is detected
Result = FAIL`

	// bandwidthTest.cu of NVIDIA/cuda-samples; tabs are spaces, as the script of a guest prints them.
	bandwidth = `[CUDA Bandwidth Test] - Starting...
Running on...

 Device 0: Tesla K80
 Quick Mode

 Host to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes) Bandwidth(GB/s)
   32000000   9.9

 Device to Host Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes) Bandwidth(GB/s)
   32000000   10.1

 Device to Device Bandwidth, 1 Device(s)
 PINNED Memory Transfers
   Transfer Size (Bytes) Bandwidth(GB/s)
   32000000   170.1

Result = PASS

NOTE: The CUDA Samples are not meant for performance measurements. Results may vary when GPU Boost is enabled.`
	// Of all devices, several sizes, and MB/s, as the samples before CUDA 10.1 print.
	bandwidthAll = `[CUDA Bandwidth Test] - Starting...

!!!!!Cumulative Bandwidth to be computed from all the devices !!!!!!

Running on...

 Device 0: Tesla K80
 Device 1: Tesla M60
 Range Mode

 Host to Device Bandwidth, 2 Device(s)
 PAGEABLE Memory Transfers
   Transfer Size (Bytes) Bandwidth(MB/s)
   1024   310.5
   33554432   19950.2
   67108864   19000.0`

	// README.md and output.cpp of NVIDIA/nvbandwidth: version 0.6 lists devices, 0.10 does not.
	nvband = `nvbandwidth Version: v0.6
Built from Git version: v0.6

CUDA Runtime Version: 12040
CUDA Driver Version: 12040
Driver Version: 550.54.15

Device 0: NVIDIA H100 80GB HBM3 (00000000:05:00)
Device 1: NVIDIA H100 80GB HBM3 (00000000:06:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.63     55.64

SUM host_to_device_memcpy_ce 111.27

Running device_to_device_latency_sm.
Device to Device Latency SM GPU(row) <-> GPU(column) latency (ns)
           0         1
 0       N/A    550.12
 1    551.02       N/A

SUM device_to_device_latency_sm 1101.14`
	nvbandNew = `nvbandwidth Version: v0.10.0
Built from Git version: v0.10.0

CUDA Runtime Version: 13.0 (13000)
CUDA Driver Version (API): 13.0 (13000)
Driver Version: 580.159.04

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1         2
 0     55.36     55.37     55.33

SUM host_to_device_memcpy_ce 166.06
COEFFICIENT_OF_VARIATION host_to_device_memcpy_ce 0.00`

	// nbody.cpp of NVIDIA/cuda-samples, -benchmark -numdevices=2 -numbodies=65536.
	bodies = `Run "nbody -benchmark [-numbodies=<numBodies>]" to measure performance.
	-fullscreen       (run n-body simulation in fullscreen mode)

NOTE: The CUDA Samples are not meant for performance measurements. Results may vary when GPU Boost is enabled.

number of CUDA devices  = 2
> Windowed mode
> Simulation data stored in system memory
> Single precision floating point simulation
> 2 Devices used for simulation
> Compute 3.0 CUDA device: [Quadro K4200]
> Compute 3.0 CUDA device: [Quadro K4200]
65536 bodies, total time for 10 iterations: 430.515 ms
= 99.763 billion interactions per second
= 1995.263 single-precision GFLOP/s at 20 flops per interaction`
)

func TestPrograms(t *testing.T) {
	lines := func(texts ...string) []string { return strings.Split(strings.Join(texts, "\n"), "\n") }
	at := func(n int) *int { return &n }
	for _, test := range []struct {
		name string
		run  cuda.Output
		want string
	}{
		{"nvidia-smi -L", cuda.Output{Lines: lines(smiList)}, "nvidia-smi lists 2 [NVIDIA A100-SXM4-40GB]"},
		{"nvidia-smi", cuda.Output{Lines: lines(smiTable)}, "nvidia-smi lists 1 [NVIDIA H200]"},
		{"nvidia-smi of 2021", cuda.Output{Lines: lines(smiOldTable)}, "nvidia-smi lists 2 [Tesla K80]"},
		{"nvidia-smi without GPUs", cuda.Output{Lines: lines("No devices were found")}, "nvidia-smi lists 0 []"},
		{"nvidia-smi without a driver", cuda.Output{Lines: lines("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")}, ""},
		{"a list with a gap", cuda.Output{Lines: lines(smiList), Gap: at(2)}, "nvidia-smi lists 2 and more [NVIDIA A100-SXM4-40GB]"},
		{"a list with a gap at the end", cuda.Output{Lines: lines(smiList), Gap: at(4)}, "nvidia-smi lists 2 and more [NVIDIA A100-SXM4-40GB]"},
		{"a list with a gap before it", cuda.Output{Lines: lines("x", smiList), Gap: at(1)}, "nvidia-smi lists 2 [NVIDIA A100-SXM4-40GB]"},
		{"the end of a list", cuda.Output{Lines: lines("x", smiList)[4:], Gap: at(0)}, "nvidia-smi lists 1 and more [NVIDIA A100-SXM4-40GB]"},
		{"a list before a gap of another program", cuda.Output{Lines: lines(smiList, query), Gap: at(14)},
			"nvidia-smi lists 2 [NVIDIA A100-SXM4-40GB]; deviceQuery lists 2 [Quadro K4200]"},
		{"a list with a missing line", cuda.Output{Lines: lines(smiList), Missing: 1}, "nvidia-smi lists 2 and more [NVIDIA A100-SXM4-40GB]"},
		{"deviceQuery", cuda.Output{Lines: lines(query)}, "deviceQuery lists 2 [Quadro K4200]"},
		{"deviceQuery, the last lines", cuda.Output{Lines: lines(query)[2:], Gap: at(2)}, "deviceQuery lists 2 [Quadro K4200]"},
		{"deviceQuery without GPUs", cuda.Output{Lines: lines(queryNone)}, "deviceQuery lists ? []"},
		{"deviceQuery of a driver without GPUs", cuda.Output{Lines: lines(" CUDA Device Query (Runtime API) version (CUDART static linking)", "",
			"There are no available device(s) that support CUDA")}, "deviceQuery lists 0 []"},
		{"bandwidthTest", cuda.Output{Lines: lines(bandwidth)},
			"bandwidthTest uses 1 [Tesla K80] host to device, pinned=9900MB/s device to host, pinned=10100MB/s device to device, pinned=170100MB/s"},
		{"bandwidthTest --device=all", cuda.Output{Lines: lines(bandwidthAll)},
			"bandwidthTest lists 2 [Tesla K80 Tesla M60] host to device, pageable=19950.2MB/s"},
		{"nvbandwidth", cuda.Output{Lines: lines(nvband)}, "nvbandwidth lists 2 [NVIDIA H100 80GB HBM3] host_to_device_memcpy_ce=111270MB/s"},
		{"nvbandwidth of 2026", cuda.Output{Lines: lines(nvbandNew)}, "nvbandwidth lists 3 [] host_to_device_memcpy_ce=166060MB/s"},
		{"nbody", cuda.Output{Lines: lines(bodies)}, "nbody uses 2 [Quadro K4200] single precision=1995.263GFLOP/s"},
		{"nbody -cpu", cuda.Output{Lines: lines("> Windowed mode", "> Simulation with CPU", "= 0.4 double-precision GFLOP/s at 30 flops per interaction")},
			"nbody uses 0 [] double precision=0.4GFLOP/s"},
		{"several programs", cuda.Output{Lines: lines(smiList, bodies, nvbandNew)}, "nvidia-smi lists 2 [NVIDIA A100-SXM4-40GB]; " +
			"nbody uses 2 [Quadro K4200] single precision=1995.263GFLOP/s; nvbandwidth lists 3 [] host_to_device_memcpy_ce=166060MB/s"},
		{"one program twice", cuda.Output{Lines: lines(smiList, smiList)},
			"nvidia-smi lists 2 [NVIDIA A100-SXM4-40GB]; nvidia-smi lists 2 [NVIDIA A100-SXM4-40GB]"},
		{"a program in a text", cuda.Output{Lines: lines("I ran nbody and nvidia-smi -L", "number of CUDA devices  = 2", "Device 0: x", "SUM x 1")}, ""},
		{"nothing", cuda.Output{}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			hosttest.Equal(t, test.want, shown(cuda.Programs(test.run)))
		})
	}
}

// FuzzPrograms: no output makes a program without a name or with a number of GPUs of more than four
// digits, and each figure is of one kind.
func FuzzPrograms(f *testing.F) {
	for _, seed := range []string{smiList, smiTable, query, bandwidth, bandwidthAll, nvband, nvbandNew, bodies} {
		f.Add(seed, -1, 0)
	}
	f.Fuzz(func(t *testing.T, text string, gap, missing int) {
		r := cuda.Output{Lines: strings.Split(text, "\n"), Missing: max(0, missing%64)}
		if gap >= 0 {
			r.Gap = &gap
		}
		for _, p := range cuda.Programs(r) {
			if p.GPUs != nil && (*p.GPUs < 0 || *p.GPUs > 9999) || p.Name == "" {
				t.Fatalf("%+v", p)
			}
			for _, figure := range p.Figures {
				if (figure.MBps == nil) == (figure.GFLOPs == nil) {
					t.Fatalf("%+v", figure)
				}
			}
		}
	})
}
