package rdmacheck

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// ports checks that every port is ACTIVE, and names the cause if it is not; idle ports of one card
// are one warning.
func (v view) ports() []host.Finding {
	active := 0
	var idle []idlePort
	findings := v.eachPort(func(a rdma.Adapter, p rdma.Port) []host.Finding {
		switch {
		case isActive(p):
			active++
			return nil
		case v.isIdle(a, p) && v.unread() == nil:
			idle = append(idle, idlePort{a, p})
			return nil
		}
		return []host.Finding{v.inactive(a, p)}
	})
	findings = append(findings, idlePorts(idle)...)
	if findings == nil && active == 0 {
		return checklist.NA("no port on the host")
	}
	return checklist.OrPass(findings, "%s ACTIVE", host.Numbered(active, "port"))
}

// isActive reports whether a port is active.
func isActive(p rdma.Port) bool { return p.State == "ACTIVE" || p.State == "ACTIVE_DEFER" }

// linkUp is the physical state of a port whose cable is in order. That of a virtual port is that of
// the adapter's, whatever its own state.
const linkUp = "LinkUp"

// hasNoGUID reports whether an InfiniBand port has the GUID zero.
func hasNoGUID(p rdma.Port) bool { return p.IsInfiniBand() && p.GUID != nil && p.GUID.IsZero() }

// isIdle reports whether nothing is connected to a port, and nothing needs it: another port of the
// machine is ACTIVE, and neither a record nor the network configuration needs this one.
func (v view) isIdle(a rdma.Adapter, p rdma.Port) bool {
	return p.State == "DOWN" && p.PhysState != linkUp && !hasNoGUID(p) && !a.ManagesNVSwitches() && v.unneeded(a)
}

// idlePort is a port to which nothing is connected.
type idlePort struct {
	adapter rdma.Adapter
	port    rdma.Port
}

// idlePorts returns one finding for the idle ports of each card.
func idlePorts(all []idlePort) (findings []host.Finding) {
	for len(all) > 0 {
		first := all[0]
		var names, physical []string
		all = slices.DeleteFunc(all, func(i idlePort) bool {
			same := i.adapter.Address.Card() == first.adapter.Address.Card()
			if same {
				names, physical = append(names, portTitle(i.adapter, i.port)), append(physical, i.port.PhysState)
			}
			return same
		})
		slices.Sort(physical)
		verb, off, last := "is", "it is", len(names)-1
		if last > 0 {
			verb, off, names = "are", "they are", []string{strings.Join(names[:last], ", ") + " and " + names[last]}
		}
		findings = append(findings, host.Finding{
			Status: host.Warn, File: portFile(first.adapter, first.port, "state"),
			Seen: fmt.Sprintf("%s %s DOWN (%s): nothing is connected, or %s switched off; another port of the machine is ACTIVE",
				names[0], verb, strings.Join(slices.Compact(physical), ", "), off),
			Effect: "nothing is sent or received there, and no record needs it", Remedy: host.Plain("connect it, or leave it as it is"),
		})
	}
	return findings
}

// inactive returns the finding of a port that is not active.
func (v view) inactive(a rdma.Adapter, p rdma.Port) host.Finding {
	f := host.Finding{Status: host.Fail, File: portFile(a, p, "state"), Effect: "nothing can be sent or received through this port"}
	seen := fmt.Sprintf("%s is %s (%s)", portTitle(a, p), p.State, p.PhysState)
	if unread := v.unread(); v.isIdle(a, p) && unread != nil {
		f.Effect += "; it may be needed: " + inOneLine(unread)
	}
	switch {
	case p.State == "":
		f.Status, f.Seen, f.Effect = host.NA, portTitle(a, p)+": the state is not shown by the kernel", ""
	case a.ManagesNVSwitches():
		f.Status, f.Seen = host.Warn, seen+": it belongs to NVIDIA's Fabric Manager, whose subnet manager configures it"
		f.Effect, f.Remedy = "CUDA programs fail on this host until the NVSwitches are configured", host.Plain("systemctl status nvidia-fabricmanager")
	case p.IsInfiniBand():
		cause, remedy := v.ofInfiniBand(a, p)
		f.Seen, f.Remedy = seen+cause, remedy
	case p.State == "DOWN" && p.LinkLayer == rdma.LinkEthernet:
		netdev := interfaceOf(a)
		if len(p.Netdevs) > 0 {
			netdev = p.Netdevs[0]
		}
		f.Seen = seen + ": the network interface has no link or is down"
		f.Remedy = host.Plain("ip link set " + netdev + " up; if it remains DOWN, check cable, transceiver and switch port: ethtool " + netdev)
		switch {
		case p.Up == host.No:
			f.Seen, f.Remedy = seen+": "+netdev+" is down", host.Plain("ip link set "+netdev+" up")
		case p.Carrier == host.No:
			f.Seen, f.Remedy = seen+": "+netdev+" is up and has no carrier", host.Plain("check cable, transceiver and switch port: ethtool "+netdev)
		}
	default:
		f.Seen, f.Remedy = seen, otherCause(a)
	}
	return f
}

func otherCause(a rdma.Adapter) host.Text {
	return host.Plain("ibstat " + a.Name + "; the kernel log may say more: journalctl -k")
}

// ofInfiniBand returns why an InfiniBand port is not active, and the remedy. With LinkUp, DOWN is the
// state of a virtual port that the subnet manager does not serve: in a guest nothing else shows
// that a function is a virtual one.
func (v view) ofInfiniBand(a rdma.Adapter, p rdma.Port) (cause string, remedy host.Text) {
	identity := v.ofVF(a)
	prepare := host.NewCommand("rdma prepare").Flag("device", identity.pf).Flag("vfs", "N")
	start, manager := host.Plain("on a managed switch, or on one host: apt-get install opensm, systemctl start opensm"), "sminfo -C "+a.Name
	if a.Driver == "hfi1" { // Omni-Path
		start, manager = host.Plain("on one host: dnf install opa-fm, systemctl start opafm"), "opafabricinfo"
	}
	switch {
	case identity.policyDown:
		return ": the policy of this virtual function is Down",
			host.Textf("ip link set IPOIB_INTERFACE vf %d state auto, with the IPoIB interface of %s; or %s, which sets it at every boot",
				identity.index, identity.pf, host.NewCommand("rdma prepare"))
	case a.IsVF() && (hasNoGUID(p) || a.NodeGUID == nil || a.NodeGUID.IsZero()) && v.Record.Value.Of(*a.Address) != nil:
		return ": this virtual function has no GUID", restart
	case a.IsVF() && (hasNoGUID(p) || a.NodeGUID == nil || a.NodeGUID.IsZero()):
		return ": this virtual function has no GUID", host.Textf("%s sets stable GUIDs at every boot; then unbind and bind the function",
			prepare.Flag("for", string(rdma.ForContainers)))
	case hasNoGUID(p):
		return ": its port GUID is zero, so no subnet manager admits it",
			host.Textf("on the hypervisor: %s sets stable GUIDs at every boot; then start the guest again", prepare.Elsewhere())
	case p.State == "DOWN" && p.PhysState == linkUp:
		return ": the link is up, so no cable is missing: the subnet manager does not serve this virtual port, or its policy is Down",
			host.Textf("in opensm.conf: virt_enabled 2; the port's GUID in a partition of partitions.conf; on the hypervisor: %s",
				host.NewCommand("rdma check").Elsewhere())
	case p.State == "DOWN" && p.PhysState == "Disabled":
		return ": the port is disabled", host.Textf("ibportstate -C %s -P %d -D 0 enable", a.Name, p.Number)
	case p.State == "DOWN":
		cause = ": the link does not train"
		if p.PhysState == "Polling" {
			cause = ": no partner: no cable, or the other end is off"
		}
		return cause, host.Plain("check cable and transceiver at both ends, and that the switch port is enabled: iblinkinfo on a host of the fabric")
	case p.State == "INIT" && p.SMLID != nil && *p.SMLID == 0:
		return " with SM LID 0: no subnet manager has configured it", host.Textf("start a subnet manager in the fabric: %s", start)
	case p.State == "INIT":
		return ": the subnet manager has not activated it", host.Plain("see the log of the subnet manager, whose LID is in sm_lid: " + manager)
	case p.State == "ARMED":
		return ": the subnet manager stopped before it made the port ACTIVE",
			host.Plain("restart the subnet manager; its log names the ports that it cannot configure")
	}
	return "", otherCause(a)
}

// unneeded reports whether no record that can be read needs a port of an adapter that is down, and
// another port of the machine is active. What is recorded for a function with two ports is met by
// one of them.
func (v view) unneeded(a rdma.Adapter) bool {
	if a.Address == nil || a.IsVF() {
		return false
	}
	recorded := v.forContainers(a) || v.Record.Value.At(*a.Address) != nil
	if recorded && !slices.ContainsFunc(a.Ports, isActive) {
		return false
	}
	return slices.ContainsFunc(v.Stack.Value.Adapters, func(other rdma.Adapter) bool {
		return other.Address != nil && !other.IsVF() && !other.ManagesNVSwitches() && slices.ContainsFunc(other.Ports, isActive)
	})
}

// unread returns the error of records that cannot be read, and so may need any port.
func (v view) unread() error {
	named := func(file string, err error) error {
		if err == nil {
			return nil
		}
		return errors.New(checklist.WithFile(file, err))
	}
	return errors.Join(named(v.Record.File, v.Record.Err), named(v.Containers.File, v.Containers.Err))
}

// inOneLine returns the text of errors that are joined.
func inOneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

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
