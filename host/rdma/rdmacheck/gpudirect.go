package rdmacheck

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// peerMemory are the modules of GPUDirect RDMA: NVIDIA's, its predecessor, and that of EFA.
var peerMemory = []string{"nvidia_peermem", "nv_peer_mem", "efa_nv_peermem"}

// gpuDirect shows how adapters reach the memory of NVIDIA's GPUs, and warns where neither
// nvidia_peermem nor dma-buf is there. The latter needs NVIDIA's open kernel modules and Linux 5.12
// (NVIDIA, "GPU Operator: GPUDirect RDMA", prerequisites).
func (v view) gpuDirect() []host.Finding {
	used := func(d *pci.Device) bool { return d.DriverName() == "nvidia" }
	if !slices.ContainsFunc(rdma.GPUs(v.Devices), used) || !slices.ContainsFunc(v.Stack.Value.Adapters, usable) {
		return checklist.NA("no GPU of NVIDIA's driver beside an adapter")
	}
	for _, name := range peerMemory {
		if v.Modules.Value[name] {
			return checklist.Pass("GPUDirect RDMA: %s is loaded", name)
		}
	}
	for _, look := range []struct {
		file string
		err  error
	}{{v.Modules.File, v.Modules.Err}, {v.NVIDIA.File, v.NVIDIA.Err}, {v.Kernel.File, v.Kernel.Err}} {
		if look.err != nil {
			return checklist.Unread(look.file, look.err)
		}
	}
	var major, minor int
	_, err := fmt.Sscanf(v.Kernel.Value, "%d.%d", &major, &minor)
	switch open := strings.Contains(v.NVIDIA.Value, "Open Kernel Module"); {
	case v.NVIDIA.Value == "":
		return checklist.NA("%s is not shown by the kernel: whether NVIDIA's kernel modules are the open ones is unknown", nvidiaFile)
	case err != nil:
		return checklist.NA("the release of the kernel is not known, which dma-buf depends on: %q", v.Kernel.Value)
	case open && (major > 5 || major == 5 && minor >= 12):
		return checklist.Pass("GPUDirect RDMA by dma-buf: NVIDIA's open kernel modules with Linux %d.%d", major, minor)
	}
	return []host.Finding{{
		Status: host.Warn, File: v.NVIDIA.File,
		Seen:   "no GPUDirect RDMA: neither is nvidia_peermem loaded, nor are NVIDIA's open kernel modules with Linux 5.12 or later, which have dma-buf",
		Effect: "data between GPUs and adapters passes through the memory of the host (NCCL: GDRDMA is missing in its log)",
		Remedy: host.Plain("modprobe nvidia_peermem, with MLNX_OFED or DOCA; or install NVIDIA's open kernel modules"),
	}}
}
