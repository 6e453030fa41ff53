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
		"cxgb4": "iw_cxgb4", "hns3": "hns_roce_hw_v2", "mana": "mana_ib", "be2net": "ocrdma", "ionic": "ionic_rdma",
	}[driver]
}

// adapters finds functions without an RDMA device that processes here can use: one whose driver has
// made none fails, and one whose device is in another network namespace if nothing records it for
// containers and no other device is here. Devices of a bond or of a part are named.
func (v view) adapters() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	if v.noClass() {
		return checklist.NA("neither %s nor %s is shown by these files", v.Stack.File, v.Modules.File)
	}
	var findings []host.Finding
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	found, recorded := 0, false
	var away []rdma.Adapter
	for _, a := range v.Stack.Value.Adapters {
		switch {
		case a.Name != "":
			found++
			for _, part := range a.Parts {
				note("%s is a device of a part of %s", part, a.Title())
			}
		case a.Elsewhere != "":
			away, recorded = append(away, a), recorded || v.forContainers(a)
			name := a.Elsewhere
			if a.Address != nil {
				name += " of " + a.Title()
			}
			note("%s is in another network namespace", name)
		case a.Lag != "":
			note("%s serves the port of %s too", a.Lag, a.Title())
		default:
			findings = append(findings, v.noDevice(a))
		}
	}
	if findings == nil && found == 0 && len(away) > 0 && !recorded {
		return []host.Finding{{
			Status: host.Fail, File: uverbsDir, Seen: strings.Join(notes, "; "),
			Effect: `opening its node fails with EPERM, also for root; programs do not see it: "No IB devices found" (ibv_devinfo)`,
			Remedy: host.Plain("outside of containers: rdma dev set " + away[0].Elsewhere + " netns NAME"),
		}}
	}
	if findings == nil && found+len(away) == 0 {
		return checklist.NA("no RDMA device on the host")
	}
	number := host.Numbered(found, "RDMA device")
	if found == 0 {
		number = "no RDMA device here"
	}
	return checklist.OrPass(findings, "%s", strings.Join(append([]string{number}, notes...), "; "))
}

// noDevice returns the finding of an adapter whose driver has made no RDMA device.
func (v view) noDevice(a rdma.Adapter) host.Finding {
	f := host.Finding{
		Status: host.Fail,
		Seen:   fmt.Sprintf("%s is bound to %s, but there is no RDMA device of it", a.Title(), a.Driver),
		Effect: `programs do not see it: "No IB devices found" (ibv_devinfo), "No RDMA devices were detected" (rping)`,
		Remedy: host.Plain("the kernel log says why: journalctl -k --grep infiniband"),
	}
	if module := auxiliary(a.Driver); module != "" {
		f.Remedy = host.Plain("modprobe " + module)
		if v.Modules.Seen() && v.Modules.Value[module] {
			f.Remedy = host.Plain("the kernel log says why: journalctl -k --grep '" + a.Driver + "|" + module + "'")
		}
	}
	return f
}

// noClass reports whether nothing shows if there are RDMA devices, as in an archive with PCI
// functions alone: a kernel with ib_core always shows a class, and otherwise a list of modules.
func (v view) noClass() bool {
	return !v.Modules.Seen() && v.Stack.Value.VerbsABI == nil &&
		!slices.ContainsFunc(v.Stack.Value.Adapters, func(a rdma.Adapter) bool { return a.Name != "" })
}
