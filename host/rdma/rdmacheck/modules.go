package rdmacheck

import (
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// modules checks the modules ib_uverbs and rdma_ucm, ib_umad for InfiniBand, and ib_ipoib if GUIDs
// of virtual functions are recorded. The programs of rdma-core need them: an adapter's driver
// itself brings ib_uverbs alone.
func (v view) modules() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	if !v.Modules.Seen() {
		return checklist.Unread(v.Modules.File, v.Modules.Err)
	}
	var findings []host.Finding
	missing := func(status host.Status, module, effect string) {
		findings = append(findings, host.Finding{
			Status: status, File: modulesFile, Seen: module + " is not loaded", Effect: effect,
			Remedy: host.Plain("modprobe " + module + "; to load it at every boot: echo " + module + " > /etc/modules-load.d/" + module + ".conf"),
		})
	}
	s := v.Stack.Value
	has := func(module string) bool { return v.Modules.Value[module] }
	// What is built in may have no folder in sysfs: its class or its node shows it.
	if !has("ib_uverbs") && s.VerbsABI == nil {
		missing(host.Fail, "ib_uverbs", `programs cannot open adapters: "No IB devices found" (ibv_devinfo), "No RDMA devices were detected" (rping)`)
	}
	if !has("rdma_ucm") && s.CM == nil && v.servesCM() {
		missing(host.Fail, "rdma_ucm", `connections by address fail: "failed to create RDMA CM event channel: No such file or directory"`)
	}
	umad := has("ib_umad") || v.anyPort(func(p rdma.Port) bool { return p.UMAD != nil })
	if !umad && v.anyPort(rdma.Port.IsInfiniBand) {
		missing(host.Warn, "ib_umad", `fabric tools fail: "can't open UMAD port ((null):0)", `+
			`"./libibnetdisc/ibnetdisc.c:802; can't open MAD port ((null):0)" (ibhosts)`)
	}
	ipoib := has("ib_ipoib") || v.anyPort(func(p rdma.Port) bool { return len(p.IPoIB) > 0 })
	if !ipoib && v.wantsGUIDs() {
		missing(host.Fail, "ib_ipoib", "GUIDs of VFs are set through the IPoIB interface of their physical function; without them their ports stay DOWN")
	}
	if findings != nil {
		return findings
	}
	f := checklist.Pass("ib_uverbs and rdma_ucm are loaded")
	if !v.servesCM() {
		f = checklist.Pass("ib_uverbs is loaded; no adapter has a connection manager")
	}
	if umad {
		f = checklist.Pass("ib_uverbs, rdma_ucm and ib_umad are loaded")
		if !v.anyPort(rdma.Port.IsInfiniBand) {
			f[0].Effect = `fabric tools still fail on Ethernet, which has no subnet manager: "mad_rpc_open_port: client_register for mgmt 1 failed" (ibhosts)`
		}
	}
	return f
}

// servesCM reports whether a port may serve rdma_cm: all but those of EFA may, and ports that are
// not shown.
func (v view) servesCM() bool {
	return !v.anyPort(func(rdma.Port) bool { return true }) || v.anyPort(func(p rdma.Port) bool { return p.LinkLayer != rdma.LinkUnspecified })
}

// wantsGUIDs reports whether GUIDs of VFs are recorded.
func (v view) wantsGUIDs() bool {
	return v.Record.Value != nil && slices.ContainsFunc(v.Record.Value.Adapters, func(p rdma.Prepared) bool {
		return slices.ContainsFunc(p.VFs, func(f rdma.PreparedVF) bool { return f.NodeGUID != nil || f.PortGUID != nil })
	})
}
