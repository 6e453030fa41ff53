package rdmacheck

import (
	"gpustack/host"
	"gpustack/host/checklist"
)

// smc shows whether SMC-R, TCP over RDMA, is loaded, and never fails.
func (v view) smc() []host.Finding {
	switch {
	case !v.Modules.Seen():
		return checklist.Unread(v.Modules.File, v.Modules.Err)
	case v.Modules.Value["smc"]:
		f := checklist.Pass("SMC-R is loaded (module smc)")
		f[0].Effect = "programs use it through address family 43 or smc_run only; a connection may fall back to TCP, or hang"
		return f
	}
	return checklist.Pass("SMC-R is not loaded (module smc)")
}
