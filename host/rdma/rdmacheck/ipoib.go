package rdmacheck

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// fullMember is a bit of a partition key (InfiniBand Architecture Specification, 10.9.1.2).
const fullMember = 0x8000

// ipoib shows mode, partition key and parent of IPoIB interfaces, and checks carrier and membership.
func (v view) ipoib() []host.Finding {
	var texts []string
	findings := v.eachPort(func(a rdma.Adapter, p rdma.Port) (findings []host.Finding) {
		for _, i := range p.IPoIB {
			text := i.Name + " " + i.Mode
			if i.PKey != nil {
				text += fmt.Sprintf(" P_Key 0x%04x", *i.PKey)
			}
			if i.Parent != "" {
				text += " child of " + i.Parent
			}
			texts = append(texts, text)
			findings = append(findings, v.judgeIPoIB(a, p, i)...)
		}
		return findings
	})
	if findings == nil && texts == nil {
		return checklist.NA("no IPoIB interface")
	}
	return checklist.OrPass(findings, "%s", strings.Join(texts, ", "))
}

func (v view) judgeIPoIB(a rdma.Adapter, p rdma.Port, i rdma.IPoIB) (findings []host.Finding) {
	warn := func(file, seen, effect string, remedy host.Text) {
		findings = append(findings, host.Finding{
			Status: host.Warn, File: "/sys/class/net/" + i.Name + "/" + file, Seen: i.Name + " " + seen, Effect: effect, Remedy: remedy,
		})
	}
	if i.Carrier == host.No && v.reach(a, p) == nil { // else the check of rdma_cm says so
		warn("carrier", "has no carrier: it has not joined its broadcast group", "it has no traffic by IP, and rdma_cm cannot use it", host.HintOf(rdma.ErrNoCarrier))
	}
	if i.PKey == nil {
		return findings
	}
	key := *i.PKey
	switch inTable := slices.ContainsFunc(p.PKeys, func(k uint16) bool { return k|fullMember == key|fullMember }); {
	case len(p.PKeys) > 0 && !inTable:
		warn("pkey", fmt.Sprintf("has P_Key 0x%04x, which is not in the table of %s", key, portTitle(a, p)),
			"the interface has no carrier", host.Plain("add the port's GUID to that partition in the subnet manager's partitions.conf"))
	case !slices.Contains(p.PKeys, key|fullMember) && slices.Contains(p.PKeys, key&^fullMember):
		warn("pkey", fmt.Sprintf("is a limited member of P_Key 0x%04x", key|fullMember),
			"it reaches full members only, not other limited ones", host.Plain("make the port a full member (GUID=full) in the subnet manager's partitions.conf"))
	}
	return findings
}
