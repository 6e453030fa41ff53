package rdmacheck

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/steps"
)

// identity compares GUIDs, MAC addresses and policies of virtual functions with the record. Where
// no file shows them, the step that set them and read them back is the evidence.
func (v view) identity() []host.Finding {
	verified := 0
	findings := v.recorded(func(p rdma.Prepared, _ *pci.Device) (findings []host.Finding) {
		var a *rdma.Adapter
		if v.Stack.Seen() {
			a = v.Stack.Value.At(p.Address)
		}
		if p.Whole || v.differs(p) != "" || v.phase != effective || a == nil {
			return nil
		}
		unseen := 0
		for _, f := range p.VFs {
			if f.NodeGUID == nil && f.PortGUID == nil && f.MAC == "" {
				continue
			}
			i := slices.IndexFunc(a.VFs, func(now rdma.VF) bool { return now.Index == f.Index })
			if i < 0 {
				continue // of vfs
			}
			now, wrong := a.VFs[i], wrongIdentity(f, a.VFs[i])
			for _, what := range wrong {
				findings = append(findings, host.Finding{
					Status: host.Fail, File: machine.AttributeFile(p.Address, ""),
					Seen:   fmt.Sprintf("virtual function %d of %s (%s): %s", f.Index, p.Address, f.Address, what),
					Effect: "its port stays DOWN in the guest, or is not a member of its partitions", Remedy: restart,
				})
			}
			switch {
			case wrong != nil:
			case (f.MAC != "" || now.NodeGUID == nil && now.PortGUID == nil) && !v.identified(f.Address): // netlink alone shows a MAC address
				unseen++
			default:
				verified++
			}
		}
		if unseen > 0 {
			findings = append(findings, checklist.NA("%s: no file shows the GUIDs or MAC addresses of %s", p.Address, host.Numbered(unseen, "virtual function"))...)
			findings[len(findings)-1].Remedy = host.Plain("ip link show dev INTERFACE, with the network interface of " + p.Address.String())
		}
		return findings
	})
	if findings == nil && verified == 0 {
		return checklist.NA("no GUIDs or MAC addresses are recorded that are in effect")
	}
	return checklist.OrPass(findings, "GUIDs or MAC addresses of %s as recorded", host.Numbered(verified, "virtual function"))
}

// wrongIdentity returns what files show of a virtual function that differs from the record, and a
// policy that keeps its port down.
func wrongIdentity(recorded rdma.PreparedVF, now rdma.VF) (wrong []string) {
	for _, g := range []struct {
		name      string
		want, now *rdma.GUID
	}{{"node GUID", recorded.NodeGUID, now.NodeGUID}, {"port GUID", recorded.PortGUID, now.PortGUID}} {
		switch {
		case g.want == nil, g.now == nil, *g.want == *g.now:
		case g.now.IsZero():
			wrong = append(wrong, fmt.Sprintf("no %s, recorded is %s", g.name, g.want))
		default:
			wrong = append(wrong, fmt.Sprintf("%s %s, recorded is %s", g.name, g.now, g.want))
		}
	}
	if now.Policy == "Down" {
		wrong = append(wrong, "policy Down")
	}
	return wrong
}

// identified reports whether the step that sets the identity of a virtual function, and reads it
// back, succeeded at this boot (startup.Steps).
func (v view) identified(a pci.Address) bool {
	return v.Result.Value != nil && slices.ContainsFunc(v.Result.Value.Steps, func(s steps.StepResult) bool {
		return s.Kind == "identity" && s.Address != nil && *s.Address == a && (s.Status == steps.Done || s.Status == steps.Unchanged)
	})
}
