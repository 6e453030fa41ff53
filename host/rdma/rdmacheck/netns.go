package rdmacheck

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// netns shows whether network namespaces share adapters, and compares it with the record.
func (v view) netns() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	mode := v.Stack.Value.Netns
	if mode == nil {
		return checklist.NA("%s is not shown by the kernel", rdma.NetnsFile)
	}
	if r := v.Record.Value; r != nil && r.Netns != "" && r.Netns != *mode && v.phase == effective {
		return []host.Finding{{
			Status: host.Fail, File: rdma.NetnsFile, Seen: fmt.Sprintf("network namespaces are %s, recorded is %s", *mode, r.Netns),
			Effect: "adapters are in all network namespaces, or in one only, other than planned",
			Remedy: host.Plain("reboot: the mode changes only while no second network namespace exists (rdma system set netns: Device or resource busy)"),
		}}
	}
	f := checklist.Pass("network namespaces are %s", *mode)
	if *mode == rdma.NetnsShared {
		f[0].Effect = `shared mode isolates nothing: a container with a uverbs node sends with the host's GIDs; rdma_cm alone respects namespaces: ` +
			`"rdma_bind_addr: Cannot assign requested address", "rdma_resolve_addr: Network is unreachable" in a container`
	} else {
		f[0].Effect = `in a network namespace without the adapter, opening its nodes fails with EPERM: "Failed to open device"`
	}
	return f
}
