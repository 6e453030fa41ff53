package rdmacheck

import (
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
)

// storageModules are those of iSER, SRP, NFS, NVMe, RDS and Lustre.
var storageModules = []string{
	"ib_iser", "ib_isert", "ib_srp", "ib_srpt", "rpcrdma", "xprtrdma", "svcrdma", "nvme_rdma", "nvmet_rdma", "rds_rdma", "ko2iblnd",
}

// storage names loaded modules of storage over RDMA, and never fails.
func (v view) storage() []host.Finding {
	if !v.Modules.Seen() {
		return checklist.Unread(v.Modules.File, v.Modules.Err)
	}
	loaded := host.Filter(storageModules, func(name string) bool { return v.Modules.Value[name] })
	if loaded == nil {
		return checklist.Pass("no module of storage over RDMA is loaded")
	}
	f := checklist.Pass("loaded: %s", strings.Join(loaded, ", "))
	f[0].Effect = "rdma-core loads some of them for every adapter, so this does not show that they are used"
	return f
}
