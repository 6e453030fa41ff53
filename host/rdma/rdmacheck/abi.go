package rdmacheck

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// The versions of the kernel's verbs interface that libibverbs accepts (rdma-core,
// libibverbs/init.c: check_abi_version; kernel-headers/rdma/ib_user_verbs.h).
const (
	minVerbsABI = 3
	maxVerbsABI = 6
)

// abi compares the versions of the kernel's interfaces with those that libibverbs and its libraries
// accept.
func (v view) abi() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	const file = "/sys/class/infiniband_verbs/abi_version"
	class := v.Stack.Value.VerbsABI
	if class == nil {
		for _, warning := range v.Stack.Value.Warnings {
			if strings.HasPrefix(warning, file+":") {
				return []host.Finding{{Status: host.NA, File: file, Seen: warning}}
			}
		}
		return checklist.NA("%s is not shown by the kernel", file)
	}
	if *class < minVerbsABI || *class > maxVerbsABI {
		return []host.Finding{{
			Status: host.Fail, File: file, Seen: fmt.Sprintf("the kernel has version %d, libibverbs accepts %d to %d", *class, minVerbsABI, maxVerbsABI),
			Effect: fmt.Sprintf(`no program can use adapters: "libibverbs: Fatal: kernel ABI version %d doesn't match library version %d."`, *class, maxVerbsABI),
			Remedy: "install kernel and rdma-core of the same distribution release",
		}}
	}
	findings := v.each(func(a rdma.Adapter) []host.Finding {
		accepted, ok := rdma.AcceptedABI(a.Provider())
		if !ok || a.Verbs == nil || a.Verbs.ABI == nil {
			return nil
		}
		abi := *a.Verbs.ABI
		if !slices.ContainsFunc(v.Verbs.Libraries(), func(f rdma.VerbsFolder) bool { return accepted.RefusedWith(f.Private, abi) }) {
			return nil
		}
		return []host.Finding{{
			Status: host.Fail, File: "/sys/class/infiniband_verbs/" + a.Verbs.Name + "/abi_version",
			Seen:   fmt.Sprintf("%s: the driver has version %d, rdma-core 44 accepts %d to %d", title(a), abi, accepted.Min, accepted.Max),
			Effect: fmt.Sprintf(`programs do not see the adapter: "Driver %s does not support the kernel ABI of %d"`, a.Provider(), abi),
			Remedy: "install kernel and rdma-core of the same distribution release",
		}}
	})
	return checklist.OrPass(findings, "the kernel has version %d", *class)
}
