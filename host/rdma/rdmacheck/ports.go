package rdmacheck

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/netconf"
	"gpustack/host/rdma"
)

// ports checks that every port is active, and names the cause if it is not.
func (v view) ports() []host.Finding {
	active := 0
	findings := v.eachPort(func(a rdma.Adapter, p rdma.Port) []host.Finding {
		if p.State == "ACTIVE" || p.State == "ACTIVE_DEFER" {
			active++
			return nil
		}
		return []host.Finding{v.inactive(a, p)}
	})
	if findings == nil && active == 0 {
		return checklist.NA("no port on the host")
	}
	return checklist.OrPass(findings, "%s ACTIVE", host.Numbered(active, "port"))
}

// inactive returns the finding of a port that is not active.
func (v view) inactive(a rdma.Adapter, p rdma.Port) host.Finding {
	name := portTitle(a, p)
	f := host.Finding{Status: host.Fail, File: portFile(a, p, "state"), Effect: "nothing can be sent or received through this port"}
	seen := fmt.Sprintf("%s is %s (%s)", name, p.State, p.PhysState)
	infiniBand := p.IsInfiniBand()
	switch identity := v.ofVF(a); {
	case p.State == "":
		f.Status, f.Seen, f.Effect = host.NA, name+": the state is not shown by the kernel", ""
	case a.ManagesNVSwitches():
		f.Status, f.Seen = host.Warn, seen+": it belongs to NVIDIA's Fabric Manager, whose subnet manager configures it"
		f.Effect, f.Remedy = "CUDA programs fail on this host until the NVSwitches are configured", "systemctl status nvidia-fabricmanager"
	case p.State == "DOWN" && v.spare(a):
		f.Status, f.Seen = host.Warn, seen+": nothing is connected, or it is switched off; another port of the card is ACTIVE"
		f.Effect = "this port carries nothing; no record and no network configuration needs it"
		f.Remedy = "connect it, or leave it as it is"
	case identity.policyDown:
		f.Seen = seen + ": the policy of this virtual function is Down"
		f.Remedy = host.Textf("ip link set IPOIB_INTERFACE vf %d state auto, with the IPoIB interface of %s; or %s, which sets it at every boot",
			identity.index, identity.pf, host.NewCommand("rdma prepare"))
	case infiniBand && a.IsVF() && (a.NodeGUID == nil || a.NodeGUID.IsZero() || p.GUID != nil && p.GUID.IsZero()):
		f.Seen = seen + ": this virtual function has no GUID"
		f.Remedy = host.Textf("%s sets stable GUIDs at every boot; then unbind and bind the function",
			host.NewCommand("rdma prepare").Flag("device", identity.pf).Flag("vfs", "N"))
	case p.State == "DOWN" && p.PhysState == "Disabled" && infiniBand:
		f.Seen = seen + ": the port is disabled"
		f.Remedy = host.Textf("ibportstate -C %s -P %d -D 0 enable", a.Name, p.Number)
	case p.State == "DOWN" && infiniBand:
		f.Seen = seen + ": no partner: no cable, or the other end is off"
		if p.PhysState != "Polling" {
			f.Seen = seen + ": the link does not train"
		}
		f.Remedy = "check cable and transceiver at both ends, and that the switch port is enabled: iblinkinfo on a host of the fabric"
	case p.State == "DOWN" && p.LinkLayer == rdma.LinkEthernet:
		f.Seen = seen + ": the network interface has no link or is down"
		f.Remedy = host.Text("ip link set " + interfaceOf(a) + " up; if it remains DOWN, check cable, transceiver and switch port: ethtool " + interfaceOf(a))
	case p.State == "INIT" && infiniBand && p.SMLID != nil && *p.SMLID == 0:
		f.Seen = seen + " with SM LID 0: no subnet manager has configured it"
		f.Remedy = "start a subnet manager in the fabric: on a managed switch, or on one host: apt-get install opensm, systemctl start opensm"
	case p.State == "INIT" && infiniBand:
		f.Seen = seen + ": the subnet manager has not activated it"
		f.Remedy = host.Text("see the log of the subnet manager, whose LID is in sm_lid: sminfo -C " + a.Name)
	case p.State == "ARMED":
		f.Seen = seen + ": the subnet manager stopped before it made the port ACTIVE"
		f.Remedy = "restart the subnet manager; its log names the ports that it cannot configure"
	default:
		f.Seen = seen
		f.Remedy = host.Text("ibstat " + a.Name + "; the kernel log may say more: journalctl -k")
	}
	return f
}

// spare reports whether nothing needs a port of an adapter: another port of its card is active, and
// neither a record nor the host's network configuration names it.
func (v view) spare(a rdma.Adapter) bool {
	if a.Address == nil || a.IsVF() || v.configured(a) || v.forContainers(a) ||
		!v.Record.Seen() || v.Record.Value != nil && v.Record.Value.At(*a.Address) != nil {
		return false
	}
	return slices.ContainsFunc(v.Stack.Value.Adapters, func(other rdma.Adapter) bool {
		return other.Address != nil && !other.IsVF() && other.Address.Card() == a.Address.Card() &&
			slices.ContainsFunc(other.Ports, func(q rdma.Port) bool { return q.State == "ACTIVE" })
	})
}

// configured reports whether the host's network configuration names an interface of an adapter, or
// may do so because it cannot be read.
func (v view) configured(a rdma.Adapter) bool {
	if v.Networks.Err != nil {
		return true
	}
	for _, name := range a.Netdevs {
		i := netconf.Interface{Names: []string{name}, Driver: a.Driver, Type: "ether", Address: v.Hardware[name]}
		if a.Address != nil {
			i.Path = "pci-" + a.Address.String()
		}
		if slices.ContainsFunc(a.Ports, rdma.Port.IsInfiniBand) {
			i.Type = "infiniband"
		}
		for _, n := range v.Networks.Value {
			if _, named := n.Gives(i); named {
				return true
			}
		}
	}
	return false
}

// vfIdentity is what the physical function of a virtual one shows of it.
type vfIdentity struct {
	pf         string // its address
	index      int
	policyDown bool
}

// ofVF returns the identity of an adapter that is a virtual function.
func (v view) ofVF(a rdma.Adapter) vfIdentity {
	id := vfIdentity{pf: "ADDRESS"}
	if !a.IsVF() {
		return id
	}
	if pf := a.Function.SRIOV.PF; pf != nil {
		id.pf = pf.String()
	}
	for _, owner := range v.Stack.Value.Adapters {
		for _, f := range owner.VFs {
			if f.Address == *a.Address {
				id.index, id.policyDown = f.Index, f.Policy == "Down"
			}
		}
	}
	return id
}

// interfaceOf returns a network interface of an adapter.
func interfaceOf(a rdma.Adapter) string {
	switch {
	case a.Parent != "":
		return a.Parent
	case len(a.Netdevs) > 0:
		return a.Netdevs[0]
	}
	return "INTERFACE"
}
