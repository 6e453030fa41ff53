package rdmacheck

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// auxiliary names the module that makes an RDMA device of a function, for each driver of functions
// (Linux, drivers/infiniband/hw). Where it is the driver itself, nothing else has to be loaded.
func auxiliary(driver string) string {
	return map[string]string{
		"mlx4_core": "mlx4_ib", "mlx5_core": "mlx5_ib", "ice": "irdma", "i40e": "irdma", "bnxt_en": "bnxt_re", "qede": "qedr",
		"cxgb4": "iw_cxgb4", "hns3": "hns_roce_hw_v2", "mana": "mana_ib", "be2net": "ocrdma",
	}[driver]
}

// adapters finds functions whose driver has made no RDMA device, and whose port no device of their
// bond serves.
func (v view) adapters() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	if v.noClass() {
		return checklist.NA("neither %s nor %s is shown by these files", v.Stack.File, v.Modules.File)
	}
	var findings []host.Finding
	var lags []string
	found := 0
	for _, a := range v.Stack.Value.Adapters {
		if a.Name != "" {
			found++
			continue
		}
		if a.Lag != "" {
			lags = append(lags, fmt.Sprintf("%s serves the port of %s too", a.Lag, a.Title()))
			continue
		}
		f := host.Finding{
			Status: host.Fail,
			Seen:   fmt.Sprintf("%s is bound to %s, but there is no RDMA device of it", a.Title(), a.Driver),
			Effect: `programs do not see it: "No IB devices found" (ibv_devinfo), "No RDMA devices were detected" (rping)`,
			Remedy: "the kernel log says why: journalctl -k --grep infiniband",
		}
		if module := auxiliary(a.Driver); module != "" {
			f.Remedy = host.Text("modprobe " + module)
			if v.Modules.Seen() && v.Modules.Value[module] {
				f.Remedy = host.Text("the kernel log says why: journalctl -k --grep '" + a.Driver + "|" + module + "'")
			}
		}
		findings = append(findings, f)
	}
	// The class of uverbs nodes knows no network namespaces, that of RDMA devices does.
	if findings == nil && found == 0 && len(v.Uverbs) > 0 {
		return []host.Finding{{
			Status: host.Fail, File: uverbsDir, Seen: fmt.Sprintf("%s without its RDMA device: it belongs to another network namespace", v.Uverbs[0]),
			Effect: `opening its node fails with EPERM, also for root; programs do not see it: "No IB devices found" (ibv_devinfo)`,
			Remedy: "on the host, outside of containers: rdma system show, and for exclusive mode: rdma dev set DEVICE netns NAME",
		}}
	}
	if findings == nil && found == 0 {
		return checklist.NA("no RDMA device on the host")
	}
	return checklist.OrPass(findings, "%s", strings.Join(append([]string{host.Numbered(found, "RDMA device")}, lags...), "; "))
}

// noClass reports whether nothing shows if there are RDMA devices, as in an archive with PCI
// functions alone: a kernel with ib_core always shows a class, and otherwise a list of modules.
func (v view) noClass() bool {
	return !v.Modules.Seen() && v.Stack.Value.VerbsABI == nil &&
		!slices.ContainsFunc(v.Stack.Value.Adapters, func(a rdma.Adapter) bool { return a.Name != "" })
}
